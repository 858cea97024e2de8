"""Outages of a real Redis under load: what decisions cost meanwhile, and how soon all is well.

A server is paused (SIGSTOP, SIGCONT) or killed (kill -9, started again) while tasks, or threads,
ask a `Limiter` under `open`. Measured are the decisions made after the breaker has opened, the
event loop's longest stall, and the time from the server's return to the first of a row of decisions
that are the store's again. On a cluster one of three masters is killed, and what the keys of the
others lose of their throughput is told. The bars are absolute times: the median p99 of the rounds,
and the slowest recovery.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from benchmarks.rounds import Bars, build_of
from sluicegate import Limiter
from sluicegate.limits import limiter as limiter_module
from tests.engines.redis import RedisCluster, RedisServer

ROUNDS = 3
TASKS = 16
THREADS = 8
PAUSE_S = 0.004  # of a task between two decisions: a steady demand, not all that the machine can do
OUTAGE_S = 2.0
SETTLED_S = 0.3  # after the fault: the breaker has opened by then, and nobody waits any more
ROW = 20  # decisions in a row that must be the store's
P99_US_MAX = 1_000
RECOVERY_S_MAX = 2.0
SHARE_MIN = 0.9
RATE = "1000000000/hour"


class Asked(NamedTuple):
    """One decision."""

    key: str
    began: float
    ended: float
    degraded: bool


class Outage(NamedTuple):
    """One round."""

    decisions: int
    p50_us: float
    p99_us: float
    worst_us: float
    stall_ms: float
    opened_ms: float
    recovery_s: float


def press_tasks(url: str, story: Callable[[], None]) -> tuple[list[Asked], list[float]]:
    """Ask from tasks of one loop while the story goes on; the decisions, and the loop's stalls."""
    record: list[Asked] = []
    stalls: list[float] = []

    async def task(limiter: Limiter, key: str, done: asyncio.Event) -> None:
        while not done.is_set():
            began = time.perf_counter()
            decision = await limiter.atake(key)
            record.append(Asked(key, began, time.perf_counter(), decision.degraded))
            await asyncio.sleep(PAUSE_S)

    async def watch(done: asyncio.Event) -> None:
        while not done.is_set():
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            stalls.append(time.perf_counter() - before - 0.001)

    async def press() -> None:
        done = asyncio.Event()
        async with (
            Limiter(RATE, store_url=url, failure="open") as limiter,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(watch(done))
            for n in range(TASKS):
                group.create_task(task(limiter, f"key:{n}", done))
            await asyncio.to_thread(story)
            done.set()

    asyncio.run(press())
    return record, stalls


def press_threads(url: str, story: Callable[[], None]) -> tuple[list[Asked], list[float]]:
    """Ask from threads while the story goes on."""
    record: list[Asked] = []
    done = threading.Event()

    def ask(limiter: Limiter, key: str) -> None:
        while not done.is_set():
            began = time.perf_counter()
            decision = limiter.take(key)
            record.append(Asked(key, began, time.perf_counter(), decision.degraded))
            time.sleep(PAUSE_S)

    with Limiter(RATE, store_url=url, failure="open") as limiter:
        threads = [threading.Thread(target=ask, args=(limiter, f"key:{n}")) for n in range(THREADS)]
        for thread in threads:
            thread.start()
        story()
        done.set()
        for thread in threads:
            thread.join()
    return record, []


PRESSES = {"tasks": press_tasks, "threads": press_threads}


def outage(press: str, fault: str, server: RedisServer) -> Outage:
    """One round: a second of health, the outage, and what comes after it."""
    at: dict[str, float] = {}

    def story() -> None:
        time.sleep(0.5)
        at["broken"] = time.perf_counter()
        if fault == "paused":
            server.pause()
            time.sleep(OUTAGE_S)
            at["mending"] = time.perf_counter()
            server.resume()
        else:
            server.kill()
            time.sleep(OUTAGE_S)
            at["mending"] = time.perf_counter()
            server.restart(empty=True)
        at["back"] = time.perf_counter()
        time.sleep(RECOVERY_S_MAX + 0.5)

    record, stalls = PRESSES[press](server.url, story)
    record.sort(key=lambda one: one.ended)
    broken, mending, back = at["broken"], at["mending"], at["back"]
    meanwhile = [one for one in record if broken <= one.began and one.ended < mending]
    first = next((one for one in meanwhile if one.degraded), None)
    opened = first.ended if first else mending
    settled = [
        (one.ended - one.began) * 1e6 for one in meanwhile if one.began >= broken + SETTLED_S
    ]
    assert all(one.degraded for one in meanwhile if one.began >= broken + SETTLED_S)
    cuts = statistics.quantiles(settled, n=100)
    return Outage(
        len(settled),
        cuts[49],
        cuts[98],
        max(settled),
        max(stalls, default=0.0) * 1e3,
        (opened - broken) * 1e3,
        recovery_s(record, back),
    )


def recovery_s(record: list[Asked], back: float) -> float:
    """From the return to the first of a row of decisions that were the store's."""
    began, row = float("inf"), 0
    for one in record:
        if one.began < back:
            continue
        if one.degraded:
            row = 0
            continue
        if row == 0:
            began = one.ended
        row += 1
        if row == ROW:
            return began - back
    return float("inf")


def compare(rounds: int, bars: Bars) -> None:
    """All presses and faults in turns; medians."""
    seen: dict[tuple[str, str], list[Outage]] = {}
    with RedisServer() as server:
        for _ in range(rounds):
            for press in PRESSES:
                for fault in ("paused", "killed"):
                    seen.setdefault((press, fault), []).append(outage(press, fault, server))
    print(f"\n{TASKS} tasks or {THREADS} threads under `open`, an outage of {OUTAGE_S:g} s")
    for (press, fault), told in seen.items():
        stall = max(one.stall_ms for one in told)
        longest = f", the loop's longest stall {stall:.1f} ms" if stall else ""
        print(
            f"  {press:<7} {fault:<6}  {told[0].decisions:5} decisions:"
            f" p50 {statistics.median(one.p50_us for one in told):4.0f} us,"
            f" p99 {statistics.median(one.p99_us for one in told):4.0f} us,"
            f" worst {max(one.worst_us for one in told):6.0f} us;"
            f" degraded after {statistics.median(one.opened_ms for one in told):3.0f} ms,"
            f" well again after {statistics.median(one.recovery_s for one in told) * 1e3:4.0f} ms"
            f"{longest}"
        )
    print()
    for (press, fault), told in seen.items():
        p99_us = statistics.median(one.p99_us for one in told)
        bars.check(
            p99_us < P99_US_MAX,
            f"{press}, {fault}: p99 of a decision {p99_us:.0f} us, below {P99_US_MAX:,} us",
        )
        slowest_s = max(one.recovery_s for one in told)
        bars.check(
            slowest_s <= RECOVERY_S_MAX,
            f"{press}, {fault}: recovered in {slowest_s:.2f} s at the slowest,"
            f" within {RECOVERY_S_MAX:g} s",
        )


def dead_master(rounds: int, bars: Bars) -> None:
    """What the keys of two masters lose while the third is dead."""
    shares: list[float] = []
    with RedisCluster() as cluster:
        keys = [cluster.key_of(number) for number in (1, 2, 3)]
        for _ in range(rounds):
            shares.append(asyncio.run(_share(cluster, keys)))
            cluster.heal()
    share = statistics.median(shares)
    told = ", ".join(f"{one:.1%}" for one in shares)
    print(f"\none of three masters dead: the others' keys keep {told} of their decisions a second")
    print()
    bars.check(share >= SHARE_MIN, f"they keep {share:.1%}, at least {SHARE_MIN:.0%}")


async def _share(cluster: RedisCluster, keys: list[str]) -> float:
    """As fast as each key can be asked for, before and after; the machine is not filled."""
    dead = keys[0]
    done = False
    record: list[Asked] = []

    async def task(limiter: Limiter, key: str) -> None:
        while not done:
            began = time.perf_counter()
            decision = await limiter.atake(key)
            record.append(Asked(key, began, time.perf_counter(), decision.degraded))
            await asyncio.sleep(PAUSE_S)

    async with (
        Limiter(RATE, store_url=cluster.url, failure="open") as limiter,
        asyncio.TaskGroup() as group,
    ):
        for key in keys:
            for _ in range(TASKS):
                group.create_task(task(limiter, key))
        await asyncio.sleep(OUTAGE_S)
        killed = time.perf_counter()
        await asyncio.to_thread(cluster.kill, 1)
        await asyncio.sleep(OUTAGE_S)
        end = time.perf_counter()
        done = True

    def rate(begin: float, until: float) -> float:
        asked = [one for one in record if one.key != dead and begin <= one.began < until]
        return sum(not one.degraded for one in asked) / (until - begin)

    return rate(killed, end) / rate(killed - OUTAGE_S / 2, killed)


def main() -> None:
    """Print the tables and the bars."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    asked = parser.parse_args()
    print(f"sluicegate is {build_of(limiter_module.__file__)}")
    bars = Bars()
    compare(asked.rounds, bars)
    dead_master(asked.rounds, bars)
    bars.exit()


if __name__ == "__main__":
    main()
