"""A child never outlives its starter, and what went wrong with it is told.

Tests of the leash itself, with commands that every machine has; servers belong to other files.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from tests.engines.child import (
    PATIENCE_S,
    Child,
    EngineFailedError,
    free_port,
    is_forked,
    run_to_end,
    until,
)

SLEEP = ["sleep", "600"]
STARTER = """
import sys
from pathlib import Path
from tests.engines.child import Child
log, *command = sys.argv[1:]
print(Child("sleeper", command, Path(log)).pid, flush=True)
sys.stdin.read()
"""
FORKED = [sys.executable, "-m", "tests.engines.forked"]


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Child]:
    child = Child("sleeper", SLEEP, tmp_path / "sleeper.log")
    yield child
    child.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a parent-death signal")
@pytest.mark.parametrize("command", [SLEEP, [*FORKED, "sleep"]], ids=["any", "forked"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_child_ends_when_its_starter_is_killed(
    tmp_path: Path, how: signal.Signals, command: list[str]
) -> None:
    words = [sys.executable, "-c", STARTER, str(tmp_path / "log"), *command]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        if command is SLEEP:
            until(lambda: "sleep" in command_of(pid), "waiting for the leash to become sleep", 10)
        starter.send_signal(how)
        starter.wait()
    until(lambda: command_of(pid) == "", "waiting for the sleeper to end", 10)


def test_a_child_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    started: list[Child] = []
    thread = Thread(target=lambda: started.append(Child("c", SLEEP, tmp_path / "log")))
    thread.start()
    thread.join()
    child = started[0]
    try:
        # Were it tied to the thread, the kernel would have sent the signal by now.
        assert child.wait(0.5) is None
    finally:
        child.kill()


def test_a_child_asked_to_stop_ends_by_the_signal(sleeper: Child) -> None:
    sleeper.stop()
    assert sleeper.exit_code == -signal.SIGTERM


def test_a_child_that_will_not_stop_is_killed(tmp_path: Path) -> None:
    stubborn = Child("stubborn", ["sh", "-c", "trap '' TERM; echo up; sleep 600"], tmp_path / "log")
    until(lambda: "up" in stubborn.tail(), "waiting for the shell", 10, [stubborn])
    stubborn.stop(within_s=0.1)
    assert stubborn.exit_code == -signal.SIGKILL


def test_waiting_for_a_dead_child_fails_at_once_with_its_last_words(tmp_path: Path) -> None:
    child = Child("server", ["sh", "-c", "echo no disk; exit 3"], tmp_path / "server.log")
    with pytest.raises(EngineFailedError) as failure:
        until(lambda: None, "waiting for the server", 60, [child])
    assert "waiting for the server: server ended" in str(failure.value)
    assert "ended with code 3" in str(failure.value)
    assert "no disk" in str(failure.value)


def test_waiting_too_long_tells_the_last_refusal(sleeper: Child) -> None:
    port = free_port("127.0.0.1")

    def refused() -> None:
        raise ConnectionRefusedError(port)

    with pytest.raises(EngineFailedError, match=f"0.2 s\nlast answer: .*{port}"):
        until(refused, "waiting for an answer", 0.2, [sleeper])


def test_a_port_is_given_to_one_only_also_by_processes_beside_each_other() -> None:
    code = """
import random, sys
from tests.engines import child
child.PORTS = range(int(sys.argv[1]), int(sys.argv[1]) + 40)
child.PORT_TRIES_MAX = 40
print(*(child.free_port("127.0.0.1") for _ in range(10)))
sys.stdin.read()  # what it was given is its own until it ends
"""
    start = free_port("127.0.0.1")
    beside = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(start)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    given = []
    for process in beside:
        assert process.stdout is not None
        given += process.stdout.readline().split()
    for process in beside:
        process.communicate()
    assert len(given) == len(set(given)) == 20


def command_of(pid: int) -> str:
    """What the process runs; nothing for one that is gone or only waits to be reaped."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.mark.skipif(sys.platform != "linux", reason="programs are forked on Linux only")
@pytest.mark.parametrize("program", [FORKED, [sys.executable, "-W", "error", *FORKED[1:]]])
def test_command_run_to_its_end_returns_what_it_printed(program: list[str]) -> None:
    told = run_to_end([*program, "tell"])
    assert (told.returncode, told.stderr) == (0, "")
    assert json.loads(told.stdout)["words"] == ["tell"]
    ended = run_to_end([*program, "exit", "3"])
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "", "")
    wrong = run_to_end([*program, "exit", "three"])
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "ValueError" in wrong.stderr


class TestForkedProgram:
    """What a process that was forked has of its own, as one that was started anew would."""

    def test_it_is_the_main_program_in_our_folder_with_our_environment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Child("before", [*FORKED, "tell"], tmp_path / "before.log").wait(PATIENCE_S)
        monkeypatch.setenv("TOLD", "ours")
        monkeypatch.chdir(tmp_path)
        child = Child("told", [*FORKED, "tell", "a word"], tmp_path / "log")
        assert child.wait(PATIENCE_S) == 0
        told = json.loads((tmp_path / "log").read_text())
        assert told == {
            "name": "__main__",
            "words": ["tell", "a word"],
            "folder": str(tmp_path),
            "environment": "ours",
            "session": child.pid,
            "end": "told at exit",
        }

    @pytest.mark.parametrize("code", [0, 3])
    def test_its_exit_code_is_told(self, tmp_path: Path, code: int) -> None:
        child = Child("ends", [*FORKED, "exit", str(code)], tmp_path / "log")
        assert child.wait(PATIENCE_S) == code
        assert child.exit_code == code

    def test_a_benchmark_starts_it_anew(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own = 'import os; print("PYTEST_VERSION" in os.environ)'
        assert is_forked([*FORKED, "tell"])
        assert not is_forked([sys.executable, "-c", own])
        monkeypatch.delenv("PYTEST_VERSION")
        assert not is_forked([*FORKED, "tell"])

    def test_a_signal_that_ended_it_is_told(self, tmp_path: Path) -> None:
        child = Child("sleeps", [*FORKED, "sleep"], tmp_path / "log")
        assert child.wait(0) is None
        child.kill()
        assert child.exit_code == -signal.SIGKILL

    def test_an_error_is_in_its_log(self, tmp_path: Path) -> None:
        child = Child("fails", [*FORKED, "exit", "no number"], tmp_path / "log")
        assert child.wait(PATIENCE_S) == 1
        assert "ValueError: invalid literal for int()" in child.tail()
