from __future__ import annotations

import asyncio
import tomllib
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

import pytest

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, Refused
from sluicegate.contracts.reasons import BREAKER_OPEN, DEADLINE, OVERLOADED, RATE_LIMITED, Reason
from sluicegate.contracts.request import Request
from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.resilience.client.calls import Call, ResilientClient
from sluicegate.resilience.client.resilient import resilient
from sluicegate.resilience.client.settings import ClientSettings, client_settings
from sluicegate.testing import HandClock, SeededChance

S = 1_000_000


def made(clock: HandClock, settings: ClientSettings | None = None) -> ResilientClient:
    return ResilientClient(
        settings, clock=clock, chance=SeededChance(1), pause=lambda s: clock.advance(us=int(s * S))
    )


def run(
    client: ResilientClient, fail: Callable[[int], None], *, sync: bool, idempotent: bool = True
) -> list[int]:
    """Call a function that fails as `fail` says; return the numbers of its attempts."""
    attempts: list[int] = []

    def once() -> str:
        attempts.append(len(attempts))
        fail(attempts[-1])
        return "done"

    try:
        if sync:
            assert resilient(client, "b", operation="get", idempotent=idempotent)(once)() == "done"
        else:

            async def once_async() -> str:
                return once()

            decorate = resilient(client, "b", operation="get", idempotent=idempotent)
            assert asyncio.run(decorate(once_async)()) == "done"
    except Refused as error:
        reason = error.decision.reason
        attempts.append(0 if reason is None else -reason.http_status)
    return attempts


def refuse(reason: Reason, retry_after_us: int = 0) -> Callable[[int], None]:
    def fail(_: int) -> None:
        raise Refused(Decision(False, 0, retry_after_us, 0, reason, "backend"))

    return fail


both = pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])


@both
def test_an_overload_opens_the_breaker_at_once_and_is_not_repeated(sync: bool) -> None:
    clock = HandClock()
    client = made(clock)
    assert run(client, refuse(OVERLOADED, 30 * S), sync=sync) == [0, -503]
    admission = client.breaker.admit(Request("", shard="b", operation="get"), clock.now_us() + S)
    assert isinstance(admission, Decision)
    assert admission.reason is BREAKER_OPEN
    assert admission.retry_after_us > 28 * S


@both
def test_a_quota_never_opens_the_breaker(sync: bool) -> None:
    client = made(HandClock())
    for _ in range(50):
        assert run(client, refuse(RATE_LIMITED), sync=sync) == [0, -429]
    assert client.breaker.stats().not_closed == 0


@both
def test_a_bug_passes_through_once_and_holds_nothing(sync: bool) -> None:
    client = made(HandClock())

    def fail(_: int) -> None:
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        run(client, fail, sync=sync)
    assert client.retry.stats().inflight == 0
    assert client.breaker.stats().inflight == 0
    assert client.throttle.stats().inflight == 0


def test_a_call_gets_what_is_left_of_the_deadline_less_the_margin() -> None:
    clock = HandClock()
    client = made(clock, ClientSettings(margin_us=5_000, attempt_us=2 * S))
    request = Request("", shard="b", deadline_us=clock.now_us() + S)
    left: list[int] = []

    def work(call: Call) -> CallResult[str]:
        left.append(call.left_us)
        return CallResult(ResultKind.OK, "done")

    assert client.call_now(work, request).unwrap() == "done"
    assert left == [995_000]
    assert request.deadline_us == clock.now_us() + S, "the caller's own is left alone"
    clock.advance(us=S)
    late = client.call_now(work, request)
    assert isinstance(late.error, Refused)
    assert late.error.decision.reason is DEADLINE
    assert late.dont_retry
    assert len(left) == 1, "nothing is sent that nobody waits for"


def test_an_outer_client_does_not_repeat_what_an_inner_one_gave_up() -> None:
    clock = HandClock()
    outer, inner = made(clock), made(clock)
    request = Request("", shard="b")
    attempts: list[int] = []

    def work(call: Call) -> CallResult[str]:
        attempts.append(call.attempt)
        return CallResult(ResultKind.UNREACHED)

    result = outer.call_now(
        lambda _: inner.call_now(work, request, idempotent=True), request, idempotent=True
    )
    assert attempts == [0, 1, 2]
    assert result.dont_retry
    assert outer.retry.stats().attempts == 1


def test_what_ends_after_the_call_is_refused_and_what_has_no_name_is_called() -> None:
    """A generator, or a coroutine that a plain callable returns, would count as a success."""

    def pieces() -> Iterator[int]:
        yield 1

    async def later() -> AsyncIterator[int]:
        yield 1

    async def value() -> int:
        return 7

    def call(function: Callable[[], object]) -> object:
        return function()

    client = ResilientClient()
    for function in (pieces, later):
        with pytest.raises(BadValue, match="returns a value"):
            resilient(client, "search")(function)
    with pytest.raises(BadValue, match="async def"):
        resilient(client, "search")(partial(call, value))()
    assert resilient(client, "search")(partial(int, "7"))() == 7
    assert client.breaker.stats().inflight == 0


def test_settings_are_read_from_toml_and_a_wrong_one_is_named() -> None:
    table = tomllib.loads("timeout_us = 3_000_000\n[retry]\nattempts = [2, 2, 2, 1]\nbase_us = 10")
    settings = client_settings(table)
    assert settings.timeout_us == 3 * S
    assert settings.retry.attempts == (2, 2, 2, 1)
    assert settings.retry.on_overload == "told", "what is not given keeps the client's default"
    assert client_settings({}) == ClientSettings()
    for wrong, path in (
        ({"breaker": {"open": 1}}, "client.breaker.open"),
        ({"retry": 3}, "client.retry"),
        ({"timeout_us": "3s"}, "client.timeout_us"),
        ({"retry": {"attempts": 3}}, "client.retry.attempts: 3 "),
        ({"retry": {"attempts": [3, 3]}}, "client.retry.attempts"),
        ({"retry": {"attempts": ["3", 1, 1, 1]}}, "client.retry.attempts"),
        ({"retry": {"attempts": [1.5, 1, 1, 1]}}, "client.retry.attempts"),
        ({"breaker": {"on_pressure": "open"}}, "client.breaker.on_pressure"),
        ({"throttle": {"multiplier": "2"}}, "client.throttle.multiplier"),
        (
            {"throttle": {"multiplier": 0.5}},
            "client.throttle.multiplier: 0.5 cannot be used; it must be from 1 to 1000$",
        ),
        ({"hedge": True}, r"client.hedge: True .* \[client.hedge\]"),
        ({"hedge": {"least_class": 1}}, "client.hedge.least_class"),
    ):
        with pytest.raises(BadValue, match=path):
            client_settings(wrong)
