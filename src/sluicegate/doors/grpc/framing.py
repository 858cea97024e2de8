"""Framing: a message has five bytes before it, a status its trailers, a timeout its unit.

All of "gRPC over HTTP/2" that is only spelling, as functions and constants.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

from sluicegate.doors.grpc.methods import Field, GrpcError, GrpcStatus
from sluicegate.wire.h2.blocks import HeaderBlock, block

PREFIX_BYTES: Final = 5
MESSAGE_CHARS_MAX: Final = 1_024  # of a grpc-message
ACCEPTED: Final = b"identity,gzip"
_GZIP_BITS: Final = 31
_TIMEOUT_DIGITS_MAX: Final = 8
_UNIT_NS: Final = {
    b"H": 3_600_000_000_000,
    b"M": 60_000_000_000,
    b"S": 1_000_000_000,
    b"m": 1_000_000,
    b"u": 1_000,
    b"n": 1,
}
_CONTENT_TYPE: Final = (b"content-type", b"application/grpc")
_PLAIN_BYTES: Final = frozenset(range(0x20, 0x7F)) - {0x25}

HEAD: Final = block([(b":status", b"200"), _CONTENT_TYPE, (b"grpc-accept-encoding", ACCEPTED)])
OK: Final = block([(b"grpc-status", b"0")])


def prefix(message: bytes) -> bytes:
    """A message as it travels, not packed."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def trailers_only(status: GrpcStatus, message: str, metadata: Sequence[Field] = ()) -> HeaderBlock:
    """An answer that is nothing but a status."""
    fields = [(b":status", b"200"), _CONTENT_TYPE]
    if status == GrpcStatus.UNIMPLEMENTED:
        fields.append((b"grpc-accept-encoding", ACCEPTED))
    return block([*fields, *_status(status, message), *metadata])


def trailers(status: GrpcStatus, message: str, metadata: Sequence[Field] = ()) -> HeaderBlock:
    """The status after a head."""
    return block([*_status(status, message), *metadata])


def _status(status: GrpcStatus, message: str) -> list[tuple[bytes, bytes]]:
    fields = [(b"grpc-status", b"%d" % int(status))]
    if message:
        fields.append((b"grpc-message", percent_encoded(message)))
    return fields


def percent_encoded(message: str) -> bytes:
    """A message in the characters that a header may have; cut where it is too long."""
    text = message[:MESSAGE_CHARS_MAX].encode("utf-8", "replace")
    if _PLAIN_BYTES.issuperset(text):
        return text
    return b"".join([bytes((x,)) if x in _PLAIN_BYTES else b"%%%02X" % x for x in text])


def timeout_us(value: bytes) -> int:
    """A `grpc-timeout` in microseconds, never shorter than it says; -1 if it is malformed."""
    digits = value[:-1]
    unit = _UNIT_NS.get(value[-1:])
    if unit is None or not digits.isdigit() or len(digits) > _TIMEOUT_DIGITS_MAX:
        return -1
    return -(-int(digits) * unit // 1_000)


def gunzip(packed: bytes, bytes_max: int) -> bytes:
    """Unpack a gzip message that holds at most `bytes_max`. Raises `GrpcError`."""
    machine = zlib.decompressobj(_GZIP_BITS)
    try:
        message = machine.decompress(packed, bytes_max + 1)
    except zlib.error as error:
        raise GrpcError(GrpcStatus.INTERNAL, "the message is not the gzip it says it is") from error
    if len(message) > bytes_max:
        raise GrpcError(
            GrpcStatus.RESOURCE_EXHAUSTED,
            f"the message unpacks to more than {bytes_max} bytes; send it plain, or less at a time",
        )
    if not machine.eof or machine.unused_data:
        raise GrpcError(GrpcStatus.INTERNAL, "the message is not one whole gzip")
    return message


def too_large(bytes_max: int) -> GrpcError:
    """The refusal of a message beyond the bound."""
    return GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, f"the message is larger than {bytes_max} bytes")
