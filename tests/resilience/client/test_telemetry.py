"""Metrics and spans of clients, dependencies and protected services."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from prometheus_client.parser import text_string_to_metric_families

from sluicegate.contracts.errors import BadValue
from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.resilience.client.httpx import AsyncResilientTransport
from sluicegate.resilience.client.metrics import dependency_families, families
from sluicegate.resilience.client.resilient import resilient
from sluicegate.resilience.client.settings import client_settings
from sluicegate.resilience.hosts.group import HostGroup
from sluicegate.resilience.hosts.sources import list_source
from sluicegate.resilience.kit import build_dependencies
from sluicegate.resilience.server.asgi import protect
from sluicegate.resilience.server.grpc import AsyncProtectInterceptor, ProtectInterceptor
from sluicegate.resilience.server.protection import Protection
from sluicegate.resilience.server.wsgi import protect as protect_wsgi
from sluicegate.resilience.settings import Resilience, resilience_settings
from sluicegate.resilience.tracing import ResilienceTracing
from sluicegate.telemetry.prometheus import page
from tests.doors.test_frameworks import served
from tests.resilience.client.server import FAILING, OK, serving


def values_of(shown: Any) -> dict[str, dict[tuple[str, ...], float]]:
    """What a real parser reads."""
    text = page(shown).decode()
    return {
        family.name: {tuple(one.labels.values()): one.value for one in family.samples}
        for family in text_string_to_metric_families(text)
    }


def tracing() -> tuple[ResilienceTracing, InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return ResilienceTracing(provider=provider), exporter


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return {name.removeprefix("sluicegate."): one for name, one in (span.attributes or {}).items()}


def test_what_a_client_does_is_counted_by_its_name() -> None:
    client = ResilientClient(client_settings({"retry": {"base_us": 1}, "hedge": {}}))
    other = ResilientClient(None, HostGroup(list_source(["a:1", "b:1"])))
    fails = [True, False, True, True, True]

    @resilient(client, "trends", idempotent=True)
    async def trends() -> None:
        if fails.pop(0):
            raise ConnectionResetError

    async def story() -> None:
        await trends()
        with pytest.raises(ConnectionResetError):
            await trends()

    asyncio.run(story())
    found = values_of(families({"search": client, "other": other}))
    assert found["sluicegate_client_calls"] == {("search",): 2, ("other",): 0}
    assert found["sluicegate_client_attempts"][("search",)] == 5
    assert found["sluicegate_client_mended"][("search",)] == 1
    assert found["sluicegate_client_given_up"][("search", "attempts_spent")] == 1
    assert found["sluicegate_client_under_way"][("search",)] == 0
    assert found["sluicegate_client_breakers"][("search",)] == 1
    assert found["sluicegate_client_hedges"] == {("search",): 0}
    assert found["sluicegate_client_hosts"] == {("other",): 2}
    assert found["sluicegate_client_hosts_out"] == {("other",): 0}


def test_what_stands_in_for_a_dependency_is_counted() -> None:
    settings = resilience_settings({"dependencies": {"reviews": {"soft": True}, "price": {}}})
    dependencies = build_dependencies(settings)

    async def broken() -> list[str]:
        raise ConnectionResetError

    async def well() -> list[str]:
        return ["good"]

    async def story() -> None:
        reviews = dependencies["reviews"]
        await reviews.call(well, "lamp", default=list)
        await reviews.call(broken, "lamp", default=list)
        await reviews.call(broken, "chair", default=list)
        await reviews.call(broken, "chair")

    asyncio.run(story())
    assert values_of(dependency_families(dependencies))["sluicegate_dependency_calls"] == {
        ("reviews", "good"): 1,
        ("reviews", "stale"): 1,
        ("reviews", "defaulted"): 1,
        ("reviews", "failed"): 1,
    }


@pytest.mark.parametrize("hedges", [False, True])
def test_each_attempt_has_a_span_once(hedges: bool) -> None:
    observer, exporter = tracing()
    table = {"retry": {"base_us": 1}} | ({"hedge": {}} if hedges else {})
    client = ResilientClient(client_settings(table), observer=observer)

    async def story(url: str) -> None:
        below = httpx.AsyncHTTPTransport(verify=False)
        async with httpx.AsyncClient(transport=AsyncResilientTransport(client, below)) as driver:
            assert (await driver.get(url)).text == "ok"

    with serving(FAILING, OK) as server:
        asyncio.run(story(server.url))
    first, second = exporter.get_finished_spans()
    assert first.name == second.name == "sluicegate.attempt"
    assert attributes_of(first) == {
        "backend": f"127.0.0.1:{server.port}",
        "operation": "GET",
        "attempt": 0,
        "result": "failed",
    }
    assert first.status.status_code is StatusCode.ERROR
    assert (attributes_of(second)["attempt"], attributes_of(second)["result"]) == (1, "ok")
    assert second.status.status_code is StatusCode.UNSET
    assert first.start_time is not None
    assert second.end_time is not None
    assert first.start_time < second.end_time


def test_what_is_served_and_what_is_refused_has_a_span() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    observer, exporter = tracing()
    with served(protect(app, protection=Protection(observer=observer))) as port:
        url = f"http://127.0.0.1:{port}/page"
        httpx.get(url)
        httpx.get(url, headers={"x-sluicegate-deadline-ms": "0"})
    well, late = exporter.get_finished_spans()
    assert (well.name, late.name) == ("sluicegate.served", "sluicegate.refused")
    assert attributes_of(well)["endpoint"] == "/page"
    assert attributes_of(well)["outcome"] == "SUCCESS"
    assert attributes_of(well)["waited_us"] >= 0
    assert attributes_of(late) == {"endpoint": "/page", "stage": "gate", "reason": "deadline"}


def test_every_door_takes_a_protection_of_its_kind_and_no_other() -> None:
    """So that an observer can be given to each of them."""
    settings = Resilience()
    app: Any = print
    doors: list[tuple[Any, bool]] = [
        (partial(protect, app), False),
        (partial(protect_wsgi, app), True),
        (ProtectInterceptor, True),
        (AsyncProtectInterceptor, False),
    ]
    for door, threaded in doors:
        protection = Protection(settings, threaded=threaded)
        assert door(protection=protection).protection is protection
        assert door(settings).protection.settings is settings
        with pytest.raises(BadValue, match="not both"):
            door(settings, protection=protection)
        with pytest.raises(BadValue, match=f"threaded={threaded}"):
            door(protection=Protection(threaded=not threaded))
