"""Stage: what all stages of the hunt have in common: a clock that may jump, callers, rechecks.

A stage is a coroutine function that gets a world, a setup and an empty record, and fills the
record. `play` runs it, and records a run that did not end as a run must.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Final, TypeAlias, final

from sluicegate.lab.arrivals import Arrivals, OnOff, Poisson
from sluicegate.lab.hunt.record import HuntRecord
from sluicegate.lab.hunt.setup import HuntFault, HuntLoad, Setup
from sluicegate.lab.speed_profile import SpeedProfile
from sluicegate.lab.virtual_loop import BrokenRun
from sluicegate.lab.world import World, run

StagePlay: TypeAlias = Callable[[World, Setup, HuntRecord], Awaitable[None]]
PlayUnit: TypeAlias = Callable[[int, HuntLoad], Coroutine[object, None, None]]  # of a load

MS: Final = 1_000
# The longest that work may go on after the last has come, before it counts as hanging.
ENDING_US: Final = 3_600_000_000
SAMPLE_US: Final = 20_000
COURSE_US: Final = 500_000
_STEPS_MAX: Final = 60


@final
class JumpClock:
    """The world's clock, and what it has jumped ahead: a machine that slept, a guest that froze."""

    __slots__ = ("_world", "ahead_us")

    def __init__(self, world: World) -> None:
        self._world = world
        self.ahead_us = 0

    def now_us(self) -> int:
        """The instant."""
        return self._world.clock.now_us() + self.ahead_us

    def jump(self, us: int) -> None:
        """Be so much later, at once; timers do not notice."""
        self.ahead_us += us


def play(stage: StagePlay, setup: Setup) -> HuntRecord:
    """Play a setup, and return its record."""
    record = HuntRecord()

    async def main(world: World) -> None:
        await stage(world, setup, record)
        record.end_us = world.elapsed_us

    try:
        ended = run(main, setup.seed, span_us_max=setup.span_us + ENDING_US)
        record.digest = ended.digest
    except BrokenRun as broken:
        record.add_violation("the run ends", f"{type(broken).__name__}: {broken}")
    except Exception as error:  # a policy's, or ours: either way it is found
        record.add_violation("no error", f"{type(error).__name__}: {error}")
    return record


def arrivals_of(load: HuntLoad) -> Arrivals:
    """Steady, or in bursts of the same rate."""
    if load.on_ms and load.off_ms:
        return OnOff(on_per_s=load.per_s, on_us=load.on_ms * MS, off_us=load.off_ms * MS)
    return Poisson(load.per_s)


async def play_callers(
    world: World, setup: Setup, one: PlayUnit, sample: Callable[[], Awaitable[None]]
) -> None:
    """Let all loads come, sampling meanwhile, until all units have ended."""
    over = False
    units: set[asyncio.Task[None]] = set()

    async def sample_all() -> None:
        while not over:
            await world.sleep_us(sample_us(setup))
            await sample()

    sampler = world.spawn(sample_all(), "sampler")
    loads = [
        world.spawn(_send(world, setup.span_us, number, load, one, units), f"load/{load.name}")
        for number, load in enumerate(setup.loads)
    ]
    await asyncio.wait(loads)
    while units:
        await asyncio.wait(list(units))
    over = True
    await sampler


async def _send(
    world: World,
    span_us: int,
    number: int,
    load: HuntLoad,
    one: PlayUnit,
    units: set[asyncio.Task[None]],
) -> None:
    """Start a task for each unit of a load, and cancel some at a moment of their own."""
    draw = world.chance(f"fickle/{load.name}").draw
    patience_us = (load.timeout_ms or 1_000) * MS

    def discard(unit: asyncio.Task[None]) -> None:
        units.discard(unit)
        world.watch(unit)

    for at_us in arrivals_of(load).instants_us(world.chance(f"arrivals/{load.name}")):
        if at_us >= span_us:
            return
        await world.until_us(at_us)
        unit = asyncio.get_running_loop().create_task(one(number, load), name=load.name)
        units.add(unit)
        unit.add_done_callback(discard)
        if load.cancelled_permille and draw() * 1_000 < load.cancelled_permille:
            # Half of them before anything has happened, or nearly.
            after_us = patience_us * draw() if draw() < 0.5 else 2_000 * draw()
            world.call_at_us(world.elapsed_us + int(after_us), unit.cancel)


async def recheck(find: Callable[[], Iterable[str]]) -> list[str]:
    """Return what is still wrong when nothing more happens at this instant.

    In the middle of an instant counts may differ: a task that was woken has not run yet.
    """
    for _ in range(_STEPS_MAX):
        if not list(find()):
            return []
        await asyncio.sleep(0)
    return list(find())


def sample_us(setup: Setup) -> int:
    """Return how often to sample: some 400 times, and often enough for every step of a course."""
    return min(max(setup.span_us // 400, SAMPLE_US), COURSE_US)


def speeds_of(setup: Setup, places: Iterable[str]) -> Mapping[str, SpeedProfile]:
    """Return how fast each place works when, by `slow` and `pause`, there or everywhere.

    Where two overlap the last one of the setup counts.
    """
    return {place: SpeedProfile(_changes(setup, place)) for place in places}


def active(setup: Setup, what: str, at_us: int, where: str) -> HuntFault | None:
    """The fault of that kind that acts there now."""
    for fault in setup.faults:
        if (
            fault.what == what
            and fault.where in {"", where}
            and fault.from_ms * MS <= at_us < fault.until_ms * MS
        ):
            return fault
    return None


def settled(setup: Setup, after_us: int, least_us: int) -> tuple[int, int] | None:
    """From `after_us` behind the last change outside to the end of the span, if that is long."""
    if any(load.on_ms and load.off_ms for load in setup.loads):
        return None
    begin_us = after_us + max((fault.until_ms * MS for fault in setup.faults), default=0)
    return (begin_us, setup.span_us) if begin_us + least_us <= setup.span_us else None


def _changes(setup: Setup, place: str) -> tuple[tuple[int, float], ...]:
    here = [
        fault
        for fault in setup.faults
        if fault.what in {"slow", "pause"}
        and fault.where in {"", place}
        and fault.from_ms < fault.until_ms
    ]
    instants = sorted({ms for fault in here for ms in (fault.from_ms, fault.until_ms)})
    changes: list[tuple[int, float]] = []
    for ms in instants:
        speed = 1.0
        for fault in here:
            if fault.from_ms <= ms < fault.until_ms:
                speed = 0.0 if fault.what == "pause" else max(fault.much, 1) / 1_000
        changes.append((ms * MS, speed))
    return tuple(changes)
