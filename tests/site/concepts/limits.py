"""Pictures of limits: what buckets and windows admit of the same asks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from sluicegate.kernels.fixed_window import FixedWindow
from sluicegate.kernels.gcra import Gcra
from sluicegate.kernels.sliding_window import SlidingCells, SlidingLog, SlidingWindow
from sluicegate.kernels.token_bucket import TokenBucket
from sluicegate.kernels.verdict import Verdict
from tests.site.concepts.panel import Axis, Drawing, Point, Sheet

SECOND = 1_000_000
MINUTE = 60 * SECOND
EPOCH = 1_000 * MINUTE  # virtual time begins at a whole minute


class Limit(Protocol):
    """What is asked."""

    def take(self, cost: int, now_us: int) -> Verdict: ...


def gcra() -> Drawing:
    """A burst, then twice the rate: how far the schedule runs ahead of the clock."""
    bucket = Gcra(10, SECOND, burst=5)
    asks = [200_000 + at * 1_000 for at in range(8)]
    asks += [SECOND + at * 50_000 for at in range(20)]
    ahead: list[Point] = []
    marks: dict[bool, list[Point]] = {True: [], False: []}
    for at in sorted({*asks, *range(0, 3 * SECOND, 10_000)}):
        if at in asks:
            verdict = bucket.take(1, EPOCH + at)
            marks[verdict.allowed].append((at / SECOND, 650.0 if verdict.allowed else 590.0))
        ahead.append((at / SECOND, bucket.take(0, EPOCH + at).reset_after_us / 1_000))
    sheet = Sheet("GCRA: how far the schedule is ahead of the clock", 220)
    panel = sheet.panel(
        "how far TAT is ahead of now", Axis(3, "seconds"), Axis(700, "milliseconds")
    )
    panel.area("a", ahead)
    panel.line("a", ahead, "ahead")
    panel.bound(500, "burst at once")
    panel.dots("a", marks[True], f"{len(marks[True])} admitted")
    panel.dots("b", marks[False], f"{len(marks[False])} refused")
    early = sum(x < 1 for x, _ in marks[True])
    late = len(marks[True]) - early
    return sheet.drawing(
        f"With 10 units a second and 5 at once, of 8 units that come together {early} are "
        f"admitted; of 20 a second from second 1 on, {late} in that second. Each pushes the "
        "schedule 100 ms ahead, and nothing is admitted that would push it past 500 ms."
    )


def token_bucket() -> Drawing:
    """A unit dearer than the bucket, a debt, and a price of two."""
    bucket = TokenBucket(10, SECOND, 20, debt_max=20)
    level: list[Point] = []
    refused: list[Point] = []
    for at in range(0, 14 * SECOND, 25_000):
        now = EPOCH + at
        cost = 35 if at == 2 * SECOND else 1 if at >= 3 * SECOND and at % 125_000 == 0 else 0
        price = 2_000 if 7 * SECOND <= at < 12 * SECOND else 1_000
        if cost and not bucket.take(cost, now, price).allowed:
            refused.append((at / SECOND, 23.0))
        level.append((at / SECOND, 20 - bucket.take(0, now).reset_after_us / 100_000))
    sheet = Sheet("Token bucket: the tokens it holds", 240)
    panel = sheet.panel(
        "10 a second, at most 20",
        Axis(14, "seconds"),
        Axis(32, "tokens", -20, [(at, f"{at}") for at in (-20, -10, 0, 10, 20)]),
    )
    panel.band("quiet", 7, 12, "the price is 2")
    panel.bound(0, "empty")
    panel.line("a", level, "tokens")
    panel.dots("b", refused, f"{len(refused)} refused")
    deepest = min(y for _, y in level)
    return sheet.drawing(
        "Of 10 tokens a second and at most 20, a unit that costs 35 is admitted from the full "
        f"bucket at second 2 and leaves it at {deepest:.0f}; the 8 units a second that come from "
        "second 3 on are refused until that is paid back. They fit in the refill at a price of "
        "1, and no longer from second 7 to 12, at a price of 2."
    )


def _held(limit: Limit, asks: Sequence[int], window: int) -> tuple[list[Point], int]:
    """What was admitted in the last window, at each instant; and in all."""
    held: deque[int] = deque()
    points: list[Point] = []
    total = 0
    for at in asks:
        if limit.take(1, EPOCH + at).allowed:
            held.append(at)
            total += 1
        while held[0] <= at - window:
            held.popleft()
        points.append((at / SECOND, float(len(held))))
    return points, total


def _windows(title: str, kinds: Sequence[tuple[str, str, Limit]], asks: Sequence[int]) -> Sheet:
    sheet = Sheet(title, 220)
    panel = sheet.panel(
        "admitted in the last 60 seconds, of 100 a minute", Axis(180, "seconds"), Axis(200)
    )
    for minute in (60, 120):
        panel.line("quiet", [(minute, 0), (minute, 200)], thin=True)
    panel.bound(100, "the limit")
    for kind, name, limit in kinds:
        points, _ = _held(limit, asks, MINUTE)
        panel.steps(kind, points, name)
    return sheet


def _peak(make: Callable[[], Limit], asks: Sequence[int]) -> int:
    return int(max(y for _, y in _held(make(), asks, MINUTE)[0]))


EDGE = [at * 20_000 for at in range(58 * 50, 62 * 50)]  # 50 a second around the minute
EVERY_SECOND = [at * SECOND + SECOND // 2 for at in range(180)]


def fixed_window() -> Drawing:
    """The double burst at the edge."""
    asks = sorted({*EVERY_SECOND, *EDGE})
    sheet = _windows(
        "Fixed window: twice the limit around the edge",
        [
            ("b", "fixed window", FixedWindow(100, MINUTE)),
            ("a", "sliding log", SlidingLog(100, MINUTE)),
        ],
        asks,
    )
    return sheet.drawing(
        "One unit a second comes, and 50 a second in the two seconds before and after second 60: "
        "with 100 a minute a fixed window admits up to "
        f"{_peak(lambda: FixedWindow(100, MINUTE), asks)} in 60 seconds, and a sliding one "
        f"{_peak(lambda: SlidingLog(100, MINUTE), asks)}."
    )


def sliding_window() -> Drawing:
    """The three forms, where the previous window was uneven."""
    asks = [*range(45 * SECOND, 60 * SECOND, 100_000), *range(60 * SECOND, 180 * SECOND, 500_000)]
    forms: list[tuple[str, str, Callable[[], Limit]]] = [
        ("b", "counter", lambda: SlidingWindow(100, MINUTE)),
        ("c", "10 cells", lambda: SlidingCells(100, MINUTE)),
        ("a", "log", lambda: SlidingLog(100, MINUTE)),
    ]
    sheet = _windows(
        "Sliding window: three forms after an uneven minute",
        [(kind, name, make()) for kind, name, make in forms],
        asks,
    )
    counter, cells, log = (_peak(make, asks) for _, _, make in forms)
    return sheet.drawing(
        "Ten units a second come in the last quarter of a minute, and then two a second. The "
        "counter supposes that they came evenly, lets go of them too early and holds up to "
        f"{counter} units in 60 seconds, the cells {cells}, and the log never more than its limit "
        f"of {log}."
    )
