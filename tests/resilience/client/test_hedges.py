"""Hedges of the client: a late call is sent once more, to somewhere else, if that does no harm."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from threading import Lock
from typing import Any, final

import httpx
import pytest
import requests

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.request import Request
from sluicegate.policies.client.balance import BalancePermit
from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.resilience.client.calls import Call, ResilientClient
from sluicegate.resilience.client.httpx import AsyncResilientTransport, ResilientTransport
from sluicegate.resilience.client.race import THREADS_MAX
from sluicegate.resilience.client.requests import ResilientAdapter
from sluicegate.resilience.client.resilient import resilient
from sluicegate.resilience.client.settings import client_settings
from sluicegate.resilience.context import ServedRequest, serve, served_request
from sluicegate.resilience.hosts.group import HostGroup
from tests.resilience.client.server import HANGS, OK, ScriptedServer, serving

LEARNED = 20  # calls, after which it is known what is late
# Nothing here takes as long as that unless it is made to.
HEDGE = {"samples_min": 10, "refresh_us": 0, "delay_us_min": 200_000, "least_class": "degraded"}
ONCE = {"attempts": [1, 1, 1, 1]}


def made(hosts: HostGroup | None = None, **table: Any) -> ResilientClient:
    long = {"timeout_us": 60_000_000, "attempt_us": 60_000_000, "retry": ONCE, "hedge": HEDGE}
    return ResilientClient(client_settings(long | table), hosts)


async def nothing_is_held(client: ResilientClient) -> None:
    """What lost has been cancelled, and ends with a turn of the loop or two."""
    for _ in range(1_000):
        await asyncio.sleep(0)
    assert client.breaker.stats().inflight == client.throttle.stats().inflight == 0


def test_a_late_call_is_sent_again_and_the_first_good_answer_wins() -> None:
    client = made()

    async def story(server: ScriptedServer) -> None:
        below = httpx.AsyncHTTPTransport(verify=False)
        async with httpx.AsyncClient(transport=AsyncResilientTransport(client, below)) as driver:
            for _ in range(LEARNED):
                assert (await driver.get(server.url)).text == "ok"
            server.then(HANGS, OK)
            assert (await driver.get(server.url)).text == "ok"
            await nothing_is_held(client)

    with serving(OK) as server:
        asyncio.run(story(server))
        assert server.received >= LEARNED + 2
    assert client.hedge is not None
    stats = client.hedge.stats()
    assert stats.won >= 1
    assert stats.running == 0
    assert client.retry.budgets.stats().granted == stats.hedges


@pytest.mark.parametrize(
    ("method", "table"),
    [
        ("POST", {}),
        ("GET", {"hedge": HEDGE | {"least_class": "critical"}}),
        ("GET", {"retry_budget": {"reserve_milli_per_s": 0, "deposit_milli": 0}}),
    ],
    ids=["not idempotent", "not of the class", "no budget"],
)
def test_what_must_not_be_hedged_is_sent_once(method: str, table: dict[str, Any]) -> None:
    client = made(**table)

    async def story(url: str, hanging: Any) -> None:
        async with httpx.AsyncClient(transport=AsyncResilientTransport(client)) as driver:
            for _ in range(LEARNED):
                await driver.request(method, url)
            late = asyncio.create_task(driver.request(method, url))
            await asyncio.to_thread(hanging.wait, 30)
            done, _ = await asyncio.wait([late], timeout=0.3)
            assert not done
            late.cancel()
            await asyncio.wait([late])
            await nothing_is_held(client)

    with serving(*[OK] * LEARNED, HANGS, OK) as server:
        asyncio.run(story(server.url, server.hanging))
        assert server.received == LEARNED + 1


def test_a_hedge_goes_to_another_host() -> None:
    async def story() -> None:
        client = made(HostGroup(lambda: ["a:1", "b:1"]))
        hosts: list[str] = []
        hang = False

        async def work(call: Call) -> CallResult[str]:
            hosts.append(call.host)
            if hang and not call.is_hedge:
                await asyncio.Event().wait()
            return CallResult(ResultKind.OK, "done")

        request = Request("", shard="s")
        for _ in range(LEARNED):
            assert (await client.call(work, request, idempotent=True)).ok
        assert client.hosts is not None
        balance, now_us = client.hosts.balance, client.clock.now_us()
        refused = balance.admit(request, now_us, avoid=["a:1"])
        assert isinstance(refused, BalancePermit)
        refused.end_with(CallResult(ResultKind.FAILED), now_us)  # it will be the last resort
        hang = True
        hosts.clear()
        assert (await client.call(work, request, idempotent=True)).ok
        assert hosts == ["a:1", "b:1"]
        await nothing_is_held(client)
        assert balance.stats().inflight == 0

    asyncio.run(story())


@final
class Attempts:
    """An observer that keeps what became of each attempt, by host."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, ResultKind]] = []

    def record_attempt(
        self,
        request: Request,
        attempt: int,
        host: str,
        result: CallResult[object],
        began_us: int,
        now_us: int,
    ) -> None:
        self.ended.append((host, result.kind))


