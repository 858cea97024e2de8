"""Scan: SCAN over one table, and the patterns that it takes.

A pattern begins with a table's name and a colon; what follows is matched with the rest of a key as
it is written. Matching takes time in proportion to the pattern times the key, never more.
"""

from __future__ import annotations

from typing import Final

from headgate.contracts.checks import Soon
from headgate.contracts.engine import Place
from headgate.contracts.errors import BadValue
from headgate.contracts.key_values import ROWS_MAX_DEFAULT, Ask
from headgate.doors.resp.errors import NOT_INTEGER, SYNTAX
from headgate.doors.resp.kv_asking import ask_of, bulk, key_values
from headgate.doors.resp.kv_cursors import Cursors
from headgate.doors.resp.kv_names import key_of, table_of
from headgate.doors.resp.session import Session, identity_of
from headgate.wire.resp import error_line, text_of, whole_number

_INVALID: Final = error_line("ERR invalid cursor")
_CURSOR_MAX: Final = (1 << 63) - 1
_EVERYTHING: Final = b"*"
_STAR: Final = 42
_ANY: Final = 63
_OPEN: Final = 91
_CLOSE: Final = 93
_CARET: Final = 94
_DASH: Final = 45
_BACKSLASH: Final = 92


def scan(session: Session, parts: list[bytes]) -> Soon[bytes]:
    """SCAN cursor MATCH table:pattern [COUNT n] [TYPE string]."""
    try:
        cursor = whole_number(parts[1])
    except ValueError:
        return _INVALID
    if not 0 <= cursor <= _CURSOR_MAX:
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
        cursors: Cursors = session.shared.kept
        after = cursors.find(identity_of(session).name, table, cursor)
    # COUNT is a hint, in Redis too.
    count = min(count, session.shared.settings.scan_count_max)
    found = glob if kind == b"STRING" else None
    return _scanned(session, table, found, ask_of(session), (cursor, after, count))


def _split(pattern: bytes) -> tuple[str, bytes]:
    """The table of a pattern, and what of a key behind the table must match."""
    name, colon, glob = pattern.partition(b":")
    if not colon or not name or any(one in name for one in (b"*", b"?", b"[", b"\\")):
        raise BadValue(
            "MATCH", text_of(pattern), "give a pattern that begins with a table's name: table:*"
        )
    return table_of(name), glob


async def _scanned(
    session: Session,
    table: str,
    glob: bytes | None,
    ask: Ask,
    where: tuple[int, Place | None, int],
) -> bytes:
    """`glob` None matches nothing: there are only strings."""
    before, after, count = where
    walked = await key_values(session).walk(table, after, count, ask)
    cursor = 0
    if walked.after is not None:
        cursors: Cursors = session.shared.kept
        cursor = cursors.put(ask.by.name, table, walked.after, before)
    found: list[bytes] = []
    if glob is not None:
        skip = len(table) + 1
        for partition, sort in walked.places:
            key = key_of(table, partition, sort)
            if glob == _EVERYTHING or matches(glob, key[skip:]):
                found.append(bulk(key))
    return b"*2\r\n%b*%d\r\n%b" % (bulk(b"%d" % cursor), len(found), b"".join(found))


def matches(glob: bytes, text: bytes) -> bool:
    """Whether the text is of that pattern: * ? [a-z] [^a] and a backslash before what is meant so.

    Where it fails behind a star, the star takes one byte more; only the last star can help.
    """
    at, byte = 0, 0
    star, resume = -1, 0
    while byte < len(text):
        if at < len(glob) and glob[at] == _STAR:
            star, resume = at, byte
            at += 1
        else:
            following = _one(glob, at, text[byte]) if at < len(glob) else -1
            if following >= 0:
                at = following
                byte += 1
            elif star >= 0:
                at = star + 1
                resume += 1
                byte = resume
            else:
                return False
    while at < len(glob) and glob[at] == _STAR:
        at += 1
    return at == len(glob)


def _one(glob: bytes, at: int, byte: int) -> int:
    """Where the pattern goes on if its one piece at `at` is this byte; else -1."""
    mark = glob[at]
    if mark == _ANY:
        return at + 1
    if mark == _OPEN:
        return _class(glob, at + 1, byte)
    if mark == _BACKSLASH and at + 1 < len(glob):
        at += 1
        mark = glob[at]
    return at + 1 if mark == byte else -1


def _class(glob: bytes, at: int, byte: int) -> int:
    """The same of a class, behind its bracket; one that is not closed ends with the pattern."""
    size = len(glob)
    other = at < size and glob[at] == _CARET
    if other:
        at += 1
    found = False
    while at < size and glob[at] != _CLOSE:
        if glob[at] == _BACKSLASH and at + 1 < size:
            at += 1
            found = found or glob[at] == byte
        elif at + 2 < size and glob[at + 1] == _DASH:
            low, high = glob[at], glob[at + 2]
            found = found or min(low, high) <= byte <= max(low, high)
            at += 2
        else:
            found = found or glob[at] == byte
        at += 1
    if found is other:
        return -1
    return min(at + 1, size)
