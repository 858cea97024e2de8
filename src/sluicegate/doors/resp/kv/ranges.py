"""Ranges: SG.RANGE, the rows of one partition in the order of their sort keys.

Sort keys are written here as they are in a key, said and told: `%25` is a `%`. A token is hex.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.key_values import BYTES_MAX_DEFAULT, ROWS_MAX_DEFAULT, KeyRange, RowPage
from sluicegate.doors.resp.kv.names import escaped, partition_of, unescaped
from sluicegate.doors.resp.kv.requests import add_bulk, bulk, call_of, key_values, whole
from sluicegate.doors.resp.kv.times import ms_left
from sluicegate.doors.resp.kv.words import number_of
from sluicegate.doors.resp.session import Session
from sluicegate.doors.resp.table import Reply
from sluicegate.wire.resp import text_of

_OPTIONS: Final = frozenset((b"REV", b"LIMIT", b"BYTES", b"TOKEN"))
_REMEDY: Final = "give REV, LIMIT n, BYTES n or TOKEN t behind the sort keys"


def range_(session: Session, parts: list[bytes]) -> Awaitable[Reply]:
    """SG.RANGE table:partition [begin [end]] [REV] [LIMIT n] [BYTES n] [TOKEN t]."""
    table, partition = partition_of(parts[1])
    bounds: list[bytes] = []
    at, size = 2, len(parts)
    while at < size and len(bounds) < 2 and parts[at].upper() not in _OPTIONS:
        bounds.append(unescaped(parts[at]))
        at += 1
    reverse, token = False, b""
    rows_max, bytes_max = ROWS_MAX_DEFAULT, BYTES_MAX_DEFAULT
    while at < size:
        word = parts[at].upper()
        if word == b"REV":
            reverse = True
            at += 1
        elif word not in _OPTIONS or at + 1 == size:
            raise BadValue("option", text_of(parts[at]), _REMEDY)
        else:
            if word == b"LIMIT":
                rows_max = number_of("LIMIT", parts[at + 1], 1)
            elif word == b"BYTES":
                bytes_max = number_of("BYTES", parts[at + 1], 1)
            else:
                token = _token(parts[at + 1])
            at += 2
    begin = bounds[0] if bounds else b""
    end = bounds[1] if len(bounds) > 1 and bounds[1] else None
    span = KeyRange(begin, end, reverse, rows_max, bytes_max)
    rows = key_values(session).scan(table, partition, span, call_of(session), token)
    return _ranged(session, rows, session.protocol)


async def _ranged(session: Session, work: Awaitable[RowPage], protocol: int) -> Reply:
    """Rows of sort key, value and milliseconds left; then the token, empty at the end."""
    rows, token = await work
    told = [b"%2\r\n", bulk(b"rows")] if protocol == 3 else [b"*2\r\n"]
    told.append(b"*%d\r\n" % len(rows))
    for row in rows:
        told.append(b"*3\r\n")
        told.append(bulk(escaped(row.sort)))
        add_bulk(told, row.value)
        told.append(whole(ms_left(session, row)))
    if protocol == 3:
        told.append(bulk(b"token"))
    told.append(bulk(token.hex().encode()))
    return told


def _token(part: bytes) -> bytes:
    try:
        return bytes.fromhex(part.decode("ascii"))
    except ValueError:
        raise BadValue("TOKEN", text_of(part), "give it as it was told") from None
