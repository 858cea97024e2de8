"""Protobuf's wire format: the few pieces that a codec of known messages is made of.

Sans-I/O, and no schema: a message's own file knows its fields. Reading works on one `bytes` between
two positions, so that what is nested is never copied; every piece is handed the field's name, and
what cannot be read is `BadValue` of it. A 64-bit number is read as a signed one, as it lies there;
`unsigned64` makes it the other.

What we refuse and a lenient reader would skip: groups, which nothing has written since 2008, and a
known field of another wire type, which is a client made from another schema. And more fields than
any honest message has: a field takes two bytes to send, and far more to read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.native import i64
from sluicegate.wire.text import shorten, text_of

VARINT: Final = 0
FIXED64: Final = 1
SPAN: Final = 2  # a length, and so many bytes
FIXED32: Final = 5

# Fields of a message beside those that repeat up to a bound of their own. A schema has a dozen; a
# message of nothing but unknown fields, or of one field again and again, is work for nothing.
FIELDS_MAX: Final = 256

UINT32_MAX: Final = (1 << 32) - 1
INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1
_UINT64_SIZE: Final = 1 << 64
_TOP_BIT_AT: Final = 63  # a varint's tenth byte has one bit to say
_SHORT_BYTES_MAX: Final = 5  # of a tag or a length: no reader of protobuf takes more
_SPREAD_BITS_MAX: Final = 49  # seven bytes of a varint; an eighth would touch the sign

_ONE: Final[list[bytes]] = [bytes([value]) for value in range(128)]
_MINUS_ONE: Final = b"\xff" * 9 + b"\x01"

_TYPES: Final = ("a varint", "64 bits", "a length and bytes", "a group", "a group's end", "32 bits")


# Reading.


def varint(data: bytes, at: i64, end: i64, field: str) -> tuple[i64, i64]:
    """A varint as a signed 64-bit number, and where the next piece begins."""
    if at < end:
        first: i64 = data[at]
        if first < 128:
            return first, at + 1
    value: i64 = 0
    shift: i64 = 0
    while at < end:
        byte: i64 = data[at]
        at += 1
        if shift == _TOP_BIT_AT:
            if byte > 1:
                raise BadValue(field, data[at - 10 : at], "give a varint of at most 64 bits")
            # The sign, without a step outside of what a machine integer holds.
            return (value - INT64_MAX - 1 if byte == 1 else value), at
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise _cut(field, end)


def tag_at(data: bytes, at: i64, end: i64, field: str) -> tuple[i64, i64]:
    """The tag of a field of the message `field`, and where its value begins."""
    tag, begin = varint(data, at, end, field)
    if begin - at > _SHORT_BYTES_MAX or tag > UINT32_MAX:
        raise BadValue(field, data[at:begin], "give tags of 32 bits, in five bytes at most")
    return tag, begin


def span(data: bytes, at: i64, end: i64, field: str) -> tuple[i64, i64]:
    """Where the bytes of a string, of bytes or of a message begin and end."""
    size, begin = varint(data, at, end, field)
    if size < 0 or size > end - begin:
        raise _cut(field, end)
    if begin - at > _SHORT_BYTES_MAX:
        raise BadValue(field, data[at:begin], "give a length in five bytes at most")
    return begin, begin + size


def text(data: bytes, begin: i64, end: i64, field: str, bytes_max: i64) -> str:
    """A string; only what is UTF-8."""
    if end - begin > bytes_max:
        raise BadValue(
            field, f"{end - begin:,} bytes", f"send at most {bytes_max:,} (text_bytes_max)"
        )
    piece = data[begin:end]
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        raise BadValue(field, piece, "give text in UTF-8") from None


def any_text(data: bytes, begin: i64, end: i64, bytes_max: i64) -> str:
    """What a caller says of itself: any bytes as text; beyond the bound, a digest."""
    text = text_of(data[begin:end])
    return text if len(text) <= bytes_max else shorten(text, bytes_max)


def skip_field(data: bytes, at: i64, end: i64, tag: i64, names: Sequence[str]) -> i64:
    """Where a field that nobody here knows ends. `names` are the known ones, from number 1 on."""
    number = tag >> 3
    kind = tag & 7
    if number < 1 or tag > UINT32_MAX:
        raise BadValue("message", f"field number {number}", "give a message in protobuf's format")
    field = f"field {number}"
    if number <= len(names) and names[number - 1]:
        field = names[number - 1]
        shown = _TYPES[kind] if kind < len(_TYPES) else f"wire type {kind}"
        raise BadValue(field, shown, "take the field's type from the published .proto")
    if kind == VARINT:
        return varint(data, at, end, field)[1]
    if kind == SPAN:
        return span(data, at, end, field)[1]
    if kind == FIXED64:
        at += 8
    elif kind == FIXED32:
        at += 4
    else:
        raise BadValue(field, f"wire type {kind}", "use no groups; they are long gone")
    if at > end:
        raise _cut(field, end)
    return at


def count_field(fields: i64, most: i64) -> i64:
    """Count one more field of a message that may have `most`."""
    if fields >= most:
        raise BadValue("message", f"more than {most:,} fields", "send each field once")
    return fields + 1


def unsigned64(value: i64) -> int:
    """A 64-bit number read as a signed one, as the unsigned one."""
    whole: int = value
    return whole if whole >= 0 else whole + _UINT64_SIZE


def signed32(value: i64) -> i64:
    """What a 32-bit field keeps of a longer number: its lower half, with a sign."""
    low = value & UINT32_MAX
    return low if low <= INT32_MAX else low - UINT32_MAX - 1


def under_field(error: BadValue, place: str) -> BadValue:
    """The same error, seen from the message that holds the field's own."""
    return BadValue(f"{place}.{error.field}", error.value, error.remedy)


