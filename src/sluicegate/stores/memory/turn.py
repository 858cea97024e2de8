"""Turn: one holder at a time, and next to nothing to pay when nobody else wants it.

A list holds one token. Whoever pops it has the turn, and appends it again to give it up: both are
single operations on a list, which the interpreter makes whole with its own lock, or with the list's
where it has none. A `threading.Lock` does the same work, but parses its arguments as keywords at
every call: see benchmarks/turn.py for the difference.

Who finds no token puts a gate of its own into a second list, looks for the token once more, and
only then sleeps. Who gives the token back looks into that list afterwards. So either the one sees
the token or the other sees the gate; `_SLEEP_S` is for the day when this sentence is wrong.

It is not reentrant and does not know its owner. In the child of a fork the holder may be a thread
that is not there: who has waited there in vain for long makes a new token, once. Nothing but this
belongs here.
"""

from __future__ import annotations

import os
from threading import Lock
from typing import Final, final

_SLEEP_S: Final = 0.05
_SLEEPS_MAX: Final = (
    10  # in a child: nobody holds a turn for half a second but one who is not there
)


@final
class Forks:
    """How many forks lie between the first process and this one."""

    __slots__ = ("lock", "seen")

    def __init__(self) -> None:
        self.seen = 0
        self.lock = Lock()

    def count(self) -> None:
        """One more; called in the child, which has one thread."""
        self.seen += 1
        self.lock = Lock()


FORKS: Final = Forks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=FORKS.count)


@final
class Turn:
    """A lock: `take` waits for the turn, `give` gives it up."""

    __slots__ = ("_forks", "_gates", "_token")

    def __init__(self) -> None:
        self._forks = FORKS.seen
        self._token: list[None] = [None]
        self._gates: list[Lock] = []

    def take(self) -> None:
        """Have the turn, however long that takes."""
        if self._token:
            try:
                self._token.pop()
            except IndexError:
                pass  # somebody was quicker
            else:
                return
        self._wait()

    def give(self) -> None:
        """Give up the turn; only its holder may."""
        self._token.append(None)
        if self._gates:
            self._wake()

    def _wait(self) -> None:
        gate = Lock()
        gate.acquire()
        slept = 0
        while True:
            slept += 1
            if slept > _SLEEPS_MAX and self._forks != FORKS.seen:
                self._begin_anew()
            self._gates.append(gate)
            try:
                self._token.pop()
            except IndexError:
                gate.acquire(timeout=_SLEEP_S)
            else:
                self._forks = FORKS.seen
                return
            finally:
                # Also when a signal ends the wait: a gate nobody sleeps at would swallow a wake.
                self._forget(gate)

    def _begin_anew(self) -> None:
        with FORKS.lock:
            if self._forks != FORKS.seen:
                self._forks = FORKS.seen
                self._gates = []
                self._token = [None]

    def _wake(self) -> None:
        try:
            gate = self._gates.pop(0)
        except IndexError:
            return  # it has found the token by itself
        gate.release()

    def _forget(self, gate: Lock) -> None:
        try:
            self._gates.remove(gate)
        except ValueError:
            return  # it was taken out to be woken
