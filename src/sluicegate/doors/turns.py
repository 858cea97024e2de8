"""Turns: how much of one turn of the loop the connections of a door may have.

A client that pipelines can send in one read what takes seconds to answer, and whoever else is
connected would wait so long. So work is taken in small portions, each entered here. A connection
has a share of each turn, all of them together have the turn; what is left waits for the next one,
while its connection is not read, and goes on where it stopped.

Who waits is served by class, then who has had nothing in the turn before, then the others one after
the other: somebody who asks little does not stand behind those who ask much. What is read in a
turn has a turn's worth of time besides what waited, so a turn is twice `us_max` and one portion
at most. A class is strict: while more critical connections use all turns, the others wait.

What is written leaves at the end of a turn, of all connections together. A write to a socket wakes
whoever waits at its other end, which costs more than making the reply. Written one by one between
the reads, each reply finds its client idle again and pays for waking it; written together, the
first wakes it and the others find it awake. No reply waits longer than the turn in which it is
made: what ends a turn comes before the loop looks for more to read.

Bounds: one entry a connection, for each of the two.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, final

from sluicegate.contracts.access import Identity
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import DEFAULT_CRITICALITY, Criticality

STRANGER: Final = len(Criticality)  # the class of who has not said who they are
_CLASSES: Final = STRANGER + 1


def class_of(identity: Identity | None) -> int:
    """The class of a connection: what its caller was given, not what its requests claim."""
    if identity is None:
        return STRANGER
    given = identity.criticality
    return int(DEFAULT_CRITICALITY if given is None else given)


@final
class Turns:
    """The turns of a door: `portions_max` portions and `us_max` of the clock each.

    Without a clock portions alone are counted.
    """

    __slots__ = (
        "_began_us", "_clock", "_ends", "_first", "_left", "_portions_max", "_rest", "_ticking",
        "_us_max", "waiting",
    )  # fmt: skip

    def __init__(self, clock: Clock | None, portions_max: int, us_max: int) -> None:
        self._clock = clock
        self._portions_max = portions_max
        self._us_max = us_max
        self._left = portions_max
        self._began_us = 0
        self._ticking = False  # the next turn is on its way
        self._ends: list[Callable[[], object]] = []
        self._first: list[deque[Callable[[], object]]] = [deque() for _ in range(_CLASSES)]
        self._rest: list[deque[Callable[[], object]]] = [deque() for _ in range(_CLASSES)]
        self.waiting = 0

    def enter(self) -> bool:
        """Whether one more portion may be worked on in this turn; the first may, however late."""
        if not self._ticking:
            self._tick_soon()
            self._begin()
        left = self._left
        if left <= 0:
            return False
        clock = self._clock
        begun = left < self._portions_max
        if begun and clock is not None and clock.now_us() - self._began_us >= self._us_max:
            self._left = 0
            return False
        self._left = left - 1
        return True

    def wait(self, go_on: Callable[[], object], class_: int, *, served: bool) -> None:
        """Call this in one of the next turns. `served`: there was something of it in this one."""
        (self._rest if served else self._first)[class_].append(go_on)
        self.waiting += 1
        if not self._ticking:
            self._tick_soon()
            self._begin()

    def at_end(self, call: Callable[[], object]) -> None:
        """Call this when the turn ends."""
        self._ends.append(call)
        if not self._ticking:
            self._tick_soon()
            self._begin()

    def end(self) -> None:
        """Make the calls of the turn's end. One that fails is reported, and stops no other."""
        calls, self._ends = self._ends, []
        for call in calls:
            try:
                call()
            except Exception as error:
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "a connection could not be written to", "exception": error}
                )

    def _tick_soon(self) -> None:
        self._ticking = True
        asyncio.get_running_loop().call_soon(self._tick)

    def _begin(self) -> None:
        self._left = self._portions_max
        if self._clock is not None:
            self._began_us = self._clock.now_us()

    def _tick(self) -> None:
        self._ticking = False
        self.end()
        if self.waiting == 0:
            return
        if not self._ticking:
            self._tick_soon()
        self._begin()
        for class_ in range(_CLASSES):
            for line in (self._first[class_], self._rest[class_]):
                for _ in range(len(line)):  # who waits again does so for the next turn
                    if self._left <= 0:
                        break
                    self.waiting -= 1
                    line.popleft()()
        self._begin()


@final
class TurnShare:
    """What one connection has of the turns: so many portions of each, then `go_on` in the next."""

    __slots__ = ("_go_on", "_left", "_portions_max", "_turns", "served", "waiting")

    def __init__(self, turns: Turns, portions_max: int, go_on: Callable[[], object]) -> None:
        self._turns = turns
        self._portions_max = portions_max
        self._go_on = go_on
        self._left = portions_max
        self.waiting = False  # for another turn
        self.served = False  # when it began to wait, there was something of it in that turn

    def begin(self) -> None:
        """Begin a whole share: something was read, or it is this connection's turn."""
        self._left = self._portions_max

    def enter(self) -> bool:
        """Whether one more portion may be worked on in this turn."""
        if self._left > 0 and self._turns.enter():
            self._left -= 1
            return True
        return False

    def give_up(self) -> None:
        """Give up what is left of it, in favour of others."""
        self._left = 0

    def wait(self, class_: int) -> None:
        """Go on in one of the next turns, unless that is under way."""
        if not self.waiting:
            self.waiting = True
            self.served = self._left < self._portions_max
            self._turns.wait(self._resume, class_, served=self.served)

    def enter_or_wait(self, class_: int) -> bool:
        """Whether one more portion may be worked on in this turn; if not, go on in a later one."""
        if self.enter():
            return True
        self.wait(class_)
        return False

    def _resume(self) -> None:
        self.waiting = False
        self.begin()
        self._go_on()
