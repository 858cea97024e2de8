"""Uploads: many rows are loaded beside live traffic, in parts, and become visible at once.

A part is acknowledged when its rows and its record are durable; the same part again changes
nothing, another of its number is a conflict. Any dispatcher may continue an upload. What a commit
means for readers and writers is described in `catalogue.py`.

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
    find_upload,
    upload_space,
    with_table,
    with_upload,
    without_oldest,
)
from sluicegate.apps.kv.tables.jobs import TableJobs
from sluicegate.apps.kv.tables.keeper import TableKeeper
from sluicegate.apps.kv.tables.settings import TableSettings
from sluicegate.apps.kv.tables.upload_records import (
    SHA256_BYTES,
    PartSum,
    UploadPart,
    UploadTotals,
    count_part,
    part_change,
    read_part,
    read_parts,
    rebuild_totals,
    sum_parts,
)
from sluicegate.contracts.access import TableGrant
from sluicegate.contracts.engine import Entry
from sluicegate.contracts.errors import BadValue, Conflict, Refused, Unavailable
from sluicegate.contracts.key_values import CallContext, Upload, check_table
from sluicegate.wire.row_envelope import EXPIRES_US_MAX, seal_row
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

    __slots__ = ("_catalogue", "_counting", "_jobs", "_keeper", "_pause", "_slot")

    def __init__(
        self,
        jobs: TableJobs,
        keeper: TableKeeper,
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._jobs = jobs
        self._catalogue = jobs.catalogue
        self._keeper = keeper
        self._pause = pause
        self._counting = asyncio.Lock()
        self._slot = asyncio.Lock()

    async def begin(self, table: str, name: str, mode: str, call: CallContext) -> Upload:
        """Open an upload of that name, or find it as it stands."""
        call.identity.require_on(table, TableGrant.BULK)
        check_table(table)
        if len(name) > NAME_CHARS_MAX or not _NAME.fullmatch(name):
            remedy = f"use 1 to {NAME_CHARS_MAX} letters, digits and - _ . and no sign in front"
            raise BadValue("name", name, remedy)
        if mode not in MODES:
            raise BadValue("mode", mode, f"say {' or '.join(MODES)}")
        open_upload = partial(
            _with_new_upload, table, name, mode, call.identity.name, self._jobs.clock.now_us()
        )
        catalogue = await self._catalogue.change(partial(open_upload, self._jobs.settings))
        state = _find(catalogue, table, name)
        if state.state != OPEN:
            return _upload(state)
        return _upload(state, (await rebuild_totals(self._jobs.engine, state.upload)).stored)

    async def part(
        self, table: str, name: str, number: int, rows: bytes, sha256: bytes, call: CallContext
    ) -> Upload:
        """Keep one part, durably."""
        call.identity.require_on(table, TableGrant.BULK)
        settings = self._jobs.settings
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
        part = await read_part(self._jobs.engine, state.upload, number)
        if part is not None and part.stored and part.sha256 == digest:
            stored = part
        else:
            stored = await self._load_part(state, number, rows, digest, call)
        totals = await self._count_part(state, number, stored)
        return _upload(await self._open(table, name), totals.stored)

    async def commit(
        self, table: str, name: str, parts: int, rows: int, sha256: bytes, call: CallContext
    ) -> Upload:
        """Make it visible, if it is whole; when this returns, every dispatcher shows it."""
        call.identity.require_on(table, TableGrant.BULK)
        until_us = self._jobs.clock.now_us() + self._jobs.settings.commit_wait_us
        await self._catalogue.refresh()
        while True:
            state = _find(self._catalogue.state, table, name)
            if state.state == ABANDONED:
                raise Conflict(f"the upload {name}", "it was abandoned")
            if state.state == OPEN:
                whole = await self._check_whole(state, parts, rows, sha256)
                await self._catalogue.change(partial(_with_sealed, whole))
            elif (state.parts, state.rows) != (parts, rows):
                detail = f"it was committed with {state.parts} parts and {state.rows} rows"
                raise Conflict(f"the upload {name}", detail)
            elif state.digest not in ("", sha256.hex()):
                detail = f"it was committed with the sha256 {state.digest}"
                raise Conflict(f"the upload {name}", detail)
            elif state.state in (FOLDING, DONE):
                return await self._describe(state)
            await self._keeper.advance(table)
            if self._jobs.clock.now_us() >= until_us:
                detail = "it takes long to become visible, or an earlier one is still being folded"
                raise Unavailable(f"the upload {name}", f"{detail}; commit it again later")
            await self._pause(self._jobs.settings.stale_us / 4e6)
            await self._catalogue.refresh()

    async def abandon(self, table: str, name: str, call: CallContext) -> Upload:
        """Forget what was loaded."""
        call.identity.require_on(table, TableGrant.BULK)
        now_us, ended_max = self._jobs.clock.now_us(), self._jobs.settings.ended_uploads_max
        change = partial(_with_abandoned, table, name, ended_max, now_us)
        return await self._describe(_find(await self._catalogue.change(change), table, name))

    async def show(self, table: str, name: str, call: CallContext) -> Upload:
        """How it stands."""
        call.identity.require_on(table, TableGrant.BULK)
        await self._catalogue.refresh()
        return await self._describe(_find(self._catalogue.state, table, name))

    async def all(self, table: str, call: CallContext) -> Sequence[Upload]:
        """Those that are open, and the last that were; oldest first."""
        call.identity.require_on(table, TableGrant.BULK)
        await self._catalogue.refresh()
        uploads = [one for one in self._catalogue.state.uploads.values() if one.table == table]
        return [await self._describe(one) for one in uploads]

    async def _open(self, table: str, name: str) -> UploadState:
        """The upload as it stands now; a conflict unless it is open."""
        await self._catalogue.refresh()
        state = _find(self._catalogue.state, table, name)
        if state.state != OPEN:
            raise Conflict(f"the upload {name}", f"it is {state.state}, and takes no more parts")
        return state

    async def _entries(self, rows: bytes, state: UploadState) -> list[Entry]:
        """The rows in their envelopes, decoded a little at a time so that others have turns."""
        reader = RowReader(self._jobs.settings.value_bytes_max)
        entries: list[Entry] = []
        for at in range(0, max(len(rows), 1), _PIECE_BYTES):
            await self._await_slot()
            for partition, sort, value, ttl_us in reader.feed(rows[at : at + _PIECE_BYTES]):
                expires_us = min(state.begun_us + ttl_us, EXPIRES_US_MAX) if ttl_us else 0
                stored = seal_row(value, expires_us=expires_us, epoch=0)
                entries.append((partition, sort, stored))
            if reader.rows > self._jobs.settings.part_rows_max:
                remedy = f"send up to {self._jobs.settings.part_rows_max:,} rows a part"
                raise BadValue("rows", reader.rows, remedy)
        reader.end()
        return entries

    async def _load_part(
        self, state: UploadState, number: int, rows: bytes, digest: bytes, call: CallContext
    ) -> UploadPart:
        """Claim, count, load and store a part."""
        entries = await self._entries(rows, state)
        claim = UploadPart(False, len(entries), len(rows), digest)
        await self._claim(state, number, claim)
        try:
            await self._count_part(state, number, claim)
        except BadValue:
            await self._jobs.engine.swap(
                part_change(state.upload, number, None),
                part_change(state.upload, number, claim).value,
            )
            raise
        await self._load(state, entries, call)
        stored = claim._replace(stored=True)
        swapped = await self._jobs.engine.swap(
            part_change(state.upload, number, stored),
            part_change(state.upload, number, claim).value,
        )
        if not swapped and await read_part(self._jobs.engine, state.upload, number) != stored:
            raise Conflict(f"part {number} of {state.name}", "the upload has ended")
        return stored

    async def _count_part(self, state: UploadState, number: int, part: UploadPart) -> UploadTotals:
        # One at a time: those who change one record at once only make each other begin anew.
        async with self._counting:
            most = self._jobs.settings.upload_bytes_max
            totals = await count_part(self._jobs.engine, state.upload, number, part, bytes_max=most)
        try:
            await self._must_be_open(state)
        except Conflict:
            # It may have been dropped before the record came; then it is dropped once more.
            await self._catalogue.change(partial(_with_dropped_again, state.upload))
            raise
        return totals

    async def _claim(self, state: UploadState, number: int, claim: UploadPart) -> None:
        change = part_change(state.upload, number, claim)
        if not await self._jobs.engine.swap(change, None):
            part = await read_part(self._jobs.engine, state.upload, number)
            if part is None or part.sha256 != claim.sha256:
                detail = "another part was sent under this number; abandon the upload to begin anew"
                raise Conflict(f"part {number} of {state.name}", detail)
            return
        # Whoever sealed it before this look finds the claim; after it, we find it sealed.
        try:
            await self._open(state.table, state.name)
        except Conflict:
            await self._jobs.engine.swap(part_change(state.upload, number, None), change.value)
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
            await self._run_admitted(call, len(chunk), size, work)
            at = end

    async def _load_some(self, state: UploadState, chunk: Sequence[Entry]) -> None:
        """Load these if the upload is still open after their admission, which may take long."""
        await self._await_slot()
        await self._must_be_open(state)
        await self._jobs.engine.load(upload_space(state.upload), chunk)
        try:
            await self._must_be_open(state)
        except Conflict:
            # It may have been dropped before these came; then it is dropped once more.
            await self._catalogue.change(partial(_with_dropped_again, state.upload))
            raise

    async def _await_slot(self) -> None:
        """Wait for a turn of the loop that no other part has, a pause behind the last.

        Parts that wait for one commit go on together: whoever reads would wait for all of them. And
        without a pause two threads would be busy with nothing else, so that a read waits for both.
        """
        async with self._slot:
            await self._pause(self._jobs.settings.load_pause_us / 1e6)

    async def _must_be_open(self, state: UploadState) -> None:
        await self._catalogue.current(state.table)
        now = self._catalogue.state.uploads.get(state.upload)
        if now is None or now.state != OPEN:
            raise Conflict(f"the upload {state.name}", "it was ended meanwhile")

    async def _run_admitted(
        self, call: CallContext, rows: int, size: int, load: Callable[[], Awaitable[None]]
    ) -> None:
        """Load once it may enter; a part half loaded is work lost, so it waits a little."""
        for tries_left in range(_ADMISSIONS_MAX - 1, -1, -1):
            try:
                await self._jobs.run(call, rows, size, load)
            except Refused as refused:
                wait_us = refused.decision.retry_after_us
                if not tries_left or not 0 <= wait_us <= _ADMISSION_WAIT_US_MAX:
                    raise
                await self._pause(max(wait_us, _ADMISSION_WAIT_US_LEAST) / 1e6)
            else:
                return

    async def _check_whole(
        self, state: UploadState, parts: int, rows: int, sha256: bytes
    ) -> UploadState:
        """The upload with its totals, if it is whole."""
        if parts > self._jobs.settings.parts_max:
            raise BadValue("parts", parts, f"an upload has up to {self._jobs.settings.parts_max:,}")
        stored_parts = await read_parts(self._jobs.engine, state.upload)
        missing = [
            number
            for number in range(parts)
            if number not in stored_parts or not stored_parts[number].stored
        ]
        if missing:
            numbers = ", ".join(map(str, missing[:10]))
            raise BadValue("parts", parts, f"these are not kept yet: {numbers}; send them")
        if len(stored_parts) != parts:
            remedy = f"{len(stored_parts)} were begun; send them whole, or abandon the upload"
            raise BadValue("parts", parts, remedy)
        total = sum(one.rows for one in stored_parts.values())
        if total != rows:
            raise BadValue("rows", rows, f"{total} are kept; see which parts you mean")
        digest = sha256_of(b"".join(one.sha256 for one in stored_parts.values())).digest()
        if len(sha256) != SHA256_BYTES or digest != sha256:
            remedy = "it is not that of the digests of the parts that are kept"
            raise BadValue("sha256", sha256.hex(), remedy)
        size = sum(one.size_bytes for one in stored_parts.values())
        return state._replace(parts=parts, rows=rows, bytes=size, digest=digest.hex())

    async def _describe(self, state: UploadState) -> Upload:
        if state.state != OPEN:
            return _upload(state)
        return _upload(state, (await sum_parts(self._jobs.engine, state.upload)).stored)


def _upload(state: UploadState, stored: PartSum | None = None) -> Upload:
    """Return the contract's value; `stored` is what an open upload has stored."""
    if stored is None:
        stored = PartSum(state.rows, state.bytes, (1 << state.parts) - 1)
    return Upload(
        state.table,
        state.name,
        state.mode,
        state.state,
        stored.numbers(),
        stored.rows,
        stored.size_bytes,
        state.begun_us,
        state.by,
    )


