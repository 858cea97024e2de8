"""Pressure: how much waits in front of the resources of a gate, as one level and its reasons."""

from __future__ import annotations

from typing import Final, NamedTuple

from sluicegate.contracts.criticality import Criticality
from sluicegate.policies.admission.degradation import OverloadLevel
from sluicegate.policies.admission.gate import LIMIT_MAX, Gate
from sluicegate.policies.admission.resource import Resource
from sluicegate.policies.forms.pool import QueuePool

_SHOWN_MAX: Final = 3
SLOW_RATIO: Final = (
    0.6  # of the usual time over the time now; times vary by less from second to second
)
SLOW_MAX: Final = 20


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


class SlowResource(NamedTuple):
    """A resource on which an operation takes longer than usual."""

    resource: str
    operation: str
    ratio: float  # the usual time over the time now
    waiting: int
    limit: int  # 0: none found yet
    origin: str  # of the limit: "set", "found" or "none yet"


def slow_resources(gate: Gate) -> list[SlowResource]:
    """Return the slowest operation of each resource that is slow, the slowest first."""
    slow: list[SlowResource] = []
    for resource in gate.resources.values():
        ratio, operation = _ratio_of(resource)
        if ratio < SLOW_RATIO:
            limit, origin = limit_of(gate, resource.name)
            slow.append(
                SlowResource(resource.name, operation, ratio, resource.queue.waiting, limit, origin)
            )
    slow.sort(key=_slowness_of)
    return slow[:SLOW_MAX]


def origin_of(limit: int, found: bool) -> str:
    """Return the origin of a limit: "set", "found" or "none yet"."""
    if not found:
        return "set"
    return "found" if limit else "none yet"


def limit_of(gate: Gate, name: str) -> tuple[int, str]:
    """Return the limit of a resource, 0 for no limit, and its origin."""
    resource = gate.resources.get(name)
    limit = gate.settings.slots if resource is None else resource.limit
    if limit >= LIMIT_MAX:
        limit = 0
    found = not gate.settings.slots if resource is None else resource.found is not None
    return limit, origin_of(limit, found)


def _slowness_of(slow: SlowResource) -> float:
    return slow.ratio


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
        slow, _ = _ratio_of(resource)
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
    origin = origin_of(resource.limit, resource.found is not None)
    of = f" of {resource.name}" if resource.name else ""
    return f"{resource.queue.waiting:,} wait for {resource.limit:,} slots{of} ({origin})"


def _ratio_of(resource: Resource) -> tuple[float, str]:
    """Return the usual time over the time now, of the slowest operation, and its name."""
    ratio, slowest = 1.0, ""
    for operation, times in resource.times.items():
        if times.usual_us > 0 and times.mean_us * ratio > times.usual_us:
            ratio, slowest = times.usual_us / times.mean_us, operation
    return ratio, slowest
