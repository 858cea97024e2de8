"""Metrics of a protected service: requests admitted, rejected and queued, and wasted work.

`families(protection)` is what `telemetry.prometheus.page` renders. Nothing is counted here.
"""

from __future__ import annotations

from sluicegate.resilience.server.protection import Protection
from sluicegate.telemetry.prometheus import MetricFamily, MetricSample, counters, gauge, gauges

_SECOND_US = 1_000_000


def families(protection: Protection) -> list[MetricFamily]:
    """Return every metric there is, in a fixed order."""
    stats = protection.stats()
    gate = stats.gate
    return [
        counters(
            "sluicegate_resilience_admitted",
            "Admitted requests, by class.",
            [
                MetricSample("_total", (("class", member.name),), count)
                for member, count in stats.admitted.items()
            ],
        ),
        counters(
            "sluicegate_resilience_rejected",
            "Rejected requests, by class and reason.",
            [
                MetricSample("_total", (("class", member.name), ("reason", reason)), count)
                for (reason, member), count in stats.refused.items()
            ],
        ),
        _one("hung_up", "Requests whose caller hung up in the queue.", "", gate.hung_up),
        gauge("sluicegate_resilience_slots", "The concurrency limit; 0: no limit.", stats.slots),
        gauge("sluicegate_resilience_in_flight", "Requests that hold a slot.", gate.inflight),
        gauge("sluicegate_resilience_streams", "Responses that stream.", stats.streams),
        gauge("sluicegate_resilience_background", "Tasks after a response.", stats.background),
        gauge("sluicegate_resilience_queued", "Requests that wait for a slot.", gate.queued),
        gauge("sluicegate_resilience_queued_bytes", "Memory they hold.", gate.queued_bytes),
        _one("waited_seconds", "Time in the queue.", "seconds", stats.waited_us / _SECOND_US),
        _one("wasted", "Work that ended after its deadline.", "", gate.late),
        _one("wasted_seconds", "Its time.", "seconds", gate.late_us / _SECOND_US),
        _one("worked_seconds", "Time of all work.", "seconds", gate.worked_us / _SECOND_US),
        # As a number: parsers cannot read the text of an enumeration.
        gauge("sluicegate_resilience_overload", "0 calm, 1 stressed, 2 hard.", int(stats.level)),
        MetricFamily(
            "sluicegate_resilience_loop_lag_seconds",
            "gauge",
            "seconds",
            "How late the event loop is.",
            [MetricSample("", (), stats.lag_us / _SECOND_US)],
        ),
        gauges(
            "sluicegate_resilience_degraded",
            "1 where this part of the answers is left out.",
            [
                MetricSample("", (("part", one.part),), int(one.left_out))
                for one in protection.degradation.states(stats.level)
            ],
        ),
    ]


def _one(name: str, meaning: str, unit: str, value: float) -> MetricFamily:
    sample = MetricSample("_total", (), value)
    return MetricFamily(f"sluicegate_resilience_{name}", "counter", unit, meaning, [sample])
