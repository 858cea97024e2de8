"""Key-values: the requests and results of a dispatcher, as plain values.

    table -- partition -- sort key -- value

A table belongs to a tenant. A partition is read and written atomically; in it are sort keys in the
order of their bytes, the empty one first. A door makes a `CallContext` and passes it with what is
wanted. What is in this process is answered at once, what waits for a queue or an engine by an
awaitable; a door must be ready for both.

The dispatcher raises `BadValue` for an invalid request, `Forbidden` for what this identity may not
do, `Refused` with a decision for what may not enter now, `Conflict` where another was first, and
`Unavailable` where the engine does not answer. Any other exception is a bug.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol, TypeAlias, final

from sluicegate.contracts.access import Identity
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.engine import PARTITION_BYTES_MAX, SORT_BYTES_MAX, KeyRange, Place
from sluicegate.contracts.errors import BadValue

TABLE_CHARS_MAX: Final = 64  # of a-z, 0-9 and - _ .
TAG_BYTES: Final = 16
WRITES_MAX: Final = 1_000  # of one call
_TABLE: Final = re.compile(rf"[a-z0-9][a-z0-9._-]{{0,{TABLE_CHARS_MAX - 1}}}")
NAMES_MAX: Final = 10_000  # names that are known to be right, so that none is looked at twice
_valid_names: Final[set[str]] = set()


@final
class CallContext:
    """Who calls, in which class, and until when a result is of use.

    `criticality` is the claim, else that of the caller (None: neither); a policy decides. `strong`
    bypasses every cache. `arrived_us` is when the request was read from its socket.
    """

    __slots__ = ("arrived_us", "criticality", "deadline_us", "identity", "strong")

    def __init__(
        self,
        identity: Identity,
        *,
        criticality: Criticality | None = None,
        deadline_us: int | None = None,
        arrived_us: int = 0,
        strong: bool = False,
    ) -> None:
        self.identity = identity
        self.criticality = identity.criticality if criticality is None else criticality
        self.deadline_us = deadline_us
        self.arrived_us = arrived_us
        self.strong = strong


class Row(NamedTuple):
    """A value and its sort key; `expires_us` 0 is never."""

    sort: bytes
    value: bytes
    expires_us: int = 0

    @property
    def size_bytes(self) -> int:
        """What key and value weigh."""
        return len(self.sort) + len(self.value)

    def unexpired(self, now_us: int) -> Row | None:
        """The row, unless its time is over."""
        return None if 0 < self.expires_us <= now_us else self


class RowPage(NamedTuple):
    """Rows in the requested order; a `token` that is not empty continues behind the last."""

    rows: Sequence[Row]
    token: bytes = b""


class Write(NamedTuple):
    """The new value of a place and its time to live (0: for ever); the value None deletes."""

    partition: bytes
    sort: bytes
    value: bytes | None
    ttl_us: int = 0


class WriteCondition(NamedTuple):
    """What must hold for a conditional write: no value, any value, or the value with this tag.

    `tag` is `tag_of` that value. Exactly one of the three is given.
    """

    absent: bool = False
    present: bool = False
    tag: bytes = b""


class WriteIfResult(NamedTuple):
    """Whether a conditional write was made, and the current row, if known and readable."""

    done: bool
    row: Row | None


# The rows at some places of a partition, None where there is none, and the instant, to the writes
# there. It must depend on nothing else: it may be called several times, on any thread, and the last
# call counts.
DecideRows: TypeAlias = "Callable[[Sequence[Row | None], int], Sequence[Write]]"


class RowsUpdate(NamedTuple):
    """Writes of these sort keys of one partition that depend on the rows there.

    `size_bytes` is about what they bring. `reveals` is whether its caller learns from it what the
    rows hold, and so must be allowed to read them.
    """

    partition: bytes
    sorts: Sequence[bytes]
    decide: DecideRows
    size_bytes: int = 0
    reveals: bool = True


class PlacePage(NamedTuple):
    """Places of a table, in an unspecified order; None as `after` is the end."""

    places: Sequence[Place]
    after: Place | None


class Upload(NamedTuple):
    """The state of a bulk upload.

    `state` is open, sealing, folding, done or abandoned. `parts` are the numbers, from 0, of those
    that are stored; a client that resumes sends the others.
    """

    table: str
    name: str
    mode: str  # merge: into what is there; replace: in place of it
    state: str
    parts: Sequence[int]
    rows: int
    bytes: int
    begun_us: int
    by: str


def tag_of(value: bytes) -> bytes:
    """Return the tag of a value, for conditions and ETags."""
    return blake2b(value, digest_size=TAG_BYTES).digest()


def check_table(table: str) -> None:
    """Raise `BadValue` for an invalid table name."""
    if table in _valid_names:
        return
    if not _TABLE.fullmatch(table):
        remedy = f"name a table by 1 to {TABLE_CHARS_MAX} of a-z, 0-9 and - _ . after the first"
        raise BadValue("table", table, remedy)
    if len(_valid_names) < NAMES_MAX:
        _valid_names.add(table)


def check_key(partition: bytes, sort: bytes) -> None:
    """Raise `BadValue` for a partition or a sort key beyond its bounds."""
    if not 0 < len(partition) <= PARTITION_BYTES_MAX:
        raise BadValue("partition", partition, f"give from 1 to {PARTITION_BYTES_MAX} bytes")
    if len(sort) > SORT_BYTES_MAX:
        raise BadValue("sort key", sort, f"give at most {SORT_BYTES_MAX} bytes")


class Uploads(Protocol):
    """Bulk uploads: loaded beside live traffic, then visible at once. All need the grant BULK."""

    async def begin(self, table: str, name: str, mode: str, call: CallContext) -> Upload:
        """Open an upload of that name, or return the one there is."""

    async def part(
        self, table: str, name: str, number: int, rows: bytes, sha256: bytes, call: CallContext
    ) -> Upload:
        """Store one part (`wire/row_stream.py`) durably; the same part again changes nothing.

        `sha256` is that of `rows`; a part that does not match it is refused.
        """

    async def commit(
        self, table: str, name: str, parts: int, rows: int, sha256: bytes, call: CallContext
    ) -> Upload:
        """Make it visible, if it is complete: so many parts and rows.

        `sha256` is that of the parts' own digests, one behind the other in their order.
        """

    async def abandon(self, table: str, name: str, call: CallContext) -> Upload:
        """Drop what was loaded."""

    async def show(self, table: str, name: str, call: CallContext) -> Upload:
        """Return its state."""

    async def all(self, table: str, call: CallContext) -> Sequence[Upload]:
        """Return those that are open, and the last that ended."""


class KeyValues(Protocol):
    """A dispatcher, as its doors see it."""

    @property
    def uploads(self) -> Uploads:
        """Bulk uploads."""

    def get(
        self, table: str, partition: bytes, sort: bytes, call: CallContext
    ) -> MaybeAwaitable[Row | None]:
        """Return the row at one place. All that only read need READ on the table."""

    def get_each(
        self, table: str, places: Sequence[Place], call: CallContext
    ) -> MaybeAwaitable[Sequence[Row | None]]:
        """Return the rows at these places, in their order."""

    def scan(
        self, table: str, partition: bytes, span: KeyRange, call: CallContext, token: bytes = b""
    ) -> Awaitable[RowPage]:
        """Return rows of one partition; `token` continues behind an earlier page."""

    def walk(
        self, table: str, after: Place | None, rows_max: int, call: CallContext
    ) -> Awaitable[PlacePage]:
        """Return places of the whole table, page by page."""

    def write(self, table: str, writes: Sequence[Write], call: CallContext) -> Awaitable[None]:
        """Put and delete durably; one partition all or none. All that write need WRITE."""

    def write_if(
        self, table: str, write: Write, condition: WriteCondition, call: CallContext
    ) -> Awaitable[WriteIfResult]:
        """Write if the condition holds, atomically. A tag, and a row in return, need READ too."""

    def update(self, table: str, update: RowsUpdate, call: CallContext) -> Awaitable[None]:
        """Read rows, have it decided, and write, as one; READ too is needed if it `reveals`."""

    def remove(self, table: str, places: Sequence[Place], call: CallContext) -> Awaitable[int]:
        """Delete these; return how many were there. Of several who remove a row, one has it."""

    def expire(
        self, table: str, partition: bytes, sort: bytes, ttl_us: int, call: CallContext
    ) -> Awaitable[bool]:
        """Set the time to live of a row (0: for ever); return whether there was one."""
