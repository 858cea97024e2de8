"""Pictures of what is measured: rates, quantiles, counts of keys, and what follows from them."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from itertools import pairwise
from random import Random
from typing import Final

from sluicegate.kernels.burn_rate import MINUTE_US, BurnWindows, burn
from sluicegate.kernels.count_min import CountMin, fingerprint
from sluicegate.kernels.moving_rate import MovingRate, TwoSpeedRate
from sluicegate.kernels.p2_quantile import P2Quantile
from sluicegate.kernels.space_saving import SpaceSaving
from sluicegate.kernels.suppression import exact_factor, linear_factor
from sluicegate.kernels.windowed_quantile import WindowedQuantile
from tests.site.concepts.panel import Axis, Drawing, Point, Sheet

SECOND: Final = 1_000_000
TICK: Final = SECOND // 10


def suppression() -> Drawing:
    """What an account is admitted at ten times its limit, by two rules."""
    limit, span, late = 1_000, 120, 5  # ticks until a factor arrives
    accepted_rate, attempted_rate = MovingRate(), TwoSpeedRate()
    linear: list[float] = [0.0] * late
    exact: list[float] = [0.0] * late
    lines: tuple[list[Point], list[Point]] = ([], [])
    for tick in range(span * 10):
        now = tick * TICK
        asked = 1_000 if tick >= 100 else 50  # of 100 that may pass
        passed = [round(asked * (1 - factors[-late])) for factors in (linear, exact)]
        accepted_rate.add(passed[0], now)
        attempted_rate.add(asked, now)
        linear.append(linear_factor(accepted_rate.per_s(now), limit))
        exact.append(exact_factor(attempted_rate.per_s(now), limit))
        for line, count in zip(lines, passed, strict=True):
            line.append((tick / 10, count / 100))
    sheet = Sheet("Suppression: what an account is admitted at ten times its limit", 220)
    panel = sheet.panel("admitted", Axis(span, "seconds"), Axis(11, "limits"))
    panel.bound(1, "the limit")
    panel.steps("b", lines[0], "linear, accepted")
    panel.steps("a", lines[1], "exact, attempted")
    settled = next(x for x, y in lines[1] if x > 10 and y <= 1.01) - 10
    late_linear = [y for x, y in lines[0] if x >= 60]
    rises = [x for (x, y), (_, after) in pairwise(lines[0]) if x > 40 and y == 0.0 < after]
    period = (rises[-1] - rises[0]) / (len(rises) - 1) if len(rises) > 1 else 0.0
    return sheet.drawing(
        "From second 10 on an account attempts ten times its limit; a factor takes half a second "
        "to arrive. The linear factor of what was accepted in 24 s swings between "
        f"{min(late_linear):.1f} and {max(late_linear):.1f} limits every {period:.0f} s; the "
        f"exact factor of what was attempted, at two speeds, is at the limit after {settled:.1f} "
        "s and stays."
    )


def moving_rate() -> Drawing:
    """A step of ten times, up and down."""
    mean, two = MovingRate(), TwoSpeedRate()
    span = 90
    for tick in range(30 * 10):
        mean.add(10, tick * TICK)
        two.add(10, tick * TICK)
    lines: dict[str, list[Point]] = {"attempted": [], "mean": [], "two speeds": []}
    for tick in range(span * 10):
        now = (tick + 30 * 10) * TICK  # it has been so for a while
        asked = 100 if 10 <= tick / 10 < 50 else 10
        mean.add(asked, now)
        two.add(asked, now)
        x = tick / 10
        lines["attempted"].append((x, asked / 10))
        lines["mean"].append((x, mean.per_s(now) / 100))
        lines["two speeds"].append((x, two.per_s(now) / 100))
    sheet = Sheet("Moving rate: a step of ten times", 200)
    panel = sheet.panel("the rate", Axis(span, "seconds"), Axis(12, "times what it was"))
    for kind, points in zip(("quiet", "b", "a"), lines.values(), strict=True):
        panel.steps(kind, points)
    panel.note(52, 10.4, "two speeds, and the mean", "a")
    panel.note(25, 4, "the mean", "b")
    panel.note(52, 1.6, "attempted", "quiet")
    full = [
        next(x for x, y in lines[name] if x > 10 and y >= 9.9) - 10
        for name in ("mean", "two speeds")
    ]
    return sheet.drawing(
        "What is attempted rises ten-fold at second 10 and falls at second 50. The mean over 24 "
        f"s shows it in full after {full[0]:.0f} s, the two-speed form after {full[1]:.0f} s; "
        "both forget it when it has left the window."
    )


def p2_quantile() -> Drawing:
    """The estimate beside the truth, and what it does when the values change."""
    chance = Random(8)
    estimate = P2Quantile(0.95)
    past: list[float] = []
    recent: list[float] = []
    lines: tuple[list[Point], list[Point], list[Point]] = ([], [], [])
    for number in range(1, 4_001):
        value = chance.lognormvariate(2.3, 0.5) * (2 if number > 2_000 else 1)
        estimate.add(value)
        insort(past, value)
        recent.append(value)
        if number % 20 == 0:
            newest = sorted(recent[-500:])
            lines[0].append((number, newest[int(0.95 * (len(newest) - 1))]))
            lines[1].append((number, past[int(0.95 * (len(past) - 1))]))
            lines[2].append((number, estimate.value() or 0.0))
    sheet = Sheet("P2 quantile: the p95 of all that was seen, in five numbers", 200)
    panel = sheet.panel("p95 of latencies", Axis(4_000, "observations"), Axis(60, "milliseconds"))
    panel.line("quiet", lines[0], "last 500")
    panel.line("c", lines[1], "exact")
    panel.line("a", lines[2], "P2")
    off = max(abs(a / b - 1) for (x, a), (_, b) in zip(lines[2], lines[1], strict=True) if x >= 500)
    return sheet.drawing(
        "The p95 of log-normal latencies that double after 2,000 observations. From the 500th on "
        f"the estimate stays within {100 * off:.0f}% of the exact one, which remembers "
        "everything; both are slow to follow what the last 500 say."
    )


def windowed_quantile() -> Drawing:
    """The p95 of the last five seconds beside the truth."""
    chance = Random(8)
    window = WindowedQuantile(5, SECOND)
    past: list[tuple[int, float]] = []
    truth: list[Point] = []
    told: list[Point] = []
    span, per_s = 30, 100
    for number in range(span * per_s):
        now = number * SECOND // per_s
        slow = 10 <= now / SECOND < 18
        value = chance.lognormvariate(2.3, 0.4) * (3 if slow else 1)
        window.add(value * 1_000, now)
        past.append((now, value))
        if number % 10 == 9:
            begin = (now // SECOND - 4) * SECOND
            recent = sorted(each for at, each in past[-6 * per_s :] if at >= begin)
            truth.append((now / SECOND, recent[int(0.95 * (len(recent) - 1))]))
            told.append((now / SECOND, (window.quantile(0.95, now) or 0.0) / 1_000))
    sheet = Sheet("Windowed quantile: the p95 of the last five seconds", 200)
    panel = sheet.panel("latency", Axis(span, "seconds"), Axis(90, "milliseconds"))
    panel.band("quiet", 10, 18, "three times as slow")
    panel.dots("quiet", [(at / SECOND, each) for at, each in past[::15]], "calls")
    panel.line("b", truth, "exact")
    panel.line("a", told, "p95")
    off = max(abs(a / b - 1) for (_, a), (_, b) in zip(told, truth, strict=True))
    high = 2 * truth[80][1]
    up = next(x for x, y in told if x > 10 and y > high) - 10
    down = next(x for x, y in told if x > 18 and y < high) - 18
    return sheet.drawing(
        f"{per_s} calls a second, three times as slow from second 10 to 18. The p95 is never more "
        f"than {100 * off:.1f}% from the exact one of the same five seconds (the lines lie on each "
        f"other); it has doubled {up:.1f} s after the slow-down and falls below that {down:.1f} s "
        "after its end."
    )


def count_min() -> Drawing:
    """Estimates beside the truth."""
    draws = _zipf(500, 1_500)
    table = CountMin(128, sample=2_000)
    for key in draws:
        table.add(fingerprint(key))
    truth = Counter(draws)
    points = [
        (float(count), float(table.estimate(fingerprint(key)))) for key, count in truth.items()
    ]
    # The most frequent ones are right; what is interesting is the rest.
    most = 25
    shown = [point for point in points if point[0] <= most]
    sheet = Sheet("Count-Min: the estimate of each key beside its count", 220)
    panel = sheet.panel("estimates, each dot a key", Axis(most, "counted"), Axis(most))
    panel.line("quiet", [(0, 0), (most, most)], "exact")
    panel.dots("a", shown)
    exact = sum(x == y for x, y in points)
    over = max(y - x for x, y in points)
    low = sum(y < x for x, y in points)
    return sheet.drawing(
        f"{len(draws):,} asks for {len(points)} keys (Zipf) in a table of 4 times 128 bytes: "
        f"{exact} keys are counted exactly, the others at most {over:.0f} too high, and "
        f"{low or 'none'} too low."
    )


def space_saving() -> Drawing:
    """The bounds of the heaviest keys beside the truth."""
    draws = _zipf(2_000, 5_000)
    held = SpaceSaving(40)
    for key in draws:
        held.update(key)
    truth = Counter(draws)
    top = held.top(15)
    sheet = Sheet("Space-Saving: the bounds of the heaviest keys", 200)
    most = max(one.count for one in top) * 1.05
    panel = sheet.panel(
        "the 15 heaviest of 40 counters",
        Axis(15, "keys, by their count", 0, []),
        Axis(most, "asks"),
    )
    for at, one in enumerate(top):
        panel.bar("a", at + 0.2, at + 0.8, one.guaranteed)
        panel.bar("e", at + 0.2, at + 0.8, one.count, one.guaranteed)
        panel.line("b", [(at + 0.1, truth[str(one.key)]), (at + 0.9, truth[str(one.key)])])
    panel.note(6.2, most * 0.85, "guaranteed", "a")
    panel.note(6.2, most * 0.73, "perhaps, that is the error", "e")
    panel.note(6.2, most * 0.61, "the truth", "b")
    right = len({str(one.key) for one in top[:10]} & {key for key, _ in truth.most_common(10)})
    return sheet.drawing(
        f"{len(draws):,} asks for {len(truth):,} keys (Zipf), counted in 40 counters: the truth "
        f"lies between what is guaranteed and the count, and {right} of the ten heaviest are "
        "named."
    )


def burn_rate() -> Drawing:
    """Two windows, and when a page is due."""
    windows = BurnWindows((5 * MINUTE_US, 60 * MINUTE_US))
    begin, end, span = 60, 120, 240
    lines: tuple[list[Point], list[Point]] = ([], [])
    pages: list[float] = []
    for half in range(span * 2):
        now = half * MINUTE_US // 2
        minute = half / 2
        windows.add(20 if begin <= minute < end else 0, 1_000, now)
        burns = [burn(bad, total, 0.001) for bad, total in windows.counts(now)]
        for line, value in zip(lines, burns, strict=True):
            line.append((minute, value))
        if min(burns) > 14.4:
            pages.append(minute)
    sheet = Sheet("Burn rate: two windows, and when a page is due", 200)
    panel = sheet.panel("burn rate", Axis(span, "minutes"), Axis(25, "times what is allowed"))
    panel.band("b", pages[0], pages[-1], "page")
    panel.bound(14.4, "14.4")
    panel.steps("c", lines[0], "")
    panel.steps("a", lines[1], "")
    panel.note(66, 20.6, "5 minutes", "c")
    panel.note(150, 10, "1 hour", "a")
    return sheet.drawing(
        "From minute 60 to 120 one call in fifty fails, with an objective of 99.9%: the short "
        f"window shows it at once, the long one says {pages[0] - begin:.0f} minutes later that it "
        f"matters, and the page ends {pages[-1] + 0.5 - end:.1f} minutes after the failures, when "
        "the short one has forgotten them."
    )


def _zipf(keys: int, draws: int) -> list[str]:
    chance = Random(10)
    weights = [1 / rank for rank in range(1, keys + 1)]
    return chance.choices([f"key-{rank}" for rank in range(keys)], weights, k=draws)
