"""A store that does not answer is told in the log, in the decision, and at the start if asked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from sluicegate import BadValue, Claim, Limiter, Permits, Unavailable
from sluicegate.limits import outage_watch
from sluicegate.limits.outage_watch import AGAIN_US, CALM_US, OutageWatch
from sluicegate.limits.rule import Failure
from tests.engines.child import free_port
from tests.engines.redis import RedisServer

GONE = Unavailable("Redis at here:6379", "connection refused")


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "sluicegate.limits")
    return caplog


@pytest.fixture
def nowhere() -> str:
    """The URL of a port where nobody listens."""
    return f"redis://127.0.0.1:{free_port('127.0.0.1')}/0?connect_timeout_ms=200"


# The watch.


class Clock:
    us = 1_000_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(outage_watch, "now_us", lambda: clock.us)
    return clock


def test_an_outage_is_told_once_when_it_begins_and_once_when_it_ends(
    clock: Clock, log: pytest.LogCaptureFixture
) -> None:
    watch = OutageWatch()
    for _ in range(246):
        watch.fail(GONE, Failure.OPEN)
    clock.us += 12_000_000
    for _ in range(9):
        watch.answer()
    first, last = log.records
    assert (first.levelname, first.getMessage()) == (
        "WARNING",
        "Redis at here:6379 is unavailable: connection refused; admitting everything: failure=open",
    )
    assert last.getMessage() == (
        "the store answers again after 12.0 s; 246 decisions were made without it"
    )


@pytest.mark.parametrize(
    ("failure", "meaning"),
    [
        (Failure.CLOSED, "refusing everything: failure=closed"),
        (Failure.LOCAL, "counting in this process alone: failure=local"),
    ],
)
def test_what_it_means_is_told_by_policy(
    failure: Failure, meaning: str, log: pytest.LogCaptureFixture
) -> None:
    OutageWatch().fail(GONE, failure)
    assert meaning in log.text


def test_one_of_several_servers_that_is_away_is_one_outage(
    clock: Clock, log: pytest.LogCaptureFixture
) -> None:
    watch = OutageWatch()
    for _ in range(20):
        watch.fail(GONE, Failure.OPEN)
        clock.us += CALM_US // 2
        watch.answer()  # another server
    assert len(log.records) == 1
    assert watch.away


def test_what_comes_and_goes_is_told_once_a_minute(
    clock: Clock, log: pytest.LogCaptureFixture
) -> None:
    watch = OutageWatch()
    for _ in range(5):
        watch.fail(GONE, Failure.OPEN)
        clock.us += 2 * CALM_US
        watch.answer()
    assert len(log.records) == 2
    clock.us += AGAIN_US
    watch.fail(GONE, Failure.OPEN)
    assert len(log.records) == 3


# A limiter.


def test_a_wrong_port_is_told_in_the_log_and_in_the_decision(
    nowhere: str, log: pytest.LogCaptureFixture
) -> None:
    with Limiter("5/minute", store_url=nowhere) as limiter:
        decisions = [limiter.take("ann") for _ in range(200)]
    assert all(decision.allowed and decision.degraded for decision in decisions)
    (line,) = [one for one in log.messages if "admitting everything: failure=open" in one]
    assert "Redis at 127.0.0.1:" in line
    assert "failure policy decided. Redis at 127.0.0.1:" in decisions[0].explain()
    assert decisions[0].cause in line


ASKS: dict[str, Callable[[Limiter], object]] = {
    "take_all": lambda limiter: limiter.take_all(Claim("ann", "5/minute"), Claim("ann", "9/hour")),
    "peek": lambda limiter: limiter.peek("ann", rule="5/minute"),
    "reserve": lambda limiter: limiter.reserve("ann", rule="5/minute"),
    "atake": lambda limiter: asyncio.run(_atake(limiter)),
}


async def _atake(limiter: Limiter) -> None:
    await limiter.atake("ann", rule="5/minute")
    await limiter.aclose()


@pytest.mark.parametrize("name", ASKS)
def test_every_ask_tells_it(name: str, nowhere: str, log: pytest.LogCaptureFixture) -> None:
    with Limiter(store_url=nowhere, failure="closed") as limiter:
        ASKS[name](limiter)
    assert log.text.count("refusing everything: failure=closed") == 1


def test_permits_tell_it_too(nowhere: str, log: pytest.LogCaptureFixture) -> None:
    with Permits(5, store_url=nowhere) as permits:
        permit = permits.acquire("ann")
        permits.acquire("ann")
    assert log.text.count("admitting everything: failure=open") == 1
    assert "Redis at 127.0.0.1:" in permit.decision.explain()


def test_a_store_that_comes_back_is_told(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(outage_watch, "CALM_US", 0)
    with Limiter("5/minute", store_url=redis_server.patient_url) as limiter:
        assert not limiter.take("ann").degraded
        assert log.messages == []
        limiter._remote.watch.fail(GONE, Failure.OPEN)  # type: ignore[union-attr]
        assert not limiter.take("bob").degraded
    assert "answers again" in log.text


# At the start.


def test_a_limiter_may_require_its_store(nowhere: str, redis_server: RedisServer) -> None:
    with pytest.raises(Unavailable, match=r"Redis at 127\.0\.0\.1"):
        Limiter("5/minute", store_url=nowhere, require_store=True)
    with Limiter("5/minute", store_url=redis_server.patient_url, require_store=True) as limiter:
        assert limiter.peek("ready").remaining == 4
    assert Limiter("5/minute", require_store=True).take("ann")
    with pytest.raises(BadValue, match="require_store"):
        Limiter("5/minute", require_store="yes")  # type: ignore[arg-type]


def test_ready_returns_when_the_store_answers_and_raises_when_it_does_not(
    nowhere: str, redis_server: RedisServer
) -> None:
    async def story() -> None:
        await Limiter("5/minute").ready()
        async with Limiter("5/minute", store_url=redis_server.patient_url) as limiter:
            await limiter.ready()
        async with Limiter("5/minute", store_url=nowhere) as limiter:
            with pytest.raises(Unavailable, match=r"Redis at 127\.0\.0\.1"):
                await limiter.ready()

    asyncio.run(story())
