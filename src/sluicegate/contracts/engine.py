"""Engine: where the values of a key-value store are, in order, on a disk or in a cluster.

An engine is deliberately simple. It stores bytes in *spaces*: in each space partitions, in each of
them sort keys in the order of their bytes, and a value at each. What a value means, which table a
space belongs to, who may read it and what has expired is known above (`apps/kv/tables`).

Its promises, which `sluicegate.testing.engines` checks for every engine:

- What `write`, `swap`, `update` or `load` has returned for is there after a kill of this process,
  and after a kill of the engine as far as its `durability` says.
- The changes of one call in one partition of one space happen all or none, and no reader sees some
  of them. Of one place named twice, the later change counts.
- `swap` compares and writes atomically, and `update` reads and writes so.
- A read begun after a write has returned, in this process or another, sees it.

An embedded engine may answer at once, without an awaitable; a caller must be ready for both. An
engine that cannot answer raises `Unavailable`, and never guesses. A change that may have been made
all the same raises `OutcomeUnknown`; any other error of a change means that nothing was made. Only
`load` may have written a part whatever it raises: load again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias, cast

from sluicegate.contracts.checks import MaybeAwaitable

ROWS_MAX_DEFAULT: Final = 100
BYTES_MAX_DEFAULT: Final = 1 << 20
SPACE_CHARS_MAX: Final = 120  # of a-z, 0-9 and - _ . /
PARTITION_BYTES_MAX: Final = 240  # at least one
SORT_BYTES_MAX: Final = 240  # none is a sort key too, the first of all
VALUE_BYTES_MAX: Final = 16 << 20

# A partition and a sort key in it.
Place: TypeAlias = "tuple[bytes, bytes]"
# The same, and the value there.
Entry: TypeAlias = "tuple[bytes, bytes, bytes]"


class Change(NamedTuple):
    """The new value of a place; None deletes.

    From `purge_us` on (0 is never) nobody will read it: an engine may drop it by itself, at any
    time after that or never.
    """

    space: str
    partition: bytes
    sort: bytes
    value: bytes | None
    purge_us: int = 0


# The values at some places of a partition, None where there is none, to the changes there. It must
# depend on nothing else: an engine may call it several times, on any thread; the last call counts.
Decide: TypeAlias = "Callable[[Sequence[bytes | None]], Sequence[Change]]"


class Update(NamedTuple):
    """Changes of these sort keys of one partition that depend on the values there.

    `size_bytes` is about how much `decide` holds: an engine bounds what waits for it by this.
    """

    space: str
    partition: bytes
    sorts: Sequence[bytes]
    decide: Decide
    size_bytes: int = 0


class KeyRange(NamedTuple):
    """Sort keys with `begin` <= key < `end` (None: to the last), from either side.

    At most `rows_max` rows, and no further one once keys and values make `bytes_max`.
    """

    begin: bytes = b""
    end: bytes | None = None
    reverse: bool = False
    rows_max: int = ROWS_MAX_DEFAULT
    bytes_max: int = BYTES_MAX_DEFAULT


class EnginePage(NamedTuple):
    """Rows of one partition in the requested order, as (sort key, value).

    `more` says whether there are rows behind the last one. What the engine looked at may be more
    than what it returns.
    """

    rows: Sequence[tuple[bytes, bytes]]
    more: bool
    rows_scanned: int
    bytes_scanned: int


class Engine(Protocol):
    """Ordered bytes, stored."""

    @property
    def name(self) -> str:
        """The scheme of its URL, for messages and metrics."""

    @property
    def durability(self) -> str:
        """One sentence: what an acknowledged write survives."""

    @property
    def shared(self) -> bool:
        """Whether several processes may use it at once."""

    def read(self, space: str, places: Sequence[Place]) -> MaybeAwaitable[Sequence[bytes | None]]:
        """Return the values at these places, in their order; None where there is none."""

    def scan(self, space: str, partition: bytes, span: KeyRange) -> MaybeAwaitable[EnginePage]:
        """Return the rows of the range, at least one if there is any.

        To go on: forwards from the last key and a zero byte, backwards with the last key as `end`.
        """

    async def write(self, changes: Sequence[Change]) -> None:
        """Make these changes, durably."""

    async def swap(self, change: Change, expected: bytes | None) -> bool:
        """Make the change if the value there is `expected` (None: none); return whether it was."""

    async def update(self, update: Update) -> bool:
        """Read, have it decided, and make the changes, as one; return whether there were any."""

    async def load(self, space: str, entries: Sequence[Entry]) -> None:
        """Write many, durably when it returns; loading them again is idempotent."""

    async def walk(self, space: str, after: Place | None, rows_max: int) -> Sequence[Entry]:
        """Return entries of the whole space behind `after`, in an order of the engine's own.

        None begins; an empty page is the end. What is there throughout a walk is returned once.
        """

    async def drop(self, space: str) -> None:
        """Drop a whole space, and free its room in time."""

    def shard_of(self, space: str, partition: bytes) -> str:
        """Return the part of the engine that serves this partition, and can be slow by itself."""

    async def close(self) -> None:
        """Free all resources; what was acknowledged stays."""


class EngineHealth(NamedTuple):
    """Whether an engine can be used, and what damage its reads have met."""

    unusable: str = ""  # why it cannot be used now; empty if it can
    damaged: int = 0  # reads of rows that failed their checks


HEALTHY: Final = EngineHealth()


def health_of(engine: Engine) -> EngineHealth:
    """Return the health of an engine; a remote engine is always `HEALTHY`."""
    health = getattr(engine, "health", None)
    return HEALTHY if health is None else cast("EngineHealth", health())


class BackupSource(Protocol):
    """An engine that can be copied while it works."""

    async def backup(self, folder: str) -> int:
        """Copy one instant into an empty folder, durable when it returns; return its bytes."""
