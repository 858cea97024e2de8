"""Commands: how one is found in a table and run, and the rows that every table has.

`run` never raises: whatever happens to a command becomes its reply.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from sluicegate.doors.resp import clients
from sluicegate.doors.resp.errors import (
    NOAUTH,
    SYNTAX,
    refusal,
    unknown_command,
    unknown_subcommand,
    wrong_arity,
)
from sluicegate.doors.resp.session import Session
from sluicegate.doors.resp.table import Reply, Row
from sluicegate.wire.resp import encoded


def command(session: Session, parts: list[bytes]) -> bytes:
    """COMMAND [COUNT | DOCS [name]... | INFO [name]... | LIST]: the table, for clients."""
    table = session.shared.table
    what = parts[1].upper() if len(parts) > 1 else b"INFO"
    if what == b"COUNT":
        return encoded(len(table.rows)) if len(parts) == 2 else SYNTAX
    if what == b"LIST":
        return encoded([row.name.lower() for row in table.rows]) if len(parts) == 2 else SYNTAX
    if what not in (b"INFO", b"DOCS"):
        return unknown_subcommand("COMMAND", parts)
    rows: list[Row | None] = [*table.rows]
    if len(parts) > 2:
        rows = [table.find(part) for part in parts[2:]]
    if what == b"INFO":
        return encoded([None if row is None else row.told() for row in rows], session.protocol)
    docs = {
        row.name.lower(): {"summary": row.summary, "since": "0.1.0", "group": "connection"}
        for row in rows
        if row is not None
    }
    return encoded(docs, session.protocol)


CONNECTION: Final = (
    Row("PING", 1, 2, False, clients.ping, "Whether the server is there"),
    Row("ECHO", 2, 2, False, clients.echo, "The message, back"),
    Row("HELLO", 1, 0, True, clients.hello, "The protocol to speak, and who speaks"),
    Row("AUTH", 2, 3, True, clients.auth, "Who speaks"),
    Row("CLIENT", 2, 0, False, clients.client, "What is known of connections"),
    Row("COMMAND", 1, 0, False, command, "This table"),
    Row("INFO", 1, 0, False, clients.info, "What is known of the server"),
    Row("QUIT", 1, 0, True, clients.quit_, "Ends the connection"),
    Row("RESET", 1, 1, True, clients.reset, "The connection as it was at first"),
    Row("SELECT", 2, 2, False, clients.select, "The database: there is only 0"),
)


def run(session: Session, parts: list[bytes]) -> bytes | Awaitable[Reply]:
    """The reply to a command, at once or later."""
    shared = session.shared
    table = shared.table
    row = table.written.get(parts[0])
    if row is None:
        row = table.by_name.get(parts[0].upper())
        if row is None:
            return NOAUTH if session.identity is None else unknown_command(parts)
    if session.identity is None and not row.open:
        return NOAUTH
    size = len(parts)
    if size < row.least or (size > row.most and row.most > 0):
        return wrong_arity(row.name)
    session.last = row.name
    session.commands += 1
    shared.commands += 1
    try:
        return row.run(session, parts)
    except Exception as error:
        return refusal(error)
