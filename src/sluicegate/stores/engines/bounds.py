"""Bounds: what every engine checks of a call, and how a place is one key of an embedded engine.

The layers above have checked already, with messages for users; an engine checks again, since a key
that is too long would lie in another partition than the one it was meant for.

    4 bytes the space's number | 1 byte the partition's length | the partition | the sort key

Numbers count up and are never given twice, so what is left of a dropped space is never taken for a
new one. Byte order within a partition is the order of the sort keys. The longest key has 485
bytes, and LMDB takes 511. A walk goes in this order: shorter partitions first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from sluicegate.contracts.engine import (
    PARTITION_BYTES_MAX,
    SORT_BYTES_MAX,
    SPACE_CHARS_MAX,
    VALUE_BYTES_MAX,
    Change,
    Place,
    Update,
)
from sluicegate.contracts.errors import BadValue

CHANGE_BYTES: Final = 64  # that a change weighs besides its keys and its value
WALK_BYTES_MAX: Final = 16 << 20  # of values that a walk tells at once, if it is more than one
NUMBER_BYTES: Final = 4
NUMBER_MAX: Final = (1 << 31) - 1
_SPACE: Final = re.compile(rf"[a-z0-9._/-]{{1,{SPACE_CHARS_MAX}}}", re.ASCII)


def check_space(space: str) -> None:
    """Raise `BadValue` for what cannot be a space's name."""
    if _SPACE.fullmatch(space) is None:
        raise BadValue(
            "space", space, f"give 1 to {SPACE_CHARS_MAX} characters of a-z, 0-9 and - _ . /"
        )


def check_place(partition: bytes, sort: bytes) -> None:
    """Raise `BadValue` for an invalid place."""
    if not 0 < len(partition) <= PARTITION_BYTES_MAX:
        raise BadValue("partition", partition, f"give 1 to {PARTITION_BYTES_MAX} bytes")
    if len(sort) > SORT_BYTES_MAX:
        raise BadValue("sort", sort, f"give at most {SORT_BYTES_MAX} bytes")


def check_after(after: Place | None) -> None:
    """Raise `BadValue` for what no walk returned; the empty place is before the first."""
    if after is not None and after != (b"", b""):
        partition, sort = after
        if not 0 < len(partition) <= PARTITION_BYTES_MAX or len(sort) > SORT_BYTES_MAX:
            raise BadValue("after", after, "send the last place that the walk told, or none")


def check_changes(changes: Sequence[Change]) -> int:
    """Raise `BadValue` for a change that no engine makes; what they weigh together, in bytes."""
    weight = 0
    space_seen: str | None = None
    for space, partition, sort, value, _ in changes:
        if space != space_seen:
            check_space(space)
            space_seen = space
        check_place(partition, sort)
        weight += CHANGE_BYTES + len(partition) + len(sort)
        if value is not None:
            if len(value) > VALUE_BYTES_MAX:
                raise BadValue("value", value, f"give at most {VALUE_BYTES_MAX} bytes")
            weight += len(value)
    return weight


def check_update(update: Update) -> int:
    """Raise `BadValue` for places that cannot be; return what the update weighs, in bytes."""
    check_space(update.space)
    if not update.sorts:
        raise BadValue("sorts", update.sorts, "give one sort key at least")
    for sort in update.sorts:
        check_place(update.partition, sort)
    return CHANGE_BYTES * len(update.sorts) + update.size_bytes


def decide_changes(update: Update, values: Sequence[bytes | None]) -> Sequence[Change]:
    """Return what is decided for these values; raise `BadValue` for a change of anything else."""
    changes = update.decide(values)
    check_changes(changes)
    for change in changes:
        if (
            change.space != update.space
            or change.partition != update.partition
            or change.sort not in update.sorts
        ):
            place = (change.space, change.partition, change.sort)
            raise BadValue("update", place, "change only what the update names")
    return changes


def swap_of(change: Change, expected: bytes | None) -> Update:
    """Return the update that makes a change if the value there is `expected`."""
    return Update(
        change.space,
        change.partition,
        (change.sort,),
        lambda values: (change,) if values[0] == expected else (),
        0 if change.value is None else len(change.value),
    )


def check_rows_max(rows_max: int) -> None:
    """Raise `BadValue` for a read of nothing."""
    if rows_max < 1:
        raise BadValue("rows_max", rows_max, "ask for one row at least")


def number_bytes(number: int) -> bytes:
    """A space's number as the beginning of its keys."""
    return number.to_bytes(NUMBER_BYTES, "big")


def prefix_of(number: bytes, partition: bytes) -> bytes:
    """What all keys of a partition begin with, and no other."""
    return b"%b%c%b" % (number, len(partition), partition)


def key_of(number: bytes, partition: bytes, sort: bytes) -> bytes:
    """The key of a place."""
    return b"%b%c%b%b" % (number, len(partition), partition, sort)


def behind(prefix: bytes) -> bytes:
    """The least key behind all that begin with `prefix`, which begins with a space's number."""
    # A number is never as high as 0xffffffff, so there is a byte to count up.
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes((head[-1] + 1,))


def place_of(key: bytes) -> tuple[bytes, bytes]:
    """The partition and the sort key."""
    sort_at = NUMBER_BYTES + 1 + key[NUMBER_BYTES]
    return key[NUMBER_BYTES + 1 : sort_at], key[sort_at:]