def test_the_success_of_a_hedge_is_none_of_the_host_that_was_late() -> None:
    async def story() -> None:
        attempts = Attempts()
        client = made(HostGroup(lambda: ["a:1", "b:1"]))
        client.observer = attempts
        late = ""

        async def work(call: Call) -> CallResult[str]:
            nonlocal late
            if late == "any":
                late = call.host
            if call.host == late:
                await asyncio.Event().wait()
            return CallResult(ResultKind.OK, "done")

        request = Request("", shard="s")
        for _ in range(LEARNED):
            await client.call(work, request, idempotent=True)
        assert client.hosts is not None
        outlier = client.hosts.balance.outlier
        before = outlier.stats().recorded
        attempts.ended.clear()
        late = "any"
        assert (await client.call(work, request, idempotent=True)).ok
        await nothing_is_held(client)
        assert client.hosts.balance.stats().inflight == 0
        assert outlier.stats().recorded == before + 1
        other = "b:1" if late == "a:1" else "a:1"
        ended = [(other, ResultKind.OK), (late, ResultKind.CANCELLED)]
        assert attempts.ended == ended

    asyncio.run(story())


@final
class Body(httpx.AsyncByteStream):
    def __init__(self, below: Below) -> None:
        self._below = below

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"ok"

    async def aclose(self) -> None:
        self._below.closed += 1


@final
class Below(httpx.AsyncBaseTransport):
    """Answers late calls together with their hedges, so that both have a response."""

    def __init__(self) -> None:
        self.opened = self.closed = self.received = 0
        self.late_at = 0  # the number of the request that waits for the one after it
        self._together = asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.received += 1
        if self.received == self.late_at:
            await self._together.wait()
        elif self.late_at:
            self._together.set()
        self.opened += 1
        return httpx.Response(200, stream=Body(self))


def test_a_response_that_lost_gives_its_connection_back() -> None:
    async def story() -> None:
        below = Below()
        async with httpx.AsyncClient(transport=AsyncResilientTransport(made(), below)) as driver:
            for _ in range(LEARNED):
                await driver.get("http://b/")
            below.late_at = below.received + 1
            async with driver.stream("GET", "http://b/"):
                assert below.received == below.late_at + 1
                assert below.opened - below.closed == 1
            assert below.opened == below.closed

    asyncio.run(story())


def test_a_wrong_setting_is_named() -> None:
    assert client_settings({"hedge": {}}).hedge is not None
    assert client_settings({}).hedge is None
    with pytest.raises(BadValue, match=r"client\.hedge\.least_class"):
        client_settings({"hedge": {"least_class": "urgent"}})


def threads_of_attempts() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith("sluicegate attempt")]


