"""The dispatcher: what its chain adds to a read, and what RESP reads it answers beside Redis.

1. In this process: a read through the whole chain (deadline, criticality, request units, shed,
   queue, bulkhead, permits, observers, and the shield before them) against the same read of the
   same tables without it. What is added is held against one bare Starlette request of the same
   rounds.
2. In processes of their own: GET over RESP on LMDB by redis-benchmark, 50 clients, unpipelined,
   against redis-server's own GET. Both servers have one and the same core, in turns, and
   redis-benchmark has another. Keys are uniform, so hot keys play no part; one hot key is printed.
3. In this process: multi-gets of 100 and ranges of 100 rows, rows a second, beside the `lmdb`
   package used directly. These are printed and have no bar.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import lmdb

import sluicegate.policies.stack as stack_module
from benchmarks.asgi import SCOPE, bare
from benchmarks.peers import step
from benchmarks.resp_door import pinned, pressed, redis_server
from benchmarks.rounds import ROUNDS, Bars, Result, build_of, interleaved, print_results, ratio
from sluicegate.apps.kv.app import KvApp
from sluicegate.apps.kv.settings import KvSettings
from sluicegate.contracts.engine import KeyRange
from sluicegate.contracts.key_values import CallContext, Row, Write
from sluicegate.policies.access import EVERYBODY
from sluicegate.service.settings import settings_from

CHAIN_MAX: Final = 2 / 3  # of a bare Starlette request
RESP_MIN: Final = 0.30  # of redis-server's GET
REQUESTS: Final = 4_000
KEYS: Final = 10_000
ROWS: Final = 100
P99_CALLS: Final = 20_000
VALUE: Final = b"v" * 100
SERVER_CORE: Final = "0"
READY_S: Final = 30.0

STARLETTE: Final = "bare Starlette"
WHOLE: Final = "dispatcher.get"
TABLES: Final = "its tables alone"


def settings_of(*flags: str) -> KvSettings:
    """The settings of `sluicegate kv` with these flags, and quotas that nobody spends."""
    return settings_from(KvSettings, "--quota-ru", str(1 << 40), *flags)


def starlette() -> Callable[[], int]:
    """One bare request after the other."""
    app = bare()

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        pass

    def run() -> int:
        for _ in range(REQUESTS):
            step(app(SCOPE.copy(), receive, send))
        return REQUESTS

    return run


async def filled(app: KvApp, keys: int, rows: int) -> None:
    """Single rows in one table, and partitions of `ROWS` in another."""
    put, call = app.dispatcher.write, CallContext(EVERYBODY)
    for begin in range(0, keys, 500):
        await put(
            "t", [Write(partition_of(at), b"", VALUE) for at in range(begin, begin + 500)], call
        )
    for partition in range(rows):
        writes = [Write(partition_of(partition), b"%04d" % row, VALUE) for row in range(ROWS)]
        await put("rows", writes, call)


def partition_of(number: int) -> bytes:
    """The name of a partition."""
    return b"k%012d" % number


def chain(rounds: int, bars: Bars) -> None:
    """What the chain adds to a read."""
    with asyncio.Runner() as runner:
        app = runner.run(made("memory:"))
        try:
            runner.run(filled(app, KEYS, 0))
            results, p99_us = chain_measured(app, runner, rounds)
        finally:
            runner.run(app.end())
    print_results("A read in this process", results, STARLETTE)
    pairs = zip(results[WHOLE].ns, results[TABLES].ns, results[STARLETTE].ns, strict=True)
    added = [(whole - tables, request) for whole, tables, request in pairs]
    share = statistics.median(ns / request for ns, request in added)
    added_us = statistics.median(ns for ns, _ in added) / 1e3
    print(
        f"\n  the chain and the shield add {added_us:.1f} us; a whole read's p99 is {p99_us:.1f} us"
    )
    if build_of(stack_module.__file__) == "compiled":
        bars.check(share <= CHAIN_MAX, f"of a bare Starlette request: {share:.2f}, at most 2/3")
    else:
        print(f"  of a bare Starlette request: {share:.2f} (the bar is for the compiled build)")


def chain_measured(
    app: KvApp, runner: asyncio.Runner, rounds: int
) -> tuple[dict[str, Result], float]:
    """All three in turns, and the p99 of single reads through the whole chain."""
    get, read, clock = app.dispatcher.get, app.tables.read_one, app.clock
    partitions = cycle([partition_of(at) for at in range(KEYS)])

    async def whole() -> int:
        for _ in range(REQUESTS):
            row = get("t", next(partitions), b"", CallContext(EVERYBODY, arrived_us=clock.now_us()))
            if not isinstance(row, Row):  # at the edge of an epoch it may wait for its share
                assert row is not None
                row = await row
            assert row is not None
        return REQUESTS

    def tables() -> int:
        runner.run(app.catalogue.refresh())  # it expires while the loop does not run
        for _ in range(REQUESTS):
            row = read("t", next(partitions), b"", clock.now_us())
            assert isinstance(row, Row)
        return REQUESTS

    results = interleaved(
        {STARLETTE: starlette(), WHOLE: lambda: runner.run(whole()), TABLES: tables}, rounds=rounds
    )

    async def each() -> list[int]:
        took_ns = []
        for _ in range(P99_CALLS):
            began_ns = time.perf_counter_ns()
            row = get("t", next(partitions), b"", CallContext(EVERYBODY, arrived_us=clock.now_us()))
            if isinstance(row, Awaitable):
                await row
            took_ns.append(time.perf_counter_ns() - began_ns)
        return took_ns

    return results, statistics.quantiles(runner.run(each()), n=100)[98] / 1e3


def many(rounds: int, folder: Path) -> None:
    """Multi-gets and ranges, beside the library that keeps the rows."""
    with asyncio.Runner() as runner:
        app = runner.run(made(f"lmdb:{folder / 'dispatcher'}"))
        try:
            runner.run(filled(app, KEYS, KEYS // ROWS))
            results = many_measured(app, runner, rounds, folder)
        finally:
            runner.run(app.end())
    for title, ours, peer in (
        (f"A row of a multi-get of {ROWS}", "multi-get", "lmdb, get"),
        (f"A row of a range of {ROWS}", "range", "lmdb, cursor"),
    ):
        both = {name: results[name] for name in (ours, peer)}
        print_results(title, both, peer)
        print(
            f"  {1e9 / results[ours].median_ns:,.0f} rows/s through the dispatcher,"
            f" {1 / ratio(results, ours, peer):.0%} of the library's"
        )


async def made(engine: str) -> KvApp:
    """A dispatcher of this process, within the loop that runs."""
    app = KvApp(settings_of("--engine", engine))
    await app.start()
    # Candidates that take turns keep the loop from turning: that is no stress of the dispatcher's.
    await app.background.stop("loop lag")
    return app


def many_measured(
    app: KvApp, runner: asyncio.Runner, rounds: int, folder: Path
) -> dict[str, Result]:
    """In turns; a row is the unit."""
    environment = lmdb.open(str(folder / "direct"), map_size=1 << 30, sync=False)
    names = [partition_of(at) for at in range(KEYS)]
    with environment.begin(write=True) as writing:
        for name in names:
            writing.put(name, VALUE)
    dispatcher = app.dispatcher
    begins = cycle(range(0, KEYS, ROWS))
    partitions = cycle([partition_of(at) for at in range(KEYS // ROWS)])
    span = KeyRange(rows_max=ROWS)

    async def multi_get() -> int:
        for _ in range(50):
            at = next(begins)
            places = [(name, b"") for name in names[at : at + ROWS]]
            rows = dispatcher.get_each("t", places, CallContext(EVERYBODY))
            assert None not in (await rows if isinstance(rows, Awaitable) else rows)
        return 50 * ROWS

    async def range_() -> int:
        for _ in range(50):
            found = await dispatcher.scan("rows", next(partitions), span, CallContext(EVERYBODY))
            assert len(found.rows) == ROWS
        return 50 * ROWS

    def direct_get() -> int:
        for _ in range(50):
            at = next(begins)
            with environment.begin() as reading:
                found = [reading.get(name) for name in names[at : at + ROWS]]
            assert None not in found
        return 50 * ROWS

    def direct_range() -> int:
        for _ in range(50):
            with environment.begin() as reading:
                cursor = reading.cursor()
                cursor.set_range(names[next(begins)])
                found = [row for row, _ in zip(cursor.iternext(), range(ROWS), strict=False)]
            assert len(found) == ROWS
        return 50 * ROWS

    try:
        return interleaved(
            {
                "multi-get": lambda: runner.run(multi_get()),
                "range": lambda: runner.run(range_()),
                "lmdb, get": direct_get,
                "lmdb, cursor": direct_range,
            },
            rounds=rounds,
        )
    finally:
        environment.close()


@contextmanager
def dispatcher(folder: Path) -> Iterator[int]:
    """`sluicegate kv` on LMDB in a process of its own; its port."""
    words = (
        *pinned(SERVER_CORE), sys.executable, "-m", "sluicegate.cli", "kv",
        "--listen", "127.0.0.1:0", "--engine", f"lmdb:{folder / 'served'}",
        "--quota-ru", str(1 << 40), "--log", "error",
    )  # fmt: skip
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            yield int(line.partition("127.0.0.1:")[2].partition(";")[0])
        finally:
            process.terminate()


def over_resp(rounds: int, bars: Bars, folder: Path) -> None:
    """GET over RESP, beside redis-server's."""
    uniform, hot = ("-r", str(KEYS), "GET", "t:k__rand_int__"), ("GET", "t:k000000000000")
    with ExitStack() as stack:
        ours = stack.enter_context(dispatcher(folder))
        peer = stack.enter_context(redis_server())
        for port in (ours, peer):
            load(port)
            pressed(port, 1, uniform)  # warm
        seen: dict[str, list[float]] = {"ours": [], "hot": [], "peer": []}
        asked = {"ours": (ours, uniform), "hot": (ours, hot), "peer": (peer, uniform)}
        for turn in range(rounds):
            for name in sorted(asked, reverse=turn % 2 == 1):
                port, words = asked[name]
                seen[name].append(pressed(port, 1, words))
    shares = [own / other for own, other in zip(seen["ours"], seen["peer"], strict=True)]
    share = statistics.median(shares)
    print("\nGET over RESP, 50 clients, one at a time each")
    print(f"  sluicegate kv on LMDB  {statistics.median(seen['ours']):11,.0f}/s")
    print(f"  the same, a hot key  {statistics.median(seen['hot']):11,.0f}/s")
    print(f"  redis-server         {statistics.median(seen['peer']):11,.0f}/s")
    print(f"  share in each round  {', '.join(f'{one:.0%}' for one in shares)}")
    claim = f"of redis-server's GET: {share:.0%}, at least {RESP_MIN:.0%}"
    if build_of(stack_module.__file__) == "compiled":
        bars.check(share >= RESP_MIN, claim)
    else:
        print(f"  {claim} (the bar is for the compiled build)")


def load(port: int) -> None:
    """All keys that are asked for."""
    import redis

    with redis.Redis(port=port) as client:
        for begin in range(0, KEYS, 500):
            client.mset({f"t:k{at:012d}": VALUE for at in range(begin, begin + 500)})


def main() -> None:
    """Print the tables and the bars."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", choices=("chain", "resp", "many"), help="this part alone")
    asked = parser.parse_args()
    print(f"sluicegate is {build_of(stack_module.__file__)}, {os.cpu_count()} cores")
    bars = Bars()
    with TemporaryDirectory(prefix="sluicegate-bench-") as name:
        if asked.only in (None, "chain"):
            chain(asked.rounds, bars)
        if asked.only in (None, "resp"):
            over_resp(asked.rounds, bars, Path(name))
        if asked.only in (None, "many"):
            many(asked.rounds, Path(name))
    bars.exit()


if __name__ == "__main__":
    main()
