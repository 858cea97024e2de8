"""A backend that says it has too much: what each driver's client does, and what it must not do."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.reasons import BREAKER_OPEN
from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.resilience.client.httpx import ResilientTransport
from sluicegate.resilience.client.settings import client_settings
from sluicegate.resilience.context import ServedRequest, serve
from sluicegate.resilience.hosts.group import HostGroup
from sluicegate.resilience.server.asgi import protect
from tests.doors.test_frameworks import served
from tests.resilience.client.drivers import NO_FIELDS, Send, each_driver
from tests.resilience.client.server import FAILING, OK, refusing, serving
from tests.resilience.server.test_asgi import Service, few_places, in_line


def marked(*, retry: int, after_ms: int, admitted: int = 0) -> bytes:
    mark = f"retry={retry}, after-ms={after_ms}, admitted-permille={admitted}"
    return refusing("Retry-After: 1", f"X-Sluicegate-Overload: {mark}")


def made(hosts: HostGroup | None = None, **table: object) -> ResilientClient:
    return ResilientClient(client_settings({"retry": {"base_us": 1}} | table), hosts)


@each_driver
def test_a_mark_that_says_no_stops_this_call_and_the_next_ones(send: Send) -> None:
    client = made()
    with serving(marked(retry=0, after_ms=60_000), OK) as server:
        assert send(client, server.url, "GET", NO_FIELDS).status == 503
        with pytest.raises(Refused) as refused:
            send(client, server.url, "GET", NO_FIELDS)
        assert server.received == 1
    decision = refused.value.decision
    assert decision.reason is BREAKER_OPEN
    assert 30_000_000 < decision.retry_after_us <= 60_000_000
    assert client.retry.stats().marked_final == 1
    assert client.throttle.stats().inflight == 0


@each_driver
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_mark_with_a_time_is_heeded_to_the_millisecond(send: Send, method: str) -> None:
    client = made()
    with serving(marked(retry=1, after_ms=80), OK) as server:
        began_s = time.monotonic()
        assert send(client, server.url, method, NO_FIELDS).text == "ok"
        assert time.monotonic() - began_s >= 0.08
        assert server.received == 2
    assert client.breaker.stats().opened == 1


@each_driver
def test_no_wait_goes_beyond_the_deadline_or_the_budget(send: Send) -> None:
    late = made()
    with serving(refusing("Retry-After: 60"), OK) as server:
        assert send(late, server.url, "GET", NO_FIELDS).status == 503
        assert server.received == 1
    assert late.retry.stats().too_late == 1
    poor = made(retry_budget={"reserve_milli_per_s": 0, "deposit_milli": 0})
    with serving(marked(retry=1, after_ms=1), OK) as server:
        assert send(poor, server.url, "GET", NO_FIELDS).status == 503
        assert server.received == 1
    assert poor.retry.stats().budget_spent == 1


@each_driver
def test_a_plain_time_is_waited_for_by_what_is_safe_to_repeat(send: Send) -> None:
    with serving(refusing("Retry-After: 1"), OK) as server:
        assert send(made(), server.url, "POST", NO_FIELDS).status == 503
        assert server.received == 1, "it may have begun"
    with serving(refusing("Retry-After: 1"), refusing("Retry-After: soon"), OK) as server:
        began_s = time.monotonic()
        assert send(made(), server.url, "GET", NO_FIELDS).text == "ok"
        assert time.monotonic() - began_s >= 1.0
        assert server.received == 3, "garbage is repeated as a failure"


@each_driver
def test_a_backend_that_still_admits_a_part_is_left_to_the_throttle(send: Send) -> None:
    client = made(throttle={"requests_min": 1, "multiplier": 1.0})
    with serving(marked(retry=0, after_ms=60_000, admitted=100), OK) as server:
        assert send(client, server.url, "GET", NO_FIELDS).status == 503
        assert server.received == 1
    assert client.breaker.stats().not_closed == 0
    assert client.throttle.stats().sent == 1
    held_back = made(throttle={"requests_min": 1, "multiplier": 1.0})
    with serving(marked(retry=0, after_ms=60_000, admitted=500)) as server:
        for _ in range(20):
            with contextlib.suppress(Refused):
                assert send(held_back, server.url, "GET", NO_FIELDS).status == 503
        assert server.received < 20
    assert held_back.throttle.stats().throttled > 0
    shut = made(breaker={"pressure_permille": 1_001})
    with serving(marked(retry=0, after_ms=60_000, admitted=500)) as server:
        assert send(shut, server.url, "GET", NO_FIELDS).status == 503
    assert shut.breaker.stats().not_closed == 1


def test_one_of_many_behind_a_name_that_refuses_stops_none_of_the_others() -> None:
    """Every tenth answer is a 503 with a time: the calls between them are all sent."""
    client = made(retry={"attempts": [1, 1, 1, 1]})
    script = ([OK] * 9 + [refusing("Retry-After: 30")]) * 10
    driver = httpx.Client(transport=ResilientTransport(client))
    with serving(*script) as server, driver:
        statuses = [driver.get(server.url).status_code for _ in range(100)]
    assert statuses.count(200) == 90
    assert client.breaker.stats().not_closed == 0


@pytest.mark.parametrize("answer", [FAILING, marked(retry=0, after_ms=60_000)], ids=["503", "mark"])
def test_what_one_host_says_stops_no_other_host(answer: bytes) -> None:
    with contextlib.ExitStack() as stack:
        bad = stack.enter_context(serving(answer, OK))
        good = [stack.enter_context(serving(OK)) for _ in range(4)]
        hosts = [f"127.0.0.1:{bad.port}"]
        group = HostGroup(lambda: hosts)
        client = made(group, retry={"attempts": [1, 1, 1, 1]})
        driver = stack.enter_context(httpx.Client(transport=ResilientTransport(client)))
        assert driver.get("http://service/").status_code == 503
        hosts.extend(f"127.0.0.1:{server.port}" for server in good)
        assert group.refresh()
        assert all(driver.get("http://service/").status_code == 200 for _ in range(60))
        states = list(client.breaker.states().values())
        assert states.count("open") == (answer != FAILING)
        if answer != FAILING:
            assert bad.received == 1


@each_driver
def test_a_protected_service_with_a_full_line_is_asked_once_for_each_call(send: Send) -> None:
    service = Service()
    app = protect(service, few_places())
    client = made()
    with served(app) as port, ThreadPoolExecutor(3) as pool:
        url = f"http://127.0.0.1:{port}"
        held: list[Any] = [pool.submit(httpx.get, f"{url}/hold", timeout=30) for _ in range(3)]
        try:
            assert service.entered.acquire(timeout=10)
            while in_line(app) < 2:
                httpx.get(f"{url}/healthz")  # a turn of the loop each
            with serve(ServedRequest(criticality=Criticality.BULK)):
                assert send(client, f"{url}/other", "GET", NO_FIELDS).status == 503
            assert app.protection.stats().gate.refused_full == 1
        finally:
            service.gate.set()
        assert [one.result().status_code for one in held] == [200, 200, 200]
        assert send(client, f"{url}/other", "GET", NO_FIELDS).status == 200