def test_late_call_of_thread_is_sent_again_and_first_answer_wins() -> None:
    client, hangs, sent = made(), threading.Event(), Lock()
    numbers: list[int] = []

    @resilient(client, "b", idempotent=True)
    def work(late: bool) -> str:
        with sent:
            numbers.append(len(numbers))
            first = len(numbers) == LEARNED + 1
        if late and first:
            hangs.wait(30)
            return "late"
        return "quick"

    for _ in range(LEARNED):
        assert work(False) == "quick"
    assert work(True) == "quick"
    assert len(numbers) >= LEARNED + 2
    assert client.hedge is not None
    stats = client.hedge.stats()
    assert (stats.hedges, stats.won) == (1, 1)
    hangs.set()
    for one in threads_of_attempts():
        one.join(10)
    assert client.breaker.stats().inflight == client.throttle.stats().inflight == 0
    assert client.retry.stats().inflight == 0


def test_call_of_thread_has_no_other_thread_until_lateness_is_known() -> None:
    client, seen = made(), set()

    @resilient(client, "b", idempotent=True)
    def work() -> None:
        seen.add(threading.get_ident())

    for _ in range(5):
        work()
    assert seen == {threading.get_ident()}


def test_bug_in_thread_of_attempt_is_raised_in_the_caller() -> None:
    client = made()

    @resilient(client, "b", idempotent=True)
    def work(bug: bool) -> str:
        if bug:
            raise KeyError("a bug")
        return "done"

    for _ in range(LEARNED):
        work(False)
    with pytest.raises(KeyError):
        work(True)
    assert client.retry.stats().inflight == client.breaker.stats().inflight == 0


def test_failure_of_late_attempt_is_repeated() -> None:
    client = made(retry={"attempts": [3, 3, 3, 1], "base_us": 1, "wait_us_max": 1_000})
    sent = []

    @resilient(client, "b", idempotent=True)
    def work(fails: bool) -> str:
        sent.append(1)
        if fails and len(sent) <= LEARNED + 1:
            raise ConnectionResetError
        return "done"

    for _ in range(LEARNED):
        work(False)
    assert work(True) == "done"
    assert len(sent) == LEARNED + 2


def test_served_request_is_seen_by_each_thread_of_attempts() -> None:
    client = made()

    @resilient(client, "b", idempotent=True)
    def work() -> str:
        served = served_request()
        return "" if served is None else served.caller

    with serve(ServedRequest(caller="shop")):
        assert {work() for _ in range(LEARNED + 5)} == {"shop"}


def by_httpx(client: ResilientClient) -> Callable[[str], str]:
    driver = httpx.Client(transport=ResilientTransport(client, httpx.HTTPTransport(verify=False)))
    return lambda url: driver.get(url).text


def by_requests(client: ResilientClient) -> Callable[[str], str]:
    session = requests.Session()
    session.trust_env = False
    session.mount("http://", ResilientAdapter(client))
    return lambda url: session.get(url).text


@pytest.mark.parametrize("driver", [by_httpx, by_requests])
def test_late_request_of_blocking_driver_is_sent_again(driver: Any) -> None:
    client = made()
    get = driver(client)
    with serving(OK) as server:
        for _ in range(LEARNED):
            assert get(server.url) == "ok"
        server.then(HANGS, OK)
        assert get(server.url) == "ok"
    for one in threads_of_attempts():
        one.join(10)
    assert client.hedge is not None
    assert client.hedge.stats().won >= 1
    assert client.breaker.stats().inflight == client.retry.stats().inflight == 0


def test_more_hanging_attempts_than_threads_are_not_hedged() -> None:
    client = made()
    race = client._races
    assert race is not None
    race.running = THREADS_MAX
    request = Request("", shard="b")
    for _ in range(LEARNED):
        assert race.run(lambda _: CallResult(ResultKind.OK, 1), request).unwrap() == 1
    idents = {
        race.run(lambda _: CallResult(ResultKind.OK, threading.get_ident()), request).unwrap()
    }
    assert idents == {threading.get_ident()}
