"""Record: what a play leaves behind, for the invariants to check. It judges nothing.

Most of what can go wrong has one of a few shapes, and the stages of a hunt record it in these:
levels with a bound, levels that must be back at zero, spending that a limit allows, what passes
over time, and the end of each unit of work. What only a stage can notice, as it happens, it adds as
a violation, with the name of the invariant that it breaks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, final

from sluicegate.contracts.criticality import Criticality

NEVER_US: Final = -1
VIOLATIONS_MAX: Final = 20

WAITING: Final = "waiting"
REFUSED: Final = "refused"
AT_WORK: Final = "at work"
DONE: Final = "done"
CANCELLED: Final = "cancelled"


@final
@dataclass(slots=True)
class HuntUnit:
    """One unit of work from its sender's side; instants are of the clock of the policies."""

    load: int
    arrived_us: int
    deadline_us: int | None
    criticality: Criticality = Criticality.DEGRADED  # after the clamp
    shard: str = ""
    begun_us: int = NEVER_US
    ended_us: int = NEVER_US
    status: str = WAITING
    reason: str = ""
    waited_us: int = 0  # until it was judged, by a clock that does not jump


class SpendingLimit(NamedTuple):
    """What may be spent: a rate, and how much at once."""

    per_s: float
    burst: float


class Violation(NamedTuple):
    """An invariant that a play broke, and how."""

    invariant: str
    sentence: str


@final
class HuntRecord:
    """All that one play left behind."""

    def __init__(self) -> None:
        self.units: list[HuntUnit] = []
        self.peaks: dict[str, int] = {}  # the most of each level
        self.bounds: dict[str, int] = {}  # of the levels, by the same names
        self.left: dict[str, int] = {}  # at the end; all must be zero
        self.spent: dict[str, list[tuple[int, int]]] = {}
        self.limits: dict[str, SpendingLimit] = {}  # by the same names as `spent`
        self.courses: dict[str, list[tuple[int, int]]] = {}  # what passed, in even steps
        self.step_us = 0  # of these
        self.settled: tuple[int, int] | None = None  # between these nothing changed outside
        self.violations: list[Violation] = []
        self.end_us = 0
        self.digest = ""

    def level(self, name: str, value: int) -> None:
        """Record that a level is at `value`."""
        if value > self.peaks.get(name, 0):
            self.peaks[name] = value

    def spend(self, name: str, at_us: int, amount: int) -> None:
        """Record an amount that is spent, or given back if negative."""
        self.spent.setdefault(name, []).append((at_us, amount))

    def add_violation(self, invariant: str, sentence: str) -> None:
        """Record that an invariant does not hold; the first few are kept."""
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(Violation(invariant, sentence))
