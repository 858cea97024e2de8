"""Attempts: tasks of the running loop that may be given up before they end.

An attempt that is given up is cancelled and not waited for. A reference is held until it has ended,
so that the garbage collector does not take it, and an error that it ends with goes to the loop's
exception handler.

Bounds: as many as their policy starts; `running` says how many have not ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar, final

from sluicegate.policies.client.call_result import CallResult, result_of

T = TypeVar("T")


@final
class Attempts:
    """The attempts of one policy that have not ended."""

    __slots__ = ("_given_up", "_running")

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._given_up: set[asyncio.Task[Any]] = set()

    @property
    def running(self) -> int:
        """How many have begun and not ended, given up or not."""
        return len(self._running)

    def start(self, work: Awaitable[CallResult[T]]) -> asyncio.Task[CallResult[T]]:
        """Begin an attempt."""
        task = asyncio.get_running_loop().create_task(result_of(work))
        self._running.add(task)
        task.add_done_callback(self._forget)
        return task

    def give_up(self, task: asyncio.Task[CallResult[T]]) -> bool:
        """Cancel an attempt; False if it had ended."""
        if task.done():
            return False
        self._given_up.add(task)
        task.cancel()
        return True

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if task not in self._given_up:
            return
        self._given_up.discard(task)
        if not task.cancelled() and task.exception() is not None:
            task.get_loop().call_exception_handler(
                {
                    "message": "an attempt that was given up ended with an error",
                    "exception": task.exception(),
                    "task": task,
                }
            )
