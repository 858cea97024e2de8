"""Tale: what a play leaves behind, for the invariants to read. It judges nothing.

Most of what can go wrong has one of a few shapes, and the stages of a hunt write it down in these:
levels with a bound, levels that must be back at zero, sums that must agree, spending that a limit
allows, the course of a controller, and the story of each unit of work. What a stage sees by itself
and nobody else could is an `oddity`, with the name of the invariant that it breaks.
"""

from __future__ import annotations

from typing import Final, NamedTuple, final

from sluicegate.contracts.criticality import Criticality

NEVER_US: Final = -1
ODDITIES_MAX: Final = 20

WAITING: Final = "waiting"
REFUSED: Final = "refused"
AT_WORK: Final = "at work"
DONE: Final = "done"
CANCELLED: Final = "cancelled"


@final
class Unit:
    """One unit of work, as whoever sent it saw it; instants are of the clock of the policies."""

    __slots__ = (
        "arrived_us",
        "begun_us",
        "criticality",
        "deadline_us",
        "ended_us",
        "fate",
        "load",
        "reason",
        "shard",
        "waited_us",
    )

    def __init__(self, load: int, arrived_us: int, deadline_us: int | None) -> None:
        self.load = load
        self.criticality = Criticality.DEGRADED  # as it was settled
        self.shard = ""
        self.arrived_us = arrived_us
        self.deadline_us = deadline_us
        self.begun_us = NEVER_US
        self.ended_us = NEVER_US
        self.fate = WAITING
        self.reason = ""
        self.waited_us = 0  # until it was judged, by a clock that does not jump


class Limit(NamedTuple):
    """What may be spent: a rate, and how much at once."""

    per_s: float
    burst: float


class Oddity(NamedTuple):
    """Something that a stage saw and that must not be."""

    invariant: str
    at_us: int
    sentence: str


@final
class Tale:
    """The whole of a play."""

    def __init__(self) -> None:
        self.units: list[Unit] = []
        self.peaks: dict[str, int] = {}  # the most of each level
        self.bounds: dict[str, int] = {}  # what it may be, by the same names
        self.left: dict[str, int] = {}  # at the end; all to be zero
        self.spent: dict[str, list[tuple[int, int]]] = {}
        self.limits: dict[str, Limit] = {}  # by the same names as `spent`
        self.courses: dict[str, list[tuple[int, int]]] = {}  # of controllers, in even steps
        self.step_us = 0  # of these
        self.settled: tuple[int, int] | None = None  # between these nothing changed outside
        self.oddities: list[Oddity] = []
        self.end_us = 0
        self.digest = ""

    def level(self, name: str, value: int) -> None:
        """A level is at `value`."""
        if value > self.peaks.get(name, 0):
            self.peaks[name] = value

    def spend(self, name: str, at_us: int, amount: int) -> None:
        """Something is spent, or given back if negative."""
        self.spent.setdefault(name, []).append((at_us, amount))

    def odd(self, invariant: str, at_us: int, sentence: str) -> None:
        """Something is not as it must be; the first few are kept."""
        if len(self.oddities) < ODDITIES_MAX:
            self.oddities.append(Oddity(invariant, at_us, sentence))
