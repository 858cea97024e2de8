from __future__ import annotations

import socket
from typing import Any

import pytest
import requests
from urllib3.util import Timeout

from sluicegate.contracts.errors import Refused
from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.resilience.client.requests import ResilientAdapter
from sluicegate.resilience.client.settings import client_settings
from tests.resilience.client.server import FAILING, GARBAGE, HANGS, LIMITED, OK, serving


def made(**table: object) -> ResilientClient:
    return ResilientClient(client_settings({"retry": {"base_us": 1}} | table))


def session(client: ResilientClient) -> requests.Session:
    found = requests.Session()
    found.mount("http://", ResilientAdapter(client))
    return found


@pytest.mark.parametrize("fault", [FAILING, GARBAGE, HANGS], ids=["503", "garbage", "hangs"])
def test_what_is_safe_to_repeat_is_repeated(fault: bytes) -> None:
    client = made(attempt_us=200_000)
    with serving(fault, OK) as server, session(client) as driver:
        assert driver.get(server.url).text == "ok"
        assert server.received == 2
    assert client.breaker.stats().inflight == 0


def test_a_post_that_may_have_run_is_sent_once_and_its_response_is_handed_over() -> None:
    with serving(FAILING, OK) as server, session(made()) as driver:
        assert driver.post(server.url, data=b"a").status_code == 503
        assert server.received == 1


def test_with_an_idempotency_key_a_post_is_repeated_and_a_stream_never() -> None:
    key = {"idempotency-key": "1"}
    with serving(FAILING, OK) as server, session(made()) as driver:
        assert driver.post(server.url, data=b"a", headers=key).status_code == 200
    with serving(FAILING, OK) as server, session(made()) as driver:
        assert driver.post(server.url, data=iter([b"a"]), headers=key).status_code == 503
        assert server.received == 1


def test_a_spent_quota_is_not_repeated_and_opens_no_breaker() -> None:
    client = made()
    with serving(LIMITED) as server, session(client) as driver:
        for _ in range(30):
            assert driver.get(server.url).status_code == 429
        assert server.received == 30
    assert client.breaker.stats().not_closed == 0


def test_a_dead_backend_is_asked_no_more_once_its_breaker_is_open() -> None:
    client = made(
        breaker={"failures_in_row": 3, "open_us": 60_000_000}, retry={"attempts": [1, 1, 1, 1]}
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    with session(client) as driver:
        for _ in range(3):
            with pytest.raises(requests.ConnectionError):
                driver.get(url)
        with pytest.raises(Refused):
            driver.get(url)


def test_a_url_that_cannot_be_sent_is_the_callers_own_fault() -> None:
    client = made()
    with session(client) as driver, pytest.raises(requests.exceptions.InvalidURL):
        driver.get("http://.example/")
    assert client.breaker.stats().inflight == 0


@pytest.mark.parametrize("own", [None, 9.0, (9.0, None), Timeout(connect=9.0), Timeout(total=9.0)])
def test_whatever_limits_a_caller_has_an_attempt_keeps_its_time(own: Any) -> None:
    client = made(attempt_us=400_000)
    with serving(OK, HANGS) as server, session(client) as driver:
        assert driver.get(server.url, timeout=own).text == "ok"
        with pytest.raises(requests.Timeout):
            driver.post(server.url, timeout=own)
        assert server.received == 2
