"""`sluicegate resilience serve` in its own process, for tests."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = str(Path(__file__).parents[4])
SHOP = "tests.apps.resilience.serve.shop:app"
PATIENCE_S = 60.0
CHECKOUT = '[callers]\ncheckout = "critical"\n'


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Served(NamedTuple):
    """A running command; `first` is the line that it printed."""

    process: subprocess.Popen[str]
    first: str
    port: int
    folder: Path

    def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        with contextlib.closing(connection):
            connection.request(method, path, headers=fields)
            answer = connection.getresponse()
            names = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, names, answer.read())

    def begun(self) -> list[str]:
        return begun(self.folder)

    def open(self) -> None:
        (self.folder / "open").touch()


def begun(folder: Path) -> list[str]:
    file = folder / "begun"
    return file.read_text().split() if file.exists() else []


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextlib.contextmanager
def serving(folder: Path, *flags: str, callers: str = "") -> Iterator[Served]:
    """Serve the shop for a block."""
    settings = folder / "resilience.toml"
    settings.write_text(callers)
    command = [sys.executable, "-m", "sluicegate.cli", "resilience", "serve", SHOP]
    if "--leave-s" not in flags:
        command += ["--leave-s", "0"]
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "--settings", str(settings), *flags],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "SHOP_FOLDER": str(folder)},
    ) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            found = re.match(r"http://127\.0\.0\.1:(\d+)", first)
            assert found, first
            yield Served(process, first, int(found[1]), folder)
        finally:
            (folder / "open").touch()
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            finally:
                process.kill()
