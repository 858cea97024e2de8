"""A `sluicegate console` as a user starts it, in front of a real limiter and a real dispatcher."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.apps.kv.process import KvProcess
from tests.apps.limiter.process import NATIVE, LimiterProcess, rules_file
from tests.apps.server_process import ServerProcess

HOSTILE = '<script>alert("x")</script>'


class ConsoleProcess(ServerProcess):
    """One console."""

    app = "console"

    def page(self, path: str, **headers: str) -> str:
        """A page, which must be there."""
        status, text = self.ask(path, headers=headers)
        assert status == 200, text
        assert isinstance(text, str)
        return text


class Fleet(NamedTuple):
    """What is shown, and what shows it."""

    console: ConsoleProcess
    limiter: LimiterProcess
    kv: KvProcess


@contextmanager
def started_fleet(folder: Path) -> Iterator[Fleet]:
    """All three, started and ended."""
    rules = rules_file(folder, NATIVE)
    with (
        LimiterProcess(folder, "--rules", rules) as limiter,
        KvProcess(folder, "--engine", "memory:") as kv,
        ConsoleProcess(
            folder, "--services", limiter.url, "--services", kv.url, "--every-s", "0.2"
        ) as console,
    ):
        yield Fleet(console, limiter, kv)
