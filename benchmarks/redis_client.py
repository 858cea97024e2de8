"""Decisions a second through our Redis client against redis-py's asyncio clients, on real servers.

Both run one small Lua script (GCRA on the server's clock, one key in a hundred) from one process,
with 64 tasks and with one. Wall time, because the server's share is part of the answer; the peer
has its C parser too, as many connections as it wants, and a script object of its own. A server that
is already running is used with `--url`; otherwise the tests' own are started, first one and then a
cluster of three masters.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import redis.asyncio

from benchmarks.rounds import ROUNDS, Bars, Result, ratio
from sluicegate.stores.redis.client import RedisClient, open_client
from sluicegate.stores.redis.script import Script
from sluicegate.system import SystemChance

TASKS = 64
KEYS = 100
AT_LEAST = 5.0  # times redis-py, with 64 tasks
GCRA = """\
local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local free_at = tonumber(redis.call('GET', KEYS[1]) or now)
if free_at < now then free_at = now end
local after = free_at + interval
if after - now > interval * burst then return {0, after - interval * burst - now} end
redis.call('SET', KEYS[1], string.format('%.0f', after), 'PX', 60000)
return {1, math.floor((interval * burst - (after - now)) / interval)}
"""
ARGS = (10, 1_000_000)  # 10 us apart: never refused

Decide = Callable[[str], Awaitable[object]]


class Load(NamedTuple):
    """So many tasks, each of which makes so many decisions, one after another."""

    tasks: int
    calls: int


async def press(decide: Decide, load: Load) -> tuple[float, list[float]]:
    """Nanoseconds a decision by the wall, and the time of each decision in microseconds."""
    took: list[float] = []
    clock = time.perf_counter

    async def task(number: int) -> None:
        for turn in range(load.calls):
            began = clock()
            await decide(f"bench:{(number * 7 + turn) % KEYS}")
            took.append((clock() - began) * 1e6)

    started = clock()
    await asyncio.gather(*(task(number) for number in range(load.tasks)))
    return (clock() - started) * 1e9 / (load.tasks * load.calls), took


async def compare(candidates: dict[str, tuple[Decide, Load]]) -> dict[str, Result]:
    """Every candidate once a round, each round begun by another; a line for each."""
    walls: dict[str, list[float]] = {name: [] for name in candidates}
    cpus: dict[str, list[float]] = {name: [] for name in candidates}
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for decide, load in candidates.values():
        await press(decide, Load(load.tasks, load.calls // 10))
    names = list(candidates)
    for turn in range(ROUNDS):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            decide, load = candidates[name]
            cpu_ns = time.thread_time_ns()
            wall, took = await press(decide, load)
            cpus[name].append((time.thread_time_ns() - cpu_ns) / 1e3 / load.tasks / load.calls)
            walls[name].append(wall)
            times[name] += took
    for name in names:
        cuts = statistics.quantiles(times[name], n=100)
        print(
            f"  {name:<24} {1e9 / statistics.median(walls[name]):9,.0f} decisions/s"
            f"  p50 {cuts[49]:7.0f} us  p99 {cuts[98]:7.0f} us"
            f"  {statistics.median(cpus[name]):6.1f} us CPU each"
        )
    return {name: Result(name, tuple(ns)) for name, ns in walls.items()}


def ours(client: RedisClient) -> Decide:
    """Our client, as a store would call it."""
    script = Script(GCRA, name="gcra")
    return lambda key: client.run_script(script, [key], ARGS)


def peers(client: redis.asyncio.Redis | redis.asyncio.RedisCluster) -> Decide:
    """redis-py, as its documentation says."""
    script = client.register_script(GCRA)
    return lambda key: script(keys=[key], args=list(ARGS))


async def measure(url: str, calls: int, bars: Bars) -> None:
    """Both clients on one server."""
    # A benchmark on a busy machine is late now and then; that is not what is measured.
    client = open_client(f"{url}?timeout_ms=10000", SystemChance())
    await client.connect()
    peer = redis.asyncio.Redis.from_url(url)
    try:
        print(f"\n{TASKS} tasks")
        many = await compare(
            {
                "redis-py asyncio": (peers(peer), Load(TASKS, calls // 4)),
                "sluicegate": (ours(client), Load(TASKS, calls)),
            }
        )
        print("\none task")
        one = await compare(
            {
                "redis-py asyncio": (peers(peer), Load(1, calls * 4)),
                "sluicegate": (ours(client), Load(1, calls * 4)),
            }
        )
    finally:
        await peer.aclose()
        await client.close()
    times = ratio(many, "redis-py asyncio", "sluicegate")
    alone = ratio(one, "redis-py asyncio", "sluicegate")
    print()
    bars.check(times >= AT_LEAST, f"{TASKS} tasks: {times:.1f} x redis-py, at least {AT_LEAST:g}")
    bars.check(alone >= 1, f"one task: {alone:.1f} x redis-py, not slower")


async def measure_cluster(url: str, calls: int, bars: Bars) -> None:
    """Both clients on three masters."""
    client = open_client(f"{url}?timeout_ms=10000", SystemChance())
    await client.connect()
    host, _, port = url.removeprefix("redis+cluster://").partition(",")[0].partition(":")
    peer = redis.asyncio.RedisCluster(host, int(port))
    await peer.initialize()
    try:
        print(f"\n{TASKS} tasks on a cluster of three masters")
        results = await compare(
            {
                "redis-py asyncio cluster": (peers(peer), Load(TASKS, calls // 4)),
                "sluicegate": (ours(client), Load(TASKS, calls)),
            }
        )
    finally:
        await peer.aclose()
        await client.close()
    times = ratio(results, "redis-py asyncio cluster", "sluicegate")
    bars.check(times >= AT_LEAST, f"cluster: {times:.1f} x redis-py, at least {AT_LEAST:g}")


@contextmanager
def server(url: str | None) -> Iterator[str]:
    """The server that is given, or one of the tests' own."""
    if url is not None:
        yield url
        return
    from tests.engines.redis import RedisServer

    with RedisServer() as started:
        yield started.url


@contextmanager
def cluster() -> Iterator[str]:
    """Three masters of the tests' own."""
    from tests.engines.redis import RedisCluster

    with RedisCluster() as started:
        yield started.url


def main() -> None:
    """Print the table and the bars."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="a server that is running")
    parser.add_argument("--calls", type=int, default=400, help="a task, each round")
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio")
    asked = parser.parse_args()
    bars = Bars()
    run: Callable[[Coroutine[None, None, None]], None] = asyncio.run
    if asked.loop == "uvloop":
        import uvloop

        run = uvloop.run
    with server(asked.url) as url:
        run(measure(url, asked.calls, bars))
    if asked.url is None:
        with cluster() as url:
            run(measure_cluster(url, asked.calls, bars))
    bars.exit()


if __name__ == "__main__":
    main()
