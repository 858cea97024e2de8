"""Commands: the table of all that can be said here. Each row is a word, how many words belong to
it, whether one must be known to say it, what it does, and a line about it.

`run` finds the row and never raises: whatever happens to a command becomes its reply.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, final

from headgate.contracts.checks import Soon
from headgate.doors.resp import checks, clients, stores
from headgate.doors.resp.errors import (
    NOAUTH,
    SYNTAX,
    refusal,
    unknown_command,
    unknown_subcommand,
    wrong_arity,
)
from headgate.doors.resp.session import Session
from headgate.wire.resp import encoded

Run: TypeAlias = "Callable[[Session, list[bytes]], Soon[bytes]]"


@final
class Row:
    """One command. `most` 0 is any number of words; `keyed` says that its first one is a key."""

    __slots__ = ("keyed", "least", "most", "name", "open", "run", "summary")

    def __init__(
        self, name: str, least: int, most: int, open_: bool, keyed: bool, run: Run, summary: str
    ) -> None:
        self.name = name
        self.least = least
        self.most = most
        self.open = open_
        self.keyed = keyed
        self.run = run
        self.summary = summary


def command(session: Session, parts: list[bytes]) -> bytes:
    """COMMAND [COUNT | DOCS [name]... | INFO [name]... | LIST]: this table, for clients."""
    what = parts[1].upper() if len(parts) > 1 else b"INFO"
    if what == b"COUNT":
        return encoded(len(_ROWS)) if len(parts) == 2 else SYNTAX
    if what == b"LIST":
        return encoded([row.name.lower() for row in _ROWS]) if len(parts) == 2 else SYNTAX
    if what not in (b"INFO", b"DOCS"):
        return unknown_subcommand("COMMAND", parts)
    rows: list[Row | None] = [*_ROWS]
    if len(parts) > 2:
        rows = [TABLE.get(part.upper()) for part in parts[2:]]
    if what == b"INFO":
        return encoded([None if row is None else _told(row) for row in rows], session.protocol)
    docs = {
        row.name.lower(): {"summary": row.summary, "since": "0.1.0", "group": "connection"}
        for row in rows
        if row is not None
    }
    return encoded(docs, session.protocol)


def _told(row: Row) -> list[object]:
    arity = row.least if row.least == row.most else -row.least
    key = 1 if row.keyed else 0
    return [row.name.lower(), arity, ["fast"] if row.keyed else [], key, key, key]


_ROWS: Final = (
    Row("PING", 1, 2, False, False, clients.ping, "Whether the server is there"),
    Row("ECHO", 2, 2, False, False, clients.echo, "The message, back"),
    Row("HELLO", 1, 0, True, False, clients.hello, "The protocol to speak, and who speaks"),
    Row("AUTH", 2, 3, True, False, clients.auth, "Who speaks"),
    Row("CLIENT", 2, 0, False, False, clients.client, "What is known of connections"),
    Row("COMMAND", 1, 0, False, False, command, "This table"),
    Row("INFO", 1, 0, False, False, clients.info, "What is known of the server"),
    Row("QUIT", 1, 0, True, False, clients.quit_, "Ends the connection"),
    Row("RESET", 1, 1, True, False, clients.reset, "The connection as it was at first"),
    Row("SELECT", 2, 2, False, False, clients.select, "The database: there is only 0"),
    # It counts its words itself, to complain as redis-cell does.
    Row("CL.THROTTLE", 1, 0, False, True, checks.throttle, "May it enter, at the rate given here?"),
    Row("HG.CHECK", 3, 0, False, True, checks.check, "May it enter? Counts it"),
    Row("HG.PEEK", 3, 0, False, True, checks.peek, "What HG.CHECK would answer"),
    Row("HG.RESET", 3, 0, False, True, checks.reset, "Forgets what was counted"),
    Row("HG.LEASE", 4, 0, False, True, checks.lease, "Takes units in advance"),
    Row("HG.GIVEBACK", 3, 3, False, False, checks.give_back, "Gives back units of a lease"),
    Row("HG.TAKE", 4, 0, False, False, stores.take, "A store's take, for limiters elsewhere"),
    Row("HG.TAKESOME", 3, 0, False, False, stores.take_some, "Likewise: take_some"),
    Row("HG.SETTLE", 3, 0, False, False, stores.settle, "Likewise: settle"),
    Row("HG.FORGET", 2, 0, False, False, stores.forget, "Likewise: reset"),
)
TABLE: Final[dict[bytes, Row]] = {row.name.encode(): row for row in _ROWS}
# As most clients write it; any other case is found by a second look.
_WRITTEN: Final[dict[bytes, Row]] = TABLE | {name.lower(): row for name, row in TABLE.items()}


def run(session: Session, parts: list[bytes]) -> Soon[bytes]:
    """The reply to a command, at once or later."""
    word = parts[0]
    row = _WRITTEN.get(word)
    if row is None:
        row = TABLE.get(word.upper())
        if row is None:
            return NOAUTH if session.identity is None else unknown_command(parts)
    if session.identity is None and not row.open:
        return NOAUTH
    size = len(parts)
    if size < row.least or (size > row.most and row.most > 0):
        return wrong_arity(row.name)
    session.last = row.name
    session.commands += 1
    session.shared.commands += 1
    try:
        return row.run(session, parts)
    except Exception as error:
        return refusal(error)
