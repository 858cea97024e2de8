"""Utilization gate: sheds a service's own requests by class, as the service itself fills up.

A service that answers checks must stay quick for those that matter, and its own limits say nothing
of how much it can answer. So it watches how it fares and refuses what matters less, even under
its limit: in proportion, class by class, by the ramps of `kernels/utilization_shed`. That is the
congestion mode of Netflix ("Enhancing Netflix Reliability with Service-Level Prioritized Load
Shedding", 2024), with 60% as the first bar.

Refusing helps only against work of its own: a machine that others fill does not get emptier by it,
and an idle service would refuse everybody. So the utilization is the worst of what the service
itself suffers, each as a share of what counts as full; the machine's readings count where they are
given, for a service that has the machine to itself:

    cpu              the share of time in which its event loop computes, or waits for a core
    throttled        the share of time in which its cgroup's limit holds it back, over
                     `throttled_full`
    lag              how late the event loop is by its own doing, over `lag_us_full`
    queue            how long answers wait for a store that is well, over `queue_us_full`
    machine_cpu      the machine's CPU, whoever uses it
    machine_io, machine_memory   PSI: the share of time in which some task of the machine waited,
                     over `io_full` and `memory_full`

It is given readings and draws, and has no clock. It keeps nothing of a refusal: each draw is
independent, so a caller that tries again may enter.

Cost: while nothing is shed, one comparison; else one draw. Bounds: four classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.checks import STATUS_DEGRADED, STATUS_NORMAL
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.reasons import SHED
from sluicegate.kernels.bounds import ranged
from sluicegate.kernels.utilization_shed import RampSettings, UtilizationShed
from sluicegate.policies.settings import check_ranges

RULE_ID: Final = "shed"
# What each reading says of the service when it is the worst one, for logs and for `why`.
SIGNALS: Final = {
    "cpu": "its event loop is busy nearly all of the time",
    "throttled": "the CPU limit of its cgroup holds it back",
    "lag": "its event loop is late",
    "queue": "answers queue for its store",
    "machine_cpu": "the machine's CPU is busy",
    "machine_io": "tasks of the machine wait for its disks",
    "machine_memory": "tasks of the machine wait for memory",
}
CLASSES: Final = len(Criticality)
_SPAN_US_MAX: Final = 1 << 53


@final
@dataclass(frozen=True, kw_only=True)
class UtilizationSettings(RampSettings):
    """From where to where each class is shed, and what counts as full."""

    retry_after_us: int = ranged(1_000_000, 0, _SPAN_US_MAX)
    throttled_full: float = ranged(0.25, 0.01, 1.0)
    io_full: float = ranged(0.6, 0.01, 1.0)
    memory_full: float = ranged(0.3, 0.01, 1.0)
    lag_us_full: int = ranged(50_000, 1, _SPAN_US_MAX)
    queue_us_full: int = ranged(20_000, 1, _SPAN_US_MAX)

    def __post_init__(self) -> None:
        check_ranges("gate", self)
        if len(self.ramps) != CLASSES:
            raise BadValue("gate.ramps", len(self.ramps), f"give one for each of {CLASSES} classes")
        try:
            super().__post_init__()
        except ValueError as wrong:
            raise BadValue("gate.ramps", self.ramps, str(wrong)) from None


class Readings(NamedTuple):
    """What was measured since the last time; those of the machine only where they are to count."""

    cpu: float = 0.0
    throttled: float = 0.0
    lag_us: float = 0.0
    queue_us: float = 0.0
    machine_cpu: float = 0.0
    machine_io: float = 0.0
    machine_memory: float = 0.0


class UtilizationStats(NamedTuple):
    """Where it stands, why, and what it has refused, by class."""

    utilization: float  # with its hysteresis
    worst: str  # which of the signals it is from
    signals: Mapping[str, float]  # each reading as a share of what counts as full
    shares: tuple[float, ...]  # of each class that is refused now
    refused: tuple[int, ...]
    passed: tuple[int, ...]  # while anything was shed


@final
class UtilizationGate:
    """A `contracts.checks.Gate` over readings that somebody feeds it now and then."""

    __slots__ = (
        "_begin",
        "_chance",
        "_passed",
        "_ramps",
        "_refused",
        "_rule_id",
        "_signals",
        "fleet_sheds",
        "settings",
        "shedding",
        "worst",
    )

    def __init__(self, chance: Chance, settings: UtilizationSettings | None = None) -> None:
        self._chance = chance
        self.replace(UtilizationSettings() if settings is None else settings)
        self._signals = dict.fromkeys(SIGNALS, 0.0)
        self.worst = "cpu"
        self._rule_id = RULE_ID
        self._refused = [0] * CLASSES
        self._passed = [0] * CLASSES
        self.shedding = False
        self.fleet_sheds = False  # whoever hears of the others sets it

    def replace(self, settings: UtilizationSettings) -> None:
        """Go by these from the next readings on."""
        self.settings = settings
        self._ramps = UtilizationShed(settings)
        self._begin = min([ramp.begin for ramp in settings.ramps if ramp is not None], default=2.0)

    def observe(self, readings: Readings) -> None:
        """Take in what was measured."""
        settings = self.settings
        self._signals = signals = {
            "cpu": readings.cpu,
            "throttled": readings.throttled / settings.throttled_full,
            "lag": readings.lag_us / settings.lag_us_full,
            "queue": readings.queue_us / settings.queue_us_full,
            "machine_cpu": readings.machine_cpu,
            "machine_io": readings.machine_io / settings.io_full,
            "machine_memory": readings.machine_memory / settings.memory_full,
        }
        self.worst = max(signals, key=lambda name: signals[name])
        self._rule_id = f"{RULE_ID}:{self.worst}"
        self._ramps.observe(max(0.0, min(1.0, signals[self.worst])))
        self.shedding = self._ramps.effective > self._begin

    def refusal(self, priority: Criticality, caller: str) -> Decision | None:
        """The refusal of work that is shed; None for what may be counted."""
        if not self.shedding:
            return None
        place: int = priority
        ramps = self._ramps
        if ramps.refusal_share(place) > 0.0 and not ramps.admits(place, self._chance.draw()):
            self._refused[place] += 1
            retry_us = self.settings.retry_after_us
            return Decision(False, 0, retry_us, retry_us, SHED, self._rule_id)
        self._passed[place] += 1
        return None

    def status(self) -> str:
        """Whether anything is being shed now, here or anywhere in the fleet."""
        return STATUS_DEGRADED if self.shedding or self.fleet_sheds else STATUS_NORMAL

    def node_status(self) -> str:
        """Whether anything is being shed here."""
        return STATUS_DEGRADED if self.shedding else STATUS_NORMAL

    def stats(self) -> UtilizationStats:
        """Counts since the start, and where it stands."""
        return UtilizationStats(
            self._ramps.effective,
            self.worst,
            self._signals,
            tuple([self._ramps.refusal_share(place) for place in range(CLASSES)]),
            tuple(self._refused),
            tuple(self._passed),
        )


@final
class OpenGate:
    """Sheds nothing, by setting."""

    __slots__ = ("fleet_sheds",)
    shedding: ClassVar[bool] = False

    def __init__(self) -> None:
        self.fleet_sheds = False  # whoever hears of the others sets it

    def refusal(self, priority: Criticality, caller: str) -> Decision | None:
        """Never."""
        return None

    def status(self) -> str:
        """Whether another of the fleet sheds."""
        return STATUS_DEGRADED if self.fleet_sheds else STATUS_NORMAL

    def node_status(self) -> str:
        """Always calm."""
        return STATUS_NORMAL
