"""Calls: work that waits, in threads of its own, so that the loop never does.

So many are worked on, so many wait for a thread; one more is refused at once, because a queue
without an end helps nobody. One caller never takes all the places. What has begun goes on though
nobody listens any more, and keeps its place until it is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Final, TypeVar, final

T = TypeVar("T")


@final
class ThreadCalls:
    """A bounded pool. Started from one loop; `under_way` counts those that wait too."""

    def __init__(
        self, name: str, *, threads_max: int, waiting_max: int, of_caller_max: int
    ) -> None:
        self._pool: Final = ThreadPoolExecutor(threads_max, thread_name_prefix=name)
        self._most: Final = threads_max + waiting_max
        self._of_caller_max: Final = of_caller_max
        self._of_caller: dict[str, int] = {}
        self._lock: Final = Lock()
        self._closed = False
        self.under_way = 0
        self.done = 0
        self.refused = 0

    def start(self, caller: str, work: Callable[[], T]) -> asyncio.Future[T] | None:
        """Have it done in a thread; None if too many wait already, or nothing is begun any more.

        To give up waiting (cancel) takes it back if no thread has begun it.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        with self._lock:
            of_caller = self._of_caller.get(caller, 0)
            full = self.under_way >= self._most or of_caller >= self._of_caller_max
            if self._closed or full:
                self.refused += 1
                return None
            job = self._pool.submit(work)
            self.under_way += 1
            self._of_caller[caller] = of_caller + 1
        answer.add_done_callback(partial(_cancel_work, job))
        job.add_done_callback(partial(self._end, caller))
        job.add_done_callback(partial(_notify_loop, loop, answer))
        return answer

    def close(self) -> None:
        """Begin nothing more. What is being done is not waited for."""
        with self._lock:
            self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _end(self, caller: str, _: Future[T]) -> None:
        with self._lock:
            self.under_way -= 1
            self.done += 1
            self._of_caller[caller] -= 1
            if not self._of_caller[caller]:
                del self._of_caller[caller]


def _cancel_work(job: Future[T], answer: asyncio.Future[T]) -> None:
    if answer.cancelled():
        job.cancel()


def _notify_loop(
    loop: asyncio.AbstractEventLoop, answer: asyncio.Future[T], done: Future[T]
) -> None:
    """In the thread that has done it; the loop may be gone by now, and nobody waits there."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(_hand_over, answer, done)


def _hand_over(answer: asyncio.Future[T], done: Future[T]) -> None:
    if answer.done():
        return
    if done.cancelled():
        answer.cancel()
        return
    error = done.exception()
    if error is None:
        answer.set_result(done.result())
    else:
        answer.set_exception(error)
