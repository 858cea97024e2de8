"""Work threads: work that blocks, for a caller that may cease to wait for it.

A thread cannot be stopped: work that is given up runs on to its end, and its starter bounds how
many there may be. A bug is raised where it is waited for, and logged in work that was given up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import copy_context
from threading import Event, Lock, Thread
from typing import Final, Generic, TypeVar, final

from sluicegate.policies.client.call_result import CallResult

T = TypeVar("T")

_log: Final = logging.getLogger("sluicegate.resilience")


@final
class WorkThread(Generic[T]):
    """One piece of work, in the context of whoever starts it."""

    __slots__ = ("_done", "_error", "_given_up", "_lock", "_name", "_result", "_work")

    def __init__(self, work: Callable[[], CallResult[T]], name: str) -> None:
        self._work = work
        self._name = name
        self._lock = Lock()  # between its end and who gives it up
        self._done = Event()
        self._given_up = False
        self._result: CallResult[T] | None = None
        self._error: BaseException | None = None

    def start(self) -> None:
        """Begin."""
        name = f"sluicegate {self._name}"
        Thread(target=copy_context().run, args=(self._run,), name=name, daemon=True).start()

    def wait(self, budget_us: int | None) -> CallResult[T] | None:
        """Return its result, or raise its bug; None once the time is over, if there is a bound."""
        if not self._done.wait(None if budget_us is None else max(budget_us, 0) / 1_000_000):
            self.give_up()
            return None
        error, self._error = self._error, None  # whoever raises it need not log it
        if error is not None:
            raise error
        return self._result

    def give_up(self) -> None:
        """Wait for it no more."""
        with self._lock:
            self._given_up = True
            self._report()

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:
            with self._lock:
                self._error = error
                self._report()
        finally:
            self._done.set()

    def _report(self) -> None:
        if self._given_up and self._error is not None:
            _log.error("%s: a bug in what was given up", self._name, exc_info=self._error)
