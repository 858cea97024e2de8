"""Figures: what the parts of a dispatcher count, as metrics. Nothing is counted here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sluicegate.apps.kv.shield.settings import ShieldStats
from sluicegate.apps.kv.store_watch import StoreState
from sluicegate.apps.kv.usage import CallerUsage
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.engine import EngineHealth
from sluicegate.policies.admission.pressure import Pressure
from sluicegate.policies.quota.refusal_pace import RefusalPace
from sluicegate.policies.stack import StackStats
from sluicegate.telemetry.prometheus import (
    Labels,
    MetricFamily,
    MetricSample,
    counter,
    counters,
    gauge,
    histograms,
)
from sluicegate.telemetry.snapshot import Histogram


def of_stack(stats: StackStats, usage: CallerUsage) -> Iterable[MetricFamily]:
    """What entered, what did not and why, and what the engine did."""
    yield counter("sluicegate_kv_entered", "Requests that asked to enter.", stats.entered)
    yield counter("sluicegate_kv_admitted", "Requests that were admitted.", stats.admitted)
    refused = [
        MetricSample("_total", (("reason", reason), ("priority", member.name)), count)
        for (reason, member), count in sorted(usage.refusals().items())
    ]
    yield counters("sluicegate_kv_refused", "Refusals by reason and class.", refused)
    took: dict[Labels, Histogram] = {
        (("operation", operation), ("priority", member.name)): values
        for (operation, member), values in sorted(usage.took().items())
    }
    yield histograms(
        "sluicegate_kv_request_seconds",
        "How long requests took that were done, from their arrival, by operation and class.",
        took,
        1_000_000,
        "seconds",
    )
    yield gauge("sluicegate_kv_under_way", "Requests at work.", stats.under_way)
    done: list[MetricSample] = []
    failed: list[MetricSample] = []
    engine_s: list[MetricSample] = []
    for name, (good, bad, service_us) in sorted(usage.operations().items()):
        labels = (("operation", name),)
        done.append(MetricSample("_total", labels, good))
        failed.append(MetricSample("_total", labels, bad))
        engine_s.append(MetricSample("_total", labels, service_us / 1e6))
    yield MetricFamily("sluicegate_kv_done", "counter", "", "Operations of the engine.", done)
    yield MetricFamily("sluicegate_kv_failed", "counter", "", "Operations that failed.", failed)
    yield MetricFamily(
        "sluicegate_kv_engine_seconds",
        "counter",
        "",
        "Time that the engine took, in seconds.",
        engine_s,
    )


def of_callers(usage: CallerUsage) -> Iterable[MetricFamily]:
    """What each caller used."""
    units: list[MetricSample] = []
    refused: list[MetricSample] = []
    for caller, used in sorted(usage.now().items()):
        labels = (("caller", caller),)
        units.append(MetricSample("_total", labels, used.mru / 1_000))
        refused.append(MetricSample("_total", labels, used.refused))
    yield MetricFamily("sluicegate_kv_caller_ru", "counter", "", "Request units by caller.", units)
    yield MetricFamily(
        "sluicegate_kv_caller_refused", "counter", "", "Refusals by caller.", refused
    )


def of_pressure(pressure: Pressure, prices_milli: Sequence[int]) -> Iterable[MetricFamily]:
    """Yield the state of the queues, and the price of a request unit for each class."""
    ratio = "Usual time of the slowest shard over its time now."
    yield gauge("sluicegate_kv_latency_ratio", ratio, pressure.ratio)
    level = "0 calm, 1 requests wait longer than they take, 2 CRITICAL ones too."
    yield gauge("sluicegate_kv_stress_level", level, int(pressure.level))
    yield gauge("sluicegate_kv_loop_lag_seconds", "The event loop's.", pressure.lag_us / 1e6)
    if prices_milli:
        prices = [
            MetricSample("", (("priority", member.name),), price / 1_000)
            for member, price in zip(Criticality, prices_milli, strict=True)
        ]
        text = "Price of a request unit."
        yield MetricFamily("sluicegate_kv_price", "gauge", "", text, prices)
    yield gauge("sluicegate_kv_queue_length", "Requests that wait.", pressure.queued)
    yield gauge("sluicegate_kv_queue_bytes", "Their bytes.", pressure.queued_bytes)
    yield gauge("sluicegate_kv_queue_delay_seconds", "Of the longest.", pressure.queue_us / 1e6)
    yield gauge("sluicegate_kv_slots", "Limit of all shards; 0: none.", pressure.limit)
    yield gauge("sluicegate_kv_inflight", "Requests in the engine.", pressure.inflight)


def of_pace(pace: RefusalPace) -> Iterable[MetricFamily]:
    """How often the connections of callers far over their quota were put off."""
    yield counter("sluicegate_kv_slowed", "Times a connection was read later.", pace.slowed)
    seconds = pace.slowed_us / 1e6
    yield counter("sluicegate_kv_slowed_seconds", "By how much, in seconds.", seconds)


def of_store(state: StoreState) -> Iterable[MetricFamily]:
    """Whether the store that quotas come from is there."""
    yield gauge("sluicegate_kv_store_answers", "1: the store does.", int(not state.gone))
    yield counter("sluicegate_kv_store_losses", "How often it was lost.", state.losses)


def of_engine(state: StoreState, health: EngineHealth, *, still: bool) -> Iterable[MetricFamily]:
    """Whether the engine does what it is asked."""
    yield gauge("sluicegate_kv_engine_answers", "1: the engine does.", int(not state.gone))
    yield gauge("sluicegate_kv_engine_still", "1: of its work none ends.", int(still))
    yield counter("sluicegate_kv_engine_losses", "How often it failed.", state.losses)
    usable = int(not health.unusable)
    yield gauge("sluicegate_kv_engine_usable", "0: it is being opened again.", usable)
    yield counter("sluicegate_kv_engine_damaged", "Reads that met damage.", health.damaged)


def of_shield(stats: ShieldStats) -> Iterable[MetricFamily]:
    """What hot keys were spared the engine."""
    hot, flights = stats.hot, stats.flights
    yield counter("sluicegate_kv_hot_served", "Reads served from memory.", hot.served)
    yield counter("sluicegate_kv_hot_joined", "Reads that joined another's.", flights.joined)
    yield counter("sluicegate_kv_hot_forwarded", "Reads of hot keys by the engine.", flights.flown)
    yield gauge("sluicegate_kv_hot_cached", "Answers kept.", hot.cached)
    yield gauge("sluicegate_kv_hot_cached_bytes", "Their bytes.", hot.cached_bytes)
