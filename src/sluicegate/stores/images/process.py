"""Process: one image worker as the service holds it. It is asked, or it is killed.

An answer that is not one (a length over the bound, a head that is no JSON, a field of another type)
is what a worker says that is no longer itself: it counts as dead.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from mmap import mmap
from typing import Final, TypeVar, final

from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.image import ImageErrorKind, ImageFailure
from sluicegate.stores.images.confinement import PROTECTIONS
from sluicegate.stores.images.messages import (
    HEAD_BYTES_MAX,
    LENGTHS,
    WorkerMessage,
    decode_head,
    encode_message,
    share_body,
)
from sluicegate.stores.images.settings import ImageWorkerSettings

if sys.platform == "linux":
    from fcntl import F_ADD_SEALS, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, fcntl

T = TypeVar("T")

WHAT: Final = "the image workers"
MODULE: Final = "sluicegate.stores.images.worker"
# All that a decoder gets to know of where it runs. Tokens and passwords are in the others.
_ENVIRONMENT: Final = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TMPDIR")
# The allocator keeps what one image needed for the next, instead of asking the kernel for 500 pages
# each time, which is 3% of the work.
_LIBRARY: Final = {
    "VIPS_CONCURRENCY": "1",
    "VIPS_BLOCK_UNTRUSTED": "1",
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_TRIM_THRESHOLD_": str(32 << 20),
    "MALLOC_MMAP_THRESHOLD_": str(4 << 20),
}
_READ_BYTES: Final = 1 << 20
# An original up to here is handed over in memory that both have, where it is decoded: a pipe takes
# it in many pieces, each of which wakes both sides. To copy a larger one would hold up the loop.
_SHARED_BYTES_MAX: Final = 4 << 20
_ERRORS_BYTES_MAX: Final = 4_096
_MICROSECONDS: Final = 1_000_000
_END_S: Final = 5  # between its last word and its end
_NO_MEMORY: Final = ("memory", "allocate")


class WorkerDiedError(Exception):
    """A worker that will not answer any more; `failure` is what to think of its job."""

    def __init__(self, failure: ImageFailure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


@final
class ImageProcess:
    """A process that has said which engine it has. One job at a time."""

    def __init__(
        self, process: Process, settings: ImageWorkerSettings, shared: mmap | None
    ) -> None:
        self.engine = ""
        self.missing: dict[str, str] = {}  # protections, and why
        self.jobs = 0
        self._process = process
        self._shared = shared
        self._answer_bytes_max = settings.answer_bytes_max
        self._errors = b""
        self._reading = False
        self._listening = asyncio.create_task(self._listen())

    @property
    def pid(self) -> int:
        """Its number in the system."""
        return self._process.pid

    async def ask(self, job: WorkerMessage, read: Callable[[WorkerMessage], T]) -> T:
        """Return what `read` makes of the answer; a `WorkerDiedError` if there will be none."""
        self.jobs += 1
        writer = self._process.stdin
        assert writer is not None
        try:
            if self._shared is not None and 0 < len(job.body) <= len(self._shared):
                job = share_body(job, self._shared)
            writer.write(encode_message(job))
            if job.body:
                writer.write(job.body)
            await writer.drain()
            self._reading = True
            try:
                answer = await self._read()
            finally:
                self._reading = False
            return read(answer)
        except (ImageFailure, Unavailable):  # whole answers
            raise
        except Exception as error:
            # Of an answer that was not read to its end, the rest would be the next job's.
            raise WorkerDiedError(await self._autopsy(error)) from None

    async def greet(self) -> None:
        """Wait until it is ready, and learn its engine and its missing protections."""
        try:
            head = (await self._read()).head
            self.engine = str(head["engine"])
            missing = dict(head.get("missing", {}))
            self.missing = {name: str(missing[name]) for name in PROTECTIONS if missing.get(name)}
        except (OSError, EOFError, ValueError, KeyError):
            await self.kill()
            raise Unavailable(WHAT, f"one does not start: {self._last_line()}") from None

    async def kill(self) -> None:
        """End it, and wait until it is gone."""
        with suppress(ProcessLookupError):
            self._process.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        if not self._reading and self._process.stdout is not None:
            # Of a pipe that nobody empties the end is not seen, nor that of the process.
            while await self._process.stdout.read(_READ_BYTES):
                pass
        await self._process.wait()
        await self._listening
        if self._shared is not None:
            self._shared.close()

    async def _read(self) -> WorkerMessage:
        reader = self._process.stdout
        assert reader is not None
        head_bytes, body_bytes = LENGTHS.unpack(await reader.readexactly(LENGTHS.size))
        if head_bytes > HEAD_BYTES_MAX or body_bytes > self._answer_bytes_max:
            raise ValueError(f"an answer of {body_bytes} bytes")
        head = decode_head(await reader.readexactly(head_bytes))
        return WorkerMessage(head, await reader.readexactly(body_bytes) if body_bytes else b"")

    async def _listen(self) -> None:
        """Keep the end of what it says of its errors."""
        assert self._process.stderr is not None
        while piece := await self._process.stderr.read(_ERRORS_BYTES_MAX):
            self._errors = (self._errors + piece)[-_ERRORS_BYTES_MAX:]

    async def _autopsy(self, error: Exception) -> ImageFailure:
        """Say what the job is, of which it died."""
        if not isinstance(error, OSError | EOFError):
            await self.kill()
            return ImageFailure(ImageErrorKind.CORRUPT, f"the decoder answered nonsense: {error}")
        # Its pipes are shut, so it ends, if it has not; nothing is lost by making sure.
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await self._process.wait()
        await self.kill()
        code = self._process.returncode or 0
        how = signal.Signals(-code).name if code < 0 else f"exit {code}"
        detail = f"the decoder died of it ({how}): {self._last_line()}"
        if code == -signal.SIGKILL or any(word in self._last_line() for word in _NO_MEMORY):
            # It is the kernel that kills so, when there is no memory left.
            return ImageFailure(ImageErrorKind.NO_MEMORY, detail)
        return ImageFailure(ImageErrorKind.CORRUPT, detail)

    def _last_line(self) -> str:
        lines = self._errors.decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip() if lines else "it said nothing"


async def start_process(settings: ImageWorkerSettings) -> ImageProcess:
    """Start a worker and wait until it is ready; `Unavailable` if it is not in time."""
    shared = _open_shared()
    options = {
        "shared": None if shared is None else (shared, _SHARED_BYTES_MAX),
        "memory_bytes_max": settings.memory_bytes_max,
        "limits": settings.limits._asdict(),
        "read": list(settings.read_paths),
    }
    known = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # no module is taken from the folder that this process is in
            "-m",
            MODULE,
            json.dumps(options),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=known | _LIBRARY,
            limit=_READ_BYTES,
            pass_fds=() if shared is None else (shared,),
            start_new_session=True,  # Ctrl-C is for the service, which ends its workers
        )
        memory = None if shared is None else mmap(shared, _SHARED_BYTES_MAX)
    finally:
        if shared is not None:
            os.close(shared)
    worker = ImageProcess(process, settings, memory)
    try:
        async with asyncio.timeout(settings.start_us / _MICROSECONDS):
            await worker.greet()
    except TimeoutError:
        await worker.kill()
        raise Unavailable(WHAT, "one is not ready within start_us") from None
    except BaseException:
        await worker.kill()
        raise
    return worker


def _open_shared() -> int | None:
    """Memory as a file without a name, where there is such a thing.

    Its size is sealed: a worker that could cut it would end the service, which writes into it.
    """
    if sys.platform != "linux":
        return None
    file = os.memfd_create("sluicegate-image", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file, _SHARED_BYTES_MAX)
    fcntl(file, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)
    return file
