"""Names: how a place is written as one key, `table:partition[:sort]`, and read back.

The first colon ends the table, the next one the partition; what is behind it is the sort key,
colons included. In partition and sort key `%` and two hex digits stand for a byte: `%3A` is how a
partition holds a colon, `%25` how either holds a `%`. All other bytes stand for themselves. What we
tell is written so too, and can be said back.
"""

from __future__ import annotations

from typing import Final

from sluicegate.contracts.engine import PARTITION_BYTES_MAX, SORT_BYTES_MAX
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.key_values import TABLE_CHARS_MAX
from sluicegate.wire.resp import whole_number
from sluicegate.wire.text import text_of

# Every byte may be written with three, and there are two colons.
KEY_BYTES_MAX: Final = TABLE_CHARS_MAX + 3 * (PARTITION_BYTES_MAX + SORT_BYTES_MAX) + 2

INTEGER_MIN: Final = -(1 << 63)
INTEGER_MAX: Final = (1 << 63) - 1
INTEGER_DIGITS_MAX: Final = 20  # with the sign

_FORM: Final = "write it table:partition or table:partition:sort, %3A for a colon in the partition"
_HEX: Final = b"0123456789abcdefABCDEF"


def place_of(key: bytes) -> tuple[str, bytes, bytes]:
    """Table, partition and sort key of a key."""
    check_length("key", key)
    colon = key.find(b":")
    if colon <= 0:
        raise BadValue("key", text_of(key), _FORM)
    after = key.find(b":", colon + 1)
    if after < 0:
        partition, sort = key[colon + 1 :], b""
    else:
        partition, sort = key[colon + 1 : after], key[after + 1 :]
    if not partition:
        raise BadValue("key", text_of(key), _FORM)
    if b"%" in key:
        partition, sort = unescape(partition), unescape(sort)
    return table_of(key[:colon]), partition, sort


def partition_of(key: bytes) -> tuple[str, bytes]:
    """Table and partition of `table:partition`."""
    table, partition, sort = place_of(key)
    if sort:
        raise BadValue("key", text_of(key), "write table:partition; sort keys come behind it")
    return table, partition


def table_of(name: bytes) -> str:
    """A table's name; which names there are is not decided here."""
    try:
        return name.decode("ascii")
    except UnicodeDecodeError:
        raise BadValue("table", text_of(name), "use a-z, 0-9, - _ and .") from None


def key_of(table: str, partition: bytes, sort: bytes) -> bytes:
    """The key of a place."""
    if b"%" in partition or b":" in partition:
        partition = partition.replace(b"%", b"%25").replace(b":", b"%3A")
    name = table.encode("ascii")
    return b"%b:%b:%b" % (name, partition, escape(sort)) if sort else b"%b:%b" % (name, partition)


def normalize_key(key: bytes) -> bytes:
    """The one way to write this key; what is none stays as it is."""
    if len(key) > KEY_BYTES_MAX or (b"%" not in key and not key.endswith(b":")):
        return key
    try:
        table, partition, sort = place_of(key)
    except BadValue:
        return key
    return key_of(table, partition, sort)


def escape(sort: bytes) -> bytes:
    """A sort key as it is written."""
    return sort.replace(b"%", b"%25") if b"%" in sort else sort


def unescape(text: bytes) -> bytes:
    """The bytes that were written so."""
    check_length("key", text)
    first, *rest = text.split(b"%")
    out = [first]
    for piece in rest:
        if len(piece) < 2 or piece[0] not in _HEX or piece[1] not in _HEX:
            raise BadValue("key", text_of(text), "write % as %25, and any byte as % and two digits")
        out.append(bytes((int(piece[:2], 16),)))
        out.append(piece[2:])
    return b"".join(out)


def check_length(field: str, text: bytes) -> None:
    """Refuse at once what is longer than any key: nothing is read, shown or unescaped of it."""
    if len(text) > KEY_BYTES_MAX:
        raise BadValue(field, f"{len(text):,} bytes", f"give at most {KEY_BYTES_MAX:,} bytes")


NUMBER_MAX: Final = 1 << 53


def integer_of(text: bytes) -> int | None:
    """Return the number of 64 bits that is written so, in the one way that Redis takes it."""
    if not 0 < len(text) <= INTEGER_DIGITS_MAX:
        return None
    try:
        number = int(text)
    except ValueError:
        return None
    return number if INTEGER_MIN <= number <= INTEGER_MAX and b"%d" % number == text else None


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
