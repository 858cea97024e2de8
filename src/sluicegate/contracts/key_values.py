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

from collections.abc import Awaitable, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol, final

from sluicegate.contracts.access import Identity
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.engine import Place

TABLE_CHARS_MAX: Final = 64  # of a-z, 0-9 and - _ .
TAG_BYTES: Final = 16
ROWS_MAX_DEFAULT: Final = 100
BYTES_MAX_DEFAULT: Final = 1 << 20


@final
class CallContext:
    """Who asks, how much it matters, and until when it is of use.

    `criticality` is what is claimed (None: the caller's default); a policy settles it. `strong`
    passes by every cache. `arrived_us` is when the request was read off its socket.
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
        self.criticality = criticality
        self.deadline_us = deadline_us
        self.arrived_us = arrived_us
        self.strong = strong


class Row(NamedTuple):
    """A value and where in its partition it is; `expires_us` 0 is never."""

    sort: bytes
    value: bytes
    expires_us: int = 0


class KeyRange(NamedTuple):
    """Sort keys with `begin` <= key < `end` (None: to the last), from either side."""

    begin: bytes = b""
    end: bytes | None = None
    reverse: bool = False
    rows_max: int = ROWS_MAX_DEFAULT
    bytes_max: int = BYTES_MAX_DEFAULT


class RowPage(NamedTuple):
    """Rows in the order asked for; a `token` that is not empty goes on behind the last."""

    rows: Sequence[Row]
    token: bytes = b""


class Write(NamedTuple):
    """The value that a place is to have, for so long (0: for ever); None deletes it."""

    partition: bytes
    sort: bytes
    value: bytes | None
    ttl_us: int = 0


class WriteCondition(NamedTuple):
    """What must hold for a conditional write: nothing there, something there, or this very value.

    `tag` is `tag_of` the value that must be there. Exactly one of the three is said.
    """

    absent: bool = False
    present: bool = False
    tag: bytes = b""


class WriteIfResult(NamedTuple):
    """Whether a conditional write was made, and the row that is there now, if it is known."""

    done: bool
    row: Row | None


class PlacePage(NamedTuple):
    """Places of a table in no order to rely on; None as `after` is the end."""

    places: Sequence[Place]
    after: Place | None


class Upload(NamedTuple):
    """A bulk upload as it stands.

    `state` is open, sealing, folding, done or abandoned. `parts` are the numbers, from 0, of those
    that are kept; whoever resumes sends the others.
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
    """What a value is known by in conditions and ETags."""
    return blake2b(value, digest_size=TAG_BYTES).digest()


class Uploads(Protocol):
    """Bulk uploads: loaded beside live traffic, then visible at once. All need BULK there."""

    async def begin(self, table: str, name: str, mode: str, call: CallContext) -> Upload:
        """Open an upload of that name, or find it as it stands."""

    async def part(
        self, table: str, name: str, number: int, rows: bytes, sha256: bytes, call: CallContext
    ) -> Upload:
        """Keep one part (`wire/row_stream.py`), durably; the same part again changes nothing.

        `sha256` is that of `rows`; a part that does not match it is not kept.
        """

    async def commit(
        self, table: str, name: str, parts: int, rows: int, sha256: bytes, call: CallContext
    ) -> Upload:
        """Make it visible, if it is whole: so many parts and rows.

        `sha256` is that of the parts' own digests, one behind the other in their order.
        """

    async def abandon(self, table: str, name: str, call: CallContext) -> Upload:
        """Forget what was loaded."""

    async def show(self, table: str, name: str, call: CallContext) -> Upload:
        """How it stands."""

    async def all(self, table: str, call: CallContext) -> Sequence[Upload]:
        """Those that are open, and the last that were."""


class KeyValues(Protocol):
    """A dispatcher, as its doors see it."""

    @property
    def uploads(self) -> Uploads:
        """Bulk uploads."""

    def get(
        self, table: str, partition: bytes, sort: bytes, call: CallContext
    ) -> MaybeAwaitable[Row | None]:
        """The row at one place. Needs READ on the table, as do all that only read."""

    def get_each(
        self, table: str, places: Sequence[Place], call: CallContext
    ) -> MaybeAwaitable[Sequence[Row | None]]:
        """The rows at these places, in their order."""

    def scan(
        self, table: str, partition: bytes, span: KeyRange, call: CallContext, token: bytes = b""
    ) -> Awaitable[RowPage]:
        """Rows of one partition; `token` goes on where an earlier answer ended."""

    def walk(
        self, table: str, after: Place | None, rows_max: int, call: CallContext
    ) -> Awaitable[PlacePage]:
        """Places of the whole table, for who looks at all of it."""

    def write(self, table: str, writes: Sequence[Write], call: CallContext) -> Awaitable[None]:
        """Put and delete, durably; those in one partition all or none. Needs WRITE on the table."""

    def write_if(
        self, table: str, write: Write, condition: WriteCondition, call: CallContext
    ) -> Awaitable[WriteIfResult]:
        """Write if the condition holds, as one."""

    def remove(self, table: str, places: Sequence[Place], call: CallContext) -> Awaitable[int]:
        """Delete these, and tell how many were there."""

    def expire(
        self, table: str, partition: bytes, sort: bytes, ttl_us: int, call: CallContext
    ) -> Awaitable[bool]:
        """Let what is there expire after so long (0: never); whether there was anything."""
