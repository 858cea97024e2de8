"""Scan: SCAN over one table, and the patterns that it takes.

A pattern begins with a table's name and a colon; what follows is matched with the rest of a key as
it is written. Matching takes time in proportion to the pattern times the key, never more; both are
short, and others get their turn between keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final

from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.engine import BYTES_MAX_DEFAULT, ROWS_MAX_DEFAULT, KeyRange, Place
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.key_values import (
    CallContext,
    RowPage,
)
from sluicegate.doors.resp.errors import NOT_INTEGER, SYNTAX
from sluicegate.doors.resp.kv.call import (
    add_bulk,
    bulk,
    call_of,
    escape,
    integer,
    key_of,
    key_values,
    number_of,
    partition_of,
    table_of,
    unescape,
)
from sluicegate.doors.resp.kv.cursors import Cursors
from sluicegate.doors.resp.kv.expiry import ms_left
from sluicegate.doors.resp.session import Reply, Session, identity_of
from sluicegate.wire.resp import error_line, whole_number
from sluicegate.wire.text import text_of

PATTERN_BYTES_MAX: Final = 4 << 10

_INVALID: Final = error_line("ERR invalid cursor")
_EVERY_BYTE: Final = bytes(range(256))
_TURN_STEPS: Final = 1 << 16  # of pieces times bytes, and then others have their turn
_STAR: Final = 42
_ANY: Final = 63
_OPEN: Final = 91
_CLOSE: Final = 93
_CARET: Final = 94
_DASH: Final = 45
_BACKSLASH: Final = 92


def scan(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """SCAN cursor MATCH table:pattern [COUNT n] [TYPE string]."""
    try:
        cursor = whole_number(parts[1])
    except ValueError:
        return _INVALID
    if cursor < 0:
        return _INVALID
    pattern, kind, count = b"", b"STRING", ROWS_MAX_DEFAULT
    at = 2
    while at < len(parts):
        word = parts[at].upper()
        if at + 1 == len(parts):
            return SYNTAX
        if word == b"MATCH":
            pattern = parts[at + 1]
        elif word == b"TYPE":
            kind = parts[at + 1].upper()
        elif word == b"COUNT":
            try:
                count = whole_number(parts[at + 1])
            except ValueError:
                return NOT_INTEGER
            if count < 1:
                return SYNTAX
        else:
            return SYNTAX
        at += 2
    table, glob = _split(pattern)
    after: Place | None = None
    if cursor:
        cursors: Cursors = session.state.table_state
        after = cursors.find(identity_of(session).name, table, cursor)
    # COUNT is a hint, in Redis too.
    count = min(count, session.state.settings.scan_count_max)
    found = pieces_of(glob) if kind == b"STRING" else None
    return _scan_page(session, table, found, call_of(session), (cursor, after, count))


def _split(pattern: bytes) -> tuple[str, bytes]:
    """The table of a pattern, and what of a key behind the table must match."""
    if len(pattern) > PATTERN_BYTES_MAX:
        raise BadValue(
            "MATCH",
            f"{len(pattern):,} bytes",
            f"give a pattern of at most {PATTERN_BYTES_MAX:,} bytes",
        )
    name, colon, glob = pattern.partition(b":")
    if not colon or not name or any(one in name for one in (b"*", b"?", b"[", b"\\")):
        raise BadValue(
            "MATCH", text_of(pattern), "give a pattern that begins with a table's name: table:*"
        )
    return table_of(name), glob


async def _scan_page(
    session: Session,
    table: str,
    pieces: list[bytes | None] | None,
    call: CallContext,
    where: tuple[int, Place | None, int],
) -> bytes:
    """`pieces` None matches nothing: there are only strings."""
    before, after, count = where
    walked = await key_values(session).walk(table, after, count, call)
    cursor = 0
    if walked.after is not None:
        cursors: Cursors = session.state.table_state
        unnamed = call.identity is session.state.access.anonymous
        connection = session.id if unnamed else 0
        cursor = cursors.put(call.identity.name, table, walked.after, before, connection)
    found: list[bytes] = []
    if pieces is not None:
        skip = len(table) + 1
        everything = pieces == [None]
        steps = 0
        for partition, sort in walked.places:
            key = key_of(table, partition, sort)
            if everything or matches(pieces, key[skip:]):
                found.append(bulk(key))
            if not everything:
                steps += len(pieces) * len(key)
                if steps >= _TURN_STEPS:
                    steps = 0
                    await asyncio.sleep(0)
    return b"*2\r\n%b*%d\r\n%b" % (bulk(b"%d" % cursor), len(found), b"".join(found))


def pieces_of(glob: bytes) -> list[bytes | None]:
    """A pattern, taken apart once: the bytes that each piece matches; None is a star."""
    pieces: list[bytes | None] = []
    at, size = 0, len(glob)
    while at < size:
        mark = glob[at]
        if mark == _STAR:
            # Several in a row match what one does.
            if not pieces or pieces[-1] is not None:
                pieces.append(None)
        elif mark == _ANY:
            pieces.append(_EVERY_BYTE)
        elif mark == _OPEN:
            piece, at = _class(glob, at + 1)
            pieces.append(piece)
            continue
        else:
            if mark == _BACKSLASH and at + 1 < size:
                at += 1
            pieces.append(glob[at : at + 1])
        at += 1
    return pieces


def _class(glob: bytes, at: int) -> tuple[bytes, int]:
    """The bytes of a class, from behind its bracket, and where the pattern goes on.

    One that is not closed ends with the pattern.
    """
    size = len(glob)
    other = at < size and glob[at] == _CARET
    if other:
        at += 1
    found: list[bytes] = []
    while at < size and glob[at] != _CLOSE:
        if glob[at] == _BACKSLASH and at + 1 < size:
            at += 1
            found.append(glob[at : at + 1])
        elif at + 2 < size and glob[at + 1] == _DASH:
            low, high = glob[at], glob[at + 2]
            found.append(_EVERY_BYTE[min(low, high) : max(low, high) + 1])
            at += 2
        else:
            found.append(glob[at : at + 1])
        at += 1
    # Each byte once, however often it is said.
    others = _EVERY_BYTE.translate(None, b"".join(found))
    piece = others if other else _EVERY_BYTE.translate(None, others)
    return piece, min(at + 1, size)


def matches(pieces: Sequence[bytes | None], text: bytes) -> bool:
    """Whether the text is of that pattern: * ? [a-z] [^a] and a backslash before what is meant so.

    Where it fails behind a star, the star takes one byte more; only the last star can help.
    """
    at, byte = 0, 0
    star, resume = -1, 0
    count, size = len(pieces), len(text)
    while byte < size:
        piece = pieces[at] if at < count else b""
        if piece is None:
            star, resume = at, byte
            at += 1
        elif text[byte] in piece:
            at += 1
            byte += 1
        elif star >= 0:
            at = star + 1
            resume += 1
            byte = resume
        else:
            return False
    if at < count and pieces[at] is None:
        at += 1
    return at == count


_OPTIONS: Final = frozenset((b"REV", b"LIMIT", b"BYTES", b"TOKEN"))
_REMEDY: Final = "give REV, LIMIT n, BYTES n or TOKEN t behind the sort keys"


def range_(session: Session, parts: list[bytes]) -> Awaitable[Reply]:
    """SG.RANGE table:partition [begin [end]] [REV] [LIMIT n] [BYTES n] [TOKEN t]."""
    table, partition = partition_of(parts[1])
    bounds: list[bytes] = []
    at, size = 2, len(parts)
    while at < size and len(bounds) < 2 and parts[at].upper() not in _OPTIONS:
        bounds.append(unescape(parts[at]))
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
    return _range_page(session, rows, session.protocol)


async def _range_page(session: Session, work: Awaitable[RowPage], protocol: int) -> Reply:
    """Rows of sort key, value and milliseconds left; then the token, empty at the end."""
    rows, token = await work
    reply = [b"%2\r\n", bulk(b"rows")] if protocol == 3 else [b"*2\r\n"]
    reply.append(b"*%d\r\n" % len(rows))
    for row in rows:
        reply.append(b"*3\r\n")
        reply.append(bulk(escape(row.sort)))
        add_bulk(reply, row.value)
        reply.append(integer(ms_left(session, row)))
    if protocol == 3:
        reply.append(bulk(b"token"))
    reply.append(bulk(token.hex().encode()))
    return reply


def _token(part: bytes) -> bytes:
    try:
        return bytes.fromhex(part.decode("ascii"))
    except ValueError:
        raise BadValue("TOKEN", text_of(part), "give the token of the reply before") from None
