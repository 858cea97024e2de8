"""Work behind: tasks that continue after their request has an answer.

Bound: `tasks_max` tasks; one more is cancelled, and the next request begins it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final, TypeVar, final

from sluicegate.contracts.errors import SluicegateError

_log: Final = logging.getLogger("sluicegate.images")

T = TypeVar("T")


@final
class WorkBehind:
    """The tasks of one event loop."""

    def __init__(self, tasks_max: int) -> None:
        self._tasks_max = tasks_max
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    async def result(self, work: Coroutine[Any, Any, T], wait_s: float) -> T | None:
        """Return the result of the work within this time; None if the work continues."""
        task = asyncio.get_running_loop().create_task(work)
        try:
            await asyncio.wait((task,), timeout=wait_s)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.done():
            return task.result()
        self._keep(task)
        return None

    def start(self, work: Coroutine[Any, Any, object]) -> None:
        """Begin work that no request waits for."""
        self._keep(asyncio.get_running_loop().create_task(work))

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        if len(self._tasks) > self._tasks_max:
            task.cancel()

    async def close(self) -> None:
        """Cancel all of them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, SluicegateError):
            _log.error("work behind an answer failed", exc_info=error)
