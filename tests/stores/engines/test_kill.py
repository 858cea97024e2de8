from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from sluicegate.contracts.engine import Change
from sluicegate.stores.open_engine import open_engine
from sluicegate.testing.engines import resolve
from tests.stores.engines.writer import ROWS, SPACE, TASKS

LINES = 400


def killed_in_the_middle(url: str) -> dict[int, int]:
    """The last call of each task that was acknowledged before a kill -9."""
    acknowledged = dict.fromkeys(range(TASKS), 0)
    with subprocess.Popen(
        [sys.executable, "-m", "tests.stores.engines.writer", url],
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        for _ in range(LINES):
            line = child.stdout.readline()
            assert line, "it ended by itself"
            task, number = line.split()
            acknowledged[int(task)] = int(number)
        child.kill()
        for line in child.stdout.read().splitlines(keepends=True):
            if line.endswith("\n"):
                task, number = line.split()
                acknowledged[int(task)] = int(number)
    return acknowledged


@pytest.mark.parametrize("scheme", ["lmdb", "rocksdb"])
def test_a_kill_loses_nothing_that_was_acknowledged_and_tears_no_call(
    scheme: str, tmp_path: Path
) -> None:
    url = f"{scheme}:{tmp_path}/kv"
    for _ in range(2):
        acknowledged = killed_in_the_middle(url)

        async def look(acknowledged: dict[int, int] = acknowledged) -> None:
            engine = open_engine(url)
            for task, number in acknowledged.items():
                places = [(b"p%d" % task, b"%d" % row) for row in range(ROWS)]
                (value,) = set(await resolve(engine.read(SPACE, places)))
                assert value is not None
                assert number <= int(value) <= number + 1
            await engine.write([Change(SPACE, b"after", b"", b"v")])
            await engine.close()

        asyncio.run(look())
