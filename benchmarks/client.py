"""Decisions a second through the light client, with and without leases, and what a check costs.

One `sluicegate limiter` with its counts in memory on one core, everything that asks on the other.
The peer asks the same service the same SG.CHECK through redis-py, which is what one would use
without our client: one connection a task, as many as there are tasks. Everyone takes turns; ratios
are of medians.

    python -m benchmarks.client
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import redis.asyncio

from benchmarks.rounds import ROUNDS, Bars, Result, build_of, ratio
from sluicegate import Limiter
from sluicegate.client import Client
from sluicegate.wire import resp
from tests.engines.child import Child, free_port, until

RULES = """\
version: 1
rules:
  - {rule_id: all, resource_path: /api, limit: 1000000000, window_seconds: 60}
  - {rule_id: none, resource_path: /never, limit: 1, window_seconds: 86400}
"""
TASKS, PAIRS = 64, 100
CPU_TIMES_MIN = 3.0  # of redis-py's CPU a check to ours, without leases
LEASE_TIMES_MIN = 3.0  # times our own client without leases

Ask = Callable[[str], Awaitable[object]]


@contextmanager
def service() -> Iterator[str]:
    """A limiter on the first core."""
    with tempfile.TemporaryDirectory() as folder:
        rules, port = Path(folder, "rules.yaml"), free_port("127.0.0.1")
        rules.write_text(RULES, encoding="utf-8")
        command = [
            *pinned(0), sys.executable, "-m", "sluicegate.cli", "limiter", "--shed", "off",
            "--listen", f"127.0.0.1:{port}", "--rules", str(rules), "--log", "warning",
        ]  # fmt: skip
        log = Path(folder, "log")
        child = Child("sluicegate limiter", command, log)
        try:
            until(lambda: "is ready" in log.read_text(), "sluicegate limiter", 60, [child])
            yield f"127.0.0.1:{port}"
        finally:
            child.stop()


def pinned(core: int) -> list[str]:
    """What keeps a command on one core, where there are two."""
    return ["taskset", "-c", str(core)] if (os.cpu_count() or 1) > 1 else []


async def press(ask: Ask, tasks: int, calls: int) -> tuple[float, float]:
    """So many tasks ask at once; nanoseconds of wall and of this process's CPU for each ask."""

    async def task(number: int) -> None:
        for call in range(calls):
            await ask(f"user-{(number + call) % PAIRS}")

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(task(number) for number in range(tasks)))
    asked = tasks * calls / 1e9
    return (time.perf_counter() - wall) / asked, (time.process_time() - cpu) / asked


async def compare(
    title: str, candidates: dict[str, tuple[Ask, int]], tasks: int
) -> tuple[dict[str, Result], dict[str, Result]]:
    """All in turns; a line each. Their times by the wall, and of our CPU."""
    walls: dict[str, list[float]] = {name: [] for name in candidates}
    cpus: dict[str, list[float]] = {name: [] for name in candidates}
    for ask, calls in candidates.values():
        await press(ask, tasks, max(calls // 4, 1))  # warm
    for _ in range(ROUNDS):
        for name, (ask, calls) in candidates.items():
            wall, cpu = await press(ask, tasks, calls)
            walls[name].append(wall)
            cpus[name].append(cpu)
    print(f"\n{title}")
    results = {name: Result(name, tuple(wall)) for name, wall in walls.items()}
    ours = {name: Result(name, tuple(cpu)) for name, cpu in cpus.items()}
    for name, result in results.items():
        cpu_us = ours[name].median_ns / 1e3
        print(
            f"  {name:<34}{1e9 / result.median_ns:10,.0f} a second"
            f"{result.median_ns / 1e3:9.1f} us each{cpu_us:8.1f} us of our CPU"
        )
    return results, ours


async def measure(address: str, calls: int, bars: Bars) -> None:
    """The tables and the bars."""
    url = f"sluicegate://{address}?timeout_ms=10000"
    host, port = address.split(":")
    peer: Any = redis.asyncio.Redis(host=host, port=int(port), max_connections=TASKS)
    plain = Client(url, lease=None, failure="closed")
    leasing = Client(url, failure="closed")
    denying = Client(url, failure="closed")
    limiter = Limiter("1000000000/s", store_url=url, failure="closed")

    async def checked(client: Client, user: str) -> None:
        if not await client.check(user, "/api"):
            raise AssertionError(client.stats().failure or "it was refused")

    async def denied(user: str) -> None:
        await denying.check(user, "/never")

    candidates: dict[str, tuple[Ask, int]] = {
        "redis-py, SG.CHECK": (lambda user: peer.execute_command("SG.CHECK", user, "/api"), calls),
        "client, no leases": (lambda user: checked(plain, user), calls * 4),
        "client, leases": (lambda user: checked(leasing, user), calls * 16),
        "client, refused": (denied, calls * 16),
        "Limiter(store_url='sluicegate://')": (limiter.atake, calls * 4),
    }
    many, cpu = await compare(f"{TASKS} tasks, {PAIRS} pairs", candidates, TASKS)
    one, _ = await compare("one task: what a check costs", candidates, 1)
    stats = leasing.stats()
    print(
        f"\n  with leases {stats.checks:,} checks took {stats.asked + stats.leases:,} questions "
        f"({stats.asked:,} checks, {stats.leases:,} leases; {stats.units_lapsed:,} units lapsed)\n"
    )
    times = ratio(many, "redis-py, SG.CHECK", "client, no leases")
    check = ratio(cpu, "redis-py, SG.CHECK", "client, no leases")
    lease = ratio(many, "client, no leases", "client, leases")
    bars.check(
        check >= CPU_TIMES_MIN,
        f"redis-py's CPU: {check:.1f} x ours, at least {CPU_TIMES_MIN:g} (wall: {times:.1f} x)",
    )
    bars.check(lease >= LEASE_TIMES_MIN, f"leases: {lease:.1f} x, at least {LEASE_TIMES_MIN:g}")
    alone = ratio(one, "redis-py, SG.CHECK", "client, no leases")
    print(f"  one task: {alone:.1f} x redis-py")
    for client in (plain, leasing, denying):
        await client.close()
    await limiter.aclose()
    await peer.aclose()


def main() -> None:
    """Print the tables and the bars."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100, help="a task, each round, of the peer")
    asked = parser.parse_args()
    bars = Bars()
    print(f"the wire is {build_of(str(import_module(resp.__name__).__file__))}")
    if (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, {1})
    with service() as address:
        asyncio.run(measure(address, asked.calls, bars))
    bars.exit()


if __name__ == "__main__":
    main()