async def _digest(rows: bytes) -> bytes:
    if len(rows) <= _HASHED_HERE_BYTES:
        return sha256_of(rows).digest()
    return await asyncio.to_thread(lambda: sha256_of(rows).digest())


def _find(catalogue: CatalogueState, table: str, name: str) -> UploadState:
    state = find_upload(catalogue, table, name)
    if state is None:
        raise BadValue("name", name, f"there is no such upload into {table}; begin it")
    return state


def _with_new_upload(
    table: str,
    name: str,
    mode: str,
    by: str,
    now_us: int,
    settings: TableSettings,
    catalogue: CatalogueState,
) -> CatalogueState:
    upload = find_upload(catalogue, table, name)
    if upload is not None and upload.state != ABANDONED:
        if upload.mode != mode:
            raise Conflict(f"the upload {name}", f"it was begun with the mode {upload.mode}")
        return catalogue
    open_ones = [one for one in catalogue.uploads.values() if one.state == OPEN]
    for one in open_ones:
        if one.table == table:
            detail = f"{one.name} is open; commit or abandon it first"
            raise Conflict(f"the uploads into {table}", detail)
    if len(open_ones) >= settings.uploads_max:
        detail = f"{len(open_ones)} are open, as many as may be; try again when one has ended"
        raise Unavailable("another upload", detail)
    if table not in catalogue.tables:
        if len(catalogue.tables) >= settings.tables_max:
            remedy = f"there are {settings.tables_max} tables, as many as may be; use one of them"
            raise BadValue("table", table, remedy)
        catalogue = with_table(catalogue, table, TableState())
    number = catalogue.begun + 1
    state = UploadState(str(number), table, name, mode, OPEN, now_us, by)
    return with_upload(catalogue._replace(begun=number), state)


