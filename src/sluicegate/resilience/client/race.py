"""Race: a hedge for work that blocks. Each attempt has a thread, and the first good result wins.

It is `policies/hedge.py` for threads. While nothing is known of what is late, and with
`THREADS_MAX` attempts running, the caller's own thread makes the only attempt. A thread cannot be
stopped: an attempt that loses runs to its end, so its driver should have a time-out.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Final, TypeAlias, TypeVar, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.request import Request
from sluicegate.kernels.verdict import NEVER
from sluicegate.policies.call_result import CallResult, ResultKind
from sluicegate.policies.hedge import Hedge

T = TypeVar("T")

THREADS_MAX: Final = 100  # as many as hang in one backend's time-out at 20 late calls a second
_WINS: Final = (ResultKind.OK, ResultKind.REJECTED)
# The number of an attempt, and its result or what it has raised.
_Ends: TypeAlias = "SimpleQueue[tuple[int, CallResult[T] | BaseException]]"


@final
class ThreadRace:
    """The races of one client."""

    __slots__ = ("_clock", "_guard", "_hedge", "running")

    def __init__(self, hedge: Hedge, clock: Clock, guard: Lock) -> None:
        self._hedge = hedge
        self._clock = clock
        self._guard = guard
        self.running = 0  # threads

    def run(self, work: Callable[[int], CallResult[T]], request: Request) -> CallResult[T]:
        """Return the first good result; `work` is called for each attempt with its number."""
        hedge, began_us = self._hedge, self._clock.now_us()
        with self._guard:
            delay_us = hedge.begin(request, began_us, idempotent=True)
            if self.running >= THREADS_MAX:
                delay_us = NEVER
        first: list[ResultKind | None] = [None]
        known = True
        try:
            if delay_us == NEVER:
                result = work(0)
                first[0] = result.kind
                return result
            return self._race(work, request, delay_us, first)
        except BaseException:
            known = False
            raise
        finally:
            now_us = self._clock.now_us()
            if known:
                with self._guard:
                    hedge.learn(request, first[0], now_us - began_us, now_us)

    def _race(
        self,
        work: Callable[[int], CallResult[T]],
        request: Request,
        delay_us: int,
        first: list[ResultKind | None],
    ) -> CallResult[T]:
        ended: _Ends[T] = SimpleQueue()
        started, waiting, worst = 1, 1, None
        self._start(work, 0, ended)
        while True:
            late = (
                worst is None and delay_us != NEVER and started <= self._hedge.settings.hedges_max
            )
            try:
                number, found = ended.get(timeout=delay_us / 1_000_000 if late else None)
            except Empty:
                with self._guard:
                    may_send = self._hedge.may_send(request, self._clock.now_us())
                if may_send:
                    self._start(work, started, ended)
                    started, waiting = started + 1, waiting + 1
                else:
                    delay_us = NEVER
                continue
            if isinstance(found, BaseException):
                raise found
            if number == 0:
                first[0] = found.kind
            if found.kind in _WINS:
                if number > 0:
                    with self._guard:
                        self._hedge.count_win()
                return found
            worst, waiting = found, waiting - 1
            if waiting == 0:
                return worst

    def _start(self, work: Callable[[int], CallResult[T]], number: int, ended: _Ends[T]) -> None:
        def run() -> None:
            try:
                found: CallResult[T] | BaseException = work(number)
            except BaseException as error:
                found = error
            with self._guard:
                self.running -= 1
            ended.put((number, found))

        with self._guard:
            self.running += 1
        try:
            name = f"sluicegate attempt {number}"
            Thread(target=copy_context().run, args=(run,), name=name, daemon=True).start()
        except RuntimeError:  # no thread is to be had
            with self._guard:
                self.running -= 1
            raise
