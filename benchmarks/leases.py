"""Leases on one hot key from two processes, against `limits` (asyncio) doing the same.

The limit is half of what the two processes offer, so every second decision is a refusal; both
libraries count in the same real Redis, one after the other, in turns. What the processes admit is
added up and held against the limit: a lease must never admit more. The store's share is told too:
how often it was asked for a thousand decisions.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple

import limits
import limits.aio.storage
import limits.aio.strategies

from benchmarks.rounds import Bars, build_of
from sluicegate import Limiter
from sluicegate.contracts.store import Charge, PartialTake, Ruling, Store
from sluicegate.limits import limiter as limiter_module
from sluicegate.stores.redis.store import RedisStore
from sluicegate.system import SystemChance, now_us

PROCESSES = 2
TASKS = 64
ROUNDS = 3
SECONDS = 2.0
AT_LEAST = 50.0  # times limits
KEY = "hot"


class Told(NamedTuple):
    """What one process, or all of them, did."""

    decisions: int
    admitted: int
    asked: int
    seconds: float


class Counting:
    """A store that counts how often it is asked; asks of one moment share a round trip."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.asked = 0

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        """Asked once."""
        self.asked += 1
        return await self.store.take(charges, keep=keep, count_refused=count_refused)

    async def take_some(self, charge: Charge, ladder: Sequence[int]) -> PartialTake:
        """Asked once."""
        self.asked += 1
        return await self.store.take_some(charge, ladder)

    async def settle(self, charges: Sequence[Charge], taken_us: int | None = None) -> None:
        """Asked once."""
        self.asked += 1
        await self.store.settle(charges, taken_us)

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Asked once."""
        self.asked += 1
        await self.store.reset(charges)

    async def close(self) -> None:
        """The end."""
        await self.store.close()


async def press_ours(url: str, rate: str, seconds: float) -> Told:
    """Ask `Limiter` from many tasks until the end."""
    counting = Counting(RedisStore(f"{url}?timeout_ms=1000", SystemChance()))
    limiter = Limiter(rate, open_store=lambda: counting, lease="auto")
    decisions = admitted = 0

    end_us = 0

    async def task() -> None:
        nonlocal decisions, admitted
        take = limiter.atake
        while now_us() < end_us:
            for _ in range(100):
                decision = await take(KEY)
                decisions += 1
                admitted += decision.allowed and not decision.degraded
            await asyncio.sleep(0)

    await limiter.atake("warm")
    began_us = await begin()
    end_us = began_us + int(seconds * 1e6)
    await asyncio.gather(*(task() for _ in range(TASKS)))
    took_s = (now_us() - began_us) / 1e6
    await limiter.aclose()
    return Told(decisions, admitted, counting.asked, took_s)


async def press_limits(url: str, rate: str, seconds: float) -> Told:
    """Ask `limits` the same way; its fixed window is its fastest."""
    storage = limits.aio.storage.RedisStorage(f"async+{url}")
    hit = limits.aio.strategies.FixedWindowRateLimiter(storage).hit
    item = limits.parse(rate)
    decisions = admitted = 0

    end_us = 0

    async def task() -> None:
        nonlocal decisions, admitted
        while now_us() < end_us:
            admitted += await hit(item, KEY)
            decisions += 1

    await hit(item, "warm")
    began_us = await begin()
    end_us = began_us + int(seconds * 1e6)
    await asyncio.gather(*(task() for _ in range(TASKS)))
    return Told(decisions, admitted, decisions, (now_us() - began_us) / 1e6)


async def begin() -> int:
    """Say that we are ready, wait for the common start, and say when that was."""
    print("ready", flush=True)
    start_us = int(sys.stdin.readline())
    await asyncio.sleep((start_us - now_us()) / 1e6)
    return now_us()


PRESS = {"sluicegate": press_ours, "limits": press_limits}


def run_processes(name: str, url: str, rate: str, seconds: float) -> Told:
    """All processes at once, over the same span."""
    command = [sys.executable, "-m", "benchmarks.leases", "--press", name, "--url", url]
    command += ["--rate", rate, "--seconds", str(seconds)]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    for child in children:
        assert child.stdout is not None
        if child.stdout.readline() != "ready\n":
            sys.exit(f"a process of {name} did not start")
    start = f"{now_us() + 100_000}\n"
    told = []
    for child in children:
        assert child.stdin is not None
        child.stdin.write(start)
        child.stdin.flush()
    for child in children:
        out, _ = child.communicate(timeout=60 + seconds)
        if child.returncode:
            sys.exit(f"a process of {name} ended with {child.returncode}")
        told.append(Told(*json.loads(out)))
    return Told(
        sum(one.decisions for one in told),
        sum(one.admitted for one in told),
        sum(one.asked for one in told),
        max(one.seconds for one in told),
    )


def compare(url: str, seconds: float, bars: Bars) -> None:
    """Rounds in turn; the limit is half of what was offered when nothing was refused."""
    offered = run_processes("sluicegate", url, "1000000000/second", 1.0)
    limit = max(offered.decisions // 2, 1_000)
    print(f"\noffered: {offered.decisions:,}/s from {PROCESSES} processes; limit {limit:,}/s")
    ratios: list[float] = []
    over = 0.0
    for turn in range(ROUNDS):
        time.sleep(1.1)  # the bucket is full again
        ours = run_processes("sluicegate", url, f"{limit}/second", seconds)
        # The peer's limit is half of its own rate too; what it admits is its own affair.
        peer = run_processes("limits", url, "5000/second", seconds)
        ours_s, peer_s = ours.decisions / ours.seconds, peer.decisions / peer.seconds
        ratios.append(ours_s / peer_s)
        allowed = limit + limit * ours.seconds
        over = max(over, ours.admitted / allowed)
        print(
            f"  round {turn + 1}: sluicegate {ours_s:11,.0f} decisions/s"
            f"  ({ours.admitted / ours.decisions:.0%} admitted,"
            f" {ours.admitted / allowed:.1%} of the limit,"
            f" {1e3 * ours.asked / ours.decisions:.2f} asks of the store for 1,000)"
            f"   limits {peer_s:8,.0f}/s"
        )
    times = statistics.median(ratios)
    print()
    bars.check(times >= AT_LEAST, f"{times:.0f} x limits (asyncio), at least {AT_LEAST:g}")
    bars.check(over <= 1.0, f"never more than the limit: {over:.1%} of it at most")


def main() -> None:
    """Print the table and the bars, or be one of the processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="a Redis that is running")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each round")
    parser.add_argument("--press", choices=sorted(PRESS), help=argparse.SUPPRESS)
    parser.add_argument("--rate", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.press:
        told = asyncio.run(PRESS[asked.press](asked.url, asked.rate, asked.seconds))
        print(json.dumps(told))
        return
    print(f"sluicegate is {build_of(limiter_module.__file__)}")
    from tests.engines.redis import RedisServer

    bars = Bars()
    with RedisServer() if asked.url is None else nullcontext() as server:
        compare(asked.url or getattr(server, "url", ""), asked.seconds, bars)
    bars.exit()


if __name__ == "__main__":
    main()
