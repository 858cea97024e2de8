"""Parts of answers that are left out under stress, the work done in vain, and their metrics."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sluicegate.cli import main
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, Refused, Unavailable
from sluicegate.contracts.permit import Outcome
from sluicegate.policies.admission.degradation import OverloadLevel
from sluicegate.resilience.context import ServedRequest, degraded, require_time, serve
from sluicegate.resilience.rulebook import follow_rulebook
from sluicegate.resilience.server.asgi import protect
from sluicegate.resilience.server.metrics import families
from sluicegate.resilience.server.protection import Protection
from sluicegate.resilience.server.wait_level import HOLD_US
from sluicegate.resilience.server.wsgi import protect as protect_threads
from sluicegate.resilience.settings import FollowedRulebook, Resilience, resilience_settings
from sluicegate.rules.releases.signatures import new_key
from sluicegate.rules.service_rules import ServiceRules
from sluicegate.system import now_us
from sluicegate.telemetry.prometheus import page
from sluicegate.testing import HandClock
from tests.doors.test_frameworks import served
from tests.engines.child import until
from tests.policies.virtual import VirtualLoop, pause_us, run
from tests.resilience.server.test_grpc import Service, looped, threaded
from tests.resilience.server.test_wsgi import served as served_by_threads

SWITCHES = {"recommendations": "stressed", "history": "hard"}
SHOP = {"shop": Criticality.CRITICAL}


async def show(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": shown_parts()})


def overload(protection: Protection, level: OverloadLevel) -> None:
    """Have a request of each class up to this level wait for an hour."""
    hour_us = 3_600_000_000
    for criticality in (Criticality.BULK, Criticality.CRITICAL)[:level]:
        protection.waits.record(criticality, 2 * hour_us, hour_us, now_us())


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        (OverloadLevel.CALM, "recommendations history"),
        (OverloadLevel.STRESSED, "history"),
        (OverloadLevel.HARD, ""),
    ],
)
def test_the_higher_the_level_the_less_is_in_an_answer(level: OverloadLevel, shown: str) -> None:
    app = protect(show, Resilience(degrade=SWITCHES))
    overload(app.protection, level)
    with served(app) as port:
        assert httpx.get(f"http://127.0.0.1:{port}/").text == shown


Shown = Callable[[], str]


class PartsService(Service):
    """What the handlers of gRPC answer: the parts that are not left out."""

    def text(self) -> bytes:
        return shown_parts()


def show_to_threads(environ: Any, start_response: Any) -> Iterator[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    yield shown_parts()  # on a thread of the server, after the application has returned


def shown_parts() -> bytes:
    return " ".join(name for name in SWITCHES if not degraded(name)).encode()


@contextlib.contextmanager
def by_wsgi(settings: Resilience) -> Iterator[tuple[Protection, Shown]]:
    app = protect_threads(show_to_threads, settings)
    with served_by_threads(app) as url:
        yield app.protection, lambda: httpx.get(url).text


@contextlib.contextmanager
def by_grpc(serve: Any, method: str, settings: Resilience) -> Iterator[tuple[Protection, Shown]]:
    channel: Any
    with (
        serve(PartsService(), settings) as (port, protection),
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):

        def unary() -> str:
            text: bytes = channel.unary_unary(f"/T/{method}")(b"", timeout=10)
            return text.decode()

        def stream() -> str:
            first: bytes = next(channel.unary_stream(f"/T/{method}")(b"", timeout=10))
            return first.decode()

        yield protection, stream if method == "Stream" else unary


@pytest.mark.parametrize(
    "door",
    [
        by_wsgi,
        partial(by_grpc, threaded, "Page"),
        partial(by_grpc, threaded, "Stream"),
        partial(by_grpc, looped, "Page"),
        partial(by_grpc, looped, "Stream"),
    ],
    ids=["wsgi", "grpc", "grpc-stream", "grpc-asyncio", "grpc-asyncio-stream"],
)
def test_every_door_leaves_out_by_level_by_an_operator_and_by_rules(door: Any) -> None:
    protection: Protection
    with door(Resilience(degrade=SWITCHES)) as (protection, shown):
        assert shown() == "recommendations history"
        for level, left in ((OverloadLevel.STRESSED, "history"), (OverloadLevel.HARD, "")):
            overload(protection, level)
            assert shown() == left
        protection.degradation.replace({"recommendations": "never", "history": "hard"})
        assert shown() == "recommendations"
        protection.degradation.overrule({"recommendations": "always", "history": "never"})
        assert shown() == "history"


def test_level_follows_waits_by_class_and_ends_after_a_second() -> None:
    """One slot of 20 ms; what waits longer than that is BULK, and then CRITICAL."""

    async def story(loop: VirtualLoop) -> list[OverloadLevel]:
        protection = Protection(Resilience(slots=1, callers=SHOP), clock=loop)
        levels = []

        async def one(criticality: Criticality) -> None:
            now_us = loop.now_us()
            request = protection.begin("/", now_us, criticality=criticality, caller="shop")
            permit = await protection.admit(request, now_us)
            assert not isinstance(permit, Decision)
            await pause_us(20_000)
            protection.end(permit, Outcome.SUCCESS)

        for count, criticality in (
            (1, Criticality.CRITICAL),
            (2, Criticality.BULK),
            (3, Criticality.BULK),
            (3, Criticality.CRITICAL),
        ):
            await asyncio.gather(*[one(criticality) for _ in range(count)])
            levels.append(protection.waits.read(loop.now_us()))
        await pause_us(HOLD_US)
        return [*levels, protection.waits.read(loop.now_us())]

    assert run(story) == [0, 0, 1, 2, 0]


def test_rejected_threads_raise_the_level_by_class() -> None:
    clock = HandClock()
    protection = Protection(Resilience(slots=1, callers=SHOP), clock=clock, threaded=True)
    levels = []
    for criticality in (Criticality.BULK, Criticality.BULK, Criticality.CRITICAL):
        now_us = clock.now_us()
        request = protection.begin("/", now_us, criticality=criticality, caller="shop")
        protection.admit_now(request, now_us)
        levels.append(protection.waits.read(now_us))
    assert levels == [0, 1, 2]


def test_an_operator_switches_parts_off_and_on_while_it_serves() -> None:
    app = protect(show, Resilience(degrade=SWITCHES))
    with served(app) as port:
        url = f"http://127.0.0.1:{port}/"
        assert httpx.get(url).text == "recommendations history"
        app.protection.degradation.replace({"recommendations": "always", "history": "never"})
        assert httpx.get(url).text == "history"
        with pytest.raises(BadValue, match=r"degrade\.history"):
            app.protection.degradation.replace({"history": "sometimes"})
        assert httpx.get(url).text == "history"
        assert b'degraded{part="recommendations"} 1' in page(families(app.protection))


def test_a_switch_without_a_level_and_a_level_that_does_not_exist_are_named() -> None:
    with pytest.raises(BadValue, match="degrade"):
        protect(show, Resilience()).protection.is_degraded("recomendations")
    with pytest.raises(BadValue, match=r"resilience\.degrade\.history"):
        resilience_settings({"degrade": {"history": "sometimes"}})
    assert resilience_settings({"degrade": SWITCHES}).degrade == SWITCHES
    assert not degraded("anything, outside of a request")


def test_time_that_is_over_is_refused_before_a_call_and_before_writing_a_result() -> None:
    require_time(now_us())
    with serve(ServedRequest(deadline_us=now_us() + 60_000_000)):
        require_time(now_us())
    with serve(ServedRequest(deadline_us=now_us())), pytest.raises(Refused):
        require_time(now_us())


def test_an_answer_that_nobody_waits_for_is_not_sent_and_counts_as_in_vain() -> None:
    """Only the caller's own time counts; one that gave none gets its answer, however late."""

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        ended_us = now_us() + 900_000  # from when it was received, however long that took
        while now_us() < ended_us:
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"large"})

    app = protect(slow)
    with served(app) as port:
        url = f"http://127.0.0.1:{port}"
        late = httpx.get(url, headers={"x-sluicegate-deadline-ms": "500"})
        unhurried = httpx.get(url)
    assert (late.status_code, late.json()["reason"]) == (504, "deadline")
    assert (unhurried.status_code, unhurried.content) == (200, b"large")
    text = page(families(app.protection))
    assert b"sluicegate_resilience_wasted_total 1\n" in text
    assert b'sluicegate_resilience_admitted_total{class="DEGRADED"} 2\n' in text


