"""Overhead: what all of it costs a request that nothing is wrong with.

Control that costs more than it saves is switched off, and rightly. The goal is that the whole
server chain, the shield that counts keys included, takes no more than 15 us of a request, 40 us of
one in a hundred, and leaves nothing behind however many have passed.

This one is measured by the clock on the wall, on the build that it runs on: the goal is for the
compiled one, and the figures are those of the machine.

The rig: what the whole server chain costs a request, by the clock on the wall.

Nothing is simulated here: request after request goes through the production policies as they are,
none is refused, and the time is taken around each. A machine is noisy, so rounds are short, and the
middle one counts. What is left behind is counted too: the objects that there are after so many
requests, and were not before.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Final, NamedTuple, TypeAlias, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, Refused
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Measured, Request, make_request
from sluicegate.lab.baselines.rate_gates import PlainWindow
from sluicegate.lab.goals import Goal
from sluicegate.lab.scenario import AS_BARS, WALL, Figures, PlotSpec, Scenario, candidate_maker
from sluicegate.policies.admission.gate import Gate
from sluicegate.policies.admission.settings import GateSettings
from sluicegate.policies.cache.hot_key import HotKey, HotKeySettings
from sluicegate.policies.criticality import CriticalityClamp, CriticalitySettings
from sluicegate.policies.quota.request_units import RequestUnits, RequestUnitsSettings
from sluicegate.policies.stack import Stack, at_once, waits
from sluicegate.system import SystemClock
from sluicegate.testing import SeededChance

ROUND: Final = 2_000
CALLERS: Final = [f"caller-{number}" for number in range(100)]
KEYS: Final = [f"key-{number * number % 9_973}" for number in range(10_000)]
# What work took, as various as it is.
TIMES: Final = [
    Measured(service_us=500 + number * number % 997, rows=1, size_bytes=512)
    for number in range(1_000)
]
WARM_ROUNDS: Final = 6  # every key has come by then
CLOCK: Final = SystemClock()

Handle: TypeAlias = Callable[[Request], object]  # takes one request in, and out again


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """So many requests, in rounds."""

    requests: int = 100_000

    def __post_init__(self) -> None:
        if self.requests < ROUND:
            raise BadValue("requests", self.requests, f"give {ROUND:,} at least")


class OverheadRun(NamedTuple):
    """By round, and in all."""

    p50_us: tuple[int, ...]
    p99_us: tuple[int, ...]
    objects: int  # more than after the rounds to warm up
    requests: int


def play(rig: Overhead, make: Callable[[SeededChance], Handle], seed: int) -> OverheadRun:
    """All rounds, after those that warm up."""
    handle = make(SeededChance(seed))
    for number in range(WARM_ROUNDS):
        _round(handle, number * ROUND)
    before = _objects()
    halves: list[int] = []
    tails: list[int] = []
    for number in range(rig.requests // ROUND):
        times = _round(handle, number * ROUND)
        halves.append(times[ROUND // 2])
        tails.append(times[ROUND * 99 // 100])
    return OverheadRun(tuple(halves), tuple(tails), _objects() - before, rig.requests)


def server_chain(chance: SeededChance) -> Handle:
    """Shield, criticality, request units, queue."""
    shield: HotKey[object] = HotKey(HotKeySettings())
    table = dict.fromkeys(CALLERS, Criticality.CRITICAL)
    plenty = RequestUnitsSettings(rate_ru=1_000_000, burst_ru=1_000_000)
    stack = Stack(
        at_once("criticality", CriticalityClamp(CriticalitySettings(callers=table))),
        at_once("request units", RequestUnits(plenty)),
        waits("queue", Gate(GateSettings())),
    )

    def handle(request: Request) -> None:
        shield.look(request.key, request.arrived_us, chance.draw())
        now_us = CLOCK.now_us()
        if not stack.ready(request, now_us):
            raise RuntimeError("a request has to wait where nothing is at work")
        permit = stack.admit_now(request, now_us)
        if isinstance(permit, Decision):
            raise Refused(permit)
        request.measured = TIMES[request.arrived_us % len(TIMES)]
        permit.end(Outcome.SUCCESS, CLOCK.now_us())

    return handle


def plain_window(chance: SeededChance) -> Handle:
    """By hand."""
    window = PlainWindow(limit=1_000_000)

    def handle(request: Request) -> None:
        if not window.admit(request, request.arrived_us):
            raise RuntimeError("the plain window refused what it should not")
        window.record(TIMES[request.arrived_us % len(TIMES)].service_us)

    return handle


def _round(handle: Handle, first: int) -> list[int]:
    """Return the times of one round, sorted; making the request is part of each."""
    times: list[int] = []
    now_us = CLOCK.now_us
    for number in range(first, first + ROUND):
        began_us = now_us()
        handle(
            make_request(
                KEYS[number % len(KEYS)],
                caller=CALLERS[number % len(CALLERS)],
                criticality=Criticality.DEGRADED,
                arrived_us=began_us,
                deadline_us=began_us + 2_000_000,
                operation="get",
            )
        )
        times.append(now_us() - began_us)
    return sorted(times)


def _objects() -> int:
    gc.collect()
    return len(gc.get_objects())


candidate: Final = candidate_maker(play, WALL)


def measure(rig: Overhead, run: OverheadRun) -> Figures:
    """Of the middle round."""
    return {
        "p50_us": float(median(run.p50_us)),
        "p99_us": float(median(run.p99_us)),
        "objects_per_million": run.objects * 1e6 / run.requests,
    }


SCENARIO: Final = Scenario(
    number=23,
    name="overhead",
    title="What the whole chain costs a request",
    why="Control that costs more than it saves is switched off.",
    rigs={"calm": Overhead()},
    candidates={
        "chain": candidate(server_chain),
        "plain-window": candidate(plain_window),
    },
    ours="chain",
    must_fail=("plain-window",),
    own_settings={
        "request_units.rate_ru and burst_ru 1,000,000": "nobody is to be refused while "
        "a decision is timed",
    },
    goals=(
        Goal(figure="p50_us", at_most=15),
        Goal(figure="p99_us", at_most=40),
        Goal(figure="objects_per_million", at_most=1_000),
    ),
    measure=measure,
    columns=("p50_us", "p99_us", "objects_per_million"),
    plots=(PlotSpec("A request through the chain", ("p50_us", "p99_us"), AS_BARS, "us"),),
    scale="100,000 requests one after the other; the long proof is of ten million.",
)
