"""Whole processes: two that follow, and a third that breaks and mends from the command line."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pytest

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 60.0
SLACK_S = 10.0  # for a busy machine; what did not end by itself would not end at all
FORCE_S_MAX = 3.0 + SLACK_S  # an opening takes effect in every process within this time

COMMAND = """
import sys
from argparse import ArgumentParser
from sluicegate.apps.limits import glass
parser = ArgumentParser()
glass.add_arguments(parser)
sys.exit(glass.run(parser.parse_args()))
"""


def glass(url: str, *flags: str) -> Any:
    """`sluicegate limits glass` as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *flags, "--store", url, "--format", "json"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Following:
    """A process that follows; its lines come with the time at which they came."""

    def __init__(self, url: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "default::ResourceWarning", "-m", "tests.limits.following", url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.coming: queue.SimpleQueue[tuple[float, str]] = queue.SimpleQueue()
        self.log = ""
        self._readers = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._read_log, daemon=True),
        ]

    def __enter__(self) -> Self:
        for reader in self._readers:
            reader.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        for reader in self._readers:
            reader.join()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def line(self, begin: str, within_s: float = DEADLINE_S) -> float:
        """When the next line came; it must begin so."""
        try:
            at, line = self.coming.get(timeout=within_s)
        except queue.Empty:
            raise AssertionError(f"no {begin!r} within {within_s} s; log: {self.log}") from None
        assert line.startswith(begin), (line, begin, self.log)
        return at

    def logged(self, text: str) -> int:
        """How often it has logged this, by another pipe than its lines: wait for the first."""
        until = time.monotonic() + DEADLINE_S
        while text not in self.log and time.monotonic() < until:
            time.sleep(0.01)
        return self.log.count(text)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.coming.put((time.monotonic(), line.rstrip()))

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log += line


@pytest.fixture(params=["redis", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"file:{tmp_path}/glass.json"
    server: RedisServer = request.getfixturevalue("redis_server")
    server.heal()
    return server.url


def test_what_a_third_opens_is_in_force_in_both_at_once_and_ends_by_itself_or_is_mended(
    url: str,
) -> None:
    with Following(url) as one, Following(url) as two:
        for program in (one, two):
            program.line("whole")
        began = time.monotonic()
        opened = glass(
            url, "break", "--rule", "login", "--for", "3s", "--by", "ann", "--why", "it is wrong"
        )["opened"]
        broken = time.monotonic()
        for program in (one, two):
            program.line(f"open {opened['id']} ann it is wrong", broken + FORCE_S_MAX - began)
        for program in (one, two):
            ended = program.line("whole")
            assert began + 3 - 0.1 <= ended <= broken + 3 + SLACK_S
        everything = glass(url, "break", "--all", "--for", "1h", "--by", "bob", "--why", "fire")
        broken = time.monotonic()
        for program in (one, two):
            at = program.line(f"open {everything['opened']['id']} bob fire")
            assert at - broken <= FORCE_S_MAX
        assert len(glass(url, "list")["open"]) == 1
        glass(url, "mend", everything["opened"]["id"], "--by", "cat", "--why", "it is out")
        mended = time.monotonic()
        for program in (one, two):
            assert program.line("whole") - mended <= FORCE_S_MAX
        entries = [(row["what"], row["by"], row["why"]) for row in glass(url, "audit")["audit"]]
        assert entries == [
            ("break", "ann", "it is wrong"),
            ("end", "", "its time was over"),
            ("break", "bob", "fire"),
            ("mend", "cat", "it is out"),
        ]
        for program in (one, two):
            assert program.log.count("WARNING sluicegate.glass glass broken: ") == 2
            assert "by bob: fire" in program.log


def test_an_opening_ends_in_every_process_though_redis_is_killed(redis_server: RedisServer) -> None:
    redis_server.heal()
    url = redis_server.url
    with Following(url) as one, Following(url) as two:
        for program in (one, two):
            program.line("whole")
        began = time.monotonic()
        glass(url, "break", "--key", "ann", "--for", "4s", "--by", "ann", "--why", "her launch")
        broken = time.monotonic()
        for program in (one, two):
            program.line("open")
        redis_server.kill()
        for program in (one, two):
            ended = program.line("whole")
            assert began + 4 - 0.1 <= ended <= broken + 4 + SLACK_S
        redis_server.restart()
        glass(url, "break", "--all", "--for", "1h", "--by", "ann", "--why", "once more")
        broken = time.monotonic()
        for program in (one, two):
            assert program.line("open") - broken <= FORCE_S_MAX
            assert program.logged("break-glass is not followed") == 1
            assert program.logged("break-glass is followed again") == 1


def test_a_program_that_ends_while_it_follows_leaves_no_complaint(tmp_path: Path) -> None:
    script = """
import sys
from sluicegate.limits.glass.break_glass import Glass
from sluicegate.limits.glass.follower import GlassFollower
from sluicegate.limits.glass.sources import open_source
glass = Glass()
follower = GlassFollower(open_source(sys.argv[1]), glass)
glass.opening_for("login", "ann", 0)
while not follower.reached:
    pass
"""
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", script, f"file:{tmp_path}/glass.json"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        cwd=ROOT,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
