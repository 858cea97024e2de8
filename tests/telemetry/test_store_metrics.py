from __future__ import annotations

import asyncio

from sluicegate import Limiter
from sluicegate.stores.memory.store import MemoryStore
from sluicegate.telemetry.prometheus import page
from sluicegate.telemetry.store_metrics import StoreMetrics
from sluicegate.testing import HandClock


def test_the_lag_is_how_old_a_block_was_when_it_was_last_spent_of() -> None:
    clock = HandClock()
    tally = StoreMetrics(clock)
    store = MemoryStore(clock.now_us)

    async def spend() -> None:
        async with Limiter(
            "1000/minute", lease=10, open_store=lambda: store, observer=tally, clock=clock
        ) as limiter:
            for _ in range(5):
                assert await limiter.atake("ann")
                clock.advance(us=100_000)

    asyncio.run(spend())
    text = page(tally.families()).decode()
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert int(lines["sluicegate_limiter_freshness_lag_seconds_count"]) == 1
    assert float(lines["sluicegate_limiter_freshness_lag_seconds_sum"]) == 0.4
    assert "sluicegate_decisions_total" not in text


def test_round_trips_are_counted() -> None:
    tally = StoreMetrics(HandClock())
    tally.record_round_trip(3, 0, 250, "")
    tally.record_round_trip(1, 300, 900, "timed out")
    text = page(tally.families()).decode()
    assert "sluicegate_store_batch_size_sum 3.0" in text
    assert "sluicegate_store_failures_total 1" in text
