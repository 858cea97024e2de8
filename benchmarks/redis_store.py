"""Decisions a second by limits kept in Redis, against the libraries that keep theirs there.

Everyone decides on exact limits, on the same real server, in turns, from one process: 64 tasks and
then one. `limits` and `throttled-py` are asked with the strategy that is fastest for them, which is
the fixed window, and `limits` through both clients it offers. Ours are asked as a limiter asks: one
charge a call, 100 keys. On a cluster of three masters the peer is redis-py's asyncio cluster
client, which runs our own script, one key a call, on its own connections. Threads call
`Limiter.take`, against `limits` in threads, which has a connection for each of them. One thread is
also compared with a plain socket that runs our script: no client in Python can be faster.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import statistics
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import hiredis
import limits
import limits.storage
import limits.strategies
import redis.asyncio
from limits import RateLimitItemPerSecond
from limits.aio.storage import RedisStorage
from limits.aio.strategies import FixedWindowRateLimiter
from throttled.asyncio import RateLimiterType, Throttled
from throttled.asyncio import RedisStore as ThrottledRedisStore
from throttled.asyncio.rate_limiter import per_sec

from benchmarks.redis_client import KEYS, TASKS, Decide, Load, cluster, compare, server
from benchmarks.rounds import ROUNDS, Bars, Result, build_of, ratio
from sluicegate import Limiter
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.contracts.store import Charge
from sluicegate.stores.redis.batch import ScriptBatches
from sluicegate.stores.redis.script import load_scripts
from sluicegate.stores.redis.store import RedisStore
from sluicegate.system import SystemChance

AT_LEAST = 8.0  # times the fastest peer, with 64 tasks
AT_LEAST_CLUSTER = 5.0
COUNT = 1_000_000  # a second: never refused
SECOND_US = 1_000_000
AT_LEAST_ONE_TASK = 1.2
AT_LEAST_THREADS = {1: 2.2, 8: 4.0, 32: 5.0}
ONE_OF_A_SECOND = ("", "1", 1, "", 1, SECOND_US, 0, 1, 0)  # as `take_paced` is told
ASKED = (Algorithm.GCRA, Algorithm.FIXED_WINDOW, Algorithm.SLIDING_WINDOW, Algorithm.SLIDING_LOG)


def ours(store: RedisStore, algorithm: Algorithm) -> Decide:
    """One charge, as a limiter would ask."""
    count = 1_000 if algorithm is Algorithm.SLIDING_LOG else COUNT
    limit = Limit(count, period_us=SECOND_US, algorithm=algorithm)
    rule_id = algorithm.value

    async def decide(key: str) -> object:
        return await store.take([Charge(rule_id, limit, key, 1)])

    return decide


def of_limits(url: str, client: str) -> Decide:
    """`limits`, as its documentation says."""
    storage = RedisStorage(f"async+{url}", implementation=client)  # type: ignore[arg-type]
    limiter = FixedWindowRateLimiter(storage)
    item = RateLimitItemPerSecond(COUNT)
    return lambda key: limiter.hit(item, key)


def of_throttled(url: str) -> Decide:
    """`throttled-py`, as its documentation says."""
    throttle = Throttled(
        using=RateLimiterType.FIXED_WINDOW.value,
        quota=per_sec(COUNT),
        store=ThrottledRedisStore(server=url),
    )
    return throttle.limit


def the_same_script(peer: Any) -> Decide:
    """Our script for one kind of limit, through redis-py."""
    script = peer.register_script(load_scripts()["take_paced"].source)
    return lambda key: script(keys=[f"peer:{{{key}}}"], args=ONE_OF_A_SECOND)


@contextmanager
def plain_socket(url: str) -> Iterator[Callable[[str], object]]:
    """Our script on a socket of its own, with nothing around it."""
    at = urlsplit(url)
    script, reader = load_scripts()["take_paced"], hiredis.Reader()
    with socket.create_connection((at.hostname, at.port)) as sock:

        def decide(key: str) -> object:
            sock.sendall(script.call([f"plain:{{{key}}}"], ONE_OF_A_SECOND))
            reader.feed(sock.recv(65_536))
            reply = reader.gets()
            if isinstance(reply, Exception):
                raise reply
            return reply

        sock.sendall(script.load)
        sock.recv(65_536)
        yield decide


async def measure(url: str, calls: int, bars: Bars) -> None:
    """Everyone on one server."""
    store = RedisStore(f"{url}?timeout_ms=10000", SystemChance())
    await store.connect()
    peers = {
        "limits (redis-py)": of_limits(url, "redispy"),
        "limits (coredis)": of_limits(url, "coredis"),
        "throttled-py": of_throttled(url),
    }
    mine = {f"sluicegate {one.value}": ours(store, one) for one in ASKED}
    for tasks in (TASKS, 1):
        print(f"\n{tasks} task{'s' if tasks > 1 else ''}")
        share = calls if tasks > 1 else calls * 2
        few = Load(tasks, share // 4 if tasks > 1 else share)
        many = Load(tasks, share)
        before = store.stats()
        candidates: dict[str, tuple[Decide, Load]] = {
            **{name: (decide, few) for name, decide in peers.items()},
            **{name: (decide, many) for name, decide in mine.items()},
        }
        results = await compare(candidates)
        after = store.stats()
        print(f"  {(after.asks - before.asks) / (after.calls - before.calls):.1f} decisions a call")
        for name in peers:
            times = ratio(results, name, "sluicegate gcra")
            least = AT_LEAST if tasks > 1 else AT_LEAST_ONE_TASK
            bars.check(times >= least, f"{tasks} tasks: {times:.1f} x {name}, at least {least:g}")
    await store.close()


async def measure_cluster(url: str, calls: int, bars: Bars) -> None:
    """Three masters."""
    store = RedisStore(f"{url}?timeout_ms=10000", SystemChance())
    await store.connect()
    host, _, port = url.removeprefix("redis+cluster://").partition(",")[0].partition(":")
    peer = redis.asyncio.RedisCluster(host, int(port))
    await peer.initialize()
    try:
        print(f"\n{TASKS} tasks on a cluster of three masters")
        results = await compare(
            {
                "redis-py cluster": (the_same_script(peer), Load(TASKS, calls // 4)),
                "sluicegate gcra": (ours(store, Algorithm.GCRA), Load(TASKS, calls)),
            }
        )
    finally:
        await peer.aclose()
        await store.close()
    times = ratio(results, "redis-py cluster", "sluicegate gcra")
    bars.check(
        times >= AT_LEAST_CLUSTER,
        f"cluster: {times:.1f} x redis-py running the same script, at least {AT_LEAST_CLUSTER:g}",
    )


def press_threads(decide: Callable[[str], object], threads: int, calls: int) -> float:
    """Nanoseconds a decision by the wall."""
    gate = threading.Barrier(threads + 1)

    def work(number: int) -> None:
        gate.wait()
        for turn in range(calls):
            decide(f"bench:{(number * 7 + turn) % KEYS}")

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    gate.wait()
    began = time.perf_counter()
    for worker in workers:
        worker.join()
    return (time.perf_counter() - began) * 1e9 / (threads * calls)


def measure_threads(url: str, calls: int, bars: Bars) -> None:
    """Threads, against `limits`, which has a connection a thread."""
    mine = Limiter(f"{COUNT}/s", store_url=f"{url}?timeout_ms=10000")
    limiter = limits.strategies.FixedWindowRateLimiter(limits.storage.RedisStorage(url))
    item = RateLimitItemPerSecond(COUNT)
    shared: dict[str, Callable[[str], object]] = {
        "limits": lambda key: limiter.hit(item, key),
        "sluicegate gcra": mine.take,
    }
    print()
    with plain_socket(url) as plain:
        for threads, least in AT_LEAST_THREADS.items():
            candidates = {"plain socket": plain} | shared if threads == 1 else shared
            walls: dict[str, list[float]] = {name: [] for name in candidates}
            for _ in range(ROUNDS):
                for name, decide in candidates.items():
                    walls[name].append(press_threads(decide, threads, calls * 4 // threads))
            for name, wall in walls.items():
                rate = 1e9 / statistics.median(wall)
                print(f"  {threads:2} threads {name:<16}{rate:9,.0f} decisions/s")
            results = {name: Result(name, tuple(wall)) for name, wall in walls.items()}
            if threads == 1:
                most = ratio(results, "limits", "plain socket")
                part = ratio(results, "plain socket", "sluicegate gcra")
                print(f"  the plain socket is {most:.2f} x limits, and this {part:.2f} x that")
            times = ratio(results, "limits", "sluicegate gcra")
            bars.check(
                times >= least, f"{threads} threads: {times:.1f} x limits, at least {least:g}"
            )
    mine.close()


def main() -> None:
    """Print the table and the bars."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="a server that is running")
    parser.add_argument("--calls", type=int, default=400, help="a task, each round")
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio")
    parser.add_argument("--cluster", action="store_true", help="only the cluster")
    asked = parser.parse_args()
    bars = Bars()
    print(f"batches are {build_of(str(import_module(ScriptBatches.__module__).__file__))}")
    run: Callable[[Coroutine[None, None, None]], None] = asyncio.run
    if asked.loop == "uvloop":
        import uvloop

        run = uvloop.run
    if not asked.cluster:
        with server(asked.url) as url:
            run(measure(url, asked.calls, bars))
            measure_threads(url, asked.calls, bars)
    if asked.url is None:
        with cluster() as url:
            run(measure_cluster(url, asked.calls, bars))
    bars.exit()


if __name__ == "__main__":
    main()
