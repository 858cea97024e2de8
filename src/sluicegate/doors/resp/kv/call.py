"""Call: turn a command into a call of the service, and the result into a reply.

A place is one key, `table:partition[:sort]`. The first colon ends the table, the next one the
partition; the rest is the sort key, colons included. In a partition and a sort key, `%` and two hex
digits stand for a byte: write a colon in a partition as `%3A`, and `%` as `%25`. All other bytes
stand for themselves. Keys in replies have the same form.

A `CallContext` is made when its command runs, from the options that the connection has set before.
A result that needs no waiting is written at once. Otherwise the result is a coroutine, and an error
in it becomes the reply.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import parse_criticality
from sluicegate.contracts.engine import PARTITION_BYTES_MAX, SORT_BYTES_MAX
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.key_values import TABLE_CHARS_MAX, CallContext, KeyValues
from sluicegate.doors.resp.errors import SYNTAX
from sluicegate.doors.resp.session import Session, identity_of
from sluicegate.wire.resp import OK, whole_number
from sluicegate.wire.text import text_of

# Every byte may be written with three, and there are two colons.
KEY_BYTES_MAX: Final = TABLE_CHARS_MAX + 3 * (PARTITION_BYTES_MAX + SORT_BYTES_MAX) + 2

INTEGER_MIN: Final = -(1 << 63)
INTEGER_MAX: Final = (1 << 63) - 1
INTEGER_DIGITS_MAX: Final = 20  # with the sign
NUMBER_MAX: Final = 1 << 53

_FORM: Final = "write it table:partition or table:partition:sort, %3A for a colon in the partition"
_HEX: Final = b"0123456789abcdefABCDEF"

LONG_BYTES: Final = 4_096  # a longer value is sent without a copy
MS_MAX: Final = 1 << 43  # some 280 years

_NOTHING: Final = b"$-1\r\n"
_NULL: Final = b"_\r\n"
_MS: Final = 1_000


def place_of(key: bytes) -> tuple[str, bytes, bytes]:
    """Table, partition and sort key of a key."""
    if len(key) > KEY_BYTES_MAX:
        raise _too_long("key", key)
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
    name = key[:colon]
    return name.decode("ascii") if name.isascii() else table_of(name), partition, sort


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
    """Return the canonical form of a key; text that is no key is returned unchanged."""
    if len(key) > KEY_BYTES_MAX or (b"%" not in key and not key.endswith(b":")):
        return key
    try:
        table, partition, sort = place_of(key)
    except BadValue:
        return key
    return key_of(table, partition, sort)


def escape(sort: bytes) -> bytes:
    """Return a sort key in the form that a key has."""
    return sort.replace(b"%", b"%25") if b"%" in sort else sort


def unescape(text: bytes) -> bytes:
    """Return the bytes of an escaped text."""
    if len(text) > KEY_BYTES_MAX:
        raise _too_long("key", text)
    first, *rest = text.split(b"%")
    out = [first]
    for piece in rest:
        if len(piece) < 2 or piece[0] not in _HEX or piece[1] not in _HEX:
            raise BadValue("key", text_of(text), "write % as %25, and any byte as % and two digits")
        out.append(bytes((int(piece[:2], 16),)))
        out.append(piece[2:])
    return b"".join(out)


def _too_long(field: str, text: bytes) -> BadValue:
    """Return the error of a text longer than any key, without the text."""
    return BadValue(field, f"{len(text):,} bytes", f"give at most {KEY_BYTES_MAX:,} bytes")


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
    """Return exactly `size` bytes; `whence` ends the remedy of the error."""
    try:
        found = bytes.fromhex(word.decode("ascii"))
    except ValueError:
        found = b""
    if len(found) != size:
        raise BadValue(field, text_of(word), f"give {2 * size} hex digits{whence}")
    return found


def key_values(session: Session) -> KeyValues:
    """Return the service."""
    service: KeyValues = session.state.service
    return service


def call_of(session: Session, strong: bool = False) -> CallContext:
    """Return the caller, its options and its deadline; a `strong` read passes by every cache.

    The deadline counts from the moment the command was read. The time that it then waited behind
    other commands of its connection is not a queue of the service.
    """
    timeout_us = session.timeout_us
    return CallContext(
        session.identity or identity_of(session),
        criticality=session.criticality,
        deadline_us=session.arrived_us + timeout_us if timeout_us else None,
        arrived_us=session.ready_us,
        strong=strong or session.strong,
    )


def now_us(session: Session) -> int:
    """Return the present instant."""
    clock: Clock | None = session.state.clock
    if clock is None:
        raise BadValue("clock", None, "hand one to the door")
    return clock.now_us()


def null_reply(session: Session) -> bytes:
    """Return null in the connection's protocol."""
    return _NULL if session.protocol == 3 else _NOTHING


def bulk(value: bytes) -> bytes:
    """Return the reply of a value."""
    return b"$%d\r\n%b\r\n" % (len(value), value)


def add_bulk(reply: list[bytes], value: bytes) -> None:
    """Append the reply of a value; a long value is not copied."""
    if len(value) < LONG_BYTES:
        reply.append(bulk(value))
        return
    reply.append(b"$%d\r\n" % len(value))
    reply.append(value)
    reply.append(b"\r\n")


def integer(number: int) -> bytes:
    """Return the reply of a number."""
    return b":%d\r\n" % number


async def await_ok(work: Awaitable[None]) -> bytes:
    """Await the work, and return OK."""
    await work
    return OK


def set_deadline(session: Session, parts: list[bytes]) -> bytes:
    """SG.DEADLINE ms: set the time that each later command has; 0 removes the deadline."""
    try:
        timeout_ms = whole_number(parts[1])
    except ValueError:
        timeout_ms = -1
    if not 0 <= timeout_ms <= MS_MAX:
        raise BadValue("ms", text_of(parts[1]), f"give milliseconds from 0 (none) to {MS_MAX}")
    session.timeout_us = timeout_ms * _MS
    return OK


def set_criticality(session: Session, parts: list[bytes]) -> bytes:
    """SG.CRITICALITY class | DEFAULT: set the class of later commands."""
    name = text_of(parts[1])
    session.criticality = None if name.upper() == "DEFAULT" else parse_criticality(name)
    return OK


def set_strong(session: Session, parts: list[bytes]) -> bytes:
    """SG.STRONG ON | OFF: set whether later commands pass by every cache."""
    word = parts[1].upper()
    if word not in (b"ON", b"OFF"):
        return SYNTAX
    session.strong = word == b"ON"
    return OK
