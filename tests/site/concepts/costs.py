"""Pictures of costs and quotas: what work is charged, and who gets how much."""

from __future__ import annotations

from math import pi, sin
from random import Random
from typing import Final

from sluicegate.kernels.call_plan import call_odds
from sluicegate.kernels.cost_model import CostEstimate, read_weights
from sluicegate.kernels.key_span import KeySpan
from sluicegate.kernels.lending import QuotaClaim, share_out
from sluicegate.kernels.quota_tuning import propose
from tests.site.concepts.panel import Axis, Drawing, Point, Sheet

MILLI: Final = 1_000


def call_plan() -> Drawing:
    """How often a call fails in the end, by how often one attempt does."""
    cases = (
        ("quiet", "one attempt", 1, 0.0, 10.0),
        ("b", "half of it lasts", 3, 0.5, 10.0),
        ("c", "budget of 10%", 3, 0.0, 0.1),
        ("a", "three attempts", 3, 0.0, 10.0),
    )
    sheet = Sheet("Call plan: how often a call fails in the end", 220)
    panel = sheet.panel(
        "calls that fail", Axis(50, "% of single attempts fail"), Axis(55, "percent")
    )
    at_20: dict[str, float] = {}
    for kind, name, attempts, lasting, budget in cases:
        points = []
        for percent in range(51):
            odds = call_odds(percent / 100, attempts, lasting=lasting, budget=budget)
            points.append((float(percent), 100 * odds.failure))
        at_20[name] = points[20][1]
        panel.line(kind, points, name)
    return sheet.drawing(
        f"Where one attempt in five fails, three attempts leave {at_20['three attempts']:.1f}% "
        f"failed; with a retry budget of 10% of the calls {at_20['budget of 10%']:.1f}%, and where "
        "half of the failures last, so that no repeat mends them, "
        f"{at_20['half of it lasts']:.1f}%."
    )


def cost_model() -> Drawing:
    """The predicted cost of a read that finds three times the bytes."""
    chance = Random(5)
    weights = read_weights(0.001, 0.2, 0.05)
    estimate = CostEstimate()
    change, span, claimed = 500, 1_500, 40
    truth: list[Point] = []
    predicted: list[Point] = []
    for number in range(span):
        size = 24_000 if number >= change else 8_000
        found = round(size * chance.lognormvariate(-0.02, 0.2))
        estimate.learn(claimed, 0, claimed, found)
        if number % 5 == 0:
            truth.append((float(number), weights.cost_mru(claimed, size, 0.0) / MILLI))
            mru = estimate.predict_mru(weights, claimed, 0)
            predicted.append((float(number), mru / MILLI))
    sheet = Sheet("Cost model: a read finds three times the bytes", 200)
    panel = sheet.panel("what a read of 40 rows costs", Axis(span, "requests"), Axis(36, "RU"))
    panel.steps("quiet", truth, "true cost")
    panel.line("a", predicted, "predicted")
    near = next(
        x for (x, y), (_, true_ru) in zip(predicted, truth, strict=True)
        if x >= change and abs(y / true_ru - 1) < 0.05
    )  # fmt: skip
    return sheet.drawing(
        f"After {change} requests a read finds 24,000 bytes instead of 8,000, which scatter by a "
        f"fifth. The prediction is within 5% of the true cost {near - change:.0f} requests later."
    )


