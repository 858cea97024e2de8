"""Partitions by settings, through every door, on real servers: slow work leaves others their share.

Two calls hold both places. Who has a share of one is served at once; who has none is not.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import grpc
import httpx
import pytest

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.resilience.server.asgi import protect
from sluicegate.resilience.server.metrics import families
from sluicegate.resilience.server.protection import Protection
from sluicegate.resilience.server.wsgi import protect as protect_threads
from sluicegate.resilience.settings import Resilience, resilience_settings
from sluicegate.telemetry.prometheus import page
from tests.doors.test_frameworks import served
from tests.policies.virtual import VirtualLoop, pause_us, run
from tests.resilience.server import test_asgi, test_grpc, test_wsgi

PAID, HELD = ("/pay", "/T/Page"), ("/hold", "/T/Hold")
SETTINGS = {
    "queue": {"places": 2},
    "endpoints": {path: {"weight": "light"} for path in HELD},
    "partitions": {"checkout": {"share": 0.5, "endpoints": list(PAID)}},
}
REFUSED = "refused"
NO_PLACE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class Door:
    """A door that is open: its service, its protection, and a call by what is called."""

    def __init__(self, service: Any, protection: Protection, ask: Any, names: list[str]) -> None:
        self.service = service
        self.protection = protection
        self.ask = ask
        self.hold, self.paid, self.other = names


def ask_http(url: str, path: str, timeout_s: float) -> str:
    fields = {"x-sluicegate-deadline-ms": str(int(timeout_s * 1_000))}
    status = httpx.get(url + path, headers=fields, timeout=40).status_code
    return REFUSED if status in (503, 504) else str(status)


HTTP = ["/hold", "/pay", "/other"]


@contextlib.contextmanager
def by_asgi(settings: Resilience) -> Iterator[Door]:
    service = test_asgi.Service()
    app = protect(service, settings)
    with served(app) as port:
        yield Door(service, app.protection, partial(ask_http, f"http://127.0.0.1:{port}"), HTTP)


@contextlib.contextmanager
def by_wsgi(settings: Resilience) -> Iterator[Door]:
    service = test_wsgi.Service()
    app = protect_threads(service, settings)
    with test_wsgi.served(app) as url:
        yield Door(service, app.protection, partial(ask_http, url), HTTP)


@contextlib.contextmanager
def by_grpc(serve: Any, settings: Resilience) -> Iterator[Door]:
    service = test_grpc.Service()
    channel: Any
    with (
        serve(service, settings) as (port, protection),
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):

        def ask(method: str, timeout_s: float) -> str:
            try:
                if method == "/T/Stream":
                    list(channel.unary_stream(method)(b"", timeout=timeout_s))
                else:
                    channel.unary_unary(method)(b"", timeout=timeout_s)
            except grpc.RpcError as error:
                return REFUSED if error.code() in NO_PLACE else str(error)
            return "200"

        yield Door(service, protection, ask, ["/T/Hold", "/T/Page", "/T/Stream"])


@pytest.mark.parametrize(
    "door",
    [by_asgi, by_wsgi, partial(by_grpc, test_grpc.threaded), partial(by_grpc, test_grpc.looped)],
    ids=["asgi", "wsgi", "grpc", "grpc-asyncio"],
)
def test_what_holds_every_place_leaves_a_partition_its_share(door: Any) -> None:
    opened: Door
    with door(resilience_settings(SETTINGS)) as opened, ThreadPoolExecutor(2) as pool:
        held: list[Future[str]] = []
        try:
            for _ in range(2):  # while places are free anybody has them all
                held.append(pool.submit(opened.ask, opened.hold, 30))
                assert opened.service.entered.acquire(timeout=60)
            assert opened.ask(opened.other, 0.3) == REFUSED
            for _ in range(3):
                assert opened.ask(opened.paid, 20) == "200"
            assert opened.ask(opened.other, 0.3) == REFUSED
        finally:
            opened.service.gate.set()
        assert [one.result(60) for one in held] == ["200", "200"]
        assert opened.ask(opened.other, 20) == "200"
        text = page(families(opened.protection))
    sample = b'sluicegate_resilience_partition_under_way{lane="light",partition="checkout"} 0\n'
    assert sample in text


def test_a_line_that_stands_above_its_mark_is_in_nobodys_way_who_has_a_share() -> None:
    table = {
        **SETTINGS,
        "queue": {"places": 2, "form": "none"},
        "watermark": {"high": 1, "low": 0},
        "endpoints": {path: {"weight": "light"} for path in ("/hold", "/other", "/pay")},
    }

    async def story(loop: VirtualLoop) -> list[str]:
        protection = Protection(resilience_settings(table), clock=loop)

        async def ask(endpoint: str, took_us: int = 1) -> str:
            admitted = await protection.admit(protection.begin(endpoint))
            if isinstance(admitted, Decision):
                return admitted.rule_id
            await pause_us(took_us)
            admitted.end(Outcome.SUCCESS)
            return "served"

        held = [asyncio.ensure_future(ask("/hold", 100_000)) for _ in range(2)]
        await pause_us(1)
        waiting = [asyncio.ensure_future(ask("/other")) for _ in range(2)]
        await pause_us(1)
        found = [await ask("/other"), await ask("/pay"), await ask("/pay")]
        await asyncio.gather(*held, *waiting)
        await pause_us(2_000_000)  # until the timer of the loop rests
        return found

    assert run(story) == ["watermark", "served", "served"]


@pytest.mark.parametrize(
    ("table", "field"),
    [
        ({"a": {"share": 0.5}}, r"resilience\.partitions\.a\.endpoints"),
        ({"a": {"callers": ["x"]}}, r"resilience\.partitions\.a\.share"),
        ({"a": {"share": 2.0, "callers": ["x"]}}, r"resilience\.partitions\.a\.share"),
        ({"a": {"share": "half", "callers": ["x"]}}, r"resilience\.partitions\.a\.share"),
        ({"a": {"rule": "x"}}, r"resilience\.partitions\.a\.rule"),
        ({"a": 0.5}, r"resilience\.partitions\.a"),
        (
            {name: {"share": 0.6, "callers": [name]} for name in "ab"},
            r"resilience\.partitions\.share: 1\.2 .* add up to 1 at most",
        ),
    ],
)
def test_a_wrong_partition_is_named_with_its_field(table: dict[str, Any], field: str) -> None:
    with pytest.raises(BadValue, match=field):
        resilience_settings({"partitions": table})
