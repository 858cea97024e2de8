"""Uber's comparison: a token bucket that was tuned in the calm half, and then work costs thrice.

Uber replaced static quotas before its storage by load management, and published what that did under
overload: throughput 5,400 a second where it was 3,000 (+80%), a p99 of 1.0 s where it was 3.1
(-70%), at most 10,000 goroutines where it was 150,000 (-93%), and a heap of 1 GB where it was 5 to
6 (given as -60%). Theirs is a storage engine, ours a rig: half again as much comes as can be done,
the bucket's rate is right for the first half, and in the second each piece of work takes three
times as long. Callers wait for three seconds, as theirs must have, and a tenth of them is CRITICAL.

The goal is to beat throughput and p99 against the same bucket in the same rig, and that CRITICAL
does not notice. Tasks and memory are measured and have no goal: a request waits for as long as it
can still finish. A line of twice the workers, in order, beats all four (`bounded`), and refuses who
matters as often as all others.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain as concat
from typing import Final, NamedTuple

from sluicegate.contracts.criticality import DEFAULT_CRITICALITY, Criticality
from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.baselines.queues import bounded_pool, fifo_pool
from sluicegate.lab.baselines.rate_gates import token_pool
from sluicegate.lab.clients import open_loop
from sluicegate.lab.goals import Goal
from sluicegate.lab.ledger import BUCKET_US, RunLedger
from sluicegate.lab.measures import quantile, success, timeline
from sluicegate.lab.rig import Rig, WorkKind
from sluicegate.lab.scenario import (
    AS_BARS,
    OVER_TIME,
    PLACES,
    TASKS,
    Candidate,
    Curves,
    Figures,
    PlotSpec,
    Scenario,
)
from sluicegate.lab.speed_profile import SpeedProfile
from sluicegate.lab.station_candidates import queue
from sluicegate.lab.task_mode import MakePolicy, PolicyServer
from sluicegate.lab.world import World, run
from sluicegate.policies.admission.gate import Gate
from sluicegate.policies.admission.settings import GateSettings
from sluicegate.policies.quota.request_units import RequestUnits, RequestUnitsSettings
from sluicegate.policies.stack import Stack, at_once, waits

CAPACITY_PER_S: Final = 3_200
LOAD: Final = 1.5
DEAR_US: Final = 4_000_000
TIMES: Final = 3

CRITICAL_SHARE: Final = 0.1


def kinds(per_s: float) -> tuple[WorkKind, WorkKind]:
    """Calls of the two classes, `per_s` together."""
    shares = (
        ("payment", Criticality.CRITICAL, CRITICAL_SHARE),
        ("upsert", DEFAULT_CRITICALITY, 1 - CRITICAL_SHARE),
    )
    payments, upserts = (
        WorkKind(
            name=name,
            arrivals=Poisson(share * per_s),
            criticality=criticality,
            timeout_us=3_000_000,
            callers=100,
        )
        for name, criticality, share in shares
    )
    return payments, upserts


RIG: Final = Rig(
    kinds=kinds(LOAD * CAPACITY_PER_S),
    workers=32,
    speed_profile=SpeedProfile(((DEAR_US, 1 / TIMES),)),
    span_us=14_000_000,
    warm_us=1_000_000,
)


def chain(rig: Rig, world: World) -> Stack:
    """All stages of the server, as they come; no caller's quota is in the way."""
    quota = RequestUnitsSettings(rate_ru=1_000_000, burst_ru=1_000_000)
    return Stack(
        at_once("request units", RequestUnits(quota)),
        waits("queue", Gate(GateSettings(slots=rig.workers))),
    )


# Of a request that waits: its task and coroutines, futures, timers and places. Measured with
# tracemalloc, a thousand of them waiting at once, on CPython 3.11.
TOKEN_TASK_BYTES: Final = 3_100
QUEUE_TASK_BYTES: Final = 2_700


class DearHalf(NamedTuple):
    """What one candidate did while the work was dear."""

    throughput_per_s: float  # answers in time
    p99_ms: float  # of those
    tasks_peak: float
    memory_kb: float


class UberRun(NamedTuple):
    """One run, what it is compared with, and the live tasks at each tenth of a second."""

    ledger: RunLedger
    half: DearHalf
    reference: DearHalf
    live: list[int]


def dear_us(rig: Rig) -> int:
    """When the work becomes dear."""
    return rig.speed_profile.changes[0][0]


def candidate(
    make_policy: MakePolicy, task_bytes: int = QUEUE_TASK_BYTES
) -> Candidate[Rig, UberRun]:
    """A policy as a candidate."""

    def compared(rig: Rig, seed: int) -> UberRun:
        ledger, live = _play(rig, make_policy, seed)
        return UberRun(ledger, _half(rig, ledger, task_bytes), reference(rig, seed), live)

    return Candidate(compared, TASKS)


