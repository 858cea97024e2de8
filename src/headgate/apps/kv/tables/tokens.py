"""Tokens: where a scan goes on, as an opaque token and as the span that is left.

A token is bound to its table, partition and direction: with another it is a wrong value, not
another's rows. It holds no secret, and nothing is decided by it but where to look next.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from headgate.contracts.engine import SORT_BYTES_MAX
from headgate.contracts.errors import BadValue
from headgate.contracts.key_values import Span

_VERSION: Final = 1
_BOUND_BYTES: Final = 8
_HEAD_BYTES: Final = 1 + _BOUND_BYTES


def span_after(span: Span, last_sort: bytes) -> Span:
    """What is left of the span behind this sort key, in its direction."""
    if span.reverse:
        return span._replace(end=last_sort)
    return span._replace(begin=last_sort + b"\x00")


def token_after(table: str, partition: bytes, span: Span, last_sort: bytes) -> bytes:
    """The token that goes on behind this sort key."""
    return bytes((_VERSION,)) + _bound_to(table, partition, span.reverse) + last_sort


def read_token(token: bytes, table: str, partition: bytes, span: Span) -> Span:
    """The span that a token goes on with; an empty one is the span itself."""
    if not token:
        return span
    if token[0] > _VERSION:
        raise BadValue("token", token, "it is of a newer release; upgrade, or begin without one")
    last_sort = token[_HEAD_BYTES:]
    if (
        token[0] != _VERSION
        or token[1:_HEAD_BYTES] != _bound_to(table, partition, span.reverse)
        or len(last_sort) > SORT_BYTES_MAX
    ):
        remedy = "send it with the table, the partition and the direction that it was told for"
        raise BadValue("token", token, remedy)
    after = span_after(span, last_sort)
    # A token of a span that lies elsewhere must not widen this one.
    if after.begin < span.begin:
        return span
    if span.end is not None and after.end is not None and after.end > span.end:
        return span
    return after


def _bound_to(table: str, partition: bytes, reverse: bool) -> bytes:
    way = b"\x01" if reverse else b"\x00"
    name = table.encode("utf-8", "replace")
    said = way + len(name).to_bytes(2, "big") + name + partition
    return blake2b(said, digest_size=_BOUND_BYTES).digest()
