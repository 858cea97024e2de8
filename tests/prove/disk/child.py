"""A process that writes to a store while its disk is faulty, and prints what became of each write.

    python -m tests.prove.disk.child KIND FOLDER ARM

The file ARM makes the disk faulty. It is removed after the last number: then a write must succeed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from tests.prove.disk.stores import CONTROLS, FAILURES, NUMBERS, STORES, Store, value_of

RECOVERY_S_MAX = 60.0


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def check(store: Store) -> None:
    """No wrong value while the disk fails; an error is allowed."""
    try:
        found = await store.found()
    except FAILURES as error:
        say("unread", type(error).__name__)
        return
    for number, value in found.items():
        if value != value_of(number):
            say("wrong", number)


async def main(store: Store, arm: Path) -> None:
    await store.open()
    arm.touch()
    for number in range(NUMBERS):
        try:
            await store.write(number)
        except FAILURES as error:
            say("failed", number, type(error).__name__)
        else:
            say("ok", number)
        if number % 10 == 9:
            await check(store)
    arm.unlink()
    until_s = time.monotonic() + RECOVERY_S_MAX
    while time.monotonic() < until_s:
        try:
            await store.write(NUMBERS)
        except FAILURES as error:
            say("waits", type(error).__name__, error)
            await asyncio.sleep(0.05)
        else:
            say("recovered")
            break
    else:
        say("stuck")
    await store.close()


if __name__ == "__main__":
    name, folder, arm_path = sys.argv[1:]
    control = name.startswith("control ")
    kinds = CONTROLS if control else STORES
    asyncio.run(main(kinds[name.removeprefix("control ")](Path(folder)), Path(arm_path)))