def _with_sealed(whole: UploadState, catalogue: CatalogueState) -> CatalogueState:
    upload = catalogue.uploads.get(whole.upload)
    table = catalogue.tables[whole.table]
    if upload is None or upload.state != OPEN or table.phase != NORMAL:
        return catalogue  # somebody was first, or an earlier upload is still being folded
    state = TableState(SEALING, table.epoch + 1, whole.upload)
    catalogue = with_table(catalogue, whole.table, state)
    return with_upload(catalogue, whole._replace(state=SEALING))


def _with_abandoned(
    table: str, name: str, ended_max: int, now_us: int, catalogue: CatalogueState
) -> CatalogueState:
    state = _find(catalogue, table, name)
    if state.state == ABANDONED:
        return catalogue
    at = catalogue.tables[table]
    current = at.upload == state.upload
    if state.state == DONE or (current and at.phase in (LAYERED, FOLDING, FOLDED)):
        raise Conflict(f"the upload {name}", "it can be seen, and cannot be abandoned")
    if current:
        catalogue = with_table(catalogue, table, TableState(NORMAL, at.epoch))
    ended = state._replace(state=ABANDONED, parts=0, rows=0, bytes=0, digest="", ended_us=now_us)
    catalogue = with_upload(catalogue, ended)._replace(dropping=(*catalogue.dropping, state.upload))
    return without_oldest(catalogue, ended_max)


def _with_dropped_again(upload: str, catalogue: CatalogueState) -> CatalogueState:
    state = catalogue.uploads.get(upload)
    ended = state is None or state.state in (ABANDONED, DONE)
    if not ended or upload in catalogue.dropping:
        return catalogue  # it is dropped once it has ended, or soon
    return catalogue._replace(dropping=(*catalogue.dropping, upload))
