"""The world of one run: virtual time, seeded chance, tasks that are all accounted for.

    ended = run(main, seed=7)       main is a coroutine function that is given the world

A run is a function of its seed: the same seed gives the same run, to the byte of its digest. It
ends well when `main` has ended and no other task is left; a task that fails ends the run with its
error. A run that stands still, loops for ever or leaves tasks behind raises an error with its seed.

Nothing in a run may use the real clock or real chance: hand out `world.clock` and `world.chance`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Generic, NamedTuple, NoReturn, TypeVar, final

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.random_source import RandomSource
from sluicegate.lab.virtual_loop import (
    SPAN_US_MAX,
    TICKS_AT_ONCE_MAX,
    BrokenRun,
    VirtualLoop,
    describe,
)
from sluicegate.testing import START_US, SeededChance

T = TypeVar("T")

ENDING_ROUNDS_MAX: Final = 100


class Leak(BrokenRun):
    """`main` has ended, and tasks are left; `tasks` names them."""

    def __init__(self, sentence: str, at_us: int, tasks: tuple[str, ...]) -> None:
        super().__init__(sentence, at_us)
        self.tasks = tasks


class Run(NamedTuple, Generic[T]):
    """A run that has ended: what `main` returned, and its digest."""

    value: T
    seed: int
    elapsed_us: int
    steps: int  # callbacks that ran
    digest: str
    leaked: tuple[str, ...]  # tasks that were left, where leaks are allowed


@final
class WorldClock:
    """The virtual clock, as a `contracts.clock.Clock`."""

    __slots__ = ("_loop",)

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now_us(self) -> int:
        """The instant."""
        return START_US + self._loop.elapsed_us


@final
class World:
    """What a run's coroutines are given."""

    __slots__ = ("_dice", "_loop", "clock", "seed")

    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        self.seed = seed
        self.clock = WorldClock(loop)
        self._loop = loop
        self._dice = RandomSource(seed)

    @property
    def elapsed_us(self) -> int:
        """Virtual time since the run began."""
        return self._loop.elapsed_us

    def chance(self, name: str) -> SeededChance:
        """The draws of the component of that name, and of no other."""
        return self._dice.of(name)

    def note(self, *parts: object) -> None:
        """Write into the run's digest; `parts` must say the same in every run of the seed."""
        self._loop.note(" ".join(map(str, parts)))

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Do `work` beside the rest. If it fails, so does the run."""
        task = self._loop.create_task(work, name=name)
        task.add_done_callback(self.watch)
        return task

    def sleep_us(self, us: int) -> Awaitable[None]:
        """Wait for so long, from now on."""
        woken: asyncio.Future[None] = self._loop.create_future()
        self._loop.call_at_us(self._loop.elapsed_us + us, _wake, woken)
        return woken

    async def until_us(self, elapsed_us: int) -> None:
        """Wait until the run is so old."""
        left_us = elapsed_us - self._loop.elapsed_us
        if left_us > 0:
            await self.sleep_us(left_us)

    def call_at_us(self, elapsed_us: int, act: Callable[..., object], *args: object) -> None:
        """Call `act` when the run is so old; now if it already is older."""
        self._loop.call_at_us(elapsed_us, act, *args)

    async def cancel_others(self) -> None:
        """Cancel every other task, oldest first, and wait until they have ended."""
        current = asyncio.current_task()
        rest = [task for task in self._loop.unfinished() if task is not current]
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest)

    def fail(self, error: BaseException) -> None:
        """End the run with this error."""
        self._loop.failure = error

    def watch(self, task: asyncio.Task[Any]) -> None:
        """As a callback of a task that is done: if it failed, the run does."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._loop.failure = error


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


def run(
    main: Callable[[World], Coroutine[Any, Any, T]],
    seed: int,
    *,
    span_us_max: int = SPAN_US_MAX,
    ticks_at_once_max: int = TICKS_AT_ONCE_MAX,
    leaks_allowed: bool = False,
) -> Run[T]:
    """Run `main` in a world of its own, from time zero until it ends."""
    if seed < 0:
        raise BadValue("seed", seed, "give a whole number from 0")
    loop = VirtualLoop(span_us_max=span_us_max, ticks_at_once_max=ticks_at_once_max)
    try:
        task = loop.create_task(main(World(seed, loop)), name="main")
        value = loop.run_until_complete(task)
        left = tuple(describe(task) for task in loop.unfinished())
        if left and not leaks_allowed:
            _leak(loop, left)
        return Run(value, seed, loop.elapsed_us, loop.steps, loop.digest(), left)
    except Exception as error:
        error.add_note(f"in the world of seed {seed}, after {loop.elapsed_us} us")
        raise
    finally:
        _end(loop)


def _leak(loop: VirtualLoop, left: tuple[str, ...]) -> NoReturn:
    sentence = f"the run has ended, and these tasks are left: {', '.join(left)}"
    raise Leak(sentence, loop.elapsed_us, left)


def _end(loop: VirtualLoop) -> None:
    """Cancel what is left, in order, and close."""
    for _ in range(ENDING_ROUNDS_MAX):
        left = loop.unfinished()
        if not left:
            break
        for task in left:
            task.cancel()
        _run_on(loop, asyncio.wait(left))
    _run_on(loop, asyncio.sleep(0))  # generators that were dropped just now are closed
    loop.close()


def _run_on(loop: VirtualLoop, work: Coroutine[Any, Any, Any]) -> None:
    loop.forgive()
    with suppress(Exception):  # the run's own error is the one to report
        loop.run_until_complete(work)
