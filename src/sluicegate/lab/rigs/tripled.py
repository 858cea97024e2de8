"""Tripled: a station on which the same work costs more from some moment on, and what that does.

Everything is told relative to one contender, the reference, in the same rig with the same seed. A
live task is a request that has come and not gone. What it holds in memory was measured with
tracemalloc, a thousand of them waiting at once (the tests do it again); what an idle process has is
left out on both sides.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple

from sluicegate.lab.baselines.token_pool import token_pool
from sluicegate.lab.clients import open_loop
from sluicegate.lab.full import MakePolicy, Server
from sluicegate.lab.ledger import BUCKET_US, Ledger
from sluicegate.lab.measures import quantile
from sluicegate.lab.rig import Rig
from sluicegate.lab.scenario import TASKS, Contender, Curves, Figures
from sluicegate.lab.world import World, run

# Of a request that waits: its task and coroutines, futures, timers and places. CPython 3.11.
TOKEN_TASK_BYTES: Final = 3_100
QUEUE_TASK_BYTES: Final = 2_700


class Half(NamedTuple):
    """What one contender did while the work was dear."""

    throughput_per_s: float  # answers in time
    p99_ms: float  # of those
    tasks_peak: float
    memory_kb: float


class TripledRun(NamedTuple):
    """One run, what it is compared with, and the live tasks at each tenth of a second."""

    ledger: Ledger
    half: Half
    reference: Half
    live: list[int]


def dear_us(rig: Rig) -> int:
    """When the work becomes dear."""
    return rig.course.changes[0][0]


def contender(
    make_policy: MakePolicy, task_bytes: int = QUEUE_TASK_BYTES
) -> Contender[Rig, TripledRun]:
    """A policy as a contender."""

    def compared(rig: Rig, seed: int) -> TripledRun:
        ledger, live = _play(rig, make_policy, seed)
        return TripledRun(ledger, _half(rig, ledger, task_bytes), reference(rig, seed), live)

    return Contender(compared, TASKS)


@lru_cache(maxsize=64)
def reference(rig: Rig, seed: int) -> Half:
    """The token bucket that was tuned before."""
    ledger, _ = _play(rig, token_pool, seed)
    return _half(rig, ledger, TOKEN_TASK_BYTES)


def measure(rig: Rig, run: TripledRun) -> Figures:
    """The four that are compared, each as a part of the reference's, and themselves."""
    half, reference = run.half, run.reference
    calm = run.ledger.good_at[rig.warm_us // BUCKET_US : dear_us(rig) // BUCKET_US]
    return {
        "throughput_gain": half.throughput_per_s / reference.throughput_per_s - 1,
        "p99_cut": 1 - half.p99_ms / reference.p99_ms,
        "tasks_cut": 1 - half.tasks_peak / reference.tasks_peak,
        "memory_cut": 1 - half.memory_kb / reference.memory_kb,
        "calm_per_s": sum(calm) * 1e6 / BUCKET_US / len(calm),
        **half._asdict(),
    }


def curves(rig: Rig, run: TripledRun) -> Curves:
    """Answers, their p99 and the live tasks, for each tenth of a second."""
    ledger, per_s = run.ledger, 1_000_000 / BUCKET_US
    values: dict[str, list[float]] = {
        "good_per_s": [count * per_s for count in ledger.good_at],
        "p99_ms": [quantile(us, 0.99) / 1000 if us else 0.0 for us in ledger.good_us_at],
        "live_tasks": [float(count) for count in run.live],
    }
    ended = rig.span_us // BUCKET_US
    return {
        name: [(at / per_s, value) for at, value in enumerate(seen[:ended])]
        for name, seen in values.items()
    }


def _half(rig: Rig, ledger: Ledger, task_bytes: int) -> Half:
    # A third of the dear half passes before it is looked at: both have settled by then.
    begin_us = dear_us(rig) + (rig.span_us - dear_us(rig)) // 3
    first, end = begin_us // BUCKET_US, rig.span_us // BUCKET_US
    tasks = ledger.queue_peak + rig.workers
    return Half(
        sum(ledger.good_at[first:end]) * 1e6 / BUCKET_US / (end - first),
        quantile([*chain(*ledger.good_us_at[first:end])], 0.99) / 1000,
        float(tasks),
        tasks * task_bytes / 1024,
    )


def _play(rig: Rig, make_policy: MakePolicy, seed: int) -> tuple[Ledger, list[int]]:
    live: list[int] = []

    async def main(world: World) -> Ledger:
        ledger = Ledger(rig.kinds, warm_us=rig.warm_us, span_us=rig.span_us)
        server = Server(world, rig, make_policy(rig, world), ledger)
        for number, kind in enumerate(rig.kinds):
            work = open_loop(world, kind, server.door(number, kind), until_us=rig.span_us)
            world.spawn(work, f"clients/{kind.name}")
        while world.elapsed_us < rig.span_us:
            live.append(server.inside)
            await world.sleep_us(BUCKET_US)
        await world.cancel_the_rest()
        return ledger

    return run(main, seed).value, live
