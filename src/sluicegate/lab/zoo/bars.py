"""Bars: what the product must reach in each shape, and over all shapes.

A bar names what is compared; `at_least` says on which side of the target is good. The product is
judged twice: with its limit known, from the first request on, and with its limit found, from ten
seconds after the onset of the overload on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Final, NamedTuple

from sluicegate.lab.measures import quantile
from sluicegate.lab.zoo.outcome import BUCKET_US, ShapeOutcome, total
from sluicegate.lab.zoo.play import FOUND, KNOWN, ORACLE, PRODUCT, key_of
from sluicegate.lab.zoo.shape import HIDDEN, SECOND_US, SERVICE, SETTLED_US, ZooShape
from sluicegate.lab.zoo.simple import SIMPLE

NOTHING: Final = "nothing"
OF_ORACLE: Final = "of oracle"
CRITICAL: Final = "CRITICAL"
FLEET: Final = {1: 0.9, 4: 0.85, 16: 0.85, 64: 0.75}  # of the slow shard, by dispatchers
PATIENCE: Final = {KNOWN: 2.0, FOUND: 4.0}  # in means of the work, at least
ENDS_PER_S: Final = 10
_RECOVERED: Final = 0.9  # of what the oracle serves in the same second
_ASKED_MIN: Final = 10
_COMMAND_SHARE: Final = 0.02


class BarFinding(NamedTuple):
    """The value of one bar in one shape, and its target."""

    bar: str
    value: float
    target: float
    at_least: bool = True

    @property
    def margin(self) -> float:
        """How far on the good side of the target it is."""
        return (self.value - self.target) * (1 if self.at_least else -1)

    @property
    def met(self) -> bool:
        """Whether the target is reached."""
        return self.margin >= 0


class Judged(NamedTuple):
    """One shape played by the product with its limit known or found."""

    shape: ZooShape
    mode: str
    outcomes: Mapping[str, ShapeOutcome]
    findings: tuple[BarFinding, ...]

    @property
    def product(self) -> ShapeOutcome:
        """The outcome of the product."""
        return self.outcomes[self.mode]

    @property
    def window_us(self) -> tuple[int, int]:
        """Which requests count, by arrival."""
        return window_of(self.shape, self.mode)

    def best(self) -> tuple[str, int]:
        """Return the best simple baseline, and its useful work."""
        return best_of(self.shape, self.outcomes, self.window_us)

    def missed(self) -> list[BarFinding]:
        """Return the bars that are missed."""
        return [one for one in self.findings if not one.met]


def window_of(shape: ZooShape, mode: str) -> tuple[int, int]:
    """Return the part of a run that counts."""
    begin_us = shape.onset_us + SETTLED_US
    searching = mode == FOUND and shape.overload and not shape.limit and not shape.command
    if searching and begin_us + 2 * SECOND_US < shape.until_us:
        return begin_us, shape.until_us
    return 0, shape.until_us


def useful(shape: ZooShape, found: ShapeOutcome, window_us: tuple[int, int]) -> int:
    """Return the work that was answered in time, under overload by its end, else by arrival."""
    return total(found.done_us if shape.overload else found.useful_us, *window_us)


def best_of(
    shape: ZooShape, outcomes: Mapping[str, ShapeOutcome], window_us: tuple[int, int]
) -> tuple[str, int]:
    """Return the simple candidate with the most useful work, and that work."""
    found = {name: useful(shape, outcomes[name], window_us) for name in SIMPLE if name in outcomes}
    name = max(found, key=lambda one: found[one], default="")
    return name, found.get(name, 0)


def judge(shape: ZooShape, outcomes: Mapping[str, ShapeOutcome]) -> list[Judged]:
    """Judge what the product did in a shape, with its limit known and found as far as played."""
    found = []
    for mode in PRODUCT:
        if mode in outcomes:
            findings = () if shape.limit else tuple(_findings(shape, mode, outcomes))
            found.append(Judged(shape, mode, outcomes, findings))
    return found


class ZooBar(NamedTuple):
    """One bar over the shapes that it applies to."""

    name: str
    mode: str
    worst: BarFinding
    where: str  # the shape of the worst
    met: int
    shapes: int


def judge_all(judged: Sequence[Judged]) -> list[ZooBar]:
    """Return each bar over its shapes, and how near the oracle the product is in overload."""
    rows: dict[tuple[str, str], list[tuple[BarFinding, str]]] = {}
    for row in judged:
        for one in row.findings:
            rows.setdefault((one.bar, row.mode), []).append((one, key_of(row.shape)))
    found = []
    for (name, mode), every in sorted(rows.items()):
        if name == OF_ORACLE:
            ratios = [one.value for one, _ in every]
            for share, target in ((0.5, 0.99), (0.05, 0.90)):
                one = BarFinding(name, quantile(ratios, share), target)
                text = f"{name}, {'median' if share == 0.5 else '5th percentile'}"
                found.append(ZooBar(text, mode, one, "", int(one.met), 1))
            continue
        worst, where = min(every, key=lambda pair: pair[0].margin)
        met = sum(one.met for one, _ in every)
        found.append(ZooBar(name, mode, worst, where, met, len(every)))
    return found


def _findings(shape: ZooShape, mode: str, outcomes: Mapping[str, ShapeOutcome]) -> list[BarFinding]:
    ours, window_us = outcomes[mode], window_of(shape, mode)
    nothing = useful(shape, outcomes[NOTHING], window_us)
    ratio = _over(useful(shape, ours, window_us), nothing)
    found = []
    if shape.command:
        found += _command(shape, ours, outcomes)
    elif shape.slow_shard >= 0:
        found += _fleet(shape, mode, ours, outcomes)
    elif not shape.overload:
        target = 0.999 if shape.ordinary else 0.99
        found.append(BarFinding("of nothing", ratio, target))
    elif _in_bounds(shape, mode, outcomes[ORACLE]):
        found += _overload(shape, mode, ours, outcomes)
    elif mode == FOUND:
        found.append(BarFinding("of nothing", ratio, 0.99))
    if restored_us := shape.restored_us():
        value = _recovery_s(shape, ours, outcomes[ORACLE], restored_us)
        found.append(BarFinding("recovery, s", value, 1.0, False))
    late_ms = (ours.settled_late_us if window_us[0] else ours.refusal_late_us) / 1_000
    found.append(BarFinding("refusal after it was inevitable, p99, ms", late_ms, 50, False))
    found.append(BarFinding("refusal / patience, p99", ours.refusal_patience, 1, False))
    if shape.family == SERVICE:
        found.append(BarFinding("health, ms", ours.health_us / 1_000, 100, False))
    return found


def _in_bounds(shape: ZooShape, mode: str, oracle: ShapeOutcome) -> bool:
    """Whether the targets of an overload apply."""
    patience = min(kind.patience_of() / kind.work.mean_us for kind in shape.traffic)
    if patience < PATIENCE[mode]:
        return False
    if mode == KNOWN:
        return True
    told = all(kind.patience_us and kind.tells != HIDDEN for kind in shape.traffic)
    served = sum(map(sum, oracle.served.values()))
    return told and served >= ENDS_PER_S * shape.until_us / SECOND_US


def _overload(
    shape: ZooShape, mode: str, ours: ShapeOutcome, outcomes: Mapping[str, ShapeOutcome]
) -> list[BarFinding]:
    window_us, oracle = window_of(shape, mode), outcomes[ORACLE]
    done = useful(shape, ours, window_us)
    found = [
        BarFinding("of best simple", _over(done, best_of(shape, outcomes, window_us)[1]), 0.95),
        BarFinding(OF_ORACLE, _over(done, useful(shape, oracle, window_us)), -inf),
    ]
    if CRITICAL in ours.offered and len(ours.offered) > 1:
        critical = ours.share(CRITICAL, *window_us) / max(oracle.share(CRITICAL, *window_us), 1e-9)
        found.append(BarFinding("CRITICAL of oracle", critical, 0.98))
    if mode == FOUND:
        early_us = shape.onset_us, shape.onset_us + SETTLED_US
        none = useful(shape, outcomes[NOTHING], early_us)
        early = _over(useful(shape, ours, early_us), none)
        found.append(BarFinding("of nothing, first 10 s", early, 0.99))
    return found


def _fleet(
    shape: ZooShape, mode: str, ours: ShapeOutcome, outcomes: Mapping[str, ShapeOutcome]
) -> list[BarFinding]:
    window_us, oracle = window_of(shape, mode), outcomes[ORACLE]
    slow, best = (total(one.slow_us, *window_us) for one in (ours, oracle))
    of = f"slow {CRITICAL}"
    critical = ours.share(of, *window_us) / max(oracle.share(of, *window_us), 1e-9)
    return [
        BarFinding("of slow shard", _over(slow, best), FLEET[shape.dispatchers]),
        BarFinding("CRITICAL of slow shard", critical, 0.85),
    ]


def _command(
    shape: ZooShape, ours: ShapeOutcome, outcomes: Mapping[str, ShapeOutcome]
) -> list[BarFinding]:
    window_us = 0, shape.until_us
    done, best = useful(shape, ours, window_us), best_of(shape, outcomes, window_us)[1]
    possible = min(total(ours.offered_us), shape.slots * shape.until_us)
    found = [BarFinding("of best column", (done - best) / possible, -_COMMAND_SHARE)]
    if len(ours.offered) > 1:
        lead = ours.share(CRITICAL) - ours.share("DEGRADED")
        found.append(BarFinding("CRITICAL above DEGRADED", lead, 0))
    return found


def _recovery_s(
    shape: ZooShape, ours: ShapeOutcome, oracle: ShapeOutcome, restored_us: int
) -> float:
    """Return how long after its last incident the product serves less than it could, in seconds."""
    last_us = restored_us
    for begin_us in range(restored_us, shape.until_us - SECOND_US, BUCKET_US):
        window_us = begin_us, begin_us + SECOND_US
        asked = sum(total(one, *window_us) for one in ours.offered.values())
        enough = _RECOVERED * oracle.share("", *window_us)
        if asked >= _ASKED_MIN and ours.share("", *window_us) < enough:
            last_us = begin_us + BUCKET_US
    return (last_us - restored_us) / SECOND_US


def _over(value: float, whole: float) -> float:
    return value / whole if whole else 1.0
