"""Turn: one holder at a time, and next to nothing to pay when nobody else wants it.

A list holds one token. Whoever pops it has the turn, and appends it again to give it up: both are
single operations on a list, which the interpreter makes whole with its own lock, or with the list's
where it has none. A `threading.Lock` does the same work, but parses its arguments as keywords at
every call: see benchmarks/turn.py for the difference.

Who finds no token puts a gate of its own into a second list, looks for the token once more, and
only then sleeps. Who gives the token back looks into that list afterwards. So either the one sees
the token or the other sees the gate; `_SLEEP_S` is for the day when this sentence is wrong.

It is not reentrant and does not know its owner. Nothing but this belongs here.
"""

from __future__ import annotations

from threading import Lock
from typing import Final, final

_SLEEP_S: Final = 0.05


@final
class Turn:
    """A lock: `take` waits for the turn, `give` gives it up."""

    __slots__ = ("_gates", "_token")

    def __init__(self) -> None:
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
        while True:
            self._gates.append(gate)
            try:
                self._token.pop()
            except IndexError:
                gate.acquire(timeout=_SLEEP_S)
            else:
                return
            finally:
                # Also when a signal ends the wait: a gate nobody sleeps at would swallow a wake.
                self._forget(gate)

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
