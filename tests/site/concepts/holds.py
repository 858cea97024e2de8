"""Pictures of what is held for a while: permits, blocks, and one instant for every rate."""

from __future__ import annotations

from typing import Final

from sluicegate.kernels.cell_throttle import quota, step
from sluicegate.kernels.leased_block import LeasedBlock
from sluicegate.kernels.permits import PermitSet
from tests.site.concepts.panel import Axis, Drawing, Point, Sheet

SECOND: Final = 1_000_000


def cell_throttle() -> Drawing:
    """One key, asked at one rate and then at another: how far it is ahead."""
    quick, slow = quota(4, 10, 1, 1), quota(1, 2, 1, 1)  # 10 a second, 5 at once; 2 a second, 2
    asks = {200 + at for at in range(8)} | {1_000 + at * 50 for at in range(20)}
    later = {2_000 + at * 250 for at in range(12)}
    tat = 0
    ahead: list[Point] = []
    marks: dict[bool, list[Point]] = {False: [], True: []}
    for at in sorted({*asks, *later, *range(0, 5_000, 20)}):
        if at in asks or at in later:
            ask = quick if at < 2_000 else slow
            tat, limited, _, _, _ = step(tat, at * SECOND, *ask)
            marks[limited].append((at / 1_000, 1_050.0 if limited else 1_150.0))
        ahead.append((at / 1_000, max(tat - at * SECOND, 0) / SECOND))
    sheet = Sheet("Cell throttle: one key, and a rate with each ask", 220)
    panel = sheet.panel("how far the key is ahead", Axis(5, "seconds"), Axis(1_350, "milliseconds"))
    panel.band("quiet", 2, 5, "asked at 2 a second, 2 at once")
    panel.area("a", ahead)
    panel.line("a", ahead, "ahead")
    panel.dots("a", marks[False], f"{len(marks[False])} pass")
    panel.dots("b", marks[True], f"{len(marks[True])} limited")
    passed = [sum(x >= 2 for x, _ in points) for points in marks.values()]
    return sheet.drawing(
        "Until second 2 the key is asked at 10 a second and 5 at once, and is never more than "
        f"{max(y for x, y in ahead if x < 2):.0f} ms ahead; then 4 times a second at 2 a "
        f"second and 2 at once, which goes on from there: {passed[0]} pass and {passed[1]} are "
        "limited, and each that passes puts the key half a second further ahead."
    )


def leased_block() -> Drawing:
    """What is left of a block while the pace changes."""
    block = LeasedBlock()
    left: list[Point] = []
    asks = blocks = lost = largest = 0
    for at in range(0, 8 * SECOND, 1_000):
        pace = 100 if at < 3 * SECOND else 1_000 if at < 6 * SECOND else 0
        if pace and at % (SECOND // pace) == 0:
            asks += 1
            if not block.spend(1, at):
                lost += block.lapsed
                size = block.next_size(at, SECOND // 10, 1, 500)
                block.fill(size - 1, 1, at, SECOND)
                blocks += 1
                largest = max(largest, size)
        if at % 10_000 == 0:
            left.append((at / SECOND, float(block.expire(at))))
    lost += block.lapsed
    sheet = Sheet("Leased block: what is left of it", 200)
    most = max(y for _, y in left)
    panel = sheet.panel("units held locally", Axis(8, "seconds"), Axis(most * 1.25))
    panel.band("quiet", 0, 3, "100 asks a second")
    panel.band("a", 3, 6, "1,000 a second")
    panel.band("quiet", 6, 8, "none")
    panel.steps("a", left)
    return sheet.drawing(
        "A key is asked for 100 times a second, then 1,000 times, then not at all; a block is to "
        f"last 100 ms and lives for one second. Of {asks:,} asks {blocks} go to the owner, for "
        f"blocks that grow from 1 to {largest} as the pace does; "
        f"{lost} units die with their blocks."
    )


def permits() -> Drawing:
    """Who holds a place, who is refused, and a release that comes too late."""
    places = PermitSet(2, 10 * SECOND)
    rows = ["A", "B", "C", "D"]
    begun: dict[str, float] = {}
    spans: list[tuple[str, float, float, str]] = []  # who, from, until, kind
    refused: list[tuple[str, float]] = []
    waits: list[float] = []
    void: list[tuple[str, float]] = []
    story = (
        (0, "acquire", "A"), (2, "acquire", "B"), (4, "acquire", "C"), (8, "renew", "B"),
        (10, "acquire", "C"), (12, "release", "A"), (13, "acquire", "D"), (16, "release", "B"),
        (17, "acquire", "D"), (19, "release", "C"), (24, "release", "D"),
    )  # fmt: skip
    for second, act, who in story:
        now = second * SECOND
        if act == "acquire":
            verdict = places.acquire(who, 1, now)
            if verdict.allowed:
                begun[who] = second
            else:
                refused.append((who, second))
                waits.append(verdict.retry_after_us / SECOND)
        elif act == "renew":
            places.renew(who, now)
        elif places.release(who, now):
            spans.append((who, begun[who], second, "a"))
        else:
            spans.append((who, begun[who], begun[who] + 10, "a"))
            void.append((who, second))
    sheet = Sheet("Permits: who holds one of two places", 130)
    panel = sheet.panel(
        "held, each for 10 s unless it is renewed or released",
        Axis(26, "seconds"),
        Axis(len(rows), "", 0, [(3.5 - at, who) for at, who in enumerate(rows)]),
    )
    for who, begin, end, kind in spans:
        low = 3 - rows.index(who)
        panel.bar(kind, begin, end, low + 0.75, low + 0.25)
    panel.dots("b", [(at, 3.5 - rows.index(who)) for who, at in refused])
    panel.dots("quiet", [(at, 3.5 - rows.index(who)) for who, at in void])
    for who, at in refused:
        panel.note(at + 0.3, 3.65 - rows.index(who), "refused", "b")
    for who, at in void:
        panel.note(at + 0.3, 3.4 - rows.index(who), "released too late", "quiet")
    after = " and ".join(f"{wait:.0f}" for wait in waits)
    return sheet.drawing(
        "A dies and releases nothing; its permit ends after 10 s, and C has its place. That A is "
        f"released at second {void[0][1]} is void and frees nobody else's. B is renewed at second "
        f"8 and holds longer. Who is refused hears that a place will have expired in {after} s "
        "at the latest."
    )
