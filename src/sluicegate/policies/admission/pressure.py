"""Pressure: how much waits in front of the resources of a gate, as one level and its reasons."""

from __future__ import annotations

from typing import Final, NamedTuple

from sluicegate.contracts.criticality import Criticality
from sluicegate.policies.admission.gate import LIMIT_MAX, Gate
from sluicegate.policies.admission.resource import Resource
from sluicegate.policies.degradation import OverloadLevel
from sluicegate.policies.forms.pool import QueuePool

_SHOWN_MAX: Final = 3


class Pressure(NamedTuple):
    """One look at a gate."""

    level: OverloadLevel
    why: tuple[str, ...]
    ratio: float  # of the slowest resource: its usual time over its time now, at most 1
    slowest: str
    limit: int  # of all resources; 0: there is none
    found: bool  # whether it was found, and not given
    inflight: int
    queued: int
    queued_bytes: int
    waited: int
    queue_us: int  # how long the oldest has waited
    lag_us: int  # of the event loop


def pressure_of(gate: Gate | None, pool: QueuePool | None, lag_us: int, now_us: int) -> Pressure:
    """Return the pressure of a gate, or of the pool that is there instead."""
    if gate is None:
        assert pool is not None  # one of them is there
        stats = pool.stats()
        level = OverloadLevel.STRESSED if stats.queued else OverloadLevel.CALM
        why = ("requests are queued",) if stats.queued else ()
        return Pressure(
            level,
            why,
            1.0,
            "",
            stats.slots,
            False,
            stats.inflight,
            stats.queued,
            0,
            stats.waited,
            0,
            lag_us,
        )
    level, ratio, slowest, oldest_us = OverloadLevel.CALM, 1.0, "", 0
    reasons: list[str] = []
    for resource in gate.resources.values():
        if resource.queue.waiting:
            waits_us = resource.queue.oldest_us(now_us)
            oldest_us = max(oldest_us, waits_us)
            if waits_us > resource.mean_us:
                level = max(level, _level_of(resource, now_us))
                if len(reasons) < _SHOWN_MAX:
                    reasons.append(_why(resource))
        slow = _ratio_of(resource)
        if slow < ratio:
            ratio, slowest = slow, resource.name
    stats_now = gate.stats()
    return Pressure(
        level,
        tuple(reasons),
        ratio,
        slowest,
        0 if stats_now.limit == LIMIT_MAX else stats_now.limit,
        stats_now.found,
        stats_now.inflight,
        stats_now.queued,
        stats_now.queued_bytes,
        stats_now.waited,
        oldest_us,
        lag_us,
    )


def _level_of(resource: Resource, now_us: int) -> OverloadLevel:
    critical_us = resource.queue.oldest_us(now_us, 2 * Criticality.CRITICAL)
    return OverloadLevel.HARD if critical_us > resource.mean_us else OverloadLevel.STRESSED


def _why(resource: Resource) -> str:
    """Name the limit that requests wait for, and where it is from."""
    origin = "set" if resource.found is None else "found"
    of = f" of {resource.name}" if resource.name else ""
    return f"{resource.queue.waiting:,} wait for {resource.limit:,} slots{of} ({origin})"


def _ratio_of(resource: Resource) -> float:
    """Return the usual time over the time now, of the slowest operation."""
    ratio = 1.0
    for times in resource.times.values():
        if times.usual_us > 0 and times.mean_us > times.usual_us:
            ratio = min(ratio, times.usual_us / times.mean_us)
    return ratio
