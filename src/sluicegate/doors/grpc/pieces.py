"""Pieces: a message of protobuf as its numbered fields, for readers that know few of them."""

from __future__ import annotations

from typing import TypeAlias

from sluicegate.wire.protobuf import SPAN, VARINT, skipped, span, varint

Piece: TypeAlias = "tuple[int, int | bytes]"


def pieces(message: bytes) -> list[Piece]:
    """Its numbers and its spans, in order; what is neither is passed by. Raises `BadValue`."""
    found: list[Piece] = []
    at = 0
    end = len(message)
    while at < end:
        tag, at = varint(message, at, end, "message")
        if tag & 7 == SPAN and tag >> 3 > 0:
            begin, at = span(message, at, end, "message")
            found.append((tag >> 3, message[begin:at]))
        elif tag & 7 == VARINT and tag >> 3 > 0:
            value, at = varint(message, at, end, "message")
            found.append((tag >> 3, value))
        else:
            at = skipped(message, at, end, tag, ())
    return found


def spans(message: bytes, number: int) -> list[bytes]:
    """All the spans of one field."""
    return [value for key, value in pieces(message) if key == number and isinstance(value, bytes)]


def text_of(message: bytes, number: int) -> str:
    """A string field as the last of its spans says it; empty where it is not there."""
    found = spans(message, number)
    return found[-1].decode("utf-8", "replace") if found else ""
