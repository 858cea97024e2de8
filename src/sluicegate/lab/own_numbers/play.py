"""Playing a station of one's own: what ships, any baseline, and what became of each class.

Every candidate of a seed meets the same requests at the same instants. What arrives in the first
two seconds is served and not counted; what arrives later is, and is waited for to its end, so that
whoever was never answered counts as not answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

from sluicegate.command_line.process_pool import process_pool
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.lab.arrivals import Replay
from sluicegate.lab.ledger import BUCKET_US, RunLedger
from sluicegate.lab.measures import quantile
from sluicegate.lab.own_numbers.numbers import WARM_US, OwnNumbers
from sluicegate.lab.random_source import RandomSource
from sluicegate.lab.rig import Rig, WorkKind
from sluicegate.lab.rigs.shipped import SHIPPED
from sluicegate.lab.station_candidates import ALL, StationCandidate

CALLERS: Final = 200  # of each class
REFUSAL_COST: Final = 0.01  # of a unit of work, as in the scenario `overload`
CANDIDATES: Final[dict[str, StationCandidate]] = {**SHIPPED, **ALL}


@final
@dataclass(slots=True)
class ClassCounts:
    """What became of the requests of one class; times in microseconds, from arrival."""

    offered: int = 0
    in_time: int = 0
    late: int = 0
    refused: int = 0
    waits_us: list[int] = field(default_factory=list)
    refusals_us: list[int] = field(default_factory=list)

    def add(self, other: ClassCounts) -> None:
        """Add those of another run."""
        self.offered += other.offered
        self.in_time += other.in_time
        self.late += other.late
        self.refused += other.refused
        self.waits_us += other.waits_us
        self.refusals_us += other.refusals_us


@final
@dataclass(frozen=True, slots=True)
class OwnRun:
    """One run of one candidate."""

    candidate: str
    seed: int
    goodput: float
    queue_peak: int
    classes: dict[Criticality, ClassCounts]

    def figures(self) -> dict[str, float]:
        """What goals are about, in shares and milliseconds."""
        found = {"goodput": self.goodput, **times_ms(list(self.classes.values()))}
        for of, one in self.classes.items():
            found[of.name] = one.in_time / one.offered if one.offered else 0.0
        return found


def times_ms(classes: Sequence[ClassCounts]) -> dict[str, float]:
    """The quantiles of all classes together, as `measures` has them."""
    waits = [us for one in classes for us in one.waits_us]
    refusals = [us for one in classes for us in one.refusals_us]
    return {
        "p50_ms": quantile(waits, 0.5) / 1_000,
        "p99_ms": quantile(waits, 0.99) / 1_000,
        "refused_p99_ms": quantile(refusals, 0.99) / 1_000 if refusals else 0.0,
    }


def check_candidates(numbers: OwnNumbers) -> None:
    """Refuse a name that nobody has."""
    known = ", ".join(CANDIDATES)
    if numbers.ours not in CANDIDATES:
        raise BadValue(numbers.place("as"), numbers.ours, f"give one of {known}")
    for name in numbers.others:
        if name not in CANDIDATES:
            raise BadValue(numbers.place("with"), name, f"give one of {known}, or none alone")


def rig_of(numbers: OwnNumbers, seed: int) -> Rig:
    """Return the rig of a seed: for each class its requests that are not counted, and those that
    are."""
    source = RandomSource(seed)
    classes = list(numbers.mix)
    counted: dict[Criticality, list[int]] = {of: [] for of in classes}
    before: dict[Criticality, list[int]] = {of: [] for of in classes}
    pick = source.of("mix").draw
    for at_us in numbers.instants_us(source.of("arrivals")):
        drawn = pick()
        for of in classes:
            drawn -= numbers.mix[of]
            if drawn < 0:
                break
        (before if at_us < WARM_US else counted)[of].append(at_us)
    kinds = [
        WorkKind(
            name=f"{of.name.lower()}{mark}",
            arrivals=Replay(tuple(instants[of])),
            criticality=of,
            timeout_us=numbers.patience_us(of),
            callers=CALLERS,
            operation="get",
        )
        for mark, instants in (("", counted), ("-before", before))
        for of in classes
    ]
    longest_us = max(map(numbers.patience_us, classes))
    return Rig(
        kinds=tuple(kinds),
        workers=numbers.workers,
        service=numbers.service,
        refusal_cost=REFUSAL_COST,
        span_us=WARM_US + numbers.counted_us + longest_us,
        warm_us=0,
    )


def play_once(numbers: OwnNumbers, candidate: str, seed: int) -> OwnRun:
    """Play one run."""
    ledger: RunLedger = CANDIDATES[candidate].run(rig_of(numbers, seed), seed)
    classes = {}
    for of, row in zip(numbers.mix, ledger.by_kind, strict=False):  # those counted come first
        classes[of] = ClassCounts(
            row.offered, row.good, row.late, row.refused, row.good_us, row.refused_us
        )
    begin, end = WARM_US // BUCKET_US, (WARM_US + numbers.counted_us) // BUCKET_US
    useful_us = sum(ledger.useful_us_at[begin:end])
    goodput = useful_us / (numbers.workers * numbers.counted_us)
    return OwnRun(candidate, seed, goodput, ledger.queue_peak, classes)


def play_all(numbers: OwnNumbers, seeds: Sequence[int], jobs: int) -> Iterator[OwnRun]:
    """Play every candidate with every seed, ours first."""
    names = dict.fromkeys([numbers.ours, *numbers.others])
    wanted = [(numbers, name, seed) for seed in seeds for name in names]
    if jobs == 1:
        for one in wanted:
            yield play_once(*one)
        return
    with process_pool(jobs) as pool:
        for future in [pool.submit(play_once, *one) for one in wanted]:
            yield future.result()


def book_of(candidate: str, runs: Sequence[OwnRun]) -> dict[str, Any]:
    """All runs of a candidate in one, as the sentence and the tables of a what-if read it."""
    total = {of: ClassCounts() for of in runs[0].classes}
    for run in runs:
        for of, one in run.classes.items():
            total[of].add(one)
    goodputs = [run.goodput for run in runs]
    every = ClassCounts()
    for one in total.values():
        every.add(one)
    return {
        "name": candidate,
        **_row(every),
        "goodput": sum(goodputs) / len(goodputs),
        "goodput_least": min(goodputs),
        "queue_peak": max(run.queue_peak for run in runs),
        "classes": [{"class": of.name, **_row(one)} for of, one in total.items()],
    }


def _row(one: ClassCounts) -> dict[str, Any]:
    waits, refusals = sorted(one.waits_us), sorted(one.refusals_us)
    return {
        "offered": one.offered,
        "answered_in_time": one.in_time,
        "in_time_share": one.in_time / one.offered if one.offered else None,
        "late": one.late,
        "refused": one.refused,
        "wait_p50_us": quantile(waits, 0.5) if waits else None,
        "wait_p99_us": quantile(waits, 0.99) if waits else None,
        "refused_p99_us": quantile(refusals, 0.99) if refusals else None,
    }
