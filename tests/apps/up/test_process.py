from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.apps.up.running import COMMAND, DEADLINE_S, END_S_MAX, Up, has_ended, stands, until

LEAVE = b"\x1b[?1049l"  # the terminal's other screen
SHOW_CURSOR = b"\x1b[?25h"

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="children are looked up in /proc"
)


def run(*arguments: str, script: str | None = None) -> subprocess.CompletedProcess[str]:
    command = COMMAND if script is None else (sys.executable, "-c", script)
    return subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_what_was_asked_is_what_the_state_says() -> None:
    with Up("--no-load", "--rules", "api = 3/min; batch = 10/min burst 5 by token_bucket") as up:
        admitted = [up.ask("/v1/check?rule=api&key=ann").status for _ in range(5)]
        assert admitted == [200, 200, 200, 429, 429]
        posted = up.ask(
            "/v1/check",
            b'{"rule": "batch", "key": "job", "cost": 6}',
            {"Content-Type": "application/json"},
        )
        assert (posted.status, posted.json["reason"]) == (429, "cost_above_limit")
        assert up.ask("/v1/check?rule=none&key=ann").status == 400
        state = up.ask("/v1/state").json
        assert (state["admitted"], state["refused"], state["bad_requests"]) == (3, 3, 1)
        assert state["reasons"] == {"rate_limited": 2, "cost_above_limit": 1}
        api, batch = state["rules"]["api"], state["rules"]["batch"]
        assert (api["admitted"], api["refused"], api["keys"]) == (3, 2, 1)
        assert (batch["admitted"], batch["refused"], batch["keys"]) == (0, 1, 0)
        assert {key["key"] for key in state["refused_most"]} == {"ann", "job"}
        assert state["faults"] == 0


def test_a_refusal_says_when_to_come_back() -> None:
    with Up("--no-load", "--rules", "api = 1/min") as up:
        assert "retry-after" not in up.ask("/v1/check?key=a").headers
        refused = up.ask("/v1/check?key=a")
        assert refused.headers["retry-after"] == "60"
        assert refused.json["sentence"] == "The limit for this key is spent."


@needs_proc
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly_with_its_load(signum: signal.Signals) -> None:
    with Up("--load", "200") as up:
        until(lambda: up.ask("/v1/state").json["admitted"] > 20, "the load arrives")
        (load,) = up.children()
        took_s = up.end(signum)
        assert up.process.returncode == 0
        assert took_s < END_S_MAX
        assert up.errors() == ""
        assert has_ended(load)
        up.line("decisions in")
        with pytest.raises(ConnectionRefusedError):
            up.ask("/healthz")


@pytest.mark.parametrize(
    "begun",
    [
        b"GET / HTTP/1.1\r\nHost:",
        (
            b"POST /v1/check HTTP/1.1\r\nHost: %b\r\nContent-Type: application/json\r\n"
            b"Content-Length: 10\r\n\r\n{"
        ),
    ],
    ids=["head", "body"],
)
def test_it_does_not_wait_for_who_is_slow_to_ask(begun: bytes) -> None:
    with Up("--no-load") as up, socket.create_connection((up.host, up.port)) as slow:
        slow.sendall(begun.replace(b"%b", f"{up.host}:{up.port}".encode()))
        assert up.ask("/healthz").status == 204
        assert up.end() < END_S_MAX
        assert (up.process.returncode, up.errors()) == (0, "")


def test_it_ends_by_itself_after_the_time_it_was_given() -> None:
    with Up("--for", "1.5", "--load", "300") as up:
        up.line("decisions in")
        assert up.process.wait(DEADLINE_S) == 0
        assert up.errors() == ""
        assert any("admitted" in line and "decision p99" in line for line in up.lines)


@needs_proc
def test_the_load_ends_when_its_parent_is_killed() -> None:
    with Up("--load", "50") as up:
        until(lambda: bool(up.children()), "the load starts")
        (load,) = up.children()
        up.process.kill()
        until(lambda: has_ended(load), "the load notices")


@needs_proc
def test_a_load_that_dies_is_told_and_the_door_stays_open() -> None:
    with Up("--load", "50") as up:
        until(lambda: bool(up.children()), "the load starts")
        os.kill(up.children()[0], signal.SIGKILL)
        up.line("demo load ended with code -9")
        assert up.ask("/healthz").status == 204
        up.end()
        assert (up.process.returncode, up.errors()) == (0, "")


