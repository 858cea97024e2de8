"""What the client does when the server is away, slow, broken, or somebody else."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

import pytest

from sluicegate.contracts.errors import Unavailable
from sluicegate.rules.remote.admin import ATTEMPTS_MAX, RemoteRuleAdmin
from sluicegate.rules.remote.exchange import Exchange, ServerResponse
from sluicegate.testing import HandClock, SeededChance
from tests.engines.child import free_port
from tests.rules.remote.scripted import Script, hangs_up, says, scripted

TOKEN = "secret-secret-secret-secret"
STATUS = b'{"live": 3}'


def key_in(request: bytes) -> bytes:
    """The key of a call."""
    line = next(one for one in request.split(b"\r\n") if one.lower().startswith(b"idempotency-key"))
    return line.partition(b": ")[2]


def test_what_is_sent_is_plain_http_with_the_token_and_a_key_for_a_change() -> None:
    with scripted(says(200, STATUS), says(201, STATUS), says(200, STATUS)) as here:
        admin = RemoteRuleAdmin(f"{here.url}/behind/", token=TOKEN, chance=SeededChance(1))
        assert admin.status() == {"live": 3}
        admin.propose({"a/ü.yaml": None}, base="live", message="ü")
        admin.file("a/ü?.yaml", "1&2")
    read, changed, file = here.requests
    assert read.startswith(b"GET /behind/v1/rules/status HTTP/1.1\r\n")
    assert f"authorization: bearer {TOKEN}".encode() in read.lower()
    assert b"idempotency-key" not in read.lower()
    assert changed.startswith(b"POST /behind/v1/rules/proposals HTTP/1.1\r\n")
    assert len(key_in(changed)) >= 32
    body = json.loads(changed.partition(b"\r\n\r\n")[2])
    assert body == {"base": "live", "changes": {"a/ü.yaml": None}, "message": "ü", "reason": ""}
    assert file.startswith(b"GET /behind/v1/rules/files/a%2F%C3%BC%3F.yaml?at=1%262 HTTP/1.1\r\n")


@pytest.mark.parametrize("first", [hangs_up, says(201, b"{", length=9), says(504)])
def test_a_change_whose_answer_was_lost_is_asked_again_under_its_key(first: Script) -> None:
    with scripted(first, says(200, STATUS), says(200, STATUS)) as here:
        admin = RemoteRuleAdmin(here.url)
        assert admin.publish("p1") == {"live": 3}
        admin.publish("p1")
    once, again, other = (key_in(one) for one in here.requests)
    assert once == again
    assert other != once
    assert here.requests[0] == here.requests[1]


def test_what_is_lost_each_time_is_given_up() -> None:
    with scripted(*[hangs_up] * (ATTEMPTS_MAX + 1)) as here:
        with pytest.raises(Unavailable, match="the rulebook at http") as caught:
            RemoteRuleAdmin(here.url, token=TOKEN).publish("p1")
        assert len(here.requests) == ATTEMPTS_MAX
    assert TOKEN not in str(caught.value)
    with scripted(*[says(504, b'{"detail": "too slow"}')] * (ATTEMPTS_MAX + 1)) as here:
        with pytest.raises(Unavailable, match="504: too slow"):
            RemoteRuleAdmin(here.url).publish("p1")
        assert len(here.requests) == ATTEMPTS_MAX


def test_a_server_that_is_away_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    def refused(*where: object, **_: object) -> socket.socket:
        calls.append(where)
        raise ConnectionRefusedError("nobody is there")

    monkeypatch.setattr(socket, "create_connection", refused)
    with pytest.raises(Unavailable, match="nobody is there"):
        RemoteRuleAdmin("http://127.0.0.1:9").status()
    assert len(calls) == 1


def test_a_server_that_is_away_is_told_by_its_address() -> None:
    port = free_port("127.0.0.1")
    with pytest.raises(Unavailable, match=f"127.0.0.1:{port} is unavailable: .*refused"):
        RemoteRuleAdmin(f"http://127.0.0.1:{port}", token=TOKEN).status()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_so_the_token_goes_to_nobody_else(status: int) -> None:
    with scripted(says(200, STATUS)) as other:
        elsewhere = f"{other.url}/v1/rules/status"
        with (
            scripted(says(status, b"", f"location: {elsewhere}")) as here,
            pytest.raises(Unavailable, match=f"it sends us to '{elsewhere}'"),
        ):
            RemoteRuleAdmin(here.url, token=TOKEN).status()
        assert other.requests == []


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (says(200, b"<html>"), "no rulebook's door"),
        (says(200, b"[1]"), "no rulebook's door"),
        (says(200, b"[" * 1_999), "no rulebook's door"),
        (says(200, b'{"proposals": 3}'), "no list of proposals"),
        (says(200, b"x" * 2_001), "longer than 2,000 bytes"),
        (says(500, b"oh"), "500: it answers 500"),
        (says(404, b'{"detail": "no such address"}'), "404: no such address"),
        (says(204, b""), "no rulebook's door"),
    ],
)
def test_what_no_rulebooks_door_says_is_told_as_such(script: Script, why: str) -> None:
    with scripted(script) as here, pytest.raises(Unavailable, match=why):
        RemoteRuleAdmin(here.url, answer_bytes_max=2_000).proposals()


def test_what_is_not_http_is_given_up() -> None:
    def odd(peer: socket.socket) -> None:
        peer.sendall(b"SSH-2.0-hello\r\n\r\n")

    with scripted(*[odd] * ATTEMPTS_MAX) as here, pytest.raises(Unavailable):
        RemoteRuleAdmin(here.url).status()


def test_a_server_that_says_nothing_is_waited_for_as_long_as_is_set() -> None:
    ended = threading.Event()

    def silent(_: socket.socket) -> None:
        ended.wait(60)

    with scripted(*[silent] * ATTEMPTS_MAX) as here:
        with pytest.raises(Unavailable, match="timed out"):
            RemoteRuleAdmin(here.url, timeout_s=0.05).status()
        ended.set()


def test_an_answer_that_comes_in_drops_is_not_waited_for_beyond_the_time() -> None:
    clock = HandClock()

    def drops(peer: socket.socket) -> None:
        says(200, b"{", length=1_000)(peer)
        clock.advance(s=100)
        peer.sendall(b" ")

    with scripted(drops) as here, pytest.raises(Unavailable, match="in time"):
        RemoteRuleAdmin(here.url, timeout_s=5, clock=clock).status()
    assert len(here.requests) == 1


def test_a_long_wait_asks_again_until_it_is_reached_and_not_without_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    class Paused:
        def wait(self, s: float) -> None:
            pauses.append(s)

    def waited(reached: bool) -> Script:
        return says(200, json.dumps({"reached": reached}).encode())

    monkeypatch.setattr("sluicegate.rules.remote.admin.Event", Paused)
    with scripted(waited(False), waited(False), waited(True)) as here:
        answer = RemoteRuleAdmin(here.url).wait(4, nodes=2, timeout_s=100)
    assert answer == {"reached": True}
    lines = [one.split(b" ")[1] for one in here.requests]
    assert lines[0] == b"/v1/rules/wait?version=4&nodes=2&timeout_s=20.000"
    assert len(lines) == 3
    assert len(pauses) == 2
    assert all(0 < one <= 0.2 for one in pauses)


def test_a_wait_ends_with_its_time() -> None:
    answers: list[Any] = []
    script = says(200, b'{"reached": false}')
    with scripted(script) as here:
        answers.append(RemoteRuleAdmin(here.url).wait(4, nodes=2, timeout_s=0))
    assert answers == [{"reached": False}]
    assert b"timeout_s=0.000" in here.requests[0]


def test_a_wait_is_given_its_own_time_on_top_of_a_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    timeouts: list[float] = []

    def ask(*args: Any) -> ServerResponse:
        timeouts.append(args[-1])
        return ServerResponse(200, {}, b'{"reached": true}')

    monkeypatch.setattr(Exchange, "ask", ask)
    admin = RemoteRuleAdmin("http://127.0.0.1:9", timeout_s=30, clock=HandClock())
    admin.wait(4, nodes=2, timeout_s=7)
    admin.wait(4, nodes=2, timeout_s=700)
    admin.status()
    assert timeouts == [37, 50, 30]
