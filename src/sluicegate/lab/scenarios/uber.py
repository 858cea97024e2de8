"""Uber's comparison: a token bucket that was tuned in the calm half, and then work costs thrice.

Uber replaced static quotas before its storage by load management, and published what that did under
overload: throughput 5,400 a second where it was 3,000 (+80%), a p99 of 1.0 s where it was 3.1
(-70%), at most 10,000 goroutines where it was 150,000 (-93%), and a heap of 1 GB where it was 5 to
6 (given as -60%). Theirs is a storage engine, ours a rig: half again as much comes as can be done,
the bucket's rate is right for the first half, and in the second each piece of work takes three
times as long. Callers wait for three seconds, as theirs must have.

The goal is to beat all four against the same bucket in the same rig. Its line drops whom nobody
waits for any more; without that its tasks would grow for as long as the run lasts. A bucket with a
bounded line behind it (`bounded`) is no token bucket alone any more, and is shown for that reason.
"""

from __future__ import annotations

from typing import Final

from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.baselines.fifo_pool import fifo_pool
from sluicegate.lab.baselines.token_pool import token_pool
from sluicegate.lab.checks import Goal
from sluicegate.lab.contenders import queue
from sluicegate.lab.course import Course
from sluicegate.lab.rig import Rig
from sluicegate.lab.rigs.tripled import TOKEN_TASK_BYTES, contender, curves, measure
from sluicegate.lab.scenario import AS_BARS, OVER_TIME, Picture, Scenario
from sluicegate.lab.workload import Kind
from sluicegate.lab.world import World
from sluicegate.policies.deadline import Deadline
from sluicegate.policies.queue.queue import Queue, QueueSettings
from sluicegate.policies.request_units import RequestUnits, RequestUnitsSettings
from sluicegate.policies.shed import Shed
from sluicegate.policies.stack import Stack, at_once, waits
from sluicegate.policies.stress import Stress

CAPACITY_PER_S: Final = 3_200
LOAD: Final = 1.5
DEAR_US: Final = 4_000_000
TIMES: Final = 3

RIG: Final = Rig(
    kinds=(
        Kind(
            name="upsert",
            arrivals=Poisson(LOAD * CAPACITY_PER_S),
            timeout_us=3_000_000,
            callers=100,
        ),
    ),
    workers=32,
    course=Course(((DEAR_US, 1 / TIMES),)),
    span_us=14_000_000,
    warm_us=1_000_000,
)


def chain(rig: Rig, world: World) -> Stack:
    """All stages of the server, as they come; no caller's quota is in the way."""
    stress = Stress()
    quota = RequestUnitsSettings(rate_ru=1_000_000, burst_ru=1_000_000)
    return Stack(
        at_once("deadline", Deadline()),
        at_once("request units", RequestUnits(quota)),
        at_once("shed", Shed(stress, world.chance("shed"))),
        waits("queue", Queue(QueueSettings(places=rig.workers))),
        observers=[stress],
    )


def bounded(rig: Rig, world: World) -> Queue:
    """A line of twice the workers, in order, without any other rule."""
    settings = QueueSettings(
        places=rig.workers, length_max=2 * rig.workers, form="none", standing_us=None
    )
    return Queue(settings)


SCENARIO: Final = Scenario(
    number=24,
    name="uber",
    title="Uber's comparison: a tuned token bucket, and then the work costs three times as much",
    why="A quota in calls is right until the calls change; what they cost is not in it.",
    rigs={"tripled": RIG},
    contenders={
        "queue": contender(queue),
        "chain": contender(chain),
        "bounded": contender(bounded),
        "token-bucket": contender(token_pool, TOKEN_TASK_BYTES),
        "without-queue": contender(fifo_pool, TOKEN_TASK_BYTES),
    },
    ours="chain",
    must_fail=("token-bucket", "without-queue"),
    goals=(
        Goal(figure="throughput_gain", at_least=0.80),
        Goal(figure="p99_cut", at_least=0.70),
        Goal(figure="tasks_cut", at_least=0.93),
        Goal(figure="memory_cut", at_least=0.60),
    ),
    measure=measure,
    shown=("throughput_per_s", "p99_ms", "tasks_peak", "memory_kb", "tasks_cut", "memory_cut"),
    curves=curves,
    pictures=(
        Picture(
            "Against the bucket (Uber: 0.80, 0.70, 0.93, 0.60)",
            ("throughput_gain", "p99_cut", "tasks_cut", "memory_cut"),
            AS_BARS,
            "part of the bucket's",
        ),
        Picture("Answers", ("good_per_s",), OVER_TIME, "a second", "s"),
        Picture("How long they take", ("p99_ms",), OVER_TIME, "p99, ms", "s", True),
        Picture("Live tasks", ("live_tasks",), OVER_TIME, "tasks", "s", True),
    ),
    scale="4,800 calls a second before 32 workers; Uber's run was one storage node.",
)
