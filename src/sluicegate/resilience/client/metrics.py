"""Metrics of clients and dependencies: retries, throttles, breakers, hedges, hosts, stand-ins.

`families({"search": client})` and `dependency_families(dependencies)` are what
`telemetry.prometheus.page` renders. Nothing is counted here; a label is a name that the caller
gives, so there are as many as there are clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.resilience.dependencies.dependency import Dependency
from sluicegate.telemetry.prometheus import MetricFamily, MetricSample, counters, gauges

K = TypeVar("K")
_PREFIX = "sluicegate_client"


def families(clients: Mapping[str, ResilientClient]) -> list[MetricFamily]:
    """Return every metric of these clients, in a fixed order."""
    every = list(clients.items())
    grouped = [(name, one.hosts) for name, one in every if one.hosts is not None]
    hedging = [(name, one.hedge) for name, one in every if one.hedge is not None]
    found = [
        _sums("calls", "Calls begun.", every, lambda one: one.retry.stats().calls),
        _sums("attempts", "Attempts that ended.", every, lambda one: one.retry.stats().attempts),
        _sums("mended", "Calls that a retry mended.", every, lambda one: one.retry.stats().mended),
        counters(
            f"{_PREFIX}_given_up",
            "Calls that failed without a further attempt, by why.",
            [
                MetricSample("_total", (("client", name), ("why", why)), count)
                for name, one in every
                for why, count in one.retry.stats()._asdict().items()
                if why in _WHY
            ],
        ),
        _sums("throttled", "Held back by the throttle.", every, _throttled),
        _sums("refused", "Refused by breakers.", every, lambda one: one.breaker.stats().refused),
        _sums("opened", "Openings of breakers.", every, lambda one: one.breaker.stats().opened),
        _levels("breakers", "Breakers.", every, lambda one: one.breaker.stats().keys),
        _levels("not_closed", "Of them.", every, lambda one: one.breaker.stats().not_closed),
        _levels("under_way", "Calls.", every, lambda one: one.retry.stats().inflight),
    ]
    if hedging:
        found += [
            _sums("hedges", "Late calls sent once more.", hedging, lambda one: one.stats().hedges),
            _sums("hedges_won", "Hedges that won.", hedging, lambda one: one.stats().won),
        ]
    if grouped:
        found += [
            _levels("hosts", "Hosts.", grouped, lambda one: one.balance.stats().hosts),
            _levels("hosts_out", "Of them.", grouped, lambda one: one.balance.outlier.stats().out),
            _sums(
                "ejections", "Hosts.", grouped, lambda one: one.balance.outlier.stats().ejections
            ),
        ]
    return found


def dependency_families(dependencies: Mapping[str, Dependency[Any]]) -> list[MetricFamily]:
    """Return what became of the calls of soft dependencies, and what stood in."""
    soft = [(name, one.fallback) for name, one in dependencies.items() if one.fallback is not None]
    samples = [
        MetricSample("_total", (("dependency", name), ("with", outcome)), count)
        for name, one in soft
        for outcome, count in one.stats()._asdict().items()
        if outcome in _OUTCOMES
    ]
    text = "Calls of soft dependencies: good, a stale value, a default, or a failure."
    return [counters("sluicegate_dependency_calls", text, samples)]


_WHY = ("marked_final", "not_idempotent", "attempts_spent", "too_late", "budget_spent")
_OUTCOMES = ("good", "stale", "defaulted", "failed")


def _throttled(client: ResilientClient) -> int:
    stats = client.throttle.stats()
    return stats.throttled + stats.gated


def _sums(
    name: str, meaning: str, each: Iterable[tuple[str, K]], count: Callable[[K], int]
) -> MetricFamily:
    samples = [MetricSample("_total", (("client", label),), count(one)) for label, one in each]
    return counters(f"{_PREFIX}_{name}", meaning, samples)


def _levels(
    name: str, meaning: str, each: Iterable[tuple[str, K]], count: Callable[[K], int]
) -> MetricFamily:
    samples = [MetricSample("", (("client", label),), count(one)) for label, one in each]
    return gauges(f"{_PREFIX}_{name}", meaning, samples)
