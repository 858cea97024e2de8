"""Metrics of a protected service: each stage of both lanes, stress, switches, work in vain.

`families(protection)` is what `telemetry.prometheus.page` renders. Nothing is counted here.
"""

from __future__ import annotations

from sluicegate.policies.deadline import DeadlineStats
from sluicegate.policies.queue.queue import QueueStats
from sluicegate.policies.watermark import WatermarkStats
from sluicegate.resilience.server.protection import Protection
from sluicegate.telemetry.prometheus import MetricFamily, MetricSample, counters, gauge, gauges

_SECOND_US = 1_000_000


def families(protection: Protection) -> list[MetricFamily]:
    """Return every metric there is, in a fixed order."""
    stats = protection.stats()
    lanes = (("light", stats.light), ("heavy", stats.heavy))
    decisions, line, places, marks = [], [], [], []
    shared: DeadlineStats | None = None
    for lane, stack in lanes:
        for stage in stack.stages:
            labels = (("lane", lane), ("stage", stage.name))
            for outcome, count in (("admitted", stage.admitted), ("refused", stage.refused)):
                decisions.append(MetricSample("_total", (*labels, ("outcome", outcome)), count))
            own = stage.own
            if isinstance(own, QueueStats):
                line.append(MetricSample("", (("lane", lane),), own.queued))
                places.append(MetricSample("", (("lane", lane),), own.places))
            elif isinstance(own, WatermarkStats):
                marks.append(MetricSample("", (("lane", lane),), int(own.refuses)))
            elif isinstance(own, DeadlineStats):
                shared = own  # of both lanes
    found = [
        counters("sluicegate_resilience_decisions", "Requests by lane, stage, outcome.", decisions),
        gauges(
            "sluicegate_resilience_under_way",
            "Admitted requests that have not ended.",
            [MetricSample("", (("lane", lane),), stack.under_way) for lane, stack in lanes],
        ),
        gauges("sluicegate_resilience_queued", "Requests that wait for a place.", line),
        gauges("sluicegate_resilience_places", "Places of the lane.", places),
        gauges("sluicegate_resilience_back_pressure", "1 above the watermark.", marks),
    ]
    parts = [
        MetricSample("", (("lane", lane.name), ("partition", name)), inflight)
        for lane in protection.lanes()
        for name, inflight in lane.partitions.items()
    ]
    if parts:
        name = "sluicegate_resilience_partition_under_way"
        found.append(gauges(name, "Requests of a partition at work.", parts))
    if shared is not None:
        found += [
            _one("wasted", "Work that ended after its deadline.", "", shared.wasted),
            _one("wasted_seconds", "Its time.", "seconds", shared.wasted_us / _SECOND_US),
            _one("worked_seconds", "Time of all work.", "seconds", shared.worked_us / _SECOND_US),
        ]
    stress = stats.stress
    level = int(stress.level)  # an enumeration has a text of its own, which no parser reads
    found.append(gauge("sluicegate_resilience_stress", "0 calm, 1 stressed, 2 hard.", level))
    if stress.lag_us is not None:
        lag_s = stress.lag_us / _SECOND_US
        sample = MetricSample("", (), lag_s)
        name, meaning = "sluicegate_resilience_loop_lag_seconds", "How late the event loop is."
        found.append(MetricFamily(name, "gauge", "seconds", meaning, [sample]))
    found.append(
        gauges(
            "sluicegate_resilience_degraded",
            "1 where this part of the answers is left out.",
            [MetricSample("", (("part", part),), int(off)) for part, off in stats.degraded],
        )
    )
    return found


def _one(name: str, meaning: str, unit: str, value: float) -> MetricFamily:
    sample = MetricSample("_total", (), value)
    return MetricFamily(f"sluicegate_resilience_{name}", "counter", unit, meaning, [sample])
