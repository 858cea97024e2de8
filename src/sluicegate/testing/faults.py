"""Faults: a store that fails, is slow, hangs or loses its answers, on demand.

For tests of what a program does when its store is away. The faults are told to one object, and hold
for every store that is opened through it, on whatever event loop or thread:

    faults = Faults()
    limiter = Limiter("5/minute", open_store=faults.around(open_store), failure="closed")
    faults.fail()
    assert limiter.take("ann").degraded

Faults that were told first come first; one without `times` stays until `heal`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from threading import Lock
from typing import Final, final

from sluicegate.contracts.clock import PausableClock
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.store import Charge, PartialTake, Ruling, Store

OPERATIONS: Final = frozenset({"take", "take_some", "settle", "reset"})
FAULTS_MAX: Final = 10_000  # that wait for their call


class _FaultKind(Enum):
    """What happens to a call."""

    FAIL = "fail"  # it is not carried out
    LOSE = "lose"  # it is carried out, and its answer is lost
    SLOW = "slow"  # it is carried out, later
    HANG = "hang"  # it waits until the store is healed


@final
class _Fault:
    """One fault and how often it is to happen; None is for ever."""

    __slots__ = ("after_us", "kind", "left", "on")

    def __init__(
        self, kind: _FaultKind, left: int | None, on: frozenset[str], after_us: int
    ) -> None:
        self.kind = kind
        self.left = left
        self.on = on
        self.after_us = after_us


@final
class Faults:
    """What is wrong with the stores opened through it.

    On a clock moved by hand, slow calls move it; without one they really wait. `calls` counts what
    was asked of the stores, failed or not.
    """

    __slots__ = ("_clock", "_faults_due", "_hanging", "_lock", "calls")

    def __init__(self, clock: PausableClock | None = None) -> None:
        self._clock = clock
        self._lock = Lock()
        self._faults_due: list[_Fault] = []
        self._hanging: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self.calls = 0

    def fail(
        self, times: int | None = None, *, on: Collection[str] = OPERATIONS, after_us: int = 0
    ) -> None:
        """Raise `Unavailable`, `after_us` later, as a time-out would; nothing is carried out."""
        self._add(_FaultKind.FAIL, times, on, after_us)

    def lose(
        self, times: int | None = None, *, on: Collection[str] = OPERATIONS, after_us: int = 0
    ) -> None:
        """Carry it out and raise `Unavailable` all the same: the answer was lost on its way."""
        self._add(_FaultKind.LOSE, times, on, after_us)

    def slow(
        self, after_us: int, times: int | None = None, *, on: Collection[str] = OPERATIONS
    ) -> None:
        """Be `after_us` late."""
        self._add(_FaultKind.SLOW, times, on, after_us)

    def hang(self, times: int | None = None, *, on: Collection[str] = OPERATIONS) -> None:
        """Do not answer before `heal`; whoever waits may be cancelled."""
        self._add(_FaultKind.HANG, times, on, 0)

    def heal(self) -> None:
        """Be well again; what hangs goes on."""
        with self._lock:
            self._faults_due.clear()
            hanging, self._hanging = self._hanging, []
        for loop, event in hanging:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    def hanging(self) -> int:
        """Return how many calls hang now."""
        with self._lock:
            return len(self._hanging)

    def around(self, open_store: Callable[[], Store]) -> Callable[[], Store]:
        """`open_store`, with these faults around each store that it opens."""
        return lambda: FlakyStore(open_store(), self)

    # What a store asks.

    async def apply(self, operation: str) -> _FaultKind | None:
        """Let happen what is to happen before the call; tells what it was."""
        fault = self._next(operation)
        if fault is None:
            return None
        if fault.kind is _FaultKind.HANG:
            await self._hang()
        elif fault.after_us and self._clock is not None:
            self._clock.pause(fault.after_us)
        elif fault.after_us:
            await asyncio.sleep(fault.after_us / 1e6)
        if fault.kind is _FaultKind.FAIL:
            raise Unavailable("the flaky store", "it was told to fail")
        return fault.kind

    def _add(self, kind: _FaultKind, times: int | None, on: Collection[str], after_us: int) -> None:
        if isinstance(on, str):
            on = {on}
        if not on or not OPERATIONS.issuperset(on):
            raise BadValue("on", on, f"give some of {', '.join(sorted(OPERATIONS))}")
        if times is not None and times < 1:
            raise BadValue("times", times, "give a number of calls, at least 1; None is for ever")
        if after_us < 0:
            raise BadValue("after_us", after_us, "give microseconds, 0 or more")
        with self._lock:
            if len(self._faults_due) >= FAULTS_MAX:
                raise BadValue("faults", len(self._faults_due), "heal() before more are told")
            self._faults_due.append(_Fault(kind, times, frozenset(on), after_us))

    def _next(self, operation: str) -> _Fault | None:
        with self._lock:
            self.calls += 1
            for place, fault in enumerate(self._faults_due):
                if operation in fault.on:
                    if fault.left is not None:
                        fault.left -= 1
                        if not fault.left:
                            del self._faults_due[place]
                    return fault
            return None

    async def _hang(self) -> None:
        place = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            self._hanging.append(place)
        try:
            await place[1].wait()
        finally:
            with self._lock:
                if place in self._hanging:
                    self._hanging.remove(place)


@final
class FlakyStore:
    """A `contracts.store.Store` around another, which meets faults on the way to it."""

    __slots__ = ("_faults", "inner")

    def __init__(self, inner: Store, faults: Faults) -> None:
        self.inner = inner
        self._faults = faults

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        """Take every charge or none."""
        kind = await self._faults.apply("take")
        ruling = await self.inner.take(charges, keep=keep, count_refused=count_refused)
        _lose_response(kind)
        return ruling

    async def take_some(self, charge: Charge, ladder: Sequence[int]) -> PartialTake:
        """Take the first cost of `ladder` that fits."""
        kind = await self._faults.apply("take_some")
        grant = await self.inner.take_some(charge, ladder)
        _lose_response(kind)
        return grant

    async def settle(self, charges: Sequence[Charge], taken_us: int | None = None) -> None:
        """Correct what was taken."""
        kind = await self._faults.apply("settle")
        await self.inner.settle(charges, taken_us)
        _lose_response(kind)

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget what was taken."""
        kind = await self._faults.apply("reset")
        await self.inner.reset(charges)
        _lose_response(kind)

    async def close(self) -> None:
        """Close the store behind it; that never fails."""
        await self.inner.close()


def _lose_response(kind: _FaultKind | None) -> None:
    if kind is _FaultKind.LOSE:
        raise Unavailable("the flaky store", "its answer was lost")
