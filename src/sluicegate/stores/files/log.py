"""The log in files: an append queues the event; one thread writes it and makes it durable.

Events that come while a commit is under way share the next one (group commit), so a sync of the
disk is paid once for all of them. When a commit fails, its events fail, its segment is cut back and
left, and their offsets are never given again: so no reader can have seen another event there.

What was acknowledged stays. A torn tail, which a killed writer leaves, is cut when the next one
opens the log; the events in it were never acknowledged.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from threading import Condition, Thread
from typing import Final, NamedTuple, final

from sluicegate.contracts.errors import SluicegateError, Unavailable
from sluicegate.contracts.event_log import OLDEST
from sluicegate.stores.files import segments
from sluicegate.stores.files.entries import HEADER_BYTES, encode_kind, pack_entry
from sluicegate.stores.files.reader import FileReader
from sluicegate.stores.files.settings import ALWAYS, FileLogSettings

CLOSE_S_MIN: Final = 0.5  # for a writer that has nothing to do, and is only to let go
COMMIT_BYTES_MAX: Final = 4 << 20  # written and synced at once


class _PendingEvent(NamedTuple):
    at_us: int
    kind: bytes
    body: bytes
    promise: Future[int]


@final
class FileLog:
    """A `contracts.event_log.EventLog`; nothing is opened before the first append, or `begin`."""

    def __init__(self, settings: FileLogSettings) -> None:
        self.settings = settings
        self.what = segments.what(settings.folder)
        self._wake = Condition()
        self._pending: deque[_PendingEvent] = deque()
        self._bytes = 0  # of the bodies that wait
        self._commits = 0
        self._closed = False
        self._thread: Thread | None = None
        self._pid = os.getpid()
        self._lock = self._handle = -1
        self._salt = self._size = self._next = 0

    # For whoever appends.

    def begin(self) -> None:
        """Become the log's writer now; `Unavailable` if that cannot be."""
        if self._lock < 0:
            try:
                self._open()
            except OSError as error:
                raise segments.unavailable(self.settings.folder, error) from None

    def append(self, kind: str, body: bytes, at_us: int) -> Future[int]:
        """Keep one event; the promise is its offset, once it is durable. Never waits."""
        event = _PendingEvent(at_us, encode_kind(kind, body, at_us), body, Future())
        event.promise.set_running_or_notify_cancel()  # what is handed over cannot be called back
        with self._wake:
            full = self._why_full(len(body))
            if not full:
                self._pending.append(event)
                self._bytes += len(body)
                self._wake.notify()
                if self._thread is None:
                    self._thread = Thread(target=self._run, name="sluicegate-files", daemon=True)
                    self._thread.start()
        if full:
            event.promise.set_exception(Unavailable(self.what, full))
        return event.promise

    def end(self) -> int:
        """The offset behind the last event; `begin` comes first."""
        return self._next

    def reader(self, offset: int = OLDEST) -> FileReader:
        """A reader of every event from `offset` on; it sees what is written, and waits for more."""
        return FileReader(self.settings, offset)

    def close(self, grace_us: int = 0) -> None:
        """Wait at most so long for what is under way; what is not durable then fails."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        thread = self._thread
        if thread is None:
            self._release()
        else:
            thread.join(max(grace_us / 1e6, CLOSE_S_MIN))
            self._fail(self._take_all(), Unavailable(self.what, "it was closed before its turn"))

    @property
    def pending(self) -> int:
        """How many events wait for the disk."""
        return len(self._pending)

    @property
    def commits(self) -> int:
        """How many times the disk was synced for events."""
        return self._commits

    # The writer.

    def _why_full(self, size: int) -> str:
        if self._closed:
            return "it is closed"
        if self._pid != os.getpid():
            return "it was opened before a fork; open it in the child"
        if len(self._pending) >= self.settings.pending_max:
            return f"{self.settings.pending_max:,} events wait already (pending_max)"
        if self._bytes + size > self.settings.pending_bytes_max:
            return f"{self.settings.pending_bytes_max:,} bytes wait already (pending_bytes_max)"
        return ""

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._pending and not self._closed:
                    self._wake.wait()
                if not self._pending:
                    break
                if self.settings.linger_us and not self._closed:
                    self._wake.wait_for(lambda: self._closed, self.settings.linger_us / 1e6)
            self._commit(self._take_some())
        self._release()

    def _take_some(self) -> list[_PendingEvent]:
        taken: list[_PendingEvent] = []
        size = 0
        with self._wake:
            while self._pending and size < COMMIT_BYTES_MAX:
                one = self._pending.popleft()
                size += len(one.body)
                taken.append(one)
            self._bytes -= size
        return taken

    def _take_all(self) -> list[_PendingEvent]:
        with self._wake:
            taken = [*self._pending]
            self._pending.clear()
            self._bytes = 0
        return taken

    def _commit(self, batch: list[_PendingEvent]) -> None:
        try:
            self.begin()
            if self._size >= self.settings.segment_bytes_max:
                self._close_segment()
            if self._handle < 0:
                self._begin_segment(batch[-1].at_us if batch else 0)
        except (SluicegateError, OSError) as error:
            self._fail(batch, self._as_error(error))
            return
        first = self._next
        self._next += len(batch)
        data = b"".join(
            pack_entry(self._salt, first + n, one.at_us, one.kind, one.body)
            for n, one in enumerate(batch)
        )
        try:
            os.lseek(self._handle, self._size, os.SEEK_SET)
            segments.write_all(self._handle, data)
            if self.settings.sync == ALWAYS:
                os.fdatasync(self._handle)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._handle, self._size)
            self._close_segment()
            self._fail(batch, self._as_error(error))
            return
        self._commits += 1
        self._size += len(data)
        for n, one in enumerate(batch):
            one.promise.set_result(first + n)

    def _open(self) -> None:
        lock = segments.take_lock(self.settings)
        try:
            bases = segments.bases(self.settings.folder)
            if bases:
                self._resume(bases[-1])
        except BaseException:
            os.close(lock)
            raise
        self._lock = lock

    def _resume(self, base: int) -> None:
        handle = segments.open_to_write(self.settings.folder, base)
        try:
            tail = segments.tail_of(handle, base)
            if tail is None:
                self._next = segments.offset_after(
                    self.settings.folder, base, os.fstat(handle).st_size
                )
                os.close(handle)
                return
            if os.fstat(handle).st_size > tail.end:
                os.ftruncate(handle, tail.end)
                os.fsync(handle)
        except BaseException:
            os.close(handle)
            raise
        self._handle, self._salt = handle, tail.salt
        self._size, self._next = tail.end, tail.next_offset

    def _begin_segment(self, now_us: int) -> None:
        """Begin a new segment, and let old ones go."""
        self._handle, self._salt = segments.make(self.settings, self._next)
        self._size = HEADER_BYTES
        with suppress(OSError):  # what cannot be removed now is tried again at the next turn
            self._retire(now_us)

    def _retire(self, now_us: int) -> None:
        folder = self.settings.folder
        bases = segments.bases(folder)
        paths = [Path(folder, segments.name_of(base)) for base in bases]
        size = sum(path.stat().st_size for path in paths)
        for path, following in zip(paths, bases[1:], strict=False):
            # No event of a segment is newer than the first of the next.
            newest_us = segments.first_at_us(folder, following)
            newest_us = now_us if newest_us is None else newest_us
            young = newest_us >= now_us - self.settings.retain_us
            if young and size <= self.settings.retain_bytes:
                break
            size -= path.stat().st_size
            path.unlink()
        segments.sync_folder(folder)

    def _close_segment(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            if self.settings.sync != ALWAYS:
                with suppress(OSError):
                    os.fdatasync(handle)
            os.close(handle)

    def _release(self) -> None:
        self._close_segment()
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def _as_error(self, error: SluicegateError | OSError) -> SluicegateError:
        if isinstance(error, OSError):
            return segments.unavailable(self.settings.folder, error)
        return error

    def _fail(self, batch: list[_PendingEvent], error: SluicegateError) -> None:
        for one in batch:
            one.promise.set_exception(error)
