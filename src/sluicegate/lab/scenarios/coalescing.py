"""Coalescing faults: one fetch for many must not become one failure for many.

Who shares a fetch shares what happens to it, unless somebody thought of it: the first reader is
cancelled and takes the others with him, an error is answered by as many new fetches as there are
readers, a fetch that hangs stays for ever. The goals: whatever happens, nothing is left in memory,
the store is asked at most twice, and nobody is cancelled through somebody else; with ten thousand
who wait as with a hundred. And a fetch that hangs does not hold those who try again: nine of ten
are answered with their second try, by another fetch.

The rig: many wait for one answer, and something goes wrong while they do.

An episode is one key. Its readers come within a moment of each other; the first fetch fails, or
hangs, or the reader who began it is cancelled with some of the others. A reader that gets an error
asks once more. What is counted: fetches that the store saw, readers that lost their answer through
somebody else's end, and what is left in memory when all have gone.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import Refused, Unavailable
from sluicegate.contracts.request import Request
from sluicegate.lab.baselines.caches import SingleFlight
from sluicegate.lab.goals import Goal
from sluicegate.lab.scenario import OVER_CASES, Curves, Figures, PlotSpec, Scenario, candidate_maker
from sluicegate.lab.world import World, run
from sluicegate.policies.cache.coalesce import Coalesce, CoalesceSettings, Flight

ERROR: Final = "error"  # the first fetch fails
CANCEL: Final = "cancel"  # the first reader is cancelled, and a tenth of the others
TIMEOUT: Final = "timeout"  # the first fetch hangs, and readers give up

FETCH_US: Final = 20_000
HANG_US: Final = 3_600_000_000
CANCELLED_SHARE: Final = 0.1

Fetch: TypeAlias = Callable[[str], Awaitable[int]]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FetchFaults:
    """What goes wrong, in so many episodes, for so many readers each."""

    fault: str
    episodes: int = 30
    readers: int = 100
    join_us: int = 15_000  # they all come within that, while the first fetch is in the air
    timeout_us: int = 100_000  # of the hastiest; the most patient has twice that


class _Sharing(Protocol):
    """One fetch for many."""

    def share(self, request: Request) -> Awaitable[int]: ...


MakeSharing: TypeAlias = Callable[[Clock, Fetch], _Sharing]


class SharedFetchRun(NamedTuple):
    """What one run counted."""

    readers: int
    answered: int
    cancelled: int  # by the rig
    failed: int  # an error, twice
    late: int  # twice
    lost: int  # cancelled though nobody cancelled them
    calls: list[int]  # fetches of each episode
    leaked: int  # futures and tasks that nobody will ever end
    waits_us: list[int]


def play(rig: FetchFaults, make_sharing: MakeSharing, seed: int) -> SharedFetchRun:
    """Play one run."""

    async def main(world: World) -> SharedFetchRun:
        return await _Episodes(world, rig, make_sharing).play()

    ended = run(main, seed, leaks_allowed=True)
    return ended.value


@final
class _Episodes:
    def __init__(self, world: World, rig: FetchFaults, make_sharing: MakeSharing) -> None:
        self._world = world
        self._rig = rig
        self._sharing = make_sharing(world.clock, self._fetch)
        self._draw = world.chance("faults").draw
        self._calls: Counter[str] = Counter()
        self._count: Counter[str] = Counter()
        self._cancelled: set[int] = set()
        self._waits_us: list[int] = []

    async def play(self) -> SharedFetchRun:
        for episode in range(self._rig.episodes):
            await self._episode(f"key{episode}")
        count = self._count
        return SharedFetchRun(
            self._rig.readers * self._rig.episodes,
            count["answered"],
            count["cancelled"],
            count["told"],
            count["late"],
            count["lost"],
            list(self._calls.values()),
            _pending(),
            self._waits_us,
        )

    async def _episode(self, key: str) -> None:
        rig, draw = self._rig, self._draw
        self._cancelled.clear()
        comes_us = sorted(int(draw() * rig.join_us) for _ in range(rig.readers))
        readers = [
            asyncio.create_task(self._reader(key, place, at_us))
            for place, at_us in enumerate(comes_us)
        ]
        if rig.fault == CANCEL:
            for place, reader in enumerate(readers):
                if place == 0 or draw() < CANCELLED_SHARE:
                    left_us = FETCH_US - 1_000 - comes_us[place]
                    at_us = comes_us[place] + 1 + int(draw() * left_us)
                    begun_us = self._world.elapsed_us
                    self._world.call_at_us(begun_us + at_us, self._cancel, place, reader)
        await asyncio.wait(readers)
        # What is given up in the instant in which the last one leaves ends in the next turns.
        await self._world.sleep_us(1)

    def _cancel(self, place: int, reader: asyncio.Task[None]) -> None:
        if not reader.done():
            self._cancelled.add(place)
            reader.cancel()

    async def _reader(self, key: str, place: int, after_us: int) -> None:
        await self._world.sleep_us(after_us)
        begun_us = self._world.elapsed_us
        timeout_us = self._rig.timeout_us + int(self._draw() * self._rig.timeout_us)
        try:
            how = await self._ask(key, timeout_us)
            if how != "answered":
                how = await self._ask(key, timeout_us)
        except asyncio.CancelledError:
            how = "cancelled" if place in self._cancelled else "lost"
        self._count[how] += 1
        if how == "answered":
            self._waits_us.append(self._world.elapsed_us - begun_us)

    async def _ask(self, key: str, timeout_us: int) -> str:
        now_us = self._world.clock.now_us()
        request = Request(key, arrived_us=now_us, deadline_us=now_us + timeout_us)
        try:
            async with asyncio.timeout(timeout_us / 1e6):
                await self._sharing.share(request)
        except (TimeoutError, Refused):
            return "late"
        except Unavailable:
            return "told"
        return "answered"

    async def _fetch(self, key: str) -> int:
        self._calls[key] += 1
        call = self._calls[key]
        if call == 1 and self._rig.fault == TIMEOUT:
            await self._world.sleep_us(HANG_US)
        await self._world.sleep_us(FETCH_US)
        if call == 1 and self._rig.fault == ERROR:
            raise Unavailable("the store", "it was set to fail")
        return call


def _pending() -> int:
    """Futures of this loop that have no end yet, but for the task that asks.

    By the type and not by `isinstance`, which would wake what others have left asleep in memory.
    """
    gc.collect()
    loop, current = asyncio.get_running_loop(), asyncio.current_task()
    return sum(
        1
        for one in gc.get_objects()
        if issubclass(type(one), asyncio.Future)
        and not one.done()
        and one.get_loop() is loop
        and one is not current
    )


def measure(rig: FetchFaults, after: SharedFetchRun) -> Figures:
    """Calls in the worst episode, what was lost, and what was left."""
    unharmed = after.readers - after.cancelled
    return {
        "leaked": float(after.leaked),
        "calls_max": float(max(after.calls)),
        "calls": sum(after.calls) / rig.episodes,
        "lost": float(after.lost),
        "answered": after.answered / unharmed,
        "told": float(after.failed),
        "late": float(after.late),
    }


def curves(rig: FetchFaults, after: SharedFetchRun) -> Curves:
    """The share of those answered that had waited no longer than so many milliseconds."""
    waits = sorted(after.waits_us)
    step = max(len(waits) // 200, 1)
    return {
        "answered": [(waits[at] / 1e3, (at + 1) / len(waits)) for at in range(0, len(waits), step)]
    }


candidate: Final = candidate_maker(play)


PATIENT: Final = CoalesceSettings(overdue_us=0)


@final
class CoalescedFetch:
    """`coalesce` with its defaults."""

    def __init__(
        self, clock: Clock, fetch: Fetch, settings: CoalesceSettings | None = None
    ) -> None:
        self.policy: Coalesce[int] = Coalesce(settings or CoalesceSettings())
        self._clock = clock
        self._fetch = fetch

    def share(self, request: Request) -> Awaitable[int]:
        """The fetch in the air, or a new one."""
        return self.policy.share(request.key, request, self._clock, self._load)

    async def _load(self, flight: Flight[int]) -> int:
        return await self._fetch(flight.key)


@final
class UnsharedFetch:
    """Without `coalesce`: each fetches for himself."""

    def __init__(self, clock: Clock, fetch: Fetch) -> None:
        self._fetch = fetch

    def share(self, request: Request) -> Awaitable[int]:
        """A fetch of one's own."""
        return self._fetch(request.key)


