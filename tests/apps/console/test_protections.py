"""Services built with `protect`: their queues are gathered, and shown beside other queues."""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from html import escape
from pathlib import Path
from threading import Event
from typing import Any
from urllib.request import urlopen

import pytest

from sluicegate.apps.console.pages.tables import queues
from sluicegate.apps.console.sentence import Urgency, sentence_of
from sluicegate.apps.resilience.state_server import PROTECTIONS_MAX, StateSettings, serve_state
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.resilience.server.protection import Protection
from sluicegate.resilience.settings import Resilience
from tests.apps.console.process import HOSTILE, ConsoleProcess
from tests.apps.console.states import SECOND_US, START_US, looked, pictured
from tests.engines.child import Child, free_port, until

Reasons = Mapping[str, Mapping[str, int]]
LOCAL = StateSettings(listen=("127.0.0.1:0",))


def serving(at_s: float, admitted: int, refused: Reasons, **more: Any) -> dict[str, Any]:
    """The state of a process with a service that has admitted so many CRITICAL and BULK."""
    reasons = {member.name: refused.get(member.name, {}) for member in Criticality}
    admits = dict.fromkeys(reasons, 0) | {"CRITICAL": admitted, "BULK": admitted}
    service = {
        "protection": HOSTILE, "slots": 8, "origin": "set", "inflight": 3, "streams": 0,
        "background": 0, "queued": 0, "queued_bytes": 0, "left_queue": 0, "waited_us": 0,
        "admitted": admits, "refused": reasons, "level": "CALM", "degrade": [], **more,
    }  # fmt: skip
    return {
        "app": "client",
        "at_us": START_US + round(at_s * SECOND_US),
        "breakers": {"clients": {}, "not_closed": []},
        "protections": [service],
    }


def test_queue_of_a_service_is_shown_and_counted_by_class_and_reason() -> None:
    before = serving(0.0, 0, {"BULK": {"queue_full": 5}})
    after = serving(
        1.0, 30, {"BULK": {"queue_full": 25, "queue_timeout": 7}},
        queued=9, queued_bytes=4_096, waited_us=87 * 12_000, level="HARD",
    )  # fmt: skip
    shown = pictured(looked(before, after))
    flows = {flow.name: flow for flow in shown.classes}
    assert (flows["CRITICAL"].admitted, flows["CRITICAL"].refused) == (30, 0)
    assert (flows["BULK"].admitted, flows["BULK"].refused, flows["BULK"].shed) == (30, 27, 27)
    assert dict(shown.reasons) == {"queue_full": 20, "queue_timeout": 7}
    assert (shown.nodes[0].admitted, shown.nodes[0].refused) == (60, 27)
    assert shown.queue_us == 12_000
    (row,) = queues(shown)["queue"].split("<tr>")[2:]
    name = f"{escape(HOSTILE)}, at http://node:1"
    for words in (
        name, ">3<", ">8 (set)<", ">9 (4,096 B)<", "12.0 ms", "queue_full 20/s, queue_timeout",
        ">hard<",
    ):  # fmt: skip
        assert words in row
    said = sentence_of(shown)
    assert (said.urgency, said.page) == (Urgency.DEFENDING, "queues")
    assert said.words.startswith(f"There is more work than {HOSTILE}, at http://node:1 can")


def test_service_without_limit_shows_what_is_in_flight_alone() -> None:
    state = serving(0.0, 0, {}, slots=0)
    assert ">3<" in queues(pictured(looked(state, state)))["queue"]


def test_what_a_service_leaves_out_is_shown() -> None:
    state = serving(0.0, 0, {})
    parts = [{"part": HOSTILE, "left_out": True}, {"part": "history", "left_out": False}]
    state["protections"][0]["degrade"] = parts
    page = queues(pictured(looked(state, state)))["queue"]
    assert f"leaves out {escape(HOSTILE)}<" in page