@needs_proc
def test_a_terminal_is_drawn_on_and_given_back() -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    before = termios.tcgetattr(theirs)
    with (
        os.fdopen(ours, "rb", buffering=0) as screen,
        subprocess.Popen(
            [*COMMAND, "up", "--alone", "--listen", "127.0.0.1:0", "--load", "100"],
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.PIPE,
            env={**os.environ, "TERM": "xterm-256color"},
        ) as process,
    ):
        drawn = b""

        def shows(part: bytes) -> bool:
            nonlocal drawn
            if select.select([screen], [], [], 0)[0]:
                drawn += screen.read(65_536)
            return part in drawn

        until(lambda: shows(b"rate_limited"), "a frame with refusals in it")
        assert LEAVE not in drawn
        process.send_signal(signal.SIGTSTP)
        until(lambda: stands(process.pid) == "T", "Ctrl-Z stops it")
        until(lambda: shows(LEAVE), "the terminal is given back meanwhile")
        drawn = b""
        process.send_signal(signal.SIGCONT)
        until(lambda: shows(b"decisions/s"), "it draws again")
        drawn = b""
        process.send_signal(signal.SIGINT)
        until(lambda: shows(b"admitted,"), "the summary")
        assert process.wait(DEADLINE_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert drawn.index(LEAVE) < drawn.index(b"admitted,")
        assert SHOW_CURSOR in drawn
        assert termios.tcgetattr(theirs) == before
    os.close(theirs)


def test_a_port_in_use_is_told_with_the_flag_that_helps() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("up", "--alone", "--listen", f"127.0.0.1:{port}", "--plain", "--for", "1")
    assert result.returncode == 1
    assert result.stderr == (
        f"sluicegate: port {port} on 127.0.0.1 is in use; end what listens there, "
        "or choose another with --listen (port 0 takes a free one)\n"
    )


def test_a_public_address_is_refused_unless_insecure_is_said() -> None:
    result = run("up", "--alone", "--listen", "0.0.0.0:0", "--plain", "--for", "1")
    assert result.returncode == 2
    assert "say --insecure" in result.stderr
    assert result.stderr.count("\n") == 1
    allowed = run("up", "--alone", "--listen", "0.0.0.0:0", "--plain", "--for", "0.3", "--insecure")
    assert allowed.returncode == 0
    assert "anyone who reaches this address may ask" in allowed.stdout


def test_a_name_rebound_to_our_address_and_a_page_of_another_site_are_refused() -> None:
    with Up("--no-load") as up:
        path = "/v1/check?rule=api&key=you"
        assert up.ask(path, headers={"Host": f"evil.example:{up.port}"}).status == 421
        assert up.ask(path, headers={"Host": "127.0.0.1"}).status == 421
        assert up.ask(path, headers={"Host": f"localhost:{up.port}"}).status == 200
        assert up.ask(path, headers={"Origin": "http://evil.example"}).status == 403
        assert up.ask(path, headers={"Sec-Fetch-Site": "cross-site"}).status == 403


def test_what_is_too_large_is_refused() -> None:
    with Up("--no-load") as up:
        json = {"Content-Type": "application/json"}
        assert up.ask("/v1/check", b" " * (64 * 1024 + 1), json).status == 413
        with socket.create_connection((up.host, up.port), DEADLINE_S) as greedy:
            # A header without end: the server hangs up, after at most one answer that says so.
            answer = b""
            try:
                greedy.sendall(b"GET / HTTP/1.1\r\nX: ")
                for _ in range(64):
                    greedy.sendall(b"x" * 16 * 1024)
                while chunk := greedy.recv(4096):
                    answer += chunk
            except ConnectionError:
                pass
            assert answer[:12] in (b"", b"HTTP/1.1 431")
        assert up.ask("/v1/check?rule=api&key=you").status == 200


def test_a_reader_that_has_seen_enough_ends_it_without_a_complaint() -> None:
    with subprocess.Popen(
        [*COMMAND, "up", "--alone", "--listen", "127.0.0.1:0", "--load", "50"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "listening" in process.stdout.readline()
        process.stdout.close()
        assert process.wait(DEADLINE_S) == 0
        assert process.stderr.read() == ""


def test_without_its_extra_it_says_how_to_get_it() -> None:
    script = (
        "import sys; sys.modules['httptools'] = None;"
        "from sluicegate.cli import main; sys.exit(main(['up', '--for', '1']))"
    )
    result = run(script=script)
    assert result.returncode == 1
    assert result.stderr == (
        "sluicegate: the package httptools is missing; pip install '.[server]' in the checkout\n"
    )
