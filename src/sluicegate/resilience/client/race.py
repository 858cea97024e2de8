"""Race: a hedge for work that blocks. Each attempt has a thread, and the first good result wins.

It is `policies/client/hedge.py` for threads. Until the policy knows when a call is late, and while
`THREADS_MAX` attempts run, the caller's own thread makes the only attempt. A thread cannot be
stopped: an attempt that loses runs to its end, so its driver should have a time-out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import copy_context
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import Final, Generic, TypeVar, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.request import Request
from sluicegate.kernels.verdict import NEVER
from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.policies.client.hedge import Hedge

T = TypeVar("T")

_log: Final = logging.getLogger("sluicegate.resilience")
THREADS_MAX: Final = 100  # as many as hang in one backend's time-out at 20 late calls a second
_WINS: Final = (ResultKind.OK, ResultKind.REJECTED)


@final
class ThreadRaces:
    """The races of one client."""

    __slots__ = ("clock", "guard", "hedge", "running")

    def __init__(self, hedge: Hedge, clock: Clock, guard: Lock) -> None:
        self.hedge = hedge
        self.clock = clock
        self.guard = guard
        self.running = 0  # threads

    def run(self, work: Callable[[int], CallResult[T]], request: Request) -> CallResult[T]:
        """Return the first good result; `work` is called for each attempt with its number."""
        began_us = self.clock.now_us()
        with self.guard:
            delay_us = self.hedge.begin(request, began_us, idempotent=True)
            if self.running >= THREADS_MAX:
                delay_us = NEVER
        first: ResultKind | None
        if delay_us == NEVER:
            result = work(0)
            first = result.kind
        else:
            race = _Race(self, work, request)
            result = race.run(delay_us)
            first = race.first
        now_us = self.clock.now_us()
        with self.guard:
            self.hedge.learn(request, first, now_us - began_us, now_us)
        return result


@final
class _Race(Generic[T]):
    """The attempts of one call."""

    __slots__ = ("_ended", "_over", "_races", "_request", "_started", "_work", "first")

    def __init__(
        self, races: ThreadRaces, work: Callable[[int], CallResult[T]], request: Request
    ) -> None:
        self._races = races
        self._work = work
        self._request = request
        # The number of an attempt, and its result or what it has raised.
        self._ended: SimpleQueue[tuple[int, CallResult[T] | BaseException]] = SimpleQueue()
        self._over = Event()
        self._started = 0
        self.first: ResultKind | None = None  # None while the first attempt runs

    def run(self, delay_us: int) -> CallResult[T]:
        """Return the first good result, else the last; a bug is raised."""
        try:
            return self._run(delay_us)
        finally:
            self._over.set()

    def _run(self, delay_us: int) -> CallResult[T]:
        hedge, failed = self._races.hedge, 0
        self._start()
        while True:
            late = failed == 0 and delay_us != NEVER and self._started <= hedge.settings.hedges_max
            try:
                number, found = self._ended.get(timeout=delay_us / 1_000_000 if late else None)
            except Empty:
                with self._races.guard:
                    may_send = hedge.may_send(self._request, self._races.clock.now_us())
                if may_send:
                    self._start()
                else:
                    delay_us = NEVER
                continue
            if isinstance(found, BaseException):
                raise found
            if number == 0:
                self.first = found.kind
            if found.kind in _WINS:
                if number > 0:
                    with self._races.guard:
                        hedge.count_win()
                return found
            failed += 1
            if failed == self._started:
                return found

    def _start(self) -> None:
        races, number = self._races, self._started

        def run() -> None:
            try:
                found: CallResult[T] | BaseException = self._work(number)
            except BaseException as error:
                found = error
                if self._over.is_set():
                    _log.exception("a bug in an attempt that was given up")
            with races.guard:
                races.running -= 1
            self._ended.put((number, found))

        self._started += 1
        with races.guard:
            races.running += 1
        try:
            name = f"sluicegate attempt {number}"
            Thread(target=copy_context().run, args=(run,), name=name, daemon=True).start()
        except RuntimeError:  # the process cannot start a thread
            with races.guard:
                races.running -= 1
            raise