def test_a_real_parser_reads_every_metric() -> None:
    shown = page(families(protect(show, Resilience(degrade=SWITCHES)).protection)).decode()
    parsed = {family.name: family for family in text_string_to_metric_families(shown)}
    assert parsed["sluicegate_resilience_overload"].samples[0].value == 0


def test_rules_of_files_say_the_levels_and_a_bad_one_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"

    def write(text: str) -> str:
        new = tmp_path / "new"
        new.write_text(f"version: 1\n{text}\n")
        new.replace(path)  # as a rename, so that it is complete at once
        assert rules.poll()
        shown: str = httpx.get(url).text
        return shown

    path.write_text("version: 1\nrules: []\n")
    app = protect(show, Resilience(degrade=SWITCHES))
    degradation = app.protection.degradation
    rules = ServiceRules([path], lambda book: degradation.overrule(book.resources.degrade))
    with served(app) as port:
        url = f"http://127.0.0.1:{port}/"
        assert httpx.get(url).text == "recommendations history"
        assert write("degrade: {recommendations: always}") == "history"
        for bad in ("{history: often}", "{history: on}", "[history]", "{'': hard}", "= ="):
            assert write(f"degrade: {bad}") == "history"
            assert rules.status()["last_load"]["result"] == "refused"  # type: ignore[index]
        path.unlink()
        assert rules.poll()
        assert httpx.get(url).text == "history"
        assert write("degrade: {history: always, of_another_service: always}") == "recommendations"
        assert write("rules: []") == "recommendations history"


