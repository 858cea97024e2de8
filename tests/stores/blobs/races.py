"""Several processes at one store: each says which orders it wrote first, and counts up by tags."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from sluicegate.contracts.blob_store import BlobStore
from sluicegate.contracts.errors import Conflict
from sluicegate.stores.blob_stores import open_blobs
from tests.stores.blobs.conformance import MANY, count_up

ROOT = Path(__file__).resolve().parents[3]
PROCESSES = 3


def race(url: str, rounds: int, *, counting: bool = True) -> None:
    """Each order has one writer, whose bytes are there; and no count is lost."""
    blobs = open_blobs(url)
    if counting:
        blobs.put("count", b"0")
    command = [sys.executable, "-m", "tests.stores.blobs.races", url, str(rounds)]
    with ExitStack() as ending:
        racers = []
        for number in range(PROCESSES):
            racer = subprocess.Popen(
                [*command, str(number)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            ending.enter_context(racer)
            ending.callback(racer.kill)
            racers.append(racer)
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        won = [json.loads(racer.communicate(timeout=60)[0]) for racer in racers]
    assert sorted(order for orders in won for order in orders) == list(range(rounds))
    for number, orders in enumerate(won):
        for order in orders:
            blob = blobs.get(f"orders/{order}", bytes_max=MANY)
            assert blob is not None
            assert blob.data == b"%d" % number
    count = blobs.get("count", bytes_max=MANY)
    assert (count is not None) == counting
    assert count is None or int(count.data) == PROCESSES * rounds


def run(blobs: BlobStore, rounds: int, number: int) -> list[int]:
    won = []
    for order in range(rounds):
        try:
            blobs.put(f"orders/{order}", b"%d" % number, if_absent=True)
        except Conflict:
            pass
        else:
            won.append(order)
        if blobs.get("count", bytes_max=MANY) is not None:
            count_up(blobs, "count")
    return won


if __name__ == "__main__":
    store = open_blobs(sys.argv[1])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    sys.stdout.write(json.dumps(run(store, int(sys.argv[2]), int(sys.argv[3]))))
