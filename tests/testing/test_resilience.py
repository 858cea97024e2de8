from __future__ import annotations

import asyncio

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.policies.client.hedge import HedgeSettings
from sluicegate.resilience import Client, resilient
from sluicegate.resilience.client.settings import ClientSettings
from sluicegate.testing import set_testing


def never(seconds: float) -> None:
    raise AssertionError("it waited")


def test_testing_makes_one_attempt_without_wait() -> None:
    client, sent = Client(pause=never), []

    @resilient(client, "a", idempotent=True)
    def lost() -> None:
        sent.append(1)
        raise ConnectionResetError

    with set_testing(True), pytest.raises(ConnectionResetError):
        lost()
    assert len(sent) == 1
    with pytest.raises(AssertionError, match="it waited"):
        lost()


def test_testing_with_attempts_repeats_at_once() -> None:
    sent: list[int] = []

    @resilient(attempts=2, idempotent=True)
    async def lost() -> int:
        sent.append(1)
        if len(sent) < 5:
            raise ConnectionResetError
        return 7

    with set_testing(True, attempts=5):
        assert asyncio.run(asyncio.wait_for(lost(), 10)) == 7
    assert len(sent) == 5


def test_testing_repeats_only_what_is_safe() -> None:
    sent = []

    @resilient(attempts=2)
    def lost() -> None:
        sent.append(1)
        raise ConnectionResetError

    with set_testing(True, attempts=3), pytest.raises(ConnectionResetError):
        lost()
    assert len(sent) == 1


def test_testing_opens_no_breaker_and_sends_no_hedge() -> None:
    client = Client(settings=ClientSettings(hedge=HedgeSettings(samples_min=1, delay_us_min=0)))

    @resilient(client, "a", idempotent=True)
    def lost() -> None:
        raise ConnectionResetError

    with set_testing(True):
        for _ in range(100):
            with pytest.raises(ConnectionResetError):
                lost()
    assert client.breaker.stats().keys == 0
    assert client.hedge is not None
    assert client.hedge.stats().calls == 0


def test_testing_is_set_until_it_is_reset() -> None:
    set_testing(True)
    try:
        with set_testing(False):
            client = Client(pause=never)
            with pytest.raises(AssertionError, match="it waited"):
                client.run_now("a", fail, idempotent=True)
        with pytest.raises(ConnectionResetError):
            Client(pause=never).run_now("a", fail, idempotent=True)
    finally:
        set_testing(False)
    with pytest.raises(BadValue, match="attempts"):
        set_testing(True, attempts=0)


def fail() -> None:
    raise ConnectionResetError
