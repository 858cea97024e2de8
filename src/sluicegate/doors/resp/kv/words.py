"""Words: the numbers in a command, and the bytes that are written there as hex digits."""

from __future__ import annotations

from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.wire.resp import text_of, whole_number

NUMBER_MAX: Final = 1 << 53


def number_of(field: str, word: bytes, least: int) -> int:
    """A whole number from `least` to 2^53."""
    try:
        number = whole_number(word)
    except ValueError:
        number = least - 1
    if not least <= number <= NUMBER_MAX:
        raise BadValue(field, text_of(word), f"give a whole number from {least} on")
    return number


def bytes_of(field: str, word: bytes, size: int, whence: str = "") -> bytes:
    """Exactly so many bytes; `whence` goes on with the remedy."""
    try:
        found = bytes.fromhex(word.decode("ascii"))
    except ValueError:
        found = b""
    if len(found) != size:
        raise BadValue(field, text_of(word), f"give {2 * size} hex digits{whence}")
    return found
