"""A child that writes until it is killed, and prints what was acknowledged.

    python -m tests.stores.engines.writer URL

Eight tasks write calls of five rows each into a partition of their own; a line `task number` is
printed when a call has returned.
"""

from __future__ import annotations

import asyncio
import sys

from sluicegate.contracts.engine import Change, Engine
from sluicegate.stores.open_engine import open_engine

TASKS = 8
ROWS = 5
SPACE = "killed"


async def write(engine: Engine, task: int) -> None:
    number = 0
    while True:
        number += 1
        await engine.write(
            [Change(SPACE, b"p%d" % task, b"%d" % row, b"%d" % number) for row in range(ROWS)]
        )
        sys.stdout.write(f"{task} {number}\n")
        sys.stdout.flush()


async def main(url: str) -> None:
    engine = open_engine(url)
    await asyncio.gather(*(write(engine, task) for task in range(TASKS)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
