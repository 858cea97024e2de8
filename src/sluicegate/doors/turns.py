"""Turns: how much of one turn of the loop the connections of a door may have, and in which order.

A client that pipelines can send in one read what takes seconds to answer, and a thousand that do
not pipeline can do so together; whoever else is connected would wait so long. So work is taken in
small portions, each entered here. A connection has a share of each turn, all of them together have
the turn; what is left waits for the next one, and goes on where it stopped.

While a turn has room for all, what is read is worked on as it is read. As soon as somebody had to
be left out, what becomes readable is only read: then it is served in order, as far as a turn goes.

    class     strict, but for one portion a turn, which the classes that had none have in rotation
    caller    of one class by turns, however many connections each has
    deadline  of one caller; who has none counts as having `PATIENCE_US`, and who was served in the
              turn before as having a little more than others

A turn has `us_max` of the clock, and that is for all of it: who waits is served for so much of it
as serving has been of turns lately. The rest goes to reading, and to writing replies, which often
takes longer. So whoever matters most waits for what is left of one turn and for the next one's
reading, whatever the others do and however many they are.

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
from heapq import heappop, heappush
from typing import Final, NamedTuple, final

from sluicegate.contracts.access import Identity
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import DEFAULT_CRITICALITY, Criticality

STRANGER: Final = len(Criticality)  # the class of who has not said who they are
PATIENCE_US: Final = 1_000_000
# Reads of a connection that has not said who it is, of which a portion waits for nobody: enough for
# a health check, and to log in.
NEW_READS_MAX: Final = 4
_CLASSES: Final = STRANGER + 1
_ALL: Final = 1 << 10  # of a turn
_LEAST: Final = _ALL >> 4
_SHIFT: Final = 3  # a turn weighs an eighth


def class_of(identity: Identity | None, claim: Criticality | None = None) -> int:
    """The class of a connection: what its caller was given, or claims and may.

    A claim to more counts only where the caller's identity says how much it may claim.
    """
    if identity is None:
        return STRANGER
    given = identity.criticality
    class_ = int(DEFAULT_CRITICALITY if given is None else given)
    if claim is None:
        return class_
    highest = identity.highest
    return max(int(claim), class_ if highest is None else int(highest))


class _Waiting(NamedTuple):
    """One connection that waits."""

    class_: int
    caller: str
    due_us: int
    number: int
    served: bool  # in the turn before
    go_on: Callable[[], object]


@final
class _ClassLine:
    """Who waits of one class: a line for each caller, the callers by turns."""

    __slots__ = ("_callers", "_turns", "waiting")

    def __init__(self) -> None:
        self._callers: dict[str, list[tuple[int, int, _Waiting]]] = {}
        self._turns: deque[str] = deque()
        self.waiting = 0

    def push(self, one: _Waiting) -> None:
        line = self._callers.get(one.caller)
        if line is None:
            line = self._callers[one.caller] = []
            self._turns.append(one.caller)
        heappush(line, (one.due_us, one.number, one))
        self.waiting += 1

    def pop(self) -> _Waiting:
        caller = self._turns.popleft()
        line = self._callers[caller]
        one = heappop(line)[2]
        if line:
            self._turns.append(caller)
        else:
            del self._callers[caller]
        self.waiting -= 1
        return one


@final
class Turns:
    """The turns of a door: `portions_max` portions and `us_max` of the clock each.

    Without a clock portions alone are counted. Without `by_class` all are of one class and caller.
    """

    __slots__ = (
        "_again", "_began_us", "_by_class", "_clock", "_ends", "_floor", "_full", "_granted",
        "_left", "_lines", "_now_us", "_number", "_portions_max", "_served_us", "_serving",
        "_serving_part", "_ticking", "_unserved", "_until_us", "_us_max", "waiting",
    )  # fmt: skip

    def __init__(
        self, clock: Clock | None, portions_max: int, us_max: int, *, by_class: bool = True
    ) -> None:
        self._clock = clock
        self._portions_max = portions_max
        self._us_max = us_max
        self._by_class = by_class
        self._left = portions_max
        self._now_us = 0  # when this turn began, as far as anybody has looked
        self._until_us = us_max
        self._began_us = -1  # the turn that goes on, if somebody waited when it ended
        self._serving_part = _ALL  # of a turn, what serves those who wait
        self._serving = False  # them, and not what is being read
        self._served_us = 0  # of the last turn
        self._full = False  # and whether that was all it had for them
        self._granted = False  # one more portion, whatever the clock says
        self._again: list[_Waiting] = []  # of those who are being served
        self._ticking = False  # the next turn is on its way
        self._floor = 0  # the class that had the last portion besides
        self._number = 0
        self._ends: list[Callable[[], object]] = []
        self._lines = [_ClassLine() for _ in range(_CLASSES)]
        self._unserved = 0  # of those who wait, the ones who had nothing in the turn before
        self.waiting = 0

    def lag_us(self) -> int:
        """How long what is read now is reckoned to have waited in its socket.

        While somebody waits the loop does not sleep, so it came since the turn before began: on
        average that is half as long ago. Otherwise the loop may have slept until it came.
        """
        clock = self._clock
        if clock is None or self._began_us < 0:
            return 0
        return max(0, clock.now_us() - self._began_us) >> 1

    def enter(self) -> bool:
        """Whether one more portion may be worked on in this turn; the first may, however late."""
        if not self._ticking and not self._serving:
            self._begin_soon()
        elif not self._has_room():
            return False
        if self._unserved and not self._serving:
            return False
        self._granted = False
        self._left -= 1
        return True

    def wait(
        self,
        go_on: Callable[[], object],
        class_: int,
        *,
        served: bool,
        caller: str = "",
        deadline_us: int = 0,
    ) -> None:
        """Call this in one of the next turns. `served`: there was something of it in this one."""
        if not self._ticking:
            if self._serving:
                self._tick_soon()
            else:
                self._begin_soon()
        due_us = deadline_us if deadline_us > 0 else self._now_us + PATIENCE_US
        if served:
            due_us += 2 * self._us_max
        if not self._by_class:
            class_, caller = 0, ""
        self._number += 1
        waiting = _Waiting(class_, caller, due_us, self._number, served, go_on)
        self.waiting += 1
        if not served:
            self._unserved += 1
        if self._serving:
            self._again.append(waiting)
        else:
            self._lines[class_].push(waiting)

    def at_end(self, call: Callable[[], object]) -> None:
        """Call this when the turn ends."""
        self._ends.append(call)
        if not self._ticking and not self._serving:
            self._begin_soon()

    def turn(self) -> None:
        """Serve who waits, as far as this turn goes, and make the calls of its end."""
        self._ticking = False
        began_us = -1
        if self.waiting:
            last_us = self._began_us
            self._begin(self._us_max)
            began_us = self._now_us
            if self._full and 0 <= last_us < began_us:
                part = self._served_us * _ALL // (began_us - last_us)
                self._serving_part += (part - self._serving_part) >> _SHIFT
            self._begin(self._us_max * max(_LEAST, self._serving_part) // _ALL)
            self._serve()
        self.end()
        self._began_us = -1
        if self.waiting:
            self._began_us = began_us if began_us >= 0 else self._now_us
            if not self._ticking:
                self._tick_soon()

    def end(self) -> None:
        """Make the calls of the turn's end. One that fails is reported, and stops no other."""
        calls, self._ends = self._ends, []
        for call in calls:
            try:
                call()
            except Exception as error:
                _report(error)

    def _serve(self) -> None:
        self._serving = True
        for class_, line in enumerate(self._lines):
            served = False
            while line.waiting and self._has_room():
                self._go_on(line)
                served = True
            if line.waiting:
                self._serve_floor(class_ + served)
                break
        self._full = self._left <= 0
        self._serving = self._granted = False
        if self._clock is not None:
            self._served_us = self._clock.now_us() - self._now_us
        again, self._again = self._again, []
        for one in again:
            self._lines[one.class_].push(one)

    def _serve_floor(self, first: int) -> None:
        """A portion for one of the classes that had none."""
        for _ in range(_CLASSES):
            self._floor = self._floor + 1 if self._floor + 1 < _CLASSES else first
            if self._floor >= first and self._floor < _CLASSES:
                line = self._lines[self._floor]
                if line.waiting:
                    self._left = 1
                    self._go_on(line)
                    self._left = 0
                    return

    def _go_on(self, line: _ClassLine) -> None:
        one = line.pop()
        self.waiting -= 1
        if not one.served:
            self._unserved -= 1
        self._granted = True
        try:
            one.go_on()
        except Exception as error:
            _report(error)

    def _has_room(self) -> bool:
        left = self._left
        if left <= 0:
            return False
        clock = self._clock
        if clock is None or self._granted or left == self._portions_max:
            return True
        if clock.now_us() >= self._until_us:
            self._left = 0
            return False
        return True

    def _tick_soon(self) -> None:
        self._ticking = True
        asyncio.get_running_loop().call_soon(self.turn)

    def _begin_soon(self) -> None:
        """Begin a turn now, which ends when the loop has read what there is."""
        self._ticking = True
        asyncio.get_running_loop().call_soon(self.turn)
        self._begin(self._us_max)

    def _begin(self, us_max: int) -> None:
        self._left = self._portions_max
        if self._clock is not None:
            self._now_us = self._clock.now_us()
            self._until_us = self._now_us + us_max


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

    def wait(self, class_: int, caller: str = "", deadline_us: int = 0) -> None:
        """Go on in one of the next turns, unless that is under way."""
        if not self.waiting:
            self.waiting = True
            self.served = self._left < self._portions_max
            self._turns.wait(
                self._resume, class_, served=self.served, caller=caller, deadline_us=deadline_us
            )

    def enter_or_wait(self, class_: int, caller: str = "", deadline_us: int = 0) -> bool:
        """Whether one more portion may be worked on in this turn; if not, go on in a later one."""
        if self._left > 0 and self._turns.enter():
            self._left -= 1
            return True
        self.wait(class_, caller, deadline_us)
        return False

    def rest(self, delay_us: int, class_: int, caller: str) -> None:
        """Do nothing for so long, then go on in one of the turns."""
        if not self.waiting:
            self.waiting = self.served = True
            asyncio.get_running_loop().call_later(delay_us / 1e6, self._end_rest, class_, caller)

    def close(self) -> None:
        """The connection is gone: it and its share named each other, and only that kept both."""
        self._go_on = _nothing

    def _end_rest(self, class_: int, caller: str) -> None:
        self._turns.wait(self._resume, class_, served=True, caller=caller)

    def _resume(self) -> None:
        self.waiting = False
        self.begin()
        self._go_on()


def _nothing() -> None:
    """What is left to do for a connection that is gone."""


def _report(error: Exception) -> None:
    """Report the error of one connection."""
    asyncio.get_running_loop().call_exception_handler(
        {"message": "a connection could not be served", "exception": error}
    )
