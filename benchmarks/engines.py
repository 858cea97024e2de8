"""Embedded engines: what grouping commits brings, and what our layer costs over bare LMDB.

    python -m benchmarks.engines

Each line is a ratio within one round; the median of several rounds is told. The synced writes are
of 100 bytes: one after the other, and by 100 tasks that share commits. Reads and ranges of 100 rows
are held against LMDB used directly, a transaction each.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from statistics import median

import lmdb

from sluicegate.contracts.engine import Change, Engine, KeyRange
from sluicegate.stores.engines.bounds import key_of, number_bytes
from sluicegate.stores.open_engine import open_engine

ROUNDS = 5
ROWS = 20_000
VALUE = b"v" * 100


def per_s(count: int, work: Callable[[], object]) -> float:
    """How often in a second."""
    began = time.perf_counter()
    for _ in range(count):
        work()
    return count / (time.perf_counter() - began)


async def alone_per_s(engine: Engine, count: int) -> float:
    """Synced writes, one after the other."""
    began = time.perf_counter()
    for number in range(count):
        await engine.write([Change("w", b"%d" % number, b"", VALUE)])
    return count / (time.perf_counter() - began)


async def together_per_s(engine: Engine, count: int) -> float:
    """Synced writes by a hundred tasks."""
    began = time.perf_counter()

    async def write(task: int) -> None:
        for number in range(count // 100):
            await engine.write([Change("w", b"%d/%d" % (task, number), b"", VALUE)])

    await asyncio.gather(*(write(task) for task in range(100)))
    return count / (time.perf_counter() - began)


async def writes(folder: str) -> None:
    """Group commit against a sync for each."""
    for scheme in ("lmdb", "rocksdb"):
        engine = open_engine(f"{scheme}:{folder}/{scheme}")
        ratios, rates = [], []
        for _ in range(ROUNDS):
            alone = await alone_per_s(engine, 200)
            together = await together_per_s(engine, 5_000)
            ratios.append(together / alone)
            rates.append(together)
        print(
            f"{scheme}: 100 tasks against one, a synced write each:"
            f" {median(ratios):.1f} x ({median(rates):,.0f}/s)"
        )
        await engine.close()


async def reads(folder: str) -> None:
    """Our reads against LMDB's own."""
    engine = open_engine(f"lmdb:{folder}/reads")
    await engine.load("t", [(b"p", b"%06d" % number, VALUE) for number in range(ROWS)])
    bare = lmdb.open(f"{folder}/bare", map_size=1 << 28, max_dbs=1, max_spare_txns=8)
    rows = bare.open_db(b"rows")
    one = number_bytes(1)
    with bare.begin(rows, write=True) as txn:
        for number in range(ROWS):
            txn.put(key_of(one, b"p", b"%06d" % number), VALUE)
    key = key_of(one, b"p", b"000777")

    def bare_get() -> None:
        with bare.begin(rows) as txn:
            txn.get(key)

    def bare_range() -> None:
        with bare.begin(rows) as txn, txn.cursor() as cursor:
            cursor.set_range(key)
            found = []
            for row in cursor.iternext():
                found.append(row)
                if len(found) == 100:
                    break

    def our_range() -> None:
        engine.scan("t", b"p", KeyRange(b"000777", rows_max=100))

    gets, ranges = [], []
    for _ in range(ROUNDS):
        ours = per_s(20_000, lambda: engine.read("t", [(b"p", b"000777")]))
        gets.append(ours / per_s(20_000, bare_get))
        ours = per_s(1_000, our_range)
        ranges.append(ours / per_s(1_000, bare_range))
    print(f"lmdb: get through the engine against bare: {median(gets):.2f} x")
    print(f"lmdb: range of 100 through the engine against bare: {median(ranges):.2f} x")
    bare.close()
    await engine.close()


async def main() -> None:
    """Both."""
    with tempfile.TemporaryDirectory() as folder:
        await writes(folder)
        await reads(folder)


if __name__ == "__main__":
    asyncio.run(main())