@lru_cache(maxsize=64)
def reference(rig: Rig, seed: int) -> DearHalf:
    """The token bucket that was tuned before."""
    ledger, _ = _play(rig, token_pool, seed)
    return _half(rig, ledger, TOKEN_TASK_BYTES)


def measure(rig: Rig, run: UberRun) -> Figures:
    """The four that are compared, each as a part of the reference's, and themselves."""
    half, reference = run.half, run.reference
    calm = run.ledger.good_at[rig.warm_us // BUCKET_US : dear_us(rig) // BUCKET_US]
    return {
        "throughput_gain": half.throughput_per_s / reference.throughput_per_s - 1,
        "p99_cut": 1 - half.p99_ms / reference.p99_ms,
        "tasks_cut": 1 - half.tasks_peak / reference.tasks_peak,
        "memory_cut": 1 - half.memory_kb / reference.memory_kb,
        "calm_per_s": sum(calm) * 1e6 / BUCKET_US / len(calm),
        "success.payment": success(run.ledger, 0),
        **half._asdict(),
    }


def curves(rig: Rig, run: UberRun) -> Curves:
    """Answers, their p99 and the live tasks, for each tenth of a second."""
    ledger, per_s = run.ledger, 1_000_000 / BUCKET_US
    values: dict[str, list[float]] = {
        "good_per_s": [count * per_s for count in ledger.good_at],
        "p99_ms": [quantile(us, 0.99) / 1000 if us else 0.0 for us in ledger.good_us_at],
        "live_tasks": [float(count) for count in run.live],
    }
    return timeline(values, BUCKET_US, rig.span_us)


def _half(rig: Rig, ledger: RunLedger, task_bytes: int) -> DearHalf:
    # A third of the dear half passes before it is looked at: both have settled by then.
    begin_us = dear_us(rig) + (rig.span_us - dear_us(rig)) // 3
    first, end = begin_us // BUCKET_US, rig.span_us // BUCKET_US
    tasks = ledger.queue_peak + rig.workers
    return DearHalf(
        sum(ledger.good_at[first:end]) * 1e6 / BUCKET_US / (end - first),
        quantile([*concat(*ledger.good_us_at[first:end])], 0.99) / 1000,
        float(tasks),
        tasks * task_bytes / 1024,
    )


def _play(rig: Rig, make_policy: MakePolicy, seed: int) -> tuple[RunLedger, list[int]]:
    live: list[int] = []

    async def main(world: World) -> RunLedger:
        ledger = RunLedger(rig.kinds, warm_us=rig.warm_us, span_us=rig.span_us)
        server = PolicyServer(world, rig, make_policy(rig, world), ledger)
        for number, kind in enumerate(rig.kinds):
            work = open_loop(world, kind, server.door(number, kind), until_us=rig.span_us)
            world.spawn(work, f"clients/{kind.name}")
        while world.elapsed_us < rig.span_us:
            live.append(server.inside)
            await world.sleep_us(BUCKET_US)
        await world.cancel_others()
        return ledger

    return run(main, seed).value, live


SCENARIO: Final = Scenario(
    number=24,
    name="uber",
    title="Uber's comparison: a tuned token bucket, and then the work costs three times as much",
    why="A quota in calls is right until the calls change; what they cost is not in it.",
    rigs={"tripled": RIG},
    candidates={
        "queue": candidate(queue),
        "chain": candidate(chain),
        "bounded": candidate(bounded_pool),
        "token-bucket": candidate(token_pool, TOKEN_TASK_BYTES),
        "without-queue": candidate(fifo_pool, TOKEN_TASK_BYTES),
    },
    ours="chain",
    must_fail=("token-bucket", "bounded", "without-queue"),
    own_settings={
        **PLACES,
        "request_units.rate_ru and burst_ru 1,000,000": "nobody is to be refused for his quota",
    },
    goals=(
        Goal(figure="throughput_gain", at_least=0.80),
        Goal(figure="p99_cut", at_least=0.70),
        Goal(figure="success.payment", at_least=0.99),
    ),
    measure=measure,
    columns=("throughput_per_s", "p99_ms", "tasks_peak", "memory_kb", "tasks_cut", "memory_cut"),
    curves=curves,
    plots=(
        PlotSpec(
            "Against the bucket (Uber: 0.80, 0.70, 0.93, 0.60)",
            ("throughput_gain", "p99_cut", "tasks_cut", "memory_cut"),
            AS_BARS,
            "part of the bucket's",
        ),
        PlotSpec("Answers", ("good_per_s",), OVER_TIME, "a second", "s"),
        PlotSpec("How long they take", ("p99_ms",), OVER_TIME, "p99, ms", "s", True),
        PlotSpec("Live tasks", ("live_tasks",), OVER_TIME, "tasks", "s", True),
    ),
    scale="4,800 calls a second before 32 workers; Uber's run was one storage node.",
)
