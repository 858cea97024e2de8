"""Key values: a dispatcher in memory, for tests of whoever asks one.

It keeps every promise of `contracts.key_values` that can be kept without a disk: rows in order,
conditions, values that expire by a clock, tokens, grants, uploads. It has no policies; what it
should raise, and when it should answer late, it is told.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from bisect import insort
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar, final

from sluicegate.contracts.access import TableGrant
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.engine import KeyRange, Place
from sluicegate.contracts.errors import BadValue, Conflict
from sluicegate.contracts.key_values import (
    CallContext,
    PlacePage,
    Row,
    RowPage,
    RowsUpdate,
    Upload,
    Write,
    WriteCondition,
    WriteIfResult,
    tag_of,
)
from sluicegate.stores.engines.bounds import check_place
from sluicegate.testing.clock import HandClock
from sluicegate.wire.row_stream import RowReader, StreamRow

T = TypeVar("T")

CALLS_MAX: Final = 10_000  # calls that are remembered

_TABLE: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_OPEN: Final = "open"


class RecordedCall(NamedTuple):
    """A call, as this service received it."""

    operation: str
    table: str
    call: CallContext


class MemoryKeyValues:
    """Tables in memory.

    `late` has all answers come later, as from an engine. `raise_next` has the next calls fail.
    `calls` holds the last of them.
    """

    def __init__(self, clock: Clock | None = None, *, late: bool = False) -> None:
        self.clock: Clock = HandClock() if clock is None else clock
        self.late = late
        self.calls: deque[RecordedCall] = deque(maxlen=CALLS_MAX)
        self.uploads = MemoryUploads(self)
        self._tables: dict[str, dict[Place, Row]] = {}
        self._errors: deque[BaseException] = deque()

    def raise_next(self, error: BaseException, times: int = 1) -> None:
        """Have so many of the next calls raise this."""
        self._errors.extend([error] * times)

    def get(
        self, table: str, partition: bytes, sort: bytes, call: CallContext
    ) -> MaybeAwaitable[Row | None]:
        """The row at one place."""
        rows = self.enter("get", table, TableGrant.READ, call)
        check_place(partition, sort)
        return self._soon(self._live(rows, (partition, sort)))

    def get_each(
        self, table: str, places: Sequence[Place], call: CallContext
    ) -> MaybeAwaitable[Sequence[Row | None]]:
        """The rows at these places, in their order."""
        rows = self.enter("get_each", table, TableGrant.READ, call)
        for partition, sort in places:
            check_place(partition, sort)
        found: Sequence[Row | None] = [self._live(rows, place) for place in places]
        return self._soon(found)

    async def scan(
        self, table: str, partition: bytes, span: KeyRange, call: CallContext, token: bytes = b""
    ) -> RowPage:
        """Rows of one partition; a token is the last sort key and what it belongs to."""
        rows = self.enter("scan", table, TableGrant.READ, call)
        check_place(partition, b"")
        if span.rows_max < 1 or span.bytes_max < 1:
            raise BadValue("span", span, "ask for one row and one byte at least")
        kind = _token_kind(table, partition, span)
        if token and not token.startswith(kind):
            raise BadValue("token", token, "go on with the partition and span that it came from")
        sorts = sorted(sort for where, sort in rows if where == partition)
        if span.reverse:
            sorts.reverse()
        describe: list[Row] = []
        size = 0
        for sort in sorts:
            row = self._live(rows, (partition, sort))
            if row is None or not _within(span, sort, token[len(kind) :] if token else None):
                continue
            if describe and (len(describe) >= span.rows_max or size >= span.bytes_max):
                return RowPage(describe, kind + describe[-1].sort)
            describe.append(row)
            size += len(row.sort) + len(row.value)
        return RowPage(describe)

    async def walk(
        self, table: str, after: Place | None, rows_max: int, call: CallContext
    ) -> PlacePage:
        """Places, in the order of their bytes."""
        rows = self.enter("walk", table, TableGrant.READ, call)
        behind = sorted(place for place in rows if after is None or place > after)
        page = behind[:rows_max]
        live = [place for place in page if self._live(rows, place) is not None]
        return PlacePage(live, page[-1] if len(behind) > len(page) else None)

    async def write(self, table: str, writes: Sequence[Write], call: CallContext) -> None:
        """Put and delete."""
        rows = self.enter("write", table, TableGrant.WRITE, call)
        for write in writes:
            _check_write(write)
        await self._turn()
        for write in writes:
            self._put(rows, write)

    async def write_if(
        self, table: str, write: Write, condition: WriteCondition, call: CallContext
    ) -> WriteIfResult:
        """Write if the condition holds."""
        rows = self.enter("write_if", table, TableGrant.WRITE, call)
        may_read = call.identity.may_on(table, TableGrant.READ)
        if condition.tag:
            call.identity.require_on(table, TableGrant.READ)
        _check_write(write)
        if sum((condition.absent, condition.present, bool(condition.tag))) != 1:
            raise BadValue("condition", condition, "say exactly one of absent, present and tag")
        await self._turn()
        row = self._live(rows, (write.partition, write.sort))
        if condition.absent:
            holds = row is None
        elif condition.present:
            holds = row is not None
        else:
            holds = row is not None and tag_of(row.value) == condition.tag
        if holds:
            self._put(rows, write)
            row = self._live(rows, (write.partition, write.sort))
        return WriteIfResult(holds, row if may_read else None)

    async def update(self, table: str, update: RowsUpdate, call: CallContext) -> None:
        """Read, decide and write, in one turn of the loop."""
        rows = self.enter("update", table, TableGrant.WRITE, call)
        if update.reveals:
            call.identity.require_on(table, TableGrant.READ)
        for sort in update.sorts:
            check_place(update.partition, sort)
        await self._turn()
        live = [self._live(rows, (update.partition, sort)) for sort in update.sorts]
        now_us = self.clock.now_us()
        writes = update.decide(live, now_us)
        for write in writes:
            _check_write(write)
        for write in writes:
            self._put(rows, write, now_us)

    async def remove(self, table: str, places: Sequence[Place], call: CallContext) -> int:
        """Delete these; how many were there."""
        rows = self.enter("remove", table, TableGrant.WRITE, call)
        for partition, sort in places:
            check_place(partition, sort)
        await self._turn()
        there = [place for place in places if self._live(rows, place) is not None]
        return sum(rows.pop(place, None) is not None for place in there)

    async def expire(
        self, table: str, partition: bytes, sort: bytes, ttl_us: int, call: CallContext
    ) -> bool:
        """Let it expire; whether it was there."""
        rows = self.enter("expire", table, TableGrant.WRITE, call)
        check_place(partition, sort)
        await self._turn()
        row = self._live(rows, (partition, sort))
        if row is None:
            return False
        self._put(rows, Write(partition, sort, row.value, ttl_us))
        return True

    # What uploads share.

    def enter(
        self, operation: str, table: str, grant: TableGrant, call: CallContext
    ) -> dict[Place, Row]:
        """Return the rows of a table after the access check; raise what `raise_next` queued."""
        if not _TABLE.fullmatch(table):
            raise BadValue("table", table, "use a-z, 0-9, - _ and ., 64 of them at most")
        call.identity.require_on(table, grant)
        self.calls.append(RecordedCall(operation, table, call))
        if self._errors:
            raise self._errors.popleft()
        return self._tables.setdefault(table, {})

    def load(self, table: str, loaded: Sequence[StreamRow], *, replace: bool) -> None:
        """What an upload has brought becomes visible."""
        rows = self._tables.setdefault(table, {})
        if replace:
            rows.clear()
        for one in loaded:
            self._put(rows, Write(one.partition, one.sort, one.value, one.ttl_us))

    def _live(self, rows: dict[Place, Row], place: Place) -> Row | None:
        row = rows.get(place)
        if row is not None and 0 < row.expires_us <= self.clock.now_us():
            del rows[place]
            return None
        return row

    def _put(self, rows: dict[Place, Row], write: Write, now_us: int | None = None) -> None:
        place = (write.partition, write.sort)
        if write.value is None:
            rows.pop(place, None)
            return
        began_us = self.clock.now_us() if now_us is None else now_us
        expires_us = began_us + write.ttl_us if write.ttl_us else 0
        rows[place] = Row(write.sort, write.value, expires_us)

    def _soon(self, answer: T) -> MaybeAwaitable[T]:
        return self._later(answer) if self.late else answer

    async def _later(self, answer: T) -> T:
        await asyncio.sleep(0)
        return answer

    async def _turn(self) -> None:
        """A write is on its way for a turn of the loop, where answers are late."""
        if self.late:
            await asyncio.sleep(0)


class _Held:
    """An upload, and its parts."""

    def __init__(self, mode: str, begun_us: int, by: str) -> None:
        self.mode = mode
        self.state = _OPEN
        self.begun_us = begun_us
        self.by = by
        self.parts: dict[int, tuple[bytes, list[StreamRow], int]] = {}
        self.numbers: list[int] = []

    def describe(self, table: str, name: str) -> Upload:
        kept = self.parts.values()
        return Upload(
            table,
            name,
            self.mode,
            self.state,
            tuple(self.numbers),
            sum(len(rows) for _, rows, _ in kept),
            sum(size for _, _, size in kept),
            self.begun_us,
            self.by,
        )


@final
class MemoryUploads:
    """Uploads in memory."""

    def __init__(self, tables: MemoryKeyValues) -> None:
        self._tables = tables
        self._uploads: dict[tuple[str, str], _Held] = {}

    async def begin(self, table: str, name: str, mode: str, call: CallContext) -> Upload:
        """Open one, or find it."""
        self._tables.enter("begin", table, TableGrant.BULK, call)
        if mode not in ("merge", "replace"):
            raise BadValue("mode", mode, "give merge or replace")
        upload = self._uploads.get((table, name))
        if upload is None:
            upload = _Held(mode, self._tables.clock.now_us(), call.identity.name)
            self._uploads[table, name] = upload
        elif upload.mode != mode:
            raise Conflict(f"the upload {name}", f"it was begun to {upload.mode}")
        return upload.describe(table, name)

    async def part(
        self, table: str, name: str, number: int, rows: bytes, sha256: bytes, call: CallContext
    ) -> Upload:
        """Keep one part."""
        upload = self._find("part", table, name, call)
        _must_be_open(upload, name)
        if hashlib.sha256(rows).digest() != sha256:
            raise BadValue("sha256", sha256.hex(), "it is not that of the rows; send them again")
        known = upload.parts.get(number)
        if known is not None and known[0] != sha256:
            raise Conflict(f"part {number}", "another one is kept under its number")
        if known is None:
            reader = RowReader()
            describe = reader.feed(rows)
            reader.end()
            upload.parts[number] = (sha256, describe, len(rows))
            insort(upload.numbers, number)
        return upload.describe(table, name)

    async def commit(
        self, table: str, name: str, parts: int, rows: int, sha256: bytes, call: CallContext
    ) -> Upload:
        """Make it visible."""
        upload = self._find("commit", table, name, call)
        if upload.state == "done":
            return upload.describe(table, name)
        _must_be_open(upload, name)
        whole = upload.numbers == list(range(parts))
        digests = b"".join(upload.parts[number][0] for number in upload.numbers)
        counted = sum(len(describe) for _, describe, _ in upload.parts.values())
        if not whole or counted != rows or hashlib.sha256(digests).digest() != sha256:
            raise Conflict(
                f"the upload {name}", f"{len(upload.numbers)} parts with {counted} rows are kept"
            )
        loaded = [row for number in upload.numbers for row in upload.parts[number][1]]
        self._tables.load(table, loaded, replace=upload.mode == "replace")
        upload.state = "done"
        return upload.describe(table, name)

    async def abandon(self, table: str, name: str, call: CallContext) -> Upload:
        """Forget it."""
        upload = self._find("abandon", table, name, call)
        if upload.state == _OPEN:
            upload.state = "abandoned"
            upload.parts.clear()
            upload.numbers.clear()
        return upload.describe(table, name)

    async def show(self, table: str, name: str, call: CallContext) -> Upload:
        """How it stands."""
        return self._find("show", table, name, call).describe(table, name)

    async def all(self, table: str, call: CallContext) -> Sequence[Upload]:
        """All of a table."""
        self._tables.enter("all", table, TableGrant.BULK, call)
        return [
            upload.describe(table, name)
            for (its, name), upload in self._uploads.items()
            if its == table
        ]

    def _find(self, operation: str, table: str, name: str, call: CallContext) -> _Held:
        self._tables.enter(operation, table, TableGrant.BULK, call)
        upload = self._uploads.get((table, name))
        if upload is None:
            raise BadValue("upload", name, "begin it first")
        return upload


def _must_be_open(upload: _Held, name: str) -> None:
    if upload.state != _OPEN:
        raise Conflict(f"the upload {name}", f"it is {upload.state}")


def _check_write(write: Write) -> None:
    check_place(write.partition, write.sort)
    if write.ttl_us < 0:
        raise BadValue("ttl_us", write.ttl_us, "say microseconds, or 0 for ever")


def _token_kind(table: str, partition: bytes, span: KeyRange) -> bytes:
    """What the tokens of one scan begin with."""
    text = repr((table, partition, span.begin, span.end, span.reverse)).encode()
    return hashlib.sha256(text).digest()[:8]


def _within(span: KeyRange, sort: bytes, last: bytes | None) -> bool:
    if sort < span.begin or (span.end is not None and sort >= span.end):
        return False
    if last is None:
        return True
    return sort < last if span.reverse else sort > last
