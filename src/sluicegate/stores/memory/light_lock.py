"""Light lock: one holder at a time, and next to nothing to pay when nobody else wants it.

A list holds one token. Whoever pops it holds the lock, and appends it again to release it: both are
single operations on a list, which the interpreter makes atomic with its own lock, or with the
list's where it has none. A `threading.Lock` does the same work, but parses its arguments as
keywords at every call: see benchmarks/light_lock.py for the difference.

A thread that finds no token puts a gate of its own into a second list, looks for the token once
more, and only then sleeps. A thread that returns the token looks into that list afterwards. So
either the one sees the token or the other sees the gate; `_SLEEP_S` bounds the wait should this
argument be wrong.

It is not reentrant and does not know its owner. In the child of a fork the holder may be a thread
that does not exist there: a waiter that has waited in vain for long makes a new token, once.
Nothing but this belongs here.
"""

from __future__ import annotations

import os
from threading import Lock
from typing import Final, final

_SLEEP_S: Final = 0.05
_SLEEPS_MAX: Final = 10  # in a child: no live holder keeps the lock for half a second


@final
class _Forks:
    """How many forks lie between the first process and this one."""

    __slots__ = ("count", "lock")

    def __init__(self) -> None:
        self.count = 0
        self.lock = Lock()

    def add(self) -> None:
        """Count one more; called in the child, which has one thread."""
        self.count += 1
        self.lock = Lock()


FORKS: Final = _Forks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=FORKS.add)


@final
class LightLock:
    """A lock with the methods of `threading.Lock` that matter here."""

    __slots__ = ("_forks", "_gates", "_token")

    def __init__(self) -> None:
        self._forks = FORKS.count
        self._token: list[None] = [None]
        self._gates: list[Lock] = []

    def acquire(self) -> None:
        """Hold the lock, however long that takes."""
        if self._token:
            try:
                self._token.pop()
            except IndexError:
                pass  # another thread was quicker
            else:
                return
        self._wait()

    def release(self) -> None:
        """Release the lock; only its holder may."""
        self._token.append(None)
        if self._gates:
            self._wake()

    def _wait(self) -> None:
        gate = Lock()
        gate.acquire()
        sleeps = 0
        while True:
            sleeps += 1
            if sleeps > _SLEEPS_MAX and self._forks != FORKS.count:
                self._reset_after_fork()
            self._gates.append(gate)
            try:
                self._token.pop()
            except IndexError:
                gate.acquire(timeout=_SLEEP_S)
            else:
                self._forks = FORKS.count
                return
            finally:
                # Also when a signal ends the wait: a gate nobody sleeps at would swallow a wake.
                self._remove(gate)

    def _reset_after_fork(self) -> None:
        with FORKS.lock:
            if self._forks != FORKS.count:
                self._forks = FORKS.count
                self._gates = []
                self._token = [None]

    def _wake(self) -> None:
        try:
            gate = self._gates.pop(0)
        except IndexError:
            return  # it has found the token by itself
        gate.release()

    def _remove(self, gate: Lock) -> None:
        try:
            self._gates.remove(gate)
        except ValueError:
            return  # it was taken out to be woken
