"""All observers at once on a real limiter: in this process, and on a real Redis."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from sluicegate import Claim, Limiter, Rule
from sluicegate.stores.memory.store import MemoryStore
from sluicegate.system import now_us
from sluicegate.telemetry.decision_metrics import DecisionMetrics
from sluicegate.telemetry.logs import Logs
from sluicegate.telemetry.observer_group import ObserverGroup
from sluicegate.telemetry.tracing import Tracing
from sluicegate.testing import Faults, HandClock
from tests.engines.redis import RedisServer
from tests.telemetry.threads import in_threads


class Broken:
    """Raises whatever it is told."""

    def record_decision(self, *_: object) -> None:
        raise LookupError

    def record_round_trip(self, *_: object) -> None:
        raise LookupError

    def record_lease(self, *_: object) -> None:
        raise LookupError


class Watched:
    """What all observers together have seen."""

    def __init__(self) -> None:
        self.tally = DecisionMetrics()
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.observer = ObserverGroup(
            Broken(), self.tally, Tracing(provider=provider, allowed_every=0), Logs()
        )

    def spans(self, name: str = "sluicegate.decision") -> int:
        return len([span for span in self.exporter.get_finished_spans() if span.name == name])


@pytest.fixture
def watched(caplog: pytest.LogCaptureFixture) -> Watched:
    caplog.set_level(logging.WARNING)
    return Watched()


def lines(caplog: pytest.LogCaptureFixture) -> list[object]:
    return [
        (record.__dict__["sluicegate.rule"], record.__dict__["sluicegate.outcome"])
        for record in caplog.records
        if record.name == "sluicegate" and "sluicegate.rule" in record.__dict__
    ]


def test_what_a_limiter_decides_is_counted_traced_and_logged(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    limiter = Limiter(
        rules={"login": "3/minute", "trial": Rule("1/minute", mode="shadow")},
        observer=watched.observer,
        clock=HandClock(),
    )
    for _ in range(4):
        limiter.take("ann", rule="login")
    asyncio.run(limiter.atake("ann", rule="login"))
    assert all(limiter.take("ann", rule="trial") for _ in range(2))
    snapshot = watched.tally.snapshot()
    assert {(row.rule, row.outcome, row.reason): row.decisions for row in snapshot.decisions} == {
        ("login", "allowed", ""): 3,
        ("login", "refused", "rate_limited"): 2,
        ("trial", "allowed", ""): 1,
        ("trial", "shadow_refused", "rate_limited"): 1,
    }
    assert watched.spans() == 3
    assert lines(caplog) == [("login", "refused")] * 2 + [("trial", "shadow_refused")]
    assert watched.observer.failures == (7, 0, 0, 0)


def test_claims_that_are_decided_as_one_are_one_decision(watched: Watched) -> None:
    limiter = Limiter(
        rules={"user": "10/minute", "address": "1/minute"},
        observer=watched.observer,
        clock=HandClock(),
    )
    for _ in range(3):
        limiter.take_all(Claim("ann", "user"), Claim("10.0.0.1", "address"))
    snapshot = watched.tally.snapshot()
    assert (snapshot.count("allowed"), snapshot.count("refused", rule="address")) == (1, 2)
    assert snapshot.count() == 3


def test_every_decision_of_many_threads_is_counted(watched: Watched) -> None:
    limiter = Limiter("500/hour", observer=watched.tally)
    in_threads(8, lambda _: [limiter.take("ann") for _ in range(250)])
    snapshot = watched.tally.snapshot()
    assert (snapshot.count("allowed"), snapshot.count("refused")) == (500, 1_500)


def test_on_redis_leases_are_counted_to_the_unit(
    watched: Watched, redis_server: RedisServer
) -> None:
    limiter = Limiter(
        store_url=redis_server.patient_url,
        rules={"api": Rule("1000/hour", lease=50)},
        observer=watched.observer,
    )

    async def ask() -> None:
        async with limiter:
            for _ in range(120):
                assert await limiter.atake("ann", rule="api")

    asyncio.run(ask())
    snapshot = watched.tally.snapshot()
    assert snapshot.count("allowed", rule="api") == 120
    units = {row.event: row.units for row in snapshot.leases}
    assert {row.rule for row in snapshot.leases} == {"api"}
    # Each block is asked for with the unit that needs it, and closing ends the last one.
    assert units["taken"] == units["spent"] + units["returned"] + units["lapsed"]
    assert units["spent"] + len(trip_places(watched)) == 120


def trip_places(watched: Watched) -> range:
    return range(watched.tally.snapshot().batches.count)


def test_round_trips_are_counted_with_what_they_carried(
    watched: Watched, redis_server: RedisServer
) -> None:
    limiter = Limiter("100/hour", store_url=redis_server.patient_url, observer=watched.tally)

    async def ask() -> None:
        async with limiter:
            await limiter.atake("warm")
            await asyncio.gather(*(limiter.atake(f"key {number}") for number in range(40)))

    asyncio.run(ask())
    snapshot = watched.tally.snapshot()
    assert snapshot.batches.count < 41
    assert snapshot.round_trips_us.count == snapshot.batches.count
    assert snapshot.batches.total == 41


def test_a_redis_that_is_gone_is_seen_in_every_decision(
    watched: Watched, caplog: pytest.LogCaptureFixture, redis_server: RedisServer
) -> None:
    nobody = redis_server.url.replace(str(redis_server.port), "1")
    limiter = Limiter(
        store_url=nobody,
        rules={"open": "5/s", "closed": Rule("5/s", failure="closed")},
        observer=watched.observer,
    )

    async def ask() -> None:
        async with limiter:
            assert await limiter.atake("ann", rule="open")
            assert not await limiter.atake("ann", rule="closed")

    asyncio.run(ask())
    snapshot = watched.tally.snapshot()
    assert snapshot.count("degraded_allowed", rule="open") == 1
    assert snapshot.count("degraded_refused", rule="closed", reason="store_unavailable") == 1
    assert snapshot.count() == watched.spans() == 2
    assert snapshot.store_failures >= 1  # what is known to be gone is not asked again
    assert snapshot.degraded
    assert ("open", "degraded_allowed") in lines(caplog)


@pytest.mark.parametrize("where", ["redis", "redis+cluster", "sluicegate", "own"])
def test_a_store_that_is_gone_is_reported_by_a_limiter_for_threads(
    watched: Watched, caplog: pytest.LogCaptureFixture, redis_server: RedisServer, where: str
) -> None:
    """As Flask, Django and Celery ask: from threads, without a loop."""
    settings: dict[str, Any] = {"store_url": f"{where}://127.0.0.1:1"}
    if where == "own":
        faults = Faults()
        faults.fail()
        settings = {"open_store": faults.around(lambda: MemoryStore(now_us))}
    with Limiter("5/s", observer=watched.observer, **settings) as limiter:
        decisions = [limiter.judge(Claim("ann")).decision for _ in range(20)]
        decisions += [limiter.take("bob") for _ in range(20)]
    assert all(decision.degraded for decision in decisions)
    counts = watched.tally.snapshot()
    assert counts.count("degraded_allowed") == counts.store_failures == 40
    assert counts.degraded
    assert any("The store did not answer" in record.message for record in caplog.records)