SCENARIO: Final = Scenario(
    number=13,
    name="coalescing",
    title="A shared fetch fails, hangs, or loses the reader that began it",
    why="What is shared to protect the store must not share the failures of its readers.",
    rigs={
        "error": FetchFaults(fault=ERROR),
        "cancel": FetchFaults(fault=CANCEL),
        "timeout": FetchFaults(fault=TIMEOUT, episodes=200),  # of 30, 0.901 to 0.941
        "crowd-error": FetchFaults(fault=ERROR, readers=10_000, episodes=1),
        "crowd-cancel": FetchFaults(fault=CANCEL, readers=10_000, episodes=1),
        "crowd-timeout": FetchFaults(fault=TIMEOUT, readers=10_000, episodes=1),
    },
    candidates={
        "coalesce": candidate(CoalescedFetch),
        "without-relief": candidate(lambda clock, fetch: CoalescedFetch(clock, fetch, PATIENT)),
        "without-coalesce": candidate(UnsharedFetch),
        "single-flight": candidate(lambda _, fetch: SingleFlight(fetch)),
        "shielded-flight": candidate(lambda _, fetch: SingleFlight(fetch, shielded=True)),
    },
    ours="coalesce",
    must_fail=("single-flight", "shielded-flight", "without-relief", "without-coalesce"),
    goals=(
        Goal(figure="leaked", at_most=0.0),
        Goal(figure="calls_max", at_most=2.0),
        Goal(figure="lost", at_most=0.0),
        Goal(figure="answered", at_least=1.0, cases=("error", "cancel")),
        Goal(figure="answered", at_least=1.0, cases=("crowd-error", "crowd-cancel")),
        Goal(figure="answered", at_least=0.9, cases=("timeout", "crowd-timeout")),
    ),
    measure=measure,
    curves=curves,
    columns=("leaked", "calls_max", "lost", "answered", "late"),
    plots=(
        PlotSpec("Fetches that the store sees", ("calls_max",), OVER_CASES, "calls", log_y=True),
        PlotSpec("Readers cancelled by another's end", ("lost",), OVER_CASES, "readers"),
    ),
)
