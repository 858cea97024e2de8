"""Breakers of processes that only call: gathered like services, and shown by name."""

from __future__ import annotations

import json
import sys
from html import escape
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from sluicegate.apps.console.pages.tables import queues
from sluicegate.apps.console.sentence import Urgency, sentence_of
from sluicegate.apps.resilience.state_server import SHOWN_MAX, StateSettings, serve_state
from sluicegate.contracts.errors import BadValue, SluicegateError
from sluicegate.contracts.request import Request
from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.system import now_us
from tests.apps.console.process import HOSTILE, ConsoleProcess
from tests.apps.console.states import START_US, looked, pictured
from tests.engines.child import Child, free_port, until

LOCAL = StateSettings(listen=("127.0.0.1:0",))


def caller(*states: str) -> dict[str, Any]:
    """The state of a process that only calls, one breaker in each of these states."""
    rows = [
        {"client": "catalogue", "backend": HOSTILE, "operation": "GET /", "state": state}
        for state in states
    ]
    return {"app": "client", "at_us": START_US, "breakers": {"clients": {}, "not_closed": rows}}


@pytest.mark.parametrize(
    ("states", "urgency"),
    [
        (("open",), Urgency.DEFENDING),
        (("half-open",), Urgency.DEFENDING),
        (("forced closed",), Urgency.CALM),  # somebody wants it so, and calls go through
        ((), Urgency.CALM),
    ],
)
def test_a_breaker_is_named_as_text_and_said_where_it_holds_calls_back(
    states: tuple[str, ...], urgency: Urgency
) -> None:
    shown = pictured(looked(None, caller(*states), "http://shop:7040"))
    page = queues(shown)["breakers"]
    assert ("All are closed" in page) is (not states)
    assert "<script" not in page
    assert (f"{escape(HOSTILE)} GET /, by catalogue at http://shop:7040" in page) is bool(states)
    sentence = sentence_of(shown)
    assert sentence.urgency is urgency
    assert sentence.words.startswith(f"The backend {HOSTILE} fails") is (
        urgency is Urgency.DEFENDING
    )


def test_many_open_breakers_and_long_names_are_bounded_and_counted() -> None:
    client = ResilientClient()
    for number in range(SHOWN_MAX + 1):
        client.breaker.force(Request("k", shard=f"{number:0500d}"), "open", now_us())
    with serve_state({"catalogue": client}, LOCAL) as server:
        with urlopen(f"http://{server.addresses[0]}/v1/state") as answer:
            breakers = json.load(answer)["breakers"]
        with urlopen(f"http://{server.addresses[0]}/metrics") as answer:
            metrics = answer.read().decode()
    assert len(breakers["not_closed"]) == SHOWN_MAX
    assert {len(one["backend"]) for one in breakers["not_closed"]} == {200}
    assert breakers["clients"]["catalogue"]["not_closed"] == SHOWN_MAX + 1
    assert f'sluicegate_client_not_closed{{client="catalogue"}} {SHOWN_MAX + 1}' in metrics
    server.close()  # once more


def test_who_cannot_listen_is_told_so_where_it_was_asked_for() -> None:
    with serve_state({}, LOCAL) as server, pytest.raises(SluicegateError, match="in use"):
        serve_state({}, StateSettings(listen=server.addresses))
    with pytest.raises(BadValue, match="listen"):
        serve_state({}, StateSettings(listen=("0.0.0.0:0",)))


def test_a_real_process_that_only_calls_is_shown(tmp_path: Path) -> None:
    port = free_port("127.0.0.1")
    command = [sys.executable, "-m", "tests.apps.console.calling", str(port)]
    child = Child("a process that only calls", command, tmp_path / "calling.log")
    flags = ("--services", f"http://127.0.0.1:{port}", "--every-s", "0.2")
    try:
        until(lambda: str(port) in child.log.read_text(), "it calls", children=[child])
        with ConsoleProcess(tmp_path, *flags) as console:
            row = f"{escape(HOSTILE)} listing, by catalogue at http://127.0.0.1:{port}"
            until(lambda: row in console.page("/queues"), "its breaker is on the page")
            assert "well.internal" not in console.page("/queues")
            assert f"The backend {escape(HOSTILE)} fails" in console.page("/")
    finally:
        child.stop()
