"""RocksDB: the embedded engine for tables that are mostly written; one process at a time.

Writes go into a log and into memory, and become sorted files later, so they cost no seek and leave
no holes; reads pay for it by looking into several files. Writes of many tasks are one batch and one
sync (`group_commit.py`). Keys are made as for LMDB (`bounds.key_of`); under the number 0, which no
space has, lies what the engine must remember:

    0 format          the version of all this, as text
    0 next            the number that the next new space gets
    0 name + space    that space's number

RocksDB verifies checksums itself. A row that fails them is `DataLoss`. After a failed write it
refuses others for good; the outcome of that write is unknown. The database is opened again then,
with a growing pause, and `health` reports the state meanwhile.

A dropped space loses its name and all its rows in one batch, by a range: whatever has been written
there costs nothing more, and its room comes back as files are compacted.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, final

import rocksdict

from sluicegate.contracts.engine import (
    Change,
    EngineHealth,
    EnginePage,
    Entry,
    KeyRange,
    Place,
    Update,
)
from sluicegate.contracts.errors import (
    BadValue,
    DataLoss,
    OutcomeUnknown,
    SluicegateError,
    Unavailable,
)
from sluicegate.stores.engines.batches import runs_of
from sluicegate.stores.engines.bounds import (
    NUMBER_MAX,
    WALK_BYTES_MAX,
    behind,
    check_after,
    check_changes,
    check_place,
    check_rows_max,
    check_space,
    check_update,
    decide_changes,
    key_of,
    number_bytes,
    place_of,
    prefix_of,
    swap_of,
)
from sluicegate.stores.engines.damage import DamageLog
from sluicegate.stores.engines.folders import (
    check_backup_folder,
    check_not_emptied,
    check_owner,
    mark_created,
    sync_folder,
    was_created,
)
from sluicegate.stores.engines.group_commit import WAY_CHANGES, CommitCall, GroupCommitter, give_way
from sluicegate.stores.engines.recovery import Recovery
from sluicegate.stores.engines.rocksdb.url import RocksSettings

FORMAT: Final = 1
_OWN: Final = number_bytes(0)
_FORMAT_KEY: Final = _OWN + b"format"
_NEXT_KEY: Final = _OWN + b"next"
_PROBE_KEY: Final = _OWN + b"probe"  # written to test whether it takes writes
_READ_ONLY: Final = rocksdict.AccessType.read_only(False)
_NAME: Final = _OWN + b"name"
_log: Final = logging.getLogger("sluicegate.kv")


@final
class _Batch:
    """One group in the making: what is written, and what an update behind it must see."""

    __slots__ = ("changes", "names", "next", "rows", "written")

    def __init__(self, next_number: int) -> None:
        self.rows = rocksdict.WriteBatch(raw_mode=True)
        self.written: dict[bytes, bytes | None] = {}
        self.names: dict[str, bytes | None] = {}  # allotted, or None for dropped
        self.next = next_number
        self.changes = 0


@final
class RocksEngine:
    """Ordered bytes in one RocksDB."""

    def __init__(self, settings: RocksSettings) -> None:
        self.name = "rocksdb"
        self.shared = False  # the database is locked by its process
        self._settings = settings
        self._what = f"the engine rocksdb:{settings.folder}"
        self._closed = False
        self._write_options = rocksdict.WriteOptions()
        self._write_options.sync = settings.sync
        self._damage = DamageLog("the engine rocksdb")
        self._recovery = Recovery("the engine rocksdb")
        # Held while this process reads, and while the database is opened again.
        self._reading = threading.Lock()
        check_owner("rocksdb", settings.folder)
        check_not_emptied("rocksdb", settings.folder, "CURRENT")
        self._db = self._open()
        self._check_format()
        try:
            mark_created(settings.folder, "rocksdb")
        except OSError as error:
            raise BadValue("rocksdb.folder", settings.folder, f"give a folder: {error}") from error
        self._next = int(self._db.get(_NEXT_KEY) or 1)
        self._numbers = self._read_names()
        self.committer = GroupCommitter(
            "the engine rocksdb", self._commit, settings.group, step=self._step
        )
        # Whoever opens it is told where it is; a caller's reply names no folder of this machine.
        self._what = "the engine rocksdb"

    @property
    def durability(self) -> str:
        """What an acknowledgement means."""
        if self._settings.sync:
            return "in the log on this machine's disk, synced: survives a kill and a loss of power"
        return (
            "in the log, with the operating system, not synced: it survives a kill of this"
            " process; a loss of power loses what was not yet on disk"
        )

    def read(self, space: str, places: Sequence[Place]) -> Sequence[bytes | None]:
        """The values at these places, of one instant."""
        for partition, sort in places:
            check_place(partition, sort)
        number = self._number(space)
        if number is None:
            return [None] * len(places)
        try:
            with self._reading:
                if len(places) == 1:
                    return [self._db.get(key_of(number, *places[0]))]
                values = self._db.get([key_of(number, *place) for place in places])
        except Exception as error:
            raise self._failure(error) from error
        return list(values or ())

    def scan(self, space: str, partition: bytes, span: KeyRange) -> EnginePage:
        """Rows of one partition, from either side, of one instant."""
        check_place(partition, b"")
        begin, end, reverse, rows_max, bytes_max = span
        check_rows_max(rows_max)
        number = self._number(space)
        if number is None:
            return EnginePage((), False, 0, 0)
        prefix = prefix_of(number, partition)
        low = prefix + begin
        high = behind(prefix) if end is None else prefix + end
        if low >= high:
            return EnginePage((), False, 0, 0)
        page_rows: list[tuple[bytes, bytes]] = []
        size = 0
        try:
            with self._reading:
                rows = self._at_last(high) if reverse else self._at_first(low)
                onward = rows.prev if reverse else rows.next
                while rows.valid() and low <= (key := rows.key()) < high:
                    if page_rows and (len(page_rows) >= rows_max or size >= bytes_max):
                        return EnginePage(page_rows, True, len(page_rows), size)
                    sort: bytes = key[len(prefix) :]
                    value: bytes = rows.value()
                    page_rows.append((sort, value))
                    size += len(sort) + len(value)
                    onward()
                rows.status()  # raises if it ended because of an error
        except Exception as error:
            raise self._failure(error) from error
        return EnginePage(page_rows, False, len(page_rows), size)

    async def write(self, changes: Sequence[Change]) -> None:
        """Make them, all or none, synced."""
        weight = check_changes(changes)
        if changes:
            await self.committer.commit(CommitCall(changes, weight))
        else:
            self._check_open()

    async def swap(self, change: Change, expected: bytes | None) -> bool:
        """Make it if the value there is `expected`."""
        check_changes([change])
        return await self.update(swap_of(change, expected))

    async def update(self, update: Update) -> bool:
        """Read, decide and write behind all that was committed before, synced."""
        return await self.committer.commit(CommitCall((), check_update(update), update=update))

    async def load(self, space: str, entries: Sequence[Entry]) -> None:
        """Write many, a good deal at a time."""
        check_space(space)
        self._check_open()
        for some in runs_of(space, entries):
            await self.write(some)

    async def walk(self, space: str, after: Place | None, rows_max: int) -> Sequence[Entry]:
        """Entries in the order of their keys: shorter partitions first."""
        check_rows_max(rows_max)
        check_after(after)
        number = self._number(space)
        if number is None:
            return ()
        start = number if after is None else key_of(number, *after) + b"\0"
        entries: list[Entry] = []
        size = 0
        try:
            with self._reading:
                rows = self._at_first(start)
                while rows.valid() and len(entries) < rows_max and size < WALK_BYTES_MAX:
                    key = rows.key()
                    if not key.startswith(number):
                        break
                    partition, sort = place_of(key)
                    value: bytes = rows.value()
                    entries.append((partition, sort, value))
                    size += len(value)
                    rows.next()
                rows.status()
        except Exception as error:
            raise self._failure(error) from error
        return entries

    async def drop(self, space: str) -> None:
        """Forget its name and its rows, in one batch."""
        check_space(space)
        await self.committer.commit(CommitCall((), 0, drop=space))

    def shard_of(self, space: str, partition: bytes) -> str:
        """One database is one shard."""
        return "rocksdb"

    async def backup(self, folder: str) -> int:
        """A checkpoint in an empty folder; start another engine on it to restore.

        On the same file system its files are links, and it takes no room until they are compacted.
        """
        self._check_open()
        check_backup_folder(folder, self._settings.folder)
        return await asyncio.to_thread(self._checkpoint, folder)

    async def close(self) -> None:
        """Commit what waits, and close the database."""
        if self._closed:
            return
        self._closed = True
        await self.committer.close()
        try:
            with self._reading:
                self._db.close()
        except Exception as error:  # what it could not write it cannot close
            # Nothing acknowledged is lost by that: it is in the log, which the next start reads.
            _log.warning("closing: %s", self._failure(error))

    def health(self) -> EngineHealth:
        """Whether it can be used now, and how many reads have met damage."""
        return EngineHealth(self.committer.fault or self._recovery.why, self._damage.count)

    # Reading.

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable(self._what, "it was closed")

    def _number(self, space: str) -> bytes | None:
        self._check_open()
        number = self._numbers.get(space)
        if number is None:
            check_space(space)
        return number

    def _at_first(self, low: bytes) -> rocksdict.RdictIter:
        rows = self._db.iter()
        rows.seek(low)
        return rows

    def _at_last(self, high: bytes) -> rocksdict.RdictIter:
        """At the last row before `high`."""
        rows = self._db.iter()
        rows.seek_for_prev(high)
        if rows.valid() and rows.key() == high:
            rows.prev()
        return rows

    # On the committer's thread.

    def _commit(self, calls: Sequence[CommitCall]) -> list[bool]:
        if self._recovery.why:
            self._recover()
        batch = _Batch(self._next)
        try:
            results = [self._make(batch, call) for call in calls]
        except SluicegateError:
            raise
        except Exception as error:
            raise self._failure(error) from error
        if batch.rows.len():  # a sync for nothing would cost those who wait
            self._write(batch)
        self._next = batch.next
        for space, number in batch.names.items():
            if number is None:
                self._numbers.pop(space, None)
            else:
                self._numbers[space] = number
        return results

    def _write(self, batch: _Batch) -> None:
        """Write a batch; after a failure its record may be in the log, and others are refused."""
        try:
            self._db.write(batch.rows, self._write_options)
        except Exception as error:
            failure = self._failure(error)
            if "No space left" in str(error):  # RocksDB itself goes on once there is room
                raise failure from error
            self._recovery.lose(failure.detail)
            raise OutcomeUnknown(self._what, failure.detail) from error

    def _step(self) -> bool:
        """Recover if need be."""
        if self._recovery.why:
            self._recover()
        return False

    def _recover(self) -> None:
        """Open the database again, and test that it takes writes; `Unavailable` if not."""
        recovery = self._recovery
        if not recovery.begin_attempt():
            raise Unavailable(self._what, recovery.why)
        with self._reading:
            if self._closed:
                raise Unavailable(self._what, "it was closed")
            with suppress(Exception):  # what it could not write it cannot close
                self._db.close()
            try:
                self._db = self._open()
                self._db.put(_PROBE_KEY, b"", self._write_options)
            except Exception as error:
                self._open_to_read()
                raise self._failure(error) from error
            self._next = int(self._db.get(_NEXT_KEY) or 1)
            self._numbers = self._read_names()
        recovery.end()

    def _open_to_read(self) -> None:
        """Open it without a write, so that reads continue while the disk takes none."""
        with suppress(Exception):
            self._db.close()
        with suppress(Exception):
            self._db = rocksdict.Rdict(
                self._settings.folder, self._options(), access_type=_READ_ONLY
            )

    def _make(self, batch: _Batch, call: CommitCall) -> bool:
        if call.drop:
            self._drop(batch, call.drop)
            return True
        changes, update = call.changes, call.update
        if update is not None:
            changes = decide_changes(update, self._values(batch, update))
        for space, partition, sort, value, _ in changes:
            number = self._find(batch, space)
            if number is None:
                if value is None:
                    continue
                number = self._allot(batch, space)
            key = key_of(number, partition, sort)
            if value is None:
                batch.rows.delete(key)
            else:
                batch.rows.put(key, value)
            batch.written[key] = value
            batch.changes += 1
            if not batch.changes % WAY_CHANGES:
                give_way()
        return update is None or bool(changes)

    def _values(self, batch: _Batch, update: Update) -> list[bytes | None]:
        """Return the values that the batch leaves where an update looks."""
        number = self._find(batch, update.space)
        if number is None:
            return [None] * len(update.sorts)
        keys = [key_of(number, update.partition, sort) for sort in update.sorts]
        written = batch.written
        return [written[key] if key in written else self._db.get(key) for key in keys]

    def _find(self, batch: _Batch, space: str) -> bytes | None:
        if space in batch.names:
            return batch.names[space]
        return self._numbers.get(space)

    def _allot(self, batch: _Batch, space: str) -> bytes:
        if batch.next > NUMBER_MAX:
            raise Unavailable(self._what, "all numbers for spaces are used; restore into new")
        number = number_bytes(batch.next)
        batch.next += 1
        batch.rows.put(_NEXT_KEY, b"%d" % batch.next)
        batch.rows.put(_NAME + space.encode(), number)
        batch.names[space] = number
        return number

    def _drop(self, batch: _Batch, space: str) -> None:
        number = self._find(batch, space)
        if number is not None:
            batch.rows.delete(_NAME + space.encode())
            batch.rows.delete_range(number, behind(number))
            batch.names[space] = None

    # Opening, and copying.

    def _options(self) -> rocksdict.Options:
        settings = self._settings
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(not was_created(settings.folder))
        options.set_write_buffer_size(settings.buffer_bytes)
        options.set_max_open_files(settings.files_max)
        options.set_max_background_jobs(settings.jobs_max)
        options.set_keep_log_file_num(4)
        options.set_max_log_file_size(16 << 20)
        return options

    def _open(self) -> rocksdict.Rdict:
        settings = self._settings
        try:
            os.makedirs(settings.folder, mode=0o700, exist_ok=True)
            return rocksdict.Rdict(settings.folder, self._options())
        except OSError as error:
            raise BadValue("rocksdb.folder", settings.folder, f"give a folder: {error}") from error
        except Exception as error:
            raise self._failure(error) from error

    def _check_format(self) -> None:
        text = self._db.get(_FORMAT_KEY)
        if text is None:
            self._db.put(_FORMAT_KEY, b"%d" % FORMAT, self._write_options)
        elif text != b"%d" % FORMAT:
            self._db.close()
            raise Unavailable(
                self._what,
                f"its format is {text[:20].decode('ascii', 'replace')} and this is Sluicegate for"
                f" format {FORMAT}; start the version of Sluicegate that wrote it, or a newer one",
            )

    def _read_names(self) -> dict[str, bytes]:
        names: dict[str, bytes] = {}
        rows = self._at_first(_NAME)
        while rows.valid() and (key := rows.key()).startswith(_NAME):
            names[key[len(_NAME) :].decode()] = rows.value()
            rows.next()
        rows.status()
        return names

    def _checkpoint(self, folder: str) -> int:
        if os.path.isdir(folder) and os.listdir(folder):
            raise BadValue("backup", folder, "give an empty folder")
        beside = ""
        try:
            parent, name = os.path.split(folder.rstrip("/"))
            os.makedirs(parent, mode=0o700, exist_ok=True)
            # RocksDB makes a folder that all may read. Until it is closed to them, it lies in one
            # that is: nobody sees it open, not even in passing.
            beside = tempfile.mkdtemp(prefix=f".{name[:100]}-", dir=parent)
            copy = os.path.join(beside, "copy")
            rocksdict.Checkpoint(self._db).create_checkpoint(copy)
            os.chmod(copy, 0o700)
            os.rename(copy, folder)  # in the place of an empty one; never of one with something
            mark_created(folder, "rocksdb")
            sync_folder(parent)
            return sum(entry.stat().st_size for entry in os.scandir(folder))
        except OSError as error:
            raise BadValue("backup", folder, f"give an empty folder: {error}") from error
        except Exception as error:
            raise self._failure(error) from error
        finally:
            if beside:
                shutil.rmtree(beside, ignore_errors=True)

    def _failure(self, error: Exception) -> DataLoss | Unavailable:
        if str(error).startswith("Corruption"):
            return self._damage.found("a checksum of RocksDB does not fit")
        detail = str(error).replace(f"{self._settings.folder.rstrip('/')}/", "")
        if "lock" in detail.lower():
            detail += "; one process at a time may open it: end the other, or use lmdb:DIR"
        elif "No space left" in detail:
            # RocksDB looks every five seconds, and flushes before it takes writes again.
            room = f"{self._settings.buffer_bytes:,} bytes (buffer_bytes) or more"
            detail += f"; the disk is full: make room on it, {room}, and it goes on within seconds"
        elif "File too large" in detail:
            detail += "; a file may not grow further: raise that bound, and it goes on"
        return Unavailable(self._what, detail)
