"""A limiter at its defaults on a Redis that is slow, gone or full."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.apps.limiter.process import LimiterProcess, rules_file
from tests.engines.child import until
from tests.stores.redis.slow_path import SlowPath

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

RULES = """\
version: 1
rules:
  - {rule_id: all, resource_path: "/*", limit: 1000000, window_seconds: 60}
"""
DELAY_MS = (30, 80)  # of a round trip


def degraded(limiter: LimiterProcess) -> float:
    return limiter.metric("sluicegate_limiter_decisions_total", outcome="degraded_allowed")


@pytest.mark.engine
def test_limiter_counts_on_path_that_became_slow(tmp_path: Path, redis_server: RedisServer) -> None:
    """30 to 80 ms more for each answer: after a moment, checks are counted and none is let by."""
    with (
        SlowPath(redis_server.port) as path,
        LimiterProcess(
            tmp_path, "--rules", rules_file(tmp_path, RULES), "--store", path.url
        ) as limiter,
    ):
        for _ in range(300):
            limiter.check("ann")
        path.delay_ms = DELAY_MS
        until(lambda: limiter.check("ann") and _learned(limiter), "the limiter to learn")
        before = degraded(limiter)
        for _ in range(40):
            limiter.check("ann")
        assert degraded(limiter) - before <= 2  # the machine may stall beyond the ceiling
        assert limiter.metric("sluicegate_store_timeout_seconds") >= 0.03


def _learned(limiter: LimiterProcess) -> bool:
    return limiter.metric("sluicegate_store_timeout_seconds") >= DELAY_MS[1] / 1e3


@pytest.mark.engine
def test_dead_redis_costs_no_more_than_ceiling(tmp_path: Path, redis_server: RedisServer) -> None:
    """A paused Redis: the first checks wait for the ceiling at most, the others do not wait."""
    with LimiterProcess(
        tmp_path,
        "--rules",
        rules_file(tmp_path, RULES),
        "--store",
        redis_server.url,
    ) as limiter:
        assert limiter.check("ann")["allowed"]
        redis_server.pause()
        answers = [limiter.check("ann") for _ in range(30)]
        assert all(answer["allowed"] for answer in answers)
        assert degraded(limiter) == 30
        _, state = limiter.ask("/v1/state")
        assert state["store_watch"]["timeout_us"] <= 150_000
        until(lambda: limiter.metric("sluicegate_store_health", state="down") == 1, "it is down")


@pytest.mark.engine
def test_redis_beyond_ceiling_is_slow_and_not_down(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    """Answers after 400 ms come too late for every time-out."""
    with (
        SlowPath(redis_server.port) as path,
        LimiterProcess(
            tmp_path, "--rules", rules_file(tmp_path, RULES), "--store", path.url
        ) as limiter,
    ):
        assert limiter.check("ann")["allowed"]
        path.delay_ms = (400, 401)
        until(
            lambda: (
                limiter.check("ann") and limiter.metric("sluicegate_store_health", state="slow")
            ),
            "the store to be slow",
        )
        _, state = limiter.ask("/v1/state")
        assert state["store_watch"]["health"] == "slow"
        assert state["store_watch"]["trip_us"] > 20_000
        path.delay_ms = (0, 1)
        until(
            lambda: limiter.check("ann") and limiter.metric("sluicegate_store_health", state="ok"),
            "the store to be well",
        )


@pytest.mark.engine
def test_pausing_redis_sheds_no_request(tmp_path: Path, redis_server: RedisServer) -> None:
    """Twelve callers far below their limit, while Redis stops for 150 ms of each 500 ms."""
    refused: list[Any] = []
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            answer = limiter.check("ann")
            if not answer["allowed"]:
                refused.append(answer)

    with LimiterProcess(
        tmp_path, "--rules", rules_file(tmp_path, RULES), "--store", redis_server.url
    ) as limiter:
        callers = [threading.Thread(target=ask) for _ in range(12)]
        for caller in callers:
            caller.start()
        try:
            for _ in range(12):
                redis_server.pause()
                time.sleep(0.15)
                redis_server.resume()
                time.sleep(0.35)
        finally:
            ended.set()
            for caller in callers:
                caller.join()
        assert refused == []
        assert "sheds" not in limiter.log.read_text()


@pytest.mark.engine
def test_evicting_redis_is_reported_with_number_of_evictions(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    redis_server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    with LimiterProcess(
        tmp_path, "--rules", rules_file(tmp_path, RULES), "--store", redis_server.url
    ) as limiter:
        until(lambda: limiter.metric("sluicegate_store_evicting") == 1, "the policy")
        redis_server.ask("CONFIG", "SET", "maxmemory", "3mb")
        for number in range(40):
            redis_server.ask("SET", f"filler-{number}", "x" * 100_000)
        until(lambda: limiter.metric("sluicegate_store_evicted_keys_total") > 0, "evictions")
        _, state = limiter.ask("/v1/state")
        assert "maxmemory-policy allkeys-lru" in state["store_watch"]["trouble"]