def test_rules_go_before_an_operator_until_they_say_nothing_more() -> None:
    degradation = Protection(Resilience(degrade=SWITCHES)).degradation
    degradation.overrule({"history": "never"})
    degradation.replace({"recommendations": "always", "history": "always"})
    assert degradation.switches == {"recommendations": "always", "history": "never"}
    degradation.overrule({})
    assert degradation.switches == {"recommendations": "always", "history": "always"}
    with pytest.raises(BadValue, match=r"degrade\.history"):
        degradation.overrule({"recommendations": "hard", "history": "often"})
    assert degradation.switches == {"recommendations": "always", "history": "always"}


def test_a_published_switch_is_obeyed_under_stress_and_without_a_publisher_stays(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """From the rulebook's commands through a signed release to the answers of a real server."""
    file, book = tmp_path / "rules.yaml", tmp_path / "book"
    switches = "version: 1\ndegrade:\n  recommendations: never\n"
    file.write_text(switches)
    assert main(["rules", "init", str(book), "--rules", str(file), "--alone"]) == 0

    def publish(text: str) -> None:
        file.write_text(text)
        flags = ("--rulebook", str(book))
        capfd.readouterr()
        assert main(["rules", "propose", str(file), "-m", "switches", "--json", *flags]) == 0
        proposal = json.loads(capfd.readouterr().out)["id"]
        assert main(["rules", "approve", proposal, "--override", "no traffic", *flags]) == 0
        assert main(["rules", "publish", proposal, *flags]) == 0

    settings = Resilience(
        degrade=SWITCHES,
        rulebook=FollowedRulebook(
            blobs=f"files:{book}/blobs",
            keys=(f"{book}/keys/signing.pub.pem",),
            events=f"files:{book}/events",
            node="shop-1",
            folder=str(tmp_path / "last-good"),
        ),
    )
    app = protect(show, settings)
    with served(app) as port, follow_rulebook(settings, app.protection) as follower:

        def shown() -> str:
            text: str = httpx.get(f"http://127.0.0.1:{port}/").text
            return text

        overload(app.protection, OverloadLevel.STRESSED)
        assert shown() == "recommendations history"  # stressed, and the rules say never
        publish(switches.replace("never", "stressed"))
        until(lambda: shown() == "history", "the release is obeyed")
        app.protection.waits.clear()
        until(lambda: shown() == "recommendations history", "calm again")
        arguments = ("degrade.history=always", "--reason", "INC-1", "--rulebook", str(book))
        assert main(["rules", "set", *arguments]) == 0
        until(lambda: shown() == "recommendations", "one command")
        (book / "blobs").rename(tmp_path / "away")
        follower.reload()
        until(lambda: bool(follower.record.failures), "nothing more is heard")
        assert shown() == "recommendations"
        again = protect(show, settings)  # a service that starts now begins with what was kept
        with follow_rulebook(settings, again.protection):
            assert again.protection.degradation.switches["history"] == "always"
        shutil.rmtree(book / "blobs", ignore_errors=True)  # a node's report may have made it
        (tmp_path / "away").rename(book / "blobs")
        publish("version: 1\nrules: []\n")
        until(lambda: shown() == "recommendations history", "no switches")


def test_a_rulebook_that_is_not_named_or_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    protection = protect(show, Resilience()).protection
    with (
        pytest.raises(BadValue, match=r"resilience\.rulebook"),
        follow_rulebook(Resilience(), protection),
    ):
        pass
    with pytest.raises(BadValue, match=r"resilience\.rulebook\.keys"):
        resilience_settings({"rulebook": {"blobs": "files:x", "node": "shop-1"}})
    keys = new_key(tmp_path / "keys")
    table = {
        "blobs": f"files:{tmp_path}/nowhere",
        "keys": [str(keys.public)],
        "node": "shop-1",
        "folder": str(tmp_path / "kept"),
    }
    for name in ("blobs", "events"):
        wrong = resilience_settings({"rulebook": {**table, name: "nonsense"}})
        with (
            pytest.raises(BadValue, match=rf"resilience\.rulebook\.{name}"),
            follow_rulebook(wrong, protection),
        ):
            pass
    settings = resilience_settings({"rulebook": table})
    with pytest.raises(Unavailable), follow_rulebook(settings, protection):
        pass
