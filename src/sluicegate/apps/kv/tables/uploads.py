"""Uploads: many rows are loaded beside live traffic, in parts, and become visible at once.

A part is acknowledged when its rows and its record are durable; the same part again changes
nothing, another of its number is a conflict. Whoever has the grant may go on with an upload, from
any dispatcher. What commit, and all that comes after it, means for who reads and writes is told in
`catalogue.py`.

A time to live counts from when the upload began, so that a part is the same however often it is
sent. If two parts name the same place, either may win; within a part the later row does.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from hashlib import sha256 as sha256_of
from typing import Final, final

from sluicegate.apps.kv.tables.catalogue import Catalogue
from sluicegate.apps.kv.tables.catalogue_state import (
    ABANDONED,
    DONE,
    FOLDED,
    FOLDING,
    LAYERED,
    MODES,
    NORMAL,
    OPEN,
    SEALING,
    CatalogueState,
    TableState,
    UploadState,
    check_table_name,
    find_upload,
    upload_space,
    with_table,
    with_upload,
    without_oldest,
)
from sluicegate.apps.kv.tables.jobs import Admit, run_admitted
from sluicegate.apps.kv.tables.keeper import TableKeeper
from sluicegate.apps.kv.tables.settings import TableSettings
from sluicegate.apps.kv.tables.upload_parts import (
    SHA256_BYTES,
    UploadPart,
    part_change,
    read_part,
    read_parts,
)
from sluicegate.apps.kv.tables.upload_totals import (
    PartSum,
    UploadTotals,
    count_part,
    rebuild_totals,
    sum_parts,
)
from sluicegate.contracts.access import TableGrant
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.engine import Engine, Entry
from sluicegate.contracts.errors import BadValue, Conflict, Refused, Unavailable
from sluicegate.contracts.key_values import CallContext, Upload
from sluicegate.wire.kept_row import EXPIRES_US_MAX, kept_row
from sluicegate.wire.row_stream import RowReader

NAME_CHARS_MAX: Final = 128
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_PIECE_BYTES: Final = 16 << 10  # decoded in one turn of the loop
_HASHED_HERE_BYTES: Final = 64 << 10  # more is hashed in a thread
# In one admission, and put in one go: a compiled engine lets nobody in meanwhile.
_LOAD_ROWS: Final = 128
_LOAD_BYTES: Final = 256 << 10
_ADMISSIONS_MAX: Final = 20
_ADMISSION_WAIT_US_LEAST: Final = 20_000
_ADMISSION_WAIT_US_MAX: Final = 2_000_000


@final
class TableUploads:
    """A `contracts.key_values.Uploads`. `pause` waits so many seconds."""

    __slots__ = (
        "_admit",
        "_catalogue",
        "_clock",
        "_counting",
        "_engine",
        "_keeper",
        "_pause",
        "_settings",
        "_turns",
    )

    def __init__(
        self,
        engine: Engine,
        catalogue: Catalogue,
        keeper: TableKeeper,
        clock: Clock,
        settings: TableSettings,
        admit: Admit,
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._engine = engine
        self._catalogue = catalogue
        self._keeper = keeper
        self._clock = clock
        self._settings = settings
        self._admit = admit
        self._pause = pause
        self._counting = asyncio.Lock()
        self._turns = asyncio.Lock()

    async def begin(self, table: str, name: str, mode: str, call: CallContext) -> Upload:
        """Open an upload of that name, or find it as it stands."""
        call.identity.must_on(table, TableGrant.BULK)
        check_table_name(table)
        if len(name) > NAME_CHARS_MAX or not _NAME.fullmatch(name):
            remedy = f"use 1 to {NAME_CHARS_MAX} letters, digits and - _ . and no sign in front"
            raise BadValue("name", name, remedy)
        if mode not in MODES:
            raise BadValue("mode", mode, f"say {' or '.join(MODES)}")
        opened = partial(_opened, table, name, mode, call.identity.name, self._clock.now_us())
        book = await self._catalogue.change(partial(opened, self._settings))
        state = _found(book, table, name)
        if state.state != OPEN:
            return _upload(state)
        return _upload(state, (await rebuild_totals(self._engine, state.upload)).kept)

    async def part(
        self, table: str, name: str, number: int, rows: bytes, sha256: bytes, call: CallContext
    ) -> Upload:
        """Keep one part, durably."""
        call.identity.must_on(table, TableGrant.BULK)
        settings = self._settings
        if not 0 <= number < settings.parts_max:
            raise BadValue("part", number, f"number them from 0 to {settings.parts_max - 1}")
        if len(rows) > settings.part_bytes_max:
            raise BadValue(
                "rows", len(rows), f"send up to {settings.part_bytes_max:,} bytes a part"
            )
        state = await self._open(table, name)
        digest = await _digest(rows)
        if digest != sha256:
            remedy = f"it is not that of the rows ({digest.hex()}); send the part again"
            raise BadValue("sha256", sha256.hex(), remedy)
        there = await read_part(self._engine, state.upload, number)
        if there is not None and there.kept and there.sha256 == digest:
            kept = there
        else:
            kept = await self._taken(state, number, rows, digest, call)
        totals = await self._counted(state, number, kept)
        return _upload(await self._open(table, name), totals.kept)

    async def commit(
        self, table: str, name: str, parts: int, rows: int, sha256: bytes, call: CallContext
    ) -> Upload:
        """Make it visible, if it is whole; when this returns, every dispatcher shows it."""
        call.identity.must_on(table, TableGrant.BULK)
        until_us = self._clock.now_us() + self._settings.commit_wait_us
        await self._catalogue.refresh()
        while True:
            state = _found(self._catalogue.book, table, name)
            if state.state == ABANDONED:
                raise Conflict(f"the upload {name}", "it was abandoned")
            if state.state == OPEN:
                whole = await self._checked(state, parts, rows, sha256)
                await self._catalogue.change(partial(_sealed, whole))
            elif (state.parts, state.rows) != (parts, rows):
                seen = f"it was committed with {state.parts} parts and {state.rows} rows"
                raise Conflict(f"the upload {name}", seen)
            elif state.digest not in ("", sha256.hex()):
                seen = f"it was committed with the sha256 {state.digest}"
                raise Conflict(f"the upload {name}", seen)
            elif state.state in (FOLDING, DONE):
                return await self._told(state)
            await self._keeper.advance(table)
            if self._clock.now_us() >= until_us:
                seen = "it takes long to become visible, or an earlier one is still being folded"
                raise Unavailable(f"the upload {name}", f"{seen}; commit it again later")
            await self._pause(self._settings.stale_us / 4e6)
            await self._catalogue.refresh()

    async def abandon(self, table: str, name: str, call: CallContext) -> Upload:
        """Forget what was loaded."""
        call.identity.must_on(table, TableGrant.BULK)
        now_us, ended_max = self._clock.now_us(), self._settings.ended_uploads_max
        forgotten = partial(_abandoned, table, name, ended_max, now_us)
        return await self._told(_found(await self._catalogue.change(forgotten), table, name))

    async def show(self, table: str, name: str, call: CallContext) -> Upload:
        """How it stands."""
        call.identity.must_on(table, TableGrant.BULK)
        await self._catalogue.refresh()
        return await self._told(_found(self._catalogue.book, table, name))

    async def all(self, table: str, call: CallContext) -> Sequence[Upload]:
        """Those that are open, and the last that were; oldest first."""
        call.identity.must_on(table, TableGrant.BULK)
        await self._catalogue.refresh()
        found = [one for one in self._catalogue.book.uploads.values() if one.table == table]
        return [await self._told(one) for one in found]

    async def _open(self, table: str, name: str) -> UploadState:
        """The upload as it stands now; a conflict unless it is open."""
        await self._catalogue.refresh()
        state = _found(self._catalogue.book, table, name)
        if state.state != OPEN:
            raise Conflict(f"the upload {name}", f"it is {state.state}, and takes no more parts")
        return state

    async def _entries(self, rows: bytes, state: UploadState) -> list[Entry]:
        """The rows in their envelopes, decoded a little at a time so that others have turns."""
        reader = RowReader(self._settings.value_bytes_max)
        entries: list[Entry] = []
        for at in range(0, max(len(rows), 1), _PIECE_BYTES):
            await self._turn()
            for partition, sort, value, ttl_us in reader.feed(rows[at : at + _PIECE_BYTES]):
                expires_us = min(state.begun_us + ttl_us, EXPIRES_US_MAX) if ttl_us else 0
                stored = kept_row(value, expires_us=expires_us, epoch=0)
                entries.append((partition, sort, stored))
            if reader.rows > self._settings.part_rows_max:
                remedy = f"send up to {self._settings.part_rows_max:,} rows a part"
                raise BadValue("rows", reader.rows, remedy)
        reader.end()
        return entries

    async def _taken(
        self, state: UploadState, number: int, rows: bytes, digest: bytes, call: CallContext
    ) -> UploadPart:
        """The part, claimed, counted, loaded and kept."""
        entries = await self._entries(rows, state)
        claim = UploadPart(False, len(entries), len(rows), digest)
        await self._claim(state, number, claim)
        try:
            await self._counted(state, number, claim)
        except BadValue:
            await self._engine.swap(
                part_change(state.upload, number, None),
                part_change(state.upload, number, claim).value,
            )
            raise
        await self._load(state, entries, call)
        kept = claim._replace(kept=True)
        swapped = await self._engine.swap(
            part_change(state.upload, number, kept), part_change(state.upload, number, claim).value
        )
        if not swapped and await read_part(self._engine, state.upload, number) != kept:
            raise Conflict(f"part {number} of {state.name}", "the upload has ended")
        return kept

    async def _counted(self, state: UploadState, number: int, part: UploadPart) -> UploadTotals:
        # One at a time: those who change one record at once only make each other begin anew.
        async with self._counting:
            most = self._settings.upload_bytes_max
            totals = await count_part(self._engine, state.upload, number, part, bytes_max=most)
        try:
            await self._must_be_open(state)
        except Conflict:
            # It may have been dropped before the record came; then it is dropped once more.
            await self._catalogue.change(partial(_dropped_again, state.upload))
            raise
        return totals

    async def _claim(self, state: UploadState, number: int, claim: UploadPart) -> None:
        change = part_change(state.upload, number, claim)
        if not await self._engine.swap(change, None):
            there = await read_part(self._engine, state.upload, number)
            if there is None or there.sha256 != claim.sha256:
                seen = "another part was sent under this number; abandon the upload to begin anew"
                raise Conflict(f"part {number} of {state.name}", seen)
            return
        # Whoever sealed it before this look finds the claim; after it, we find it sealed.
        try:
            await self._open(state.table, state.name)
        except Conflict:
            await self._engine.swap(part_change(state.upload, number, None), change.value)
            raise

    async def _load(self, state: UploadState, entries: Sequence[Entry], call: CallContext) -> None:
        at = 0
        while at < len(entries):
            end, size = at, 0
            while end < len(entries) and end - at < _LOAD_ROWS and size < _LOAD_BYTES:
                size += len(entries[end][2])
                end += 1
            chunk = entries[at:end]
            work = partial(self._load_some, state, chunk)
            await self._admitted(call, len(chunk), size, work)
            at = end

    async def _load_some(self, state: UploadState, chunk: Sequence[Entry]) -> None:
        """Load these if it is open, as seen after they were admitted: that may take long."""
        await self._turn()
        await self._must_be_open(state)
        await self._engine.load(upload_space(state.upload), chunk)
        try:
            await self._must_be_open(state)
        except Conflict:
            # It may have been dropped before these came; then it is dropped once more.
            await self._catalogue.change(partial(_dropped_again, state.upload))
            raise

    async def _turn(self) -> None:
        """Wait for a turn of the loop that no other part has, a pause behind the last.

        Parts that wait for one commit go on together: whoever reads would wait for all of them. And
        without a pause two threads would be busy with nothing else, so that a read waits for both.
        """
        async with self._turns:
            await self._pause(self._settings.load_pause_us / 1e6)

    async def _must_be_open(self, state: UploadState) -> None:
        await self._catalogue.current(state.table)
        now = self._catalogue.book.uploads.get(state.upload)
        if now is None or now.state != OPEN:
            raise Conflict(f"the upload {state.name}", "it was ended meanwhile")

    async def _admitted(
        self, call: CallContext, rows: int, size: int, load: Callable[[], Awaitable[None]]
    ) -> None:
        """Load once it may enter; a part half loaded is work lost, so it waits a little."""
        for tries_left in range(_ADMISSIONS_MAX - 1, -1, -1):
            try:
                await run_admitted(self._admit, call, self._clock, rows, size, load)
            except Refused as refused:
                wait_us = refused.decision.retry_after_us
                if not tries_left or not 0 <= wait_us <= _ADMISSION_WAIT_US_MAX:
                    raise
                await self._pause(max(wait_us, _ADMISSION_WAIT_US_LEAST) / 1e6)
            else:
                return

    async def _checked(
        self, state: UploadState, parts: int, rows: int, sha256: bytes
    ) -> UploadState:
        """The upload with its totals, if it is whole."""
        if parts > self._settings.parts_max:
            raise BadValue("parts", parts, f"an upload has up to {self._settings.parts_max:,}")
        kept = await read_parts(self._engine, state.upload)
        missing = [number for number in range(parts) if number not in kept or not kept[number].kept]
        if missing:
            said = ", ".join(map(str, missing[:10]))
            raise BadValue("parts", parts, f"these are not kept yet: {said}; send them")
        if len(kept) != parts:
            remedy = f"{len(kept)} were begun; send them whole, or abandon the upload"
            raise BadValue("parts", parts, remedy)
        total = sum(one.rows for one in kept.values())
        if total != rows:
            raise BadValue("rows", rows, f"{total} are kept; see which parts you mean")
        digest = sha256_of(b"".join(one.sha256 for one in kept.values())).digest()
        if len(sha256) != SHA256_BYTES or digest != sha256:
            remedy = "it is not that of the digests of the parts that are kept"
            raise BadValue("sha256", sha256.hex(), remedy)
        size = sum(one.size_bytes for one in kept.values())
        return state._replace(parts=parts, rows=rows, bytes=size, digest=digest.hex())

    async def _told(self, state: UploadState) -> Upload:
        if state.state != OPEN:
            return _upload(state)
        return _upload(state, (await sum_parts(self._engine, state.upload)).kept)


def _upload(state: UploadState, kept: PartSum | None = None) -> Upload:
    """As it is told; `kept` is what is kept of one that is open."""
    if kept is None:
        kept = PartSum(state.rows, state.bytes, (1 << state.parts) - 1)
    return Upload(
        state.table,
        state.name,
        state.mode,
        state.state,
        kept.numbers(),
        kept.rows,
        kept.size_bytes,
        state.begun_us,
        state.by,
    )


async def _digest(rows: bytes) -> bytes:
    if len(rows) <= _HASHED_HERE_BYTES:
        return sha256_of(rows).digest()
    return await asyncio.to_thread(lambda: sha256_of(rows).digest())


def _found(book: CatalogueState, table: str, name: str) -> UploadState:
    state = find_upload(book, table, name)
    if state is None:
        raise BadValue("name", name, f"there is no such upload into {table}; begin it")
    return state


def _opened(
    table: str,
    name: str,
    mode: str,
    by: str,
    now_us: int,
    settings: TableSettings,
    book: CatalogueState,
) -> CatalogueState:
    there = find_upload(book, table, name)
    if there is not None and there.state != ABANDONED:
        if there.mode != mode:
            raise Conflict(f"the upload {name}", f"it was begun with the mode {there.mode}")
        return book
    open_ones = [one for one in book.uploads.values() if one.state == OPEN]
    for one in open_ones:
        if one.table == table:
            seen = f"{one.name} is open; commit or abandon it first"
            raise Conflict(f"the uploads into {table}", seen)
    if len(open_ones) >= settings.uploads_max:
        seen = f"{len(open_ones)} are open, as many as may be; try again when one has ended"
        raise Unavailable("another upload", seen)
    if table not in book.tables:
        if len(book.tables) >= settings.tables_max:
            remedy = f"there are {settings.tables_max} tables, as many as may be; use one of them"
            raise BadValue("table", table, remedy)
        book = with_table(book, table, TableState())
    begun = book.begun + 1
    state = UploadState(str(begun), table, name, mode, OPEN, now_us, by)
    return with_upload(book._replace(begun=begun), state)


def _sealed(whole: UploadState, book: CatalogueState) -> CatalogueState:
    there = book.uploads.get(whole.upload)
    table = book.tables[whole.table]
    if there is None or there.state != OPEN or table.phase != NORMAL:
        return book  # somebody was first, or an earlier upload is still being folded
    state = TableState(SEALING, table.epoch + 1, whole.upload)
    book = with_table(book, whole.table, state)
    return with_upload(book, whole._replace(state=SEALING))


def _abandoned(
    table: str, name: str, ended_max: int, now_us: int, book: CatalogueState
) -> CatalogueState:
    state = _found(book, table, name)
    if state.state == ABANDONED:
        return book
    at = book.tables[table]
    mine = at.upload == state.upload
    if state.state == DONE or (mine and at.phase in (LAYERED, FOLDING, FOLDED)):
        raise Conflict(f"the upload {name}", "it can be seen, and cannot be abandoned")
    if mine:
        book = with_table(book, table, TableState(NORMAL, at.epoch))
    ended = state._replace(state=ABANDONED, parts=0, rows=0, bytes=0, digest="", ended_us=now_us)
    book = with_upload(book, ended)._replace(dropping=(*book.dropping, state.upload))
    return without_oldest(book, ended_max)


def _dropped_again(upload: str, book: CatalogueState) -> CatalogueState:
    there = book.uploads.get(upload)
    ended = there is None or there.state in (ABANDONED, DONE)
    if not ended or upload in book.dropping:
        return book  # it is dropped once it has ended, or soon
    return book._replace(dropping=(*book.dropping, upload))
