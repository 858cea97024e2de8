"""A dispatcher on LMDB is killed with -9 in the middle of an upload, and in the middle of its fold.

What was acknowledged is there, nothing of it can be seen before the commit, the same command goes
on where it stood, and then all is there.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.engines.child import until

pytestmark = pytest.mark.engine

ROWS = 60_000
PARTS = 120
MAIN = "import sys; from sluicegate.cli import main; sys.exit(main(sys.argv[1:]))"
LOAD = (
    "import sys; from argparse import ArgumentParser; "
    "from sluicegate.apps.kv.load import command as load; "
    "parser = ArgumentParser(); load.add_arguments(parser); "
    "sys.exit(load.run(parser.parse_args(sys.argv[1:])))"
)


class Served:
    """`sluicegate kv` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                MAIN,
                "kv",
                "--listen",
                "127.0.0.1:0",
                "--insecure",
                "--engine",
                f"lmdb:{folder}",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        found = None
        while found is None:
            line = self.process.stdout.readline()
            assert line, "it did not start"
            found = re.search(r"127\.0\.0\.1:(\d+)", line)
        self.port = int(found[1])

    def get(self, path: str) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def upload(self) -> dict[str, Any]:
        status, body = self.get("/v1/tables/t/uploads/u")
        record: dict[str, Any] = json.loads(body) if status == 200 else {"parts": [], "state": ""}
        return record

    def kill(self, how: int = signal.SIGKILL) -> None:
        os.kill(self.process.pid, how)
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def lmdb_folder(tmp_path: Path) -> Path:
    pytest.importorskip("lmdb")
    return tmp_path / "kv"


def loading(port: int, file: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            LOAD,
            "t",
            str(file),
            "--at",
            f"http://127.0.0.1:{port}",
            "--name",
            "u",
            "--part-rows",
            str(ROWS // PARTS),
            "--patience-s",
            "60",
            "--at-once",
            "2",
        ],
        stderr=subprocess.PIPE,
        text=True,
    )


def test_an_upload_outlives_what_is_killed_on_its_way(tmp_path: Path, lmdb_folder: Path) -> None:
    file = tmp_path / "rows.csv"
    with file.open("w") as out:
        out.write("partition,sort,value\n")
        for at in range(ROWS):
            out.write(f"p{at // 100},{at % 100:03},v{at}\n")
    server = Served(lmdb_folder)
    loader = loading(server.port, file)
    try:
        parts = until(lambda: some_parts(server), "waiting for parts")
        server.kill()
        loader.send_signal(signal.SIGINT)
        assert loader.wait(60) != 0
        assert loader.stderr is not None
        output = loader.stderr.read()
        assert "run the same command again to go on" in output
        loader.stderr.close()

        server = Served(lmdb_folder)
        there = server.upload()
        assert there["state"] == "open"
        assert set(parts) <= set(there["parts"])
        assert len(there["parts"]) < PARTS
        for at in (0, ROWS - 1):
            assert server.get(f"/v1/tables/t/rows/p{at // 100}/{at % 100:03}")[0] == 404
        loader = loading(server.port, file)
        # It folds some hundred rows and then pauses, so this is long before the end of 60,000.
        until(lambda: server.upload()["state"] == "folding", "waiting for the fold")
        server.kill()
        loader.kill()
        loader.wait(60)
        assert loader.stderr is not None
        loader.stderr.close()

        server = Served(lmdb_folder)
        assert server.upload()["state"] == "folding"
        check_every_row(server)
        until(lambda: server.upload()["state"] == "done", "waiting for the end of the fold")
        check_every_row(server)
    finally:
        server.kill()
        if loader.poll() is None:
            loader.kill()
            loader.wait(60)


def some_parts(server: Served) -> list[int]:
    """The parts that are there, when they are some."""
    parts: list[int] = server.upload()["parts"]
    return parts if len(parts) >= 20 else []


def check_every_row(server: Served) -> None:
    for at in range(0, ROWS, 997):
        status, value = server.get(f"/v1/tables/t/rows/p{at // 100}/{at % 100:03}")
        assert (status, value) == (200, b"v%d" % at)
