"""Objectives: what counts, how it burns, and that the alerts name what is there."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from sluicegate.contracts.errors import BadValue
from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.resilience.client.metrics import dependency_families
from sluicegate.resilience.client.metrics import families as client_families
from sluicegate.resilience.faults.injector import FaultInjector
from sluicegate.resilience.hosts.group import HostGroup
from sluicegate.resilience.hosts.sources import list_source
from sluicegate.resilience.objectives import Objective, Objectives, measure
from sluicegate.resilience.server.metrics import families
from sluicegate.resilience.server.protection import Protection
from sluicegate.resilience.settings import resilience_settings
from sluicegate.telemetry.prometheus import page
from sluicegate.testing import HandClock

DEPLOY = Path(__file__).parents[2] / "deploy" / "resilience"
MINUTE = 60_000_000


def objectives() -> tuple[Objectives, HandClock]:
    clock = HandClock(1_000 * MINUTE)
    wanted = [Objective("GET /page", 0.999, latency_us=200_000), Objective("* /users/*", 0.99)]
    return Objectives(wanted, clock), clock


@pytest.mark.parametrize(
    ("request_", "counted"),
    [
        (("GET", "/page", 200, 200_000), ("GET /page", "good")),
        (("GET", "/page", 200, 200_001), ("GET /page", "bad")),
        (("GET", "/page", 503, 10), ("GET /page", "bad")),
        (("GET", "/page", 0, 10), ("GET /page", "bad")),
        (("GET", "/page", 429, 10), None),
        (("POST", "/page", 500, 10), None),
        (("PUT", "/users/7", 200, 90_000_000), ("* /users/*", "good")),
        (("PUT", "/users/7", 500, 1), ("* /users/*", "bad")),
    ],
)
def test_what_counts_as_good(
    request_: tuple[str, str, int, int], counted: tuple[str, str] | None
) -> None:
    found, _ = objectives()
    found.record(*request_)
    shown = {sample.labels: sample.value for sample in found.families()[0].samples}
    hit = [(dict(labels)["objective"], dict(labels)["outcome"]) for labels, n in shown.items() if n]
    assert hit == ([] if counted is None else [counted])


def test_burn_rates_follow_the_windows() -> None:
    found, clock = objectives()
    for number in range(1_000):
        found.record("GET", "/page", 500 if number < 10 else 200, 1)
    rates = found.burn_rates()["GET /page"]
    assert rates == pytest.approx({"5m": 10.0, "30m": 10.0, "1h": 10.0, "6h": 10.0})
    assert b'sluicegate_slo_allowed{objective="GET /page"} 0.001\n' in page(found.families())
    clock.advance(us=6 * MINUTE)
    rates = found.burn_rates()["GET /page"]
    assert rates == pytest.approx({"5m": 0.0, "30m": 10.0, "1h": 10.0, "6h": 10.0})
    clock.advance(us=360 * MINUTE)
    assert set(found.burn_rates()["GET /page"].values()) == {0.0}


@pytest.mark.parametrize(("message", "bad"), [("http.request", 1), ("http.disconnect", 0)])
def test_no_answer_is_a_failure_unless_its_caller_has_left(message: str, bad: int) -> None:
    found, _ = objectives()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()

    async def receive() -> Any:
        return {"type": message}

    async def nothing(message: Any) -> None:
        """Take it."""

    scope = {"type": "http", "method": "GET", "path": "/page"}
    asyncio.run(measure(app, found)(scope, receive, nothing))
    assert [sample.value for sample in found.families()[0].samples[:2]] == [0, bad]


def test_an_application_is_counted_when_its_answer_begins() -> None:
    found, clock = objectives()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["query_string"] == b"bug":
            raise RuntimeError("a planted bug")
        clock.advance(us=150_000 if scope["query_string"] == b"slow" else 1_000)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        clock.advance(us=90_000_000)  # a body may take as long as it likes
        await send({"type": "http.response.body", "body": b""})

    async def nothing(message: Any) -> None:
        """Take it."""

    async def ask(query: bytes) -> None:
        scope: dict[str, Any] = {"type": "http", "method": "GET", "query_string": query}
        scope |= {"path": "/api/page", "root_path": "/api"}
        await measure(app, found)(scope, None, nothing)

    asyncio.run(ask(b""))
    asyncio.run(ask(b"slow"))
    with pytest.raises(RuntimeError):
        asyncio.run(ask(b"bug"))
    good, bad = found.families()[0].samples[:2]
    assert (good.value, bad.value) == (2, 1)


def metric_names(found: Objectives) -> set[str]:
    """Of a service with objectives that is protected, and calls others."""
    protection = Protection(clock=HandClock(MINUTE))
    shown = page(
        [
            *found.families(),
            *families(protection),
            *FaultInjector().families(),
            *client_families({"search": ResilientClient(None, HostGroup(list_source(["a:1"])))}),
            *dependency_families({}),
        ]
    )
    parsed = list(text_string_to_metric_families(shown.decode()))
    # A family that has no sample yet has its name, and is a counter if it is one.
    return {
        name
        for family in parsed
        for name in (family.name, f"{family.name}_total", *[one.name for one in family.samples])
    }


def test_the_dashboard_names_metrics_that_are_there() -> None:
    text = (DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8")
    used = set(re.findall(r"\bsluicegate_\w+", text))
    assert len(used) > 20
    assert used <= metric_names(objectives()[0])
    assert all(panel["targets"] for panel in json.loads(text)["panels"])


def test_the_alerts_name_metrics_and_labels_that_are_there() -> None:
    found, _ = objectives()
    names = metric_names(found)
    groups = yaml.safe_load((DEPLOY / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    for rule in rules:
        used = set(re.findall(r"sluicegate_\w+", rule["expr"]))
        assert used
        assert used <= names, used - names
        assert rule["annotations"]["what_to_do"]
    windows = {window for rule in rules for window in re.findall(r"\[(\w+)\]", rule["expr"])}
    assert windows == set(found.burn_rates()["GET /page"])


def test_objectives_stand_in_the_settings_file() -> None:
    table = {"objectives": {"GET /page": {"share": 0.999, "latency_us": 200_000}}}
    assert resilience_settings(table).objectives == (Objective("GET /page", 0.999, 200_000),)
    for wrong, words in (
        ({}, 'GET /page".share: None'),
        ({"share": 2.0}, 'GET /page".share: 2.0'),
        ({"share": 0.9, "endpoint": "GET /other"}, 'GET /page".endpoint: .*named so'),
    ):
        with pytest.raises(BadValue, match=words):
            resilience_settings({"objectives": {"GET /page": wrong}})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Objective("/page", 0.9), "objective.endpoint: '/page' cannot be used"),
        (lambda: Objective("GET /page", 1.0), "objective.share: 1.0 cannot be used"),
        (lambda: Objective("GET /page", 0.9, latency_us=-1), "objective.latency_us: -1"),
        (lambda: Objectives([Objective("GET /", 0.9)] * 2), "one objective for each endpoint"),
    ],
)
def test_wrong_objectives_name_field_value_and_remedy(make: Any, words: str) -> None:
    with pytest.raises(BadValue) as caught:
        make()
    assert words in str(caught.value)
