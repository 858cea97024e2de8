"""Workers: an image processor of several processes, each with one job, that may be killed.

A decoder of strangers' bytes crashes, loops and takes memory, and no thread can be ended for it.
So each job runs in a process of its own for as long as it takes:

- longer than `job_us`: the process is killed, and the job failed (`timeout`); what it waited for a
  processor does not count (`job_time.py`), and a job that waited too long for one is `Unavailable`;
- over its memory: it is tried again in a process that has done nothing before, then the job failed
  (`no_memory`);
- a crash: the job alone fails (`corrupt`, or `no_memory` if it was killed, as the kernel does where
  there is none), once a second process has died of it as well, since the first may have been killed
  for something else, and a third has made a picture that is known to be good: where the library is
  broken, no image is to blame (`Unavailable`);
- after `jobs_max` jobs a process is replaced, so that nothing it leaks adds up.

Jobs wait in line for a free process, `queue_max` at most; the next one is `Unavailable`, which says
nothing about its image. A caller that is cancelled does not stop its job: the process is not worth
starting anew for it, and its time is bounded.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar, final

from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.image import (
    ImageErrorKind,
    ImageFailure,
    ImageInfo,
    Original,
    Processed,
)
from sluicegate.contracts.image_spec import ImageSpec, parse_spec
from sluicegate.stores.images.job_time import JobTime
from sluicegate.stores.images.messages import (
    WorkerMessage,
    job_of,
    read_described,
    read_processed,
)
from sluicegate.stores.images.process import WHAT, ImageProcess, WorkerDiedError, start_process
from sluicegate.stores.images.settings import ImageWorkerSettings

T = TypeVar("T")
_log: Final = logging.getLogger("sluicegate.images")
_MICROSECONDS: Final = 1_000_000
# Sixteen by sixteen pixels, all of them grey.
_GOOD_PICTURE: Final = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAABAAAAAQCAAAAAA6mKC9AAAAEU"
    "lEQVR42mNsYEAFTAwjWgAAmZAAoFDIQrAAAAAASUVORK5CYII="
)
_GOOD_JOB: Final = job_of(_GOOD_PICTURE, parse_spec("w=8,format=webp"))


class ImageWorkersStats(NamedTuple):
    """The processes that there should be, those that live, and how many were replaced."""

    workers: int
    alive: int
    waiting: int  # jobs, for a process
    replaced: int
    ended: int  # since their image took too much, or they died of it
    engine: str
    unconfined: tuple[str, ...] = ()  # protections that the processes lack


class _Slot:
    """A place for a process; empty after one has died, until the next has started."""

    __slots__ = ("worker",)

    def __init__(self) -> None:
        self.worker: ImageProcess | None = None


@final
class ImageWorkers:
    """A `contracts.image.ImageProcessor`. Made by `open_image_workers`; for one event loop."""

    def __init__(self, settings: ImageWorkerSettings) -> None:
        self.settings = settings
        self.replaced = 0  # processes that died, ran over their time, or had done their jobs
        self.ended = 0  # likewise, but for those that had done their jobs
        self._engine = ""
        self._missing: dict[str, str] = {}
        self._closed = False
        self._slots = [_Slot() for _ in range(settings.workers)]
        self._free: list[_Slot] = []
        self._waiting: deque[asyncio.Future[_Slot]] = deque()
        self._tasks: set[asyncio.Task[object]] = set()

    @property
    def engine(self) -> str:
        """Name and version of the library, and of what is made with it."""
        return self._engine

    @property
    def waiting(self) -> int:
        """How many jobs wait for a process."""
        return len(self._waiting)

    @property
    def pids(self) -> list[int]:
        """The processes that there are."""
        return [slot.worker.pid for slot in self._slots if slot.worker is not None]

    def stats(self) -> ImageWorkersStats:
        """Return what there is to see."""
        alive = len(self.pids)
        return ImageWorkersStats(
            self.settings.workers,
            alive,
            self.waiting,
            self.replaced,
            self.ended,
            self._engine,
            tuple(self._missing),
        )

    async def process(self, original: Original, spec: ImageSpec) -> Processed:
        """Make what the specification says; an `ImageFailure` if there can be none."""
        return await self._run(job_of(original, spec), read_processed)

    async def describe(self, original: Original) -> ImageInfo:
        """Say what an original is, having decoded it once; an `ImageFailure` if it is none."""
        return await self._run(job_of(original, None), read_described)

    async def start(self) -> None:
        """Start all processes; `Unavailable` if one does not, and then none is left."""
        starts = [self._spawn(slot) for slot in self._slots]
        problems = [one for one in await asyncio.gather(*starts, return_exceptions=True) if one]
        if problems:
            await self.close()
            raise problems[0]
        self._free.extend(self._slots)

    async def close(self) -> None:
        """Let the jobs that run end for `close_us`, then end all processes."""
        self._closed = True
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(_closed())
        self._waiting.clear()
        try:
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=self.settings.close_us / _MICROSECONDS)
        finally:
            await asyncio.shield(self._end())

    async def _end(self) -> None:
        while self._tasks or self.pids:
            for slot in self._slots:
                worker, slot.worker = slot.worker, None
                if worker is not None:
                    await worker.kill()
            if self._tasks:
                await asyncio.wait(self._tasks)

    async def _run(self, job: WorkerMessage, read: Callable[[WorkerMessage], T]) -> T:
        slot = await self._take()
        return await asyncio.shield(self._keep(asyncio.create_task(self._serve(slot, job, read))))

    async def _take(self) -> _Slot:
        if self._closed:
            raise _closed()
        if self._free:
            # The one that was given back last: what it needs is in the caches still.
            return self._free.pop()
        if len(self._waiting) >= self.settings.queue_max:
            raise Unavailable(WHAT, f"{len(self._waiting)} jobs wait, and queue_max is that")
        waiter: asyncio.Future[_Slot] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._give(waiter.result())
            else:
                with suppress(ValueError):
                    self._waiting.remove(waiter)
            raise

    def _give(self, slot: _Slot) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(slot)
                return
        self._free.append(slot)

    async def _serve(
        self, slot: _Slot, job: WorkerMessage, read: Callable[[WorkerMessage], T]
    ) -> T:
        try:
            return await self._attempt(slot, job, read)
        finally:
            worker = slot.worker
            if worker is not None and worker.jobs < self.settings.jobs_max:
                self._give(slot)
            else:
                # The caller has its answer; the next one waits until there is a process.
                self._keep(asyncio.create_task(self._replace(slot)))

    async def _attempt(
        self, slot: _Slot, job: WorkerMessage, read: Callable[[WorkerMessage], T]
    ) -> T:
        """Ask until there is an answer, or so many processes have died of the job."""
        failure: ImageFailure | None = None
        for _ in range(self.settings.attempts_max):
            if self._closed:
                raise _closed()
            worker = slot.worker or await self._spawn_in(slot)
            try:
                return await self._ask(slot, worker, job, read)
            except ImageFailure as failed:
                if failed.kind is not ImageErrorKind.NO_MEMORY or worker.jobs == 1:
                    raise
                # The jobs before it may have left too little.
                self._lose(slot)
                await worker.kill()
                failure = failed
            except WorkerDiedError as died:
                self._lose(slot)
                failure = died.failure
        if self._closed or failure is None:
            raise _closed()
        await self._check_health(slot, failure)
        raise failure

    async def _ask(
        self,
        slot: _Slot,
        worker: ImageProcess,
        job: WorkerMessage,
        read: Callable[[WorkerMessage], T],
    ) -> T:
        """Ask while the job's time lasts; at its end the process is killed."""
        settings, loop = self.settings, asyncio.get_running_loop()
        limit = asyncio.timeout(None)
        time = JobTime(
            worker.pid,
            settings.job_us,
            settings.starved_us_max,
            lambda: limit.reschedule(loop.time()),
        )
        try:
            async with limit:
                return await worker.ask(job, read)
        except TimeoutError:
            self._lose(slot)
            await worker.kill()
            if time.starved:
                raise Unavailable(WHAT, "a job had no processor for starved_us_max") from None
            bound = settings.job_us / _MICROSECONDS
            raise ImageFailure(
                ImageErrorKind.TIMEOUT, f"it takes longer than job_us ({bound:g} s)"
            ) from None
        finally:
            time.stop()

    async def _check_health(self, slot: _Slot, failure: ImageFailure) -> None:
        """Have the next process make the good picture; `Unavailable` if it cannot."""
        worker = await self._spawn_in(slot)
        try:
            await self._ask(slot, worker, _GOOD_JOB, read_processed)
        except (ImageFailure, WorkerDiedError):
            self._lose(slot)
            await worker.kill()
            remedy = "they cannot make a good picture either; restart the service"
            raise Unavailable(WHAT, f"{failure.detail}; {remedy}") from None

    def _lose(self, slot: _Slot) -> None:
        slot.worker = None
        self.ended += 1

    async def _replace(self, slot: _Slot) -> None:
        """Put a fresh process in a slot; should it not start, the next job tries again."""
        self.replaced += 1
        worker, slot.worker = slot.worker, None
        if worker is not None:
            await worker.kill()
        if not self._closed:
            with suppress(Unavailable):
                await self._spawn(slot)
        self._give(slot)

    async def _spawn_in(self, slot: _Slot) -> ImageProcess:
        await self._spawn(slot)
        assert slot.worker is not None
        return slot.worker

    async def _spawn(self, slot: _Slot) -> None:
        worker = await start_process(self.settings)
        if self._closed:
            await worker.kill()
            raise _closed()
        if self._engine not in {"", worker.engine}:
            await worker.kill()
            raise Unavailable(WHAT, f"{self._engine} became {worker.engine}; restart the service")
        self._engine = worker.engine
        if worker.missing and not self._missing:
            self._missing = worker.missing
            for name, why in worker.missing.items():
                _log.warning("%s run without %s: %s; see sluicegate doctor", WHAT, name, why)
        slot.worker = worker

    def _keep(self, task: asyncio.Task[T]) -> asyncio.Task[T]:
        """Hold a task until it ends, and its exception even if nobody waits for it any more."""
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[T]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()


def _closed() -> Unavailable:
    return Unavailable(WHAT, "they are closed")


async def open_image_workers(settings: ImageWorkerSettings | None = None) -> ImageWorkers:
    """Start the processes; `Unavailable` says why they do not start."""
    workers = ImageWorkers(ImageWorkerSettings() if settings is None else settings)
    await workers.start()
    return workers