def too_many(field: str, most: int, bound: str) -> BadValue:
    """The error of a repeated field that repeats too often; `bound` is the setting's name."""
    return BadValue(field, f"more than {most:,}", f"send at most {most:,} ({bound})")


def require_positive(field: str, value: int) -> int:
    """The value of a bound, if it leaves room for anything."""
    if value < 1:
        raise BadValue(field, value, "give a whole number of at least 1")
    return value


def _cut(field: str, end: i64) -> BadValue:
    return BadValue(field, f"the end at byte {end}", "send the whole message; this one is cut off")


# Reading messages of which few fields are known.


def fields_of(message: bytes, most: i64 = INT64_MAX) -> list[tuple[int, int | bytes]]:
    """Return its varints and spans by field number, in order. Raises `BadValue` beyond `most`."""
    found: list[tuple[int, int | bytes]] = []
    at: i64 = 0
    end: i64 = len(message)
    field_count: i64 = 0
    while at < end:
        field_count = count_field(field_count, most)
        tag, at = tag_at(message, at, end, "message")
        number = int(tag >> 3)
        if tag & 7 == SPAN and number > 0:
            begin, at = span(message, at, end, "message")
            found.append((number, message[begin:at]))
        elif tag & 7 == VARINT and number > 0:
            value, at = varint(message, at, end, "message")
            found.append((number, int(value)))
        else:
            at = skip_field(message, at, end, tag, ())
    return found


def spans_of(message: bytes, number: int) -> list[bytes]:
    """Return all the spans of one field."""
    return [
        value for key, value in fields_of(message) if key == number and isinstance(value, bytes)
    ]


def string_of(message: bytes, number: int) -> str:
    """Return a string field, the last one if it is repeated, or the empty string."""
    found = spans_of(message, number)
    return found[-1].decode("utf-8", "replace") if found else ""


# Writing.


def varint_bytes(value: int) -> bytes:
    """A number from 0 to 2^64 - 1, or a negative one of 64 bits, as a varint."""
    if 0 <= value < 128:
        return _ONE[value]
    if value < 0:
        if value == -1:
            return _MINUS_ONE
        value += _UINT64_SIZE
    if value < 1 << _SPREAD_BITS_MAX:
        # Its bits are spread over whole bytes, and handed over at once.
        rest: i64 = value
        spread: i64 = 0
        bits: i64 = 0
        while rest > 127:
            spread |= (rest & 127 | 128) << bits
            rest >>= 7
            bits += 8
        whole: int = spread | rest << bits
        return whole.to_bytes(bits // 8 + 1, "little")
    out = []
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def span_bytes(data: bytes) -> bytes:
    """Bytes behind their length."""
    return varint_bytes(len(data)) + data


def text_bytes(text: str) -> bytes:
    """A string behind its length; what UTF-8 cannot hold becomes question marks."""
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:
        data = text.encode("utf-8", "replace")
    return varint_bytes(len(data)) + data
