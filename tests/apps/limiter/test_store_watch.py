"""Store watch: what a limiter reports of a store that evicts keys or answers late."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import pytest

from sluicegate.apps.limiter.store_watch import LOG_EVERY_US, LimiterStoreWatch
from sluicegate.contracts.errors import Unavailable
from sluicegate.policies.client.path_timeout import CEILING_US, PathTimeout
from sluicegate.stores.redis.eviction import Eviction
from sluicegate.testing import HandClock


class Servers:
    """Servers that report what a test sets."""

    def __init__(self, **servers: Eviction) -> None:
        self.servers: Mapping[str, Eviction] | None = servers
        self.clock = HandClock()
        self.watch = LimiterStoreWatch(self.read, tuple, self.clock.now_us)

    async def read(self) -> Mapping[str, Eviction]:
        if self.servers is None:
            raise Unavailable("Redis", "no answer in 10 ms")
        return self.servers

    def look(self, **servers: Eviction) -> None:
        self.servers = servers
        asyncio.run(self.watch.look())

    def metric(self, name: str) -> float:
        (family,) = (one for one in self.watch.metrics() if one.name == name)
        return family.samples[0].value


def test_evicting_policy_is_logged_once_with_remedy(caplog: pytest.LogCaptureFixture) -> None:
    servers = Servers()
    for _ in range(3):
        servers.look(a=Eviction("allkeys-lru", 0), b=Eviction("noeviction", 0))
    (text,) = caplog.messages
    assert text.startswith("a: maxmemory-policy allkeys-lru may drop counters")
    assert "CONFIG SET maxmemory-policy noeviction" in text
    assert servers.metric("sluicegate_store_evicting") == 1
    assert servers.watch.trouble == text
    servers.look(a=Eviction("noeviction", 0), b=Eviction("noeviction", 0))
    assert servers.metric("sluicegate_store_evicting") == 0
    assert servers.watch.trouble == ""


def test_noeviction_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    servers = Servers()
    servers.look(a=Eviction("noeviction", 5))
    assert caplog.messages == []
    assert servers.watch.evicted == 0


def test_unknown_policy_is_a_warning_without_alarm(caplog: pytest.LogCaptureFixture) -> None:
    servers = Servers()
    servers.look(a=Eviction("", 0, "NOPERM this user has no permissions"))
    assert "maxmemory-policy is unknown (NOPERM" in caplog.messages[0]
    assert servers.metric("sluicegate_store_evicting") == 0


def test_evicted_keys_count_from_start_and_over_restarts() -> None:
    servers = Servers()
    for evicted in (1_000, 1_030, 1_030, 7):
        servers.look(a=Eviction("allkeys-lru", evicted))
    assert servers.metric("sluicegate_store_evicted_keys") == 37


def test_evictions_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    servers = Servers()
    with caplog.at_level(logging.ERROR):
        for evicted in (0, 10, 20, 30):
            servers.look(a=Eviction("allkeys-lru", evicted))
        servers.clock.advance(us=LOG_EVERY_US)
        servers.look(a=Eviction("allkeys-lru", 40))
    texts = [text for text in caplog.messages if "evicted 10 keys" in text]
    assert len(texts) == 2


def test_silent_store_changes_nothing() -> None:
    servers = Servers()
    servers.look(a=Eviction("allkeys-lru", 3))
    servers.servers = None
    asyncio.run(servers.watch.look())
    assert servers.metric("sluicegate_store_evicting") == 1


def test_late_answers_and_longest_timeout_are_metrics() -> None:
    paths = [PathTimeout(), PathTimeout(5_000)]
    paths[1].observe(9_000, 2, 1)
    watch = LimiterStoreWatch(paths=lambda: paths)
    values = {one.name: one.samples[0].value for one in watch.metrics()}
    assert values["sluicegate_store_late_answers"] == 2
    assert values["sluicegate_store_timeout_seconds"] == CEILING_US / 1e6
    assert watch.state()["late"] == 2


class Store:
    """A store behind two paths, seen once a second."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.paths = [PathTimeout(), PathTimeout(5_000)]
        self.failed = 0
        self.watch = LimiterStoreWatch(
            paths=lambda: self.paths, clock=self.clock.now_us, failures=lambda: self.failed
        )

    def second(self, *trips_us: int, late: int = 0, failed: int = 0) -> str:
        for trip_us in trips_us:
            self.paths[1].observe(trip_us, late, self.clock.now_us())
        self.failed += failed
        self.clock.advance(s=1)
        self.watch.tick()
        return self.watch.health


def test_late_answers_make_store_slow_until_none_came_for_a_while() -> None:
    store = Store()
    assert store.second(1_000, 1_000) == "ok"
    assert store.second(*[240_000] * 60, late=1, failed=60) == "slow"
    assert store.second(failed=60) == "slow"  # while the breaker keeps calls from it
    assert store.watch.state()["trip_us"] == pytest.approx(240_000, rel=0.01)
    values = {
        (one.name, *(value for _, value in sample.labels)): sample.value
        for one in store.watch.metrics()
        for sample in one.samples
    }
    assert values["sluicegate_store_health", "slow"] == 1
    assert values["sluicegate_store_health", "down"] == 0
    assert values["sluicegate_store_answer_seconds",] == pytest.approx(0.24, rel=0.01)
    assert [store.second(900, failed=0) for _ in range(5)][-1] == "ok"


def test_failures_without_answers_make_store_down() -> None:
    store = Store()
    assert store.second(900) == "ok"
    assert store.second(failed=3) == "down"
    assert store.second() == "down"  # without calls
    assert store.second(900) == "ok"


def test_slow_store_that_dies_is_down() -> None:
    store = Store()
    assert store.second(240_000, late=1, failed=1) == "slow"
    assert [store.second(failed=5) for _ in range(5)] == ["slow"] * 4 + ["down"]
