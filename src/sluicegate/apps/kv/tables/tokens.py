"""Tokens: where a scan goes on, as an opaque token and as the key range that is left.

A token carries a check of its contents and of its table, partition and direction: cut, changed or
sent with another scan it is a bad value. It holds no secret, and decides only where to look next.

    1 byte   the version
    8 bytes  the check
    the last sort key of the page

A token lives for as long as somebody turns pages, so one of an older release is refused.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from sluicegate.contracts.engine import SORT_BYTES_MAX, KeyRange
from sluicegate.contracts.errors import BadValue

_VERSION: Final = 2  # 1 did not check the sort key
_CHECK_BYTES: Final = 8
_HEAD_BYTES: Final = 1 + _CHECK_BYTES


def span_after(span: KeyRange, last_sort: bytes) -> KeyRange:
    """What is left of the span behind this sort key, in its direction."""
    if span.reverse:
        return span._replace(end=last_sort)
    return span._replace(begin=last_sort + b"\x00")


def token_after(table: str, partition: bytes, span: KeyRange, last_sort: bytes) -> bytes:
    """The token that goes on behind this sort key."""
    check = _check_of(table, partition, span.reverse, last_sort)
    return bytes((_VERSION,)) + check + last_sort


def read_token(token: bytes, table: str, partition: bytes, span: KeyRange) -> KeyRange:
    """The span that a token goes on with; an empty one is the span itself."""
    if not token:
        return span
    if token[0] > _VERSION:
        raise BadValue("token", token, "it is of a newer release; upgrade, or begin without one")
    if token[0] < _VERSION:
        raise BadValue("token", token, "it is of an older release; begin without one")
    last_sort = token[_HEAD_BYTES:]
    # The length first, so that a check costs no more than the longest row's.
    if len(last_sort) > SORT_BYTES_MAX or token[1:_HEAD_BYTES] != _check_of(
        table, partition, span.reverse, last_sort
    ):
        remedy = (
            "send it whole, as it was told, with the table, the partition and the direction that"
            " it was told for"
        )
        raise BadValue("token", token, remedy)
    after = span_after(span, last_sort)
    # A token of a span that lies elsewhere must not widen this one.
    if after.begin < span.begin:
        return span
    if span.end is not None and after.end is not None and after.end > span.end:
        return span
    return after


def _check_of(table: str, partition: bytes, reverse: bool, last_sort: bytes) -> bytes:
    name = table.encode("utf-8", "replace")
    # With the lengths of what stands before the last, so that no two can be taken for each other.
    head = bytes((_VERSION, 1 if reverse else 0))
    lengths = len(name).to_bytes(2, "big") + len(partition).to_bytes(2, "big")
    signed = head + lengths + name + partition + last_sort
    return blake2b(signed, digest_size=_CHECK_BYTES).digest()
