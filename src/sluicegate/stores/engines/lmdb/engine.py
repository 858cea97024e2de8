"""LMDB: the embedded engine, an ordered map in a file that all processes of a machine may share.

Reads look into the map and return at once, each in a snapshot that is released before anything
else happens: an open one keeps every later page from being reused, and the file grows. Writes are
collected and committed by one thread (`group_commit.py`), synced. How spaces are named is
described in `layout.py`, how a key is made in `../bounds.py`.

The map has a size, and a commit that does not fit into it is made again in one of twice the size.
Another process may have done the same; whoever finds a larger map adopts it. A map may not be
exchanged while this process reads from it, so reads and the exchange share a lock. An exchange that
fails (no room in the address space) leaves the environment closed; it is opened again as it was.

After a failed write of a meta page LMDB refuses everything (MDB_PANIC). The outcome of that commit
is unknown. The environment is opened again at once; reads continue, and writes as soon as a test
commit has succeeded. It is repeated with a growing pause; `health` reports the state meanwhile.

An environment must not go through a fork: each process opens its own, after it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, final

import lmdb

from sluicegate.contracts.engine import (
    Change,
    EngineHealth,
    EnginePage,
    Entry,
    KeyRange,
    Place,
    Update,
)
from sluicegate.contracts.errors import BadValue, OutcomeUnknown, SluicegateError, Unavailable
from sluicegate.stores.engines.batches import runs_of
from sluicegate.stores.engines.bounds import (
    behind,
    check_after,
    check_changes,
    check_place,
    check_rows_max,
    check_space,
    check_update,
    decide_changes,
    key_of,
    prefix_of,
    swap_of,
)
from sluicegate.stores.engines.damage import DamageLog
from sluicegate.stores.engines.folders import (
    check_backup_folder,
    check_not_emptied,
    check_owner,
    mark_created,
    was_created,
)
from sluicegate.stores.engines.group_commit import WAY_CHANGES, CommitCall, GroupCommitter, give_way
from sluicegate.stores.engines.lmdb.data_file import extend, size_of
from sluicegate.stores.engines.lmdb.layout import RowChecks, SpaceNames, seal
from sluicegate.stores.engines.lmdb.ranges import read_entries, read_page
from sluicegate.stores.engines.lmdb.url import LmdbSettings
from sluicegate.stores.engines.recovery import Recovery

DELETED_AT_ONCE_MAX: Final = 500  # rows of a dropped space in one transaction
FULL_BYTES: Final = 1 << 20  # a disk with less room than this is full


@final
class LmdbEngine:
    """Ordered bytes in one LMDB environment."""

    def __init__(self, settings: LmdbSettings) -> None:
        self.name = self.shard = "lmdb"
        self.shared = True  # by all processes of one machine
        self._settings = settings
        self._what = f"the engine lmdb:{settings.folder}"
        self._closed = False
        self._broken = False  # closed, and not open again yet
        self._recovery = Recovery("the engine lmdb")
        self._damage = DamageLog("the engine lmdb")
        self._checks = RowChecks(self._damage)
        # Held while this process reads from the map, and while the map is exchanged.
        self._reading = threading.Lock()
        check_owner("lmdb", settings.folder)
        check_not_emptied("lmdb", settings.folder, "data.mdb")
        try:
            self._env = self._open()
            self._rows = self._env.open_db(b"rows")
            self._names = SpaceNames(self._env, self._checks)
            self._env.reader_check()  # what killed readers held
            unfinished = self._prepare()
            mark_created(settings.folder, "lmdb")
        except lmdb.Error as error:
            raise self._failure(error) from error
        except OSError as error:
            raise BadValue("lmdb.folder", settings.folder, f"give a folder: {error}") from error
        self.deleting = unfinished  # whether rows of a dropped space are still to be deleted
        self._changes = 0  # ever made; now and then others have a turn amid them
        what = "the engine lmdb"
        self.committer = GroupCommitter(what, self._commit, settings.group, step=self._step)
        # Whoever opens it is told where it is; a caller's reply names no folder of this machine.
        self._what = what
        if unfinished:
            self.committer.start()

    @property
    def durability(self) -> str:
        """What an acknowledgement means."""
        if self._settings.sync:
            return "on this machine's disk, synced: it survives a kill and a loss of power"
        return (
            "with the operating system, not synced: it survives a kill of this process;"
            " a loss of power loses what was not yet on disk, and may damage the file"
        )

    def read(self, space: str, places: Sequence[Place]) -> Sequence[bytes | None]:
        """The values at these places, of one snapshot."""
        for partition, sort in places:
            check_place(partition, sort)
        values: list[bytes | None] = [None] * len(places)
        try:
            with self._reading:
                txn = self._snapshot()
                try:
                    number = self._names.read(txn, space)
                    if number is None:
                        check_space(space)
                        return values
                    for at, (partition, sort) in enumerate(places):
                        values[at] = self._checks.get(txn, key_of(number, partition, sort))
                    return values
                finally:
                    txn.abort()
        except lmdb.Error as error:
            raise self._failure(error) from error

    def scan(self, space: str, partition: bytes, span: KeyRange) -> EnginePage:
        """Rows of one partition, from either side, of one snapshot."""
        check_place(partition, b"")
        begin, end = span.begin, span.end
        check_rows_max(span.rows_max)
        try:
            with self._reading:
                txn = self._snapshot()
                try:
                    number = self._names.read(txn, space)
                    if number is None:
                        check_space(space)
                        return EnginePage((), False, 0, 0)
                    prefix = prefix_of(number, partition)
                    low = prefix + begin
                    high = behind(prefix) if end is None else prefix + end
                    with txn.cursor() as cursor:
                        return read_page(self._checks, cursor, low, high, len(prefix), span)
                finally:
                    txn.abort()
        except lmdb.Error as error:
            raise self._failure(error) from error

    async def write(self, changes: Sequence[Change]) -> None:
        """Make them, all or none, synced."""
        weight = check_changes(changes)
        if changes:
            await self.committer.commit(CommitCall(changes, weight))
        elif self._closed:
            raise Unavailable(self._what, "it was closed")

    async def swap(self, change: Change, expected: bytes | None) -> bool:
        """Make it if the value there is `expected`."""
        check_changes([change])
        return await self.update(swap_of(change, expected))

    async def update(self, update: Update) -> bool:
        """Read, decide and write in one transaction, synced."""
        return await self.committer.commit(CommitCall((), check_update(update), update=update))

    async def load(self, space: str, entries: Sequence[Entry]) -> None:
        """Write many, in large transactions, each in the order of its keys."""
        check_space(space)
        if self._closed:
            raise Unavailable(self._what, "it was closed")
        for some in runs_of(space, entries):
            await self.write(some)

    async def walk(self, space: str, after: Place | None, rows_max: int) -> Sequence[Entry]:
        """Entries in the order of their keys: shorter partitions first."""
        check_rows_max(rows_max)
        check_after(after)
        try:
            with self._reading:
                txn = self._snapshot()
                try:
                    number = self._names.read(txn, space)
                    if number is None:
                        check_space(space)
                        return ()
                    start = number if after is None else key_of(number, *after) + b"\0"
                    with txn.cursor() as cursor:
                        return read_entries(self._checks, cursor, start, behind(number), rows_max)
                finally:
                    txn.abort()
        except lmdb.Error as error:
            raise self._failure(error) from error

    async def drop(self, space: str) -> None:
        """Take its name away at once; its rows are deleted in the background, little by little."""
        check_space(space)
        await self.committer.commit(CommitCall((), 0, drop=space))

    def shard_of(self, space: str, partition: bytes) -> str:
        """One file is one shard."""
        return self.shard

    async def backup(self, folder: str) -> int:
        """A copy of one instant into an empty folder; start another engine on it to restore.

        A process of its own makes it: the copy takes as long as it takes, and must neither hold
        this process's map nor its turn.
        """
        if self._closed:
            raise Unavailable(self._what, "it was closed")
        check_backup_folder(folder, self._settings.folder)
        copier = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # no module is taken from the folder that this process is in
            "-m",
            "sluicegate.stores.engines.lmdb.copy",
            self._settings.folder,
            folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            output, errors = await copier.communicate()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                copier.kill()
            raise
        if copier.returncode != 0:
            last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise Unavailable(f"a backup into {folder}", last or f"exit {copier.returncode}")
        return int(output)

    async def close(self) -> None:
        """Commit what waits, and close the environment."""
        if self._closed:
            return
        self._closed = True
        await self.committer.close()
        with self._reading:
            self._env.close()

    def health(self) -> EngineHealth:
        """Whether it can be used now, and how many reads have met damage."""
        return EngineHealth(self.committer.fault or self._recovery.why, self._damage.count)

    # Reading.

    def _snapshot(self) -> lmdb.Transaction[bytes]:
        if self._closed:
            raise Unavailable(self._what, "it was closed")
        if self._broken:
            self._reopen()
        while True:
            try:
                return self._env.begin(self._rows)
            except lmdb.MapResizedError:
                # If our writer is in the middle of a transaction, it has adopted the map already.
                if not self._resize(0):
                    give_way()
            except lmdb.ReadersFullError:
                if not self._env.reader_check():
                    raise

    # On the committer's thread.

    def _commit(self, calls: Sequence[CommitCall]) -> list[bool]:
        while True:
            if self._recovery.why:
                self._recover()
            elif self._broken:
                with self._reading:
                    if self._broken:  # still: a reader may have been here
                        self._reopen()
            try:
                return self._commit_once(calls)
            except lmdb.MapFullError as error:
                self._grow(error)
            except lmdb.MapResizedError:
                with self._reading:
                    self._resize(0)
            except lmdb.PanicError as error:  # from the begin: nothing was written
                self._lose(error)
            except lmdb.Error as error:
                raise self._failure(error) from error

    def _commit_once(self, calls: Sequence[CommitCall]) -> list[bool]:
        txn = self._env.begin(self._rows, write=True)
        try:
            numbers: dict[str, bytes] = {}
            results = [self._make(txn, call, numbers) for call in calls]
            self._finish(txn)
        except BaseException:
            with suppress(lmdb.Error):
                txn.abort()
            raise
        if any(call.drop for call in calls):
            self.deleting = True
        return results

    def _finish(self, txn: lmdb.Transaction[bytes]) -> None:
        """Commit; a failure that makes the environment unusable may have been made durable."""
        try:
            txn.commit()
        except lmdb.Error as error:
            if not self._is_fatal():
                raise
            self._lose(error)
            raise OutcomeUnknown(self._what, str(error)) from error

    def _make(
        self, txn: lmdb.Transaction[bytes], call: CommitCall, numbers: dict[str, bytes]
    ) -> bool:
        """Make one call's changes in a transaction; `numbers` are those it has met so far."""
        if call.drop:
            numbers.pop(call.drop, None)
            return self._names.drop(txn, call.drop)
        changes, update, get = call.changes, call.update, self._checks.get
        if update is not None:
            number = self._number(txn, update.space, numbers)
            values = [
                None if number is None else get(txn, key_of(number, update.partition, sort))
                for sort in update.sorts
            ]
            changes = decide_changes(update, values)
        for space, partition, sort, value, _ in changes:
            number = self._number(txn, space, numbers)
            if number is None:
                if value is None:
                    continue
                number = numbers[space] = self._names.allot(txn, space)
            key = key_of(number, partition, sort)
            if value is None:
                txn.delete(key)
            else:
                txn.put(key, seal(key, value))
            self._changes += 1
            if not self._changes % WAY_CHANGES:
                give_way()
        return update is None or bool(changes)

    def _number(
        self, txn: lmdb.Transaction[bytes], space: str, numbers: dict[str, bytes]
    ) -> bytes | None:
        """Return the number of a space, if it has one, and remember it."""
        number = numbers.get(space)
        if number is None:
            number = self._names.find(txn, space)
            if number is not None:
                numbers[space] = number
        return number

    def _grow(self, error: lmdb.MapFullError) -> None:
        """Twice the map, as far as it may grow."""
        with self._reading:
            self._env.reader_check()
            size = self._env.info()["map_size"]
            if size >= self._settings.map_bytes_max:
                raise Unavailable(
                    self._what,
                    f"its map of {size:,} bytes is full; drop what is not needed,"
                    " or raise map_bytes_max",
                ) from error
            self._resize(min(size * 2, self._settings.map_bytes_max))

    def _resize(self, size: int) -> bool:
        """Exchange the map for one of this size (0: as another process made it).

        Whether it was; it is not while our writer is in a transaction. Hold the reading lock.
        """
        try:
            before = self._env.info()["map_size"]
        except lmdb.Error as error:
            raise self._failure(error) from error
        try:
            self._env.set_mapsize(size)
        except lmdb.Error as error:
            if self._is_open():
                return False
            self._reopen(before)
            wanted = f"a map of {size:,} bytes" if size else "the larger map of another process"
            raise Unavailable(
                self._what,
                f"there is no room for {wanted} ({error}); give this process more address space,"
                " or lower map_bytes_max",
            ) from error
        return True

    def _is_open(self) -> bool:
        try:
            self._env.info()
        except lmdb.Error:
            return False
        return True

    def _is_fatal(self) -> bool:
        """Whether the environment refuses everything, after a failed write of a meta page."""
        try:
            self._env.begin().abort()
        except lmdb.PanicError:
            return True
        except lmdb.Error:
            return False
        return False

    def _lose(self, error: lmdb.Error) -> None:
        """Note that the environment is unusable, and open it again, for reads at first."""
        self._recovery.lose(str(error))
        with self._reading, suppress(Unavailable):
            self._reopen()

    def _recover(self) -> None:
        """Test whether commits succeed again; `Unavailable` if not, or if it is not time to."""
        recovery = self._recovery
        if not recovery.begin_attempt():
            raise Unavailable(self._what, recovery.why)
        if self._broken:
            with self._reading:
                if self._broken:
                    self._reopen()
        try:
            with self._env.begin(write=True) as txn:
                self._names.probe(txn)
        except lmdb.Error as error:
            if self._is_fatal():
                self._lose(error)
            raise self._failure(error) from error
        recovery.end()

    def _reopen(self, map_bytes: int = 0) -> None:
        """Open the environment again. Hold the reading lock; no transaction may be open."""
        if self._closed:
            raise Unavailable(self._what, "it was closed")
        self._broken = True
        with suppress(lmdb.Error):
            self._env.close()  # or it counts as open in this process
        try:
            env = self._env = self._open(map_bytes)
            self._rows = env.open_db(b"rows")
            self._names = SpaceNames(env, self._checks)
        except (lmdb.Error, BadValue) as error:
            detail = f"it cannot be opened again ({error})"
            if self._recovery.why:
                self._recovery.lose(detail)
            raise Unavailable(self._what, detail) from error
        self._broken = False

    def _step(self) -> bool:
        """Recover if need be, and delete some rows of a dropped space; whether there are more."""
        if self._recovery.why:
            self._recover()
        if not self.deleting:
            return False
        try:
            self.deleting = self._delete_some()
        except lmdb.MapFullError as error:
            # Even a deletion takes pages. If there is no room to grow, commits say so.
            with suppress(Unavailable):
                self._grow(error)
                return True
            return False
        except lmdb.MapResizedError:
            with self._reading, suppress(Unavailable):
                self._resize(0)
        except lmdb.Error as error:
            if self._is_fatal():
                self._lose(error)
                return True
            return False  # the next commit will tell it, and the next step tries again
        return self.deleting

    def _delete_some(self) -> bool:
        with self._env.begin(self._rows, write=True) as txn:
            number = self._names.next_dropped(txn)
            if number is None:
                return False
            with txn.cursor() as cursor:
                exists = cursor.set_range(number)
                for _ in range(DELETED_AT_ONCE_MAX):
                    if not exists or not cursor.key().startswith(number):
                        self._names.forget(txn, number)
                        return True
                    # Moves on to the next row; False behind the last.
                    exists = cursor.delete() and bool(cursor.key())
        return True

    # Opening.

    def _open(self, map_bytes: int = 0) -> lmdb.Environment:
        settings = self._settings
        try:
            os.makedirs(settings.folder, mode=0o700, exist_ok=True)
            extend(settings.folder)
        except OSError as error:
            raise BadValue("lmdb.folder", settings.folder, f"give a folder: {error}") from error
        return lmdb.open(
            settings.folder,
            map_size=max(settings.map_bytes, size_of(settings.folder), map_bytes),
            max_dbs=3,
            max_readers=settings.readers_max,
            max_spare_txns=8,  # a snapshot that was given back is renewed, not made
            sync=settings.sync,
            metasync=settings.sync,
            mode=0o600,
        )

    def _prepare(self) -> bool:
        """Settle the format; whether a drop was left unfinished."""
        folder = self._settings.folder
        with self._env.begin(write=True) as txn:
            self._names.check_format(txn, folder, created=was_created(folder))
            return self._names.next_dropped(txn) is not None

    def _disk_full(self, detail: str) -> bool:
        """Whether an error of the disk is that it is full: of a part of a write LMDB says less."""
        if "Input/output error" not in detail:
            return False
        with suppress(OSError):
            disk = os.statvfs(self._settings.folder)
            return disk.f_bavail * disk.f_frsize < FULL_BYTES
        return False

    def _failure(self, error: lmdb.Error) -> SluicegateError:
        detail = str(error)
        if isinstance(error, (lmdb.CorruptedError, lmdb.PageNotFoundError)):
            return self._damage.found(detail)
        if isinstance(error, lmdb.TxnFullError):
            detail += "; write less in one call"
        elif isinstance(error, lmdb.PanicError):
            detail += "; an earlier write failed: check the disk; the file is opened again"
        elif "No space left" in detail or "File too large" in detail or self._disk_full(detail):
            detail += "; the disk is full: make room on it, or drop what is not needed"
        elif "already open" in detail:
            detail += "; open it once in a process"
        return Unavailable(self._what, detail)