def test_without_overload_nothing_is_shown_as_refused() -> None:
    counts: Reasons = {"BULK": {"overloaded": 25}}  # of the past
    shown = pictured(looked(serving(0.0, 0, counts), serving(1.0, 30, counts)))
    page = queues(shown)["queue"]
    assert "overloaded" not in page
    assert not shown.refused
    assert sentence_of(shown).urgency is Urgency.CALM


def test_a_deadline_that_was_too_short_is_not_said_to_be_a_want_of_places() -> None:
    late = serving(1.0, 30, {"BULK": {"deadline": 9}})
    words = sentence_of(pictured(looked(serving(0.0, 0, {}), late))).words
    assert words.startswith("The service is under stress")


def test_protections_are_bounded_in_number_and_name_and_shown_of_threads_too() -> None:
    switches = {"n" * 500: "stressed", "history": "always"}
    two = Resilience(slots=2, degrade=switches)
    threads = Protection(two, threaded=True)
    threads.degradation.overrule({"history": "never", "of another service": "always"})
    now_us = threads.clock.now_us()
    admitted = [threads.admit_now(threads.begin("/", now_us), now_us) for _ in range(3)]
    with (
        serve_state({}, LOCAL, protections={"s" * 500: threads}) as server,
        urlopen(f"http://{server.addresses[0]}/v1/state") as answer,
    ):
        (shown,) = json.load(answer)["protections"]
    assert len(admitted) == 3
    assert shown["protection"] == "s" * 200
    assert (shown["slots"], shown["inflight"], shown["queued"]) == (2, 2, 0)
    assert shown["admitted"]["DEGRADED"] == 2
    assert shown["refused"]["DEGRADED"] == {"overloaded": 1}
    assert shown["level"] == "STRESSED"  # until a second has passed
    assert shown["degrade"] == [
        {"part": "n" * 200, "level": "stressed", "by_rules": False, "left_out": True},
        {"part": "history", "level": "never", "by_rules": True, "left_out": False},
    ]
    many = {str(number): threads for number in range(PROTECTIONS_MAX + 1)}
    with pytest.raises(BadValue, match="protections"):
        serve_state({}, LOCAL, protections=many)


def test_a_real_service_under_overload_is_shown_with_what_it_refuses(tmp_path: Path) -> None:
    port, state_port = free_port("127.0.0.1"), free_port("127.0.0.1")
    command = [sys.executable, "-m", "tests.apps.console.serving", str(port), str(state_port)]
    child = Child("a protected service", command, tmp_path / "serving.log")
    ended = Event()

    def ask() -> None:
        while not ended.is_set():
            with suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                connection.request("GET", "/", headers={"X-Sluicegate-Criticality": "bulk"})
                if connection.getresponse().status != 200:
                    ended.wait(0.02)
                connection.close()

    flags = ("--services", f"http://127.0.0.1:{state_port}", "--every-s", "0.2")
    try:
        state = f"http://127.0.0.1:{state_port}/v1/state"
        until(lambda: urlopen(state).close() is None, "it shows its state", children=[child])
        with ConsoleProcess(tmp_path, *flags) as console, ThreadPoolExecutor(24) as pool:
            name = f"{escape(HOSTILE)}, at http://127.0.0.1:{state_port}"

            def shown() -> str:
                rows = console.page("/queues").split("<tr>")
                return next((one for one in rows if one.startswith(f'<td class="name">{name}')), "")

            def reasons() -> str:
                return console.page("/").split("Refused, by reason")[1]

            try:
                pool.submit(ask)
                until(lambda: ">2 (set)<" in shown(), "it works", children=[child])
                assert "queue_full" not in shown()
                assert "Nothing is refused." in reasons()
                for _ in range(23):
                    pool.submit(ask)
                until(
                    lambda: "queue_full" in shown() and ">stressed<" in shown(),
                    "its queue is full, and it is stressed",
                    children=[child],
                )
                assert "queue_full" in reasons()
                assert " ms<" in shown()
                assert f"There is more work than {name} can do" in console.page("/")
            finally:
                ended.set()
            until(lambda: shown().count(">none<") == 2, "it is calm again", children=[child])
    finally:
        ended.set()
        child.stop()
