"""Node words: names and numbers in what the nodes of a cluster say to each other, checked."""

from __future__ import annotations

from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.wire.resp import whole_number
from sluicegate.wire.text import text_of

NAME_BYTES_MAX: Final = 1_024
WHOLE_MAX: Final = (1 << 53) - 1


def check_version(field: str, word: object, version: int) -> None:
    """Refuse what is of another version."""
    found = whole_of(field, word, WHOLE_MAX)
    if found != version:
        raise BadValue(field, found, f"run nodes that say version {version}")


def name_of(field: str, word: object) -> str:
    """A name of a node or an account."""
    if not isinstance(word, bytes) or not 0 < len(word) <= NAME_BYTES_MAX:
        raise BadValue(field, word, f"give from 1 to {NAME_BYTES_MAX} bytes")
    return text_of(word)


def whole_of(field: str, word: object, most: int) -> int:
    """A whole number from 0 to `most`."""
    number = -1
    if isinstance(word, bytes):
        try:
            number = whole_number(word)
        except ValueError:
            raise BadValue(field, text_of(word), "give a whole number") from None
    elif isinstance(word, int):
        number = word
    if not 0 <= number <= most:
        raise BadValue(field, word, f"give a whole number from 0 to {most}")
    return number