def key_span() -> Drawing:
    """The estimates of ranges beside the truth."""
    chance = Random(7)
    # Denser towards the end: the square root of an even draw.
    numbers = {int(100_000 * chance.random() ** 0.5) for _ in range(4_000)}
    written = [f"item:{number:06d}".encode() for number in sorted(numbers)]
    span = KeySpan()
    for key in written:
        span.write(key)
    keys = sorted(chance.sample(written, len(written) // 3))  # the others were removed

    def ranges() -> list[Point]:
        points: list[Point] = []
        again = Random(9)
        for _ in range(60):
            low, high = sorted(again.sample(range(len(keys)), 2))
            points.append((float(high - low), float(span.rows_between(keys[low], keys[high]))))
        return points

    before = ranges()
    for _ in range(8):
        low = chance.randrange(len(keys) - 100)
        met = keys[low : low + 100]
        span.scan(met[0], met[-1], met, len(met))
    after = ranges()
    sheet = Sheet("Key span: the estimate of each range beside its rows", 220)
    most = len(keys)
    panel = sheet.panel("estimated rows, each dot a range", Axis(most, "rows"), Axis(most * 3.2))
    panel.line("quiet", [(0, 0), (most, most)], "exact")
    panel.dots("b", before)
    panel.dots("a", after)
    panel.note(most * 0.03, most * 2.9, "told by the keys that were written", "b")
    panel.note(most * 0.03, most * 2.6, "after eight scans", "a")
    off = [
        max(max(y / x, x / max(y, 1)) for x, y in points if x >= 100) for points in (before, after)
    ]
    return sheet.drawing(
        f"{len(written):,} keys of digits were written, thicker towards the end, and two thirds "
        f"removed again. Ranges of 100 rows and more are estimated up to {off[0]:.1f} times too "
        "high from what was written; after eight scans of 100 rows, which meet what is there, "
        f"within a factor of {off[1]:.1f}."
    )


def lending() -> Drawing:
    """What two children get of an amount, epoch by epoch."""
    amount, kept = 1_000, 100
    lines: list[list[Point]] = [[], []]
    wanted: list[Point] = []
    demands = [100] * 10 + [400] * 10 + [0] * 10
    known = demands[0]
    for epoch, demand in enumerate(demands):
        claims = [QuotaClaim(600, 1_000, 600, 2_000), QuotaClaim(400, 1_000, 400, known)]
        for line, part in zip(lines, share_out(amount, claims, kept), strict=True):
            line.append((float(epoch), float(part)))
        wanted.append((float(epoch), float(demand)))
        known = demand
    sheet = Sheet("Lending: what each of two gets of 1,000", 220)
    panel = sheet.panel("units of an epoch", Axis(30, "epochs"), Axis(1_100))
    for kind, line, name in (("a", lines[0], "guests"), ("c", lines[1], "hosts")):
        panel.steps(kind, [*line, (30, line[-1][1])], name)
    panel.steps("quiet", [*wanted, (30, wanted[-1][1])], "hosts ask for")
    panel.bound(600, "guaranteed")
    first, back, none = (f"{lines[0][at][1]:.0f}" for at in (5, 15, 25))
    return sheet.drawing(
        "Guests, guaranteed 600, always want 2,000; hosts, guaranteed 400, ask for 100, then for "
        f"400, then for nothing. Guests have {first}, one epoch after hosts came back {back}, and "
        f"{none} while hosts are away: a tenth of a guarantee ({lines[1][25][1]:.0f}) is "
        "never lent."
    )


def quota_tuning() -> Drawing:
    """Thirty days of usage, and the quota they suggest."""
    chance = Random(13)
    usage: list[int | None] = []
    for day in range(35):
        for hour in range(24):
            week = 0.6 if day % 7 >= 5 else 1.0
            level = 60 + 90 * max(0.0, sin((hour - 6) / 12 * pi / 1.2)) * week
            usage.append(round(level * (1 + 0.004 * day) * chance.lognormvariate(0, 0.08)))
    wild = 17 * 24 + 3
    usage[wild] = 480
    usage[20 * 24 : 21 * 24] = [None] * 24
    proposal = propose(usage)
    plain = propose([None if at == wild else one for at, one in enumerate(usage)])
    sheet = Sheet("Quota tuning: five weeks of usage, and what they suggest", 220)
    panel = sheet.panel("usage of each hour", Axis(35, "days"), Axis(520))
    run: list[Point] = []
    for at, one in enumerate([*usage, None]):
        if one is not None:
            run.append((at / 24, float(one)))
        elif run:
            panel.line("a", run, thin=True)
            run = []
    panel.bound(float(proposal.quota or 0), f"proposed: {proposal.quota}")
    panel.note(wild / 24 + 0.4, 470, "one wild hour")
    panel.note(20.0, 30, "gap")
    return sheet.drawing(
        f"“{proposal.reason}” Without the wild hour the proposal is {plain.quota}."
    )
