"""Shield keys: one spelling for one place, so that different places never share a response.

    table [@turn] : length of the partition : partition sort

A table's name holds neither `@` nor `:`, and the length says where the partition ends, so no two
places are spelt alike. Bytes stand as the characters of their numbers. The turn counts how often
the whole table was replaced; a new turn makes new keys, and what was cached under the old ones is
never found again. Each process counts turns for itself; keys between dispatchers have none.
"""

from __future__ import annotations

from typing import Final

from sluicegate.contracts.engine import PARTITION_BYTES_MAX, SORT_BYTES_MAX
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.key_values import TABLE_CHARS_MAX

# The longest there is: two separators, three digits of a length, and a turn of 20 digits.
KEY_CHARS_MAX: Final = TABLE_CHARS_MAX + PARTITION_BYTES_MAX + SORT_BYTES_MAX + 26


def key_of(table: str, partition: bytes, sort: bytes, turn: int = 0) -> str:
    """The key of a place."""
    spelt = (partition + sort).decode("latin-1")
    if turn:
        return f"{table}@{turn}:{len(partition)}:{spelt}"
    return f"{table}:{len(partition)}:{spelt}"


def place_of(key: str) -> tuple[str, bytes, bytes]:
    """The table, partition and sort key of a key."""
    head, _, rest = key.partition(":")
    length, found, spelt = rest.partition(":")
    if not found or not (length.isascii() and length.isdigit()) or len(length) > 3:
        raise BadValue("key", key, "a hot key is written as table:length:partition and sort key")
    try:
        raw = spelt.encode("latin-1")
    except UnicodeEncodeError:
        raise BadValue("key", key, "its characters stand for bytes, U+0000 to U+00FF") from None
    size = int(length)
    if size > len(raw):
        raise BadValue("key", key, f"its partition is said to have {size} bytes")
    return head.partition("@")[0], raw[:size], raw[size:]


def without_turn(key: str) -> str:
    """The key as other dispatchers know it."""
    head, colon, rest = key.partition(":")
    return head.partition("@")[0] + colon + rest
