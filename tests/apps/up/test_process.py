"""`sluicegate up` as a user starts it: every service, busy, paused, and gone when it goes."""

from __future__ import annotations

import http.client
import os
import pty
import re
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.apps.up.running import COMMAND, DEADLINE_S, END_S_MAX, Up, has_ended, until

BUSY = {
    "limiter": r'"allowed": ?[1-9]',
    "kv": r'"caller": ?"nightly"',
    "pubsub": r'"admitted": ?[1-9]',
    "images": r'"downloads": ?[1-9]',
}
needs_proc = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="children are looked up in /proc"
)


def run(*arguments: str, script: str | None = None) -> subprocess.CompletedProcess[str]:
    command = COMMAND if script is None else (sys.executable, "-c", script)
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


def ask(port: int, path: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


@needs_proc
def test_services_are_busy_pause_at_enter_and_end_together() -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "wb", buffering=0) as keyboard, Up(keyboard=theirs) as up:
        os.close(theirs)
        assert any("Enter pauses the load" in line for line in up.lines)
        services = {name: port for name, port in up.ports.items() if name != "console"}
        expected = {"limiter", "kv", "pubsub"} | ({"images"} if find_spec("pyvips") else set())
        assert set(services) == expected
        for name, port in services.items():
            until(lambda of=name, at=port: bool(re.search(BUSY[of], ask(at, "/v1/state"))), name)  # type: ignore[misc]
        nodes = f"{len(services)} of {len(services)}"
        until(lambda: nodes in ask(up.ports["console"], "/"), "the console shows all")
        up.line(" s  all is calm | CALM: All is calm: ")  # the scene, and what `top` says of it
        children = up.children()
        assert len(children) == len(services) + 3  # the console, the load, the overview
        keyboard.write(b"\n")
        up.line("paused; Enter goes on | CALM: All is calm: nobody asks.")
        keyboard.write(b"\n")
        up.line("all is calm | CALM: All is calm: nobody asks.")
        up.line("/s admitted")
        assert up.end() < END_S_MAX
        assert (up.process.returncode, up.errors()) == (0, "")
        assert all(has_ended(child) for child in children)
        up.line("ended after")


@needs_proc
def test_without_a_load_they_run_and_nobody_asks_and_a_signal_ends_it() -> None:
    with Up("--no-load") as up:
        up.line(" s  no load | CALM: All is calm: nobody asks.")
        up.end(signal.SIGTERM)
        assert (up.process.returncode, up.errors()) == (0, "")


@needs_proc
def test_they_end_when_it_is_killed_and_what_dies_is_told() -> None:
    with Up() as up:
        up.line("all is calm | ")
        children = up.children()
        (load,) = [one for one in children if b"apps.up.story" in commandline(one)]
        os.kill(load, signal.SIGKILL)
        up.line("the load does not run: code -9")
        up.process.kill()
        until(lambda: all(has_ended(one) for one in children), "they notice")


def commandline(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_it_ends_by_itself_after_the_time_it_was_given() -> None:
    result = run("up", "--free-ports", "--for", "0.5")
    assert (result.returncode, result.stderr) == (0, "")
    assert "sluicegate up: ended after " in result.stdout
    wrong = run("up", "--for", "never")
    assert wrong.returncode == 2
    assert wrong.stderr == "sluicegate: --for: 'never' cannot be used; give seconds, more than 0\n"


def test_a_reader_that_has_seen_enough_ends_it_without_a_complaint() -> None:
    with subprocess.Popen(
        [*COMMAND, "up", "--free-ports"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "starts every service" in process.stdout.readline()
        process.stdout.close()
        assert process.wait(DEADLINE_S) == 0
        assert process.stderr.read() == ""
