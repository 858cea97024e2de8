"""One deadline and one class along two real hops: a protected service calls a protected one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, final

import httpx
import pytest

from sluicegate.contracts.errors import BadValue, Refused
from sluicegate.contracts.reasons import DEADLINE
from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.resilience.client.httpx import ResilientTransport
from sluicegate.resilience.client.resilient import resilient
from sluicegate.resilience.client.settings import client_settings
from sluicegate.resilience.context import ServedRequest, serve
from sluicegate.resilience.server.asgi import ProtectedApp, protect
from sluicegate.resilience.server.protection import Protection
from sluicegate.resilience.settings import Resilience
from sluicegate.testing import HandClock
from tests.doors.test_frameworks import served
from tests.resilience.client.drivers import NO_FIELDS, Send, each_driver
from tests.resilience.client.server import FAILING, OK, serving
from tests.resilience.server.test_asgi import Service

S = 1_000_000
FIELDS = {"x-sluicegate-deadline-ms": "5000", "x-sluicegate-criticality": "best-effort"}


def last_hop() -> ProtectedApp:
    """A service that gives a request without claims no deadline."""
    return protect(Service(), Resilience())


def made(clock: HandClock, **table: object) -> ResilientClient:
    long = {"timeout_us": 100 * S, "attempt_us": 100 * S, "retry": {"base_us": 1}}
    return ResilientClient(client_settings(long | table), clock=clock)


@final
class FirstHop:
    """Answers with what its call to the last hop brings, made on a thread that has its context."""

    def __init__(self, call: Callable[[], str], clock: HandClock, takes_us: int = 0) -> None:
        self._call = call
        self._clock = clock
        self._takes_us = takes_us
        self.refused: list[Refused] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self._clock.advance(us=self._takes_us)
        text = ""
        try:
            text = await asyncio.to_thread(self._call)
        except Refused as error:
            self.refused.append(error)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": text.encode()})


def two_hops(send: Send, clock: HandClock, client: ResilientClient, takes_us: int = 0) -> Any:
    """Ask the first hop with claims; return its answer, what it was refused, the last hop."""
    last = last_hop()
    with served(last) as port:
        url = f"http://127.0.0.1:{port}/"
        first = FirstHop(lambda: send(client, url, "GET", NO_FIELDS).text, clock, takes_us)
        with served(protect(first, protection=Protection(clock=clock))) as door:
            answer = httpx.get(f"http://127.0.0.1:{door}/", headers=FIELDS, timeout=60)
    return answer, first.refused, last.app


@each_driver
def test_the_last_hop_has_what_the_first_one_has_left_and_its_class(send: Send) -> None:
    clock = HandClock()
    answer, _, _ = two_hops(send, clock, made(clock, margin_us=5_000), takes_us=S)
    name, left_us = answer.text.split()
    assert name == "BEST_EFFORT"
    assert 0 < int(left_us) <= 3_995_000
    clock = HandClock()
    answer, _, _ = two_hops(send, clock, made(clock, claims=False))
    name, left_us = answer.text.split()
    assert (name, left_us) == ("DEGRADED", "None"), "without claims it knows of nothing"


@each_driver
def test_a_call_whose_time_is_over_makes_no_request(send: Send) -> None:
    clock = HandClock()
    answer, (refused,), last = two_hops(send, clock, made(clock), takes_us=5 * S)
    assert refused.decision.reason is DEADLINE
    assert answer.status_code == 504
    assert isinstance(last, Service)
    assert last.begun == 0


@each_driver
def test_the_smaller_of_what_is_left_and_the_calls_own_time_is_sent_once(send: Send) -> None:
    clock = HandClock()
    own = {"X-Sluicegate-Deadline-Ms": "1900", "x-sluicegate-criticality": "bulk"}
    cases = [(60 * S, own, 1_900), (1_500_000, own, 1_495), (60 * S, NO_FIELDS, 2_000)]
    for left_us, fields, sent_ms in cases:
        client = made(clock, attempt_us=2 * S, margin_us=5_000)
        with serving(OK) as server, serve(ServedRequest(deadline_us=clock.now_us() + left_us)):
            assert send(client, server.url, "GET", fields).text == "ok"
        head = server.heads[0].lower()
        assert head.count("x-sluicegate-deadline-ms") == 1
        assert f"x-sluicegate-deadline-ms: {sent_ms}\r\n" in head
        assert head.count("x-sluicegate-criticality: bulk\r\n") == (fields is own)
        assert head.count("x-sluicegate-criticality") == (fields is own)


@each_driver
def test_each_attempt_says_what_it_has_left(send: Send) -> None:
    clock = HandClock()
    table = {"failures_in_row": 1, "open_us": 1, "open_us_max": 1, "probe_successes": 1}
    client = made(clock, timeout_us=3 * S, breaker=table)
    # Time passes between the attempts.
    client.subscribe(lambda change: clock.advance(us=S * (change.after == "open")))
    with serving(FAILING, OK) as server:
        assert send(client, server.url, "GET", NO_FIELDS).text == "ok"
    sent = [head.lower().split("x-sluicegate-deadline-ms: ")[1][:4] for head in server.heads]
    assert sent == ["3000", "2000"]


@each_driver
def test_a_claim_that_cannot_be_understood_is_named_and_nothing_is_sent(send: Send) -> None:
    with serving(OK) as server, pytest.raises(BadValue, match="x-sluicegate-deadline-ms"):
        send(made(HandClock()), server.url, "GET", {"x-sluicegate-deadline-ms": "soon"})
    assert server.received == 0


def test_the_callers_own_request_is_left_as_it_is() -> None:
    transport = ResilientTransport(ResilientClient())
    with serving(OK) as server, httpx.Client(transport=transport) as driver:
        request = driver.build_request("GET", server.url)
        before = list(request.headers.raw)
        for _ in range(2):
            assert driver.send(request).text == "ok"
        assert list(request.headers.raw) == before


def test_any_function_is_called_with_the_class_and_the_time_of_what_is_served() -> None:
    clock = HandClock()
    client = made(clock)
    asked: list[int] = []

    @resilient(client, "b")
    def ask() -> None:
        asked.append(1)

    with serve(ServedRequest(deadline_us=clock.now_us() + S)):
        ask()
        clock.advance(us=S)
        with pytest.raises(Refused) as refused:
            ask()
    assert refused.value.decision.reason is DEADLINE
    assert len(asked) == 1


def test_what_outlives_its_request_is_not_late_for_ever() -> None:
    """A task begun for one request goes on after its answer, as refreshers do."""
    clock = HandClock()
    client = made(clock)
    go, done = threading.Event(), threading.Event()
    found: list[object] = []
    tasks: set[asyncio.Task[None]] = set()

    async def refresh() -> None:
        assert await asyncio.to_thread(go.wait, 30)
        try:
            found.append(await resilient(client, "b")(later)())
        except Refused as error:
            found.append(error)
        done.set()

    async def later() -> str:
        return "fresh"

    async def app(scope: Any, receive: Any, send: Any) -> None:
        tasks.add(asyncio.create_task(refresh()))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    with served(protect(app, protection=Protection(clock=clock))) as port:
        assert httpx.get(f"http://127.0.0.1:{port}/", headers=FIELDS).status_code == 200
        clock.advance(us=60 * S)
        go.set()
        assert done.wait(30)
    assert found == ["fresh"]
