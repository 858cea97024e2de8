"""Workers: the processes that run the WSGI application, and the threads that are free in them.

Each worker listens on a Unix socket in a private folder and has `threads` threads for requests that
were admitted, and one more for paths that bypass the queue, so that a health check is answered
while all others are busy. No worker is ever sent more than that.

A worker that ends is replaced; the requests that it was serving fail with `WorkerLostError`. A
worker ends when its standard input does, so it does not outlive this process. It leaves SIGTERM and
SIGINT to this process, because a terminal or a supervisor sends both to all processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, final

from sluicegate.apps.resilience.serve.upstream import Upstream, WorkerLostError
from sluicegate.contracts.errors import Unavailable
from sluicegate.system import now_us

# Waitress closes a connection that was idle for 120 s; ours must be gone before, or a request
# could be sent on a connection that is about to close.
IDLE_US_MAX: Final = 60_000_000
_CHECK_S: Final = 0.02  # whether a worker that starts listens yet
_END_S_MAX: Final = 0.5  # from the end of a connection to that of its process
_RESTART_S: Final = (0.0, 0.2, 1.0, 5.0)  # by the number of starts in a row that failed
_STOP_S: Final = 6.0  # a worker waits 5 s for its threads
_MODULE: Final = "sluicegate.apps.resilience.serve.worker"
_log: Final = logging.getLogger("sluicegate.resilience.serve")


@final
class Worker:
    """One process, and the open connections to it that are idle."""

    def __init__(self, number: int, path: Path, process: asyncio.subprocess.Process) -> None:
        self.number = number
        self.path = path
        self.process = process
        self.ended = False
        self._has_ended = asyncio.Event()
        self._idle: list[Upstream] = []

    async def connect(self) -> Upstream:
        """Return a connection; raise `OSError` if nothing listens."""
        since_us = now_us() - IDLE_US_MAX
        while self._idle:
            upstream = self._idle.pop()
            if upstream.reusable and upstream.idle_since_us > since_us:
                return upstream
            upstream.abort()
        loop = asyncio.get_running_loop()
        _, upstream = await loop.create_unix_connection(Upstream, str(self.path))
        return upstream

    def release(self, upstream: Upstream) -> None:
        """Keep the connection for another request, or close it."""
        if upstream.reusable and not self.ended:
            upstream.idle_since_us = now_us()
            self._idle.append(upstream)
        else:
            upstream.abort()

    async def wait_end(self) -> None:
        """Wait shortly for the process to end: its connections close a little earlier."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_S_MAX):
                await self._has_ended.wait()

    def stop(self) -> None:
        """Let the process end by itself."""
        if self.process.stdin is not None:
            self.process.stdin.close()

    def end(self) -> None:
        """Close the idle connections."""
        self.ended = True
        self._has_ended.set()
        for upstream in self._idle:
            upstream.abort()
        self._idle.clear()


@final
class ThreadBook:
    """Free threads of all workers; requests wait for one in arrival order."""

    def __init__(self, threads: int, waiting_max: int) -> None:
        self._threads = threads
        self._waiting_max = waiting_max
        self._busy: dict[Worker, int] = {}
        self._waiting: deque[asyncio.Future[Worker]] = deque()

    def add(self, worker: Worker) -> None:
        """Add a worker that is ready."""
        self._busy[worker] = 0
        self._hand_out()

    def remove(self, worker: Worker) -> None:
        """Remove a worker that has ended."""
        self._busy.pop(worker, None)

    @contextlib.asynccontextmanager
    async def thread(self) -> AsyncIterator[Worker]:
        """Hold one thread of the worker that has the most; raise `Unavailable` if too many wait."""
        worker = await self._take()
        try:
            yield worker
        finally:
            self._give(worker)

    async def _take(self) -> Worker:
        if len(self._waiting) >= self._waiting_max:
            raise Unavailable("a worker", f"{len(self._waiting):,} requests wait for a thread")
        future: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._hand_out()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._give(future.result())
            raise

    def _give(self, worker: Worker) -> None:
        if worker in self._busy:
            self._busy[worker] -= 1
            self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting and self._busy:
            worker = min(self._busy, key=self._busy.__getitem__)
            if self._busy[worker] >= self._threads:
                return
            future = self._waiting.popleft()
            if not future.done():
                self._busy[worker] += 1
                future.set_result(worker)


@final
class Workers:
    """Keeps `count` workers alive between `start` and `stop`."""

    def __init__(self, target: str, count: int, threads: int, folder: Path) -> None:
        self.threads = ThreadBook(threads, waiting_max=sys.maxsize)  # the queue in front bounds it
        self.spare = ThreadBook(1, waiting_max=64 * count)  # of paths that bypass that queue
        self._arguments = (target, str(threads + 1))
        self._count = count
        self._folder = folder
        self._starts = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._workers: set[Worker] = set()
        self._stopping = False

    async def start(self) -> None:
        """Start all workers; raise `Unavailable` if one ends before it is ready."""
        ready = [asyncio.get_running_loop().create_future() for _ in range(self._count)]
        for number, future in enumerate(ready):
            self._tasks.append(asyncio.create_task(self._keep(number, future)))
        await asyncio.gather(*ready)

    async def stop(self) -> None:
        """End all workers."""
        self._stopping = True
        for worker in self._workers:
            worker.stop()
        try:
            async with asyncio.timeout(_STOP_S):
                await asyncio.gather(*self._tasks, return_exceptions=True)
        except TimeoutError:
            for worker in self._workers:
                worker.process.kill()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep(self, number: int, ready: asyncio.Future[None]) -> None:
        """Start the worker of this number again whenever it ends."""
        failures = 0
        while True:
            worker = await self._spawn(number)
            self._workers.add(worker)
            if self._stopping:
                worker.stop()
            ended = asyncio.create_task(worker.process.wait())
            if await _listens(worker, ended):
                failures = 0
                self.threads.add(worker)
                self.spare.add(worker)
                if not ready.done():
                    ready.set_result(None)
            else:
                failures += 1
            code = await ended
            for book in (self.threads, self.spare):
                book.remove(worker)
            worker.end()
            self._workers.discard(worker)
            worker.path.unlink(missing_ok=True)
            if self._stopping:
                return
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            if not ready.done():
                detail = f"it ended with {how} before it was ready; its error is above this line"
                ready.set_exception(Unavailable(f"worker {number}", detail))
                return
            _log.error("worker %d (process %d) ended with %s; it is restarted; check its output",
                       number, worker.process.pid, how)  # fmt: skip
            await asyncio.sleep(_RESTART_S[min(failures, len(_RESTART_S) - 1)])

    async def _spawn(self, number: int) -> Worker:
        self._starts += 1
        path = self._folder / str(self._starts)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", _MODULE, str(path), *self._arguments,
            stdin=asyncio.subprocess.PIPE,
        )  # fmt: skip
        return Worker(number, path, process)


async def _listens(worker: Worker, ended: asyncio.Task[int]) -> bool:
    """Wait until the worker accepts connections; False if it ends before."""
    while not ended.done():
        try:
            worker.release(await worker.connect())
        except OSError:
            await asyncio.wait([ended], timeout=_CHECK_S)
        else:
            return True
    return False


__all__ = ["IDLE_US_MAX", "ThreadBook", "Worker", "WorkerLostError", "Workers"]
