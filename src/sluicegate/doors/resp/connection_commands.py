"""Connection commands: the rows that every table has.

Every Redis client sends some of these before anything else; the replies are Redis's, as far as they
mean anything here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sluicegate.doors.resp.errors import (
    NOPROTO,
    NOT_INTEGER,
    SYNTAX,
    WRONGPASS,
    unknown_subcommand,
    wrong_arity,
)
from sluicegate.doors.resp.session import ANYBODY, Command, Session
from sluicegate.wire.resp import OK, SimpleString, encode_reply, error_line, whole_number
from sluicegate.wire.text import text_of

LIST_CHARS_MAX: Final = 256 << 10  # of CLIENT LIST, which has no way to go on
TRACEPARENT_BYTES: Final = (55, 512)  # of version 00, and at most of a later one

# What clients compare with the Redis they know.
REDIS_VERSION: Final = "7.0.0"

_PONG: Final = b"+PONG\r\n"
_BAD_NAME: Final = error_line(
    "ERR Client names cannot contain spaces, newlines or special characters."
)
_NOBODY: Final = error_line(
    "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO "
    "<proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP "
    "protocol version at the same time"
)


def ping(session: Session, parts: list[bytes]) -> bytes:
    """PING [message]."""
    return _PONG if len(parts) == 1 else encode_reply(parts[1])


def echo(session: Session, parts: list[bytes]) -> bytes:
    """ECHO message."""
    return encode_reply(parts[1])


def quit_(session: Session, parts: list[bytes]) -> bytes:
    """QUIT: goodbye, once all replies are out."""
    session.ends = True
    return OK


def select(session: Session, parts: list[bytes]) -> bytes:
    """SELECT 0: there is one database."""
    try:
        number = whole_number(parts[1])
    except ValueError:
        return NOT_INTEGER
    return OK if number == 0 else error_line("ERR DB index is out of range")


def reset(session: Session, parts: list[bytes]) -> bytes:
    """RESET: as the connection was when it was made."""
    session.protocol = 2
    session.name = ""
    session.log_out()
    session.clear_options()
    session.end_transaction()
    return encode_reply(SimpleString("RESET"))


def auth(session: Session, parts: list[bytes]) -> bytes:
    """AUTH [user] token."""
    user = text_of(parts[1]) if len(parts) == 3 else ANYBODY
    return OK if _authenticate(session, user, text_of(parts[-1])) else WRONGPASS


def hello(session: Session, parts: list[bytes]) -> bytes:
    """HELLO [protocol [AUTH user token] [SETNAME name]]."""
    protocol, name, at = session.protocol, None, 2
    if len(parts) > 1:
        try:
            protocol = whole_number(parts[1])
        except ValueError:
            return error_line("ERR Protocol version is not an integer or out of range")
        if protocol not in (2, 3):
            return NOPROTO
    while at < len(parts):
        word = parts[at].upper()
        if word == b"AUTH" and at + 2 < len(parts):
            if not _authenticate(session, text_of(parts[at + 1]), text_of(parts[at + 2])):
                return WRONGPASS
            at += 3
        elif word == b"SETNAME" and at + 1 < len(parts):
            name = parts[at + 1]
            if not _is_name(session, name):
                return _BAD_NAME
            at += 2
        else:
            return error_line(f"ERR Syntax error in HELLO option '{text_of(parts[at][:64])}'")
    if session.identity is None:
        return _NOBODY
    session.protocol = protocol
    if name is not None:
        session.name = text_of(name)
    greeting = {
        "server": "sluicegate",
        "version": session.state.settings.version,
        "proto": protocol,
        "id": session.id,
        "mode": "standalone",
        "role": "master",
        "modules": [],
    }
    return encode_reply(greeting, protocol)


def _authenticate(session: Session, user: str, token: str) -> bool:
    """Whether this is a token of somebody, who then speaks here."""
    if not session.authenticate(user, token):
        session.auth_failures += 1
        if session.auth_failures >= session.state.settings.auth_failures_max:
            session.ends = True
        return False
    session.auth_failures = 0
    return True


def _is_name(session: Session, name: bytes) -> bool:
    if len(name) > session.state.settings.name_bytes_max:
        return False
    return all(32 < byte < 127 for byte in name)


def client(session: Session, parts: list[bytes]) -> bytes:
    """CLIENT ID, GETNAME, SETNAME, SETINFO, LIST, INFO, NO-EVICT, NO-TOUCH."""
    row = _CLIENT.get(parts[1].upper())
    if row is None:
        return unknown_subcommand("CLIENT", parts)
    words, run = row
    if words and len(parts) != words:
        return wrong_arity(f"client|{text_of(parts[1]).lower()}")
    return run(session, parts)


def _id(session: Session, parts: list[bytes]) -> bytes:
    return encode_reply(session.id)


def _get_name(session: Session, parts: list[bytes]) -> bytes:
    return encode_reply(session.name or None, session.protocol)


def _set_name(session: Session, parts: list[bytes]) -> bytes:
    if not _is_name(session, parts[2]):
        return _BAD_NAME
    session.name = text_of(parts[2])
    return OK


def _set_info(session: Session, parts: list[bytes]) -> bytes:
    what = parts[2].upper()
    if what not in (b"LIB-NAME", b"LIB-VER"):
        return error_line(f"ERR Unrecognized option '{text_of(parts[2][:64])}'")
    if not _is_name(session, parts[3]):
        shown = text_of(what).lower()
        return error_line(f"ERR {shown} cannot contain spaces, newlines or special characters.")
    if what == b"LIB-NAME":
        session.library = text_of(parts[3])
    else:
        session.library_version = text_of(parts[3])
    return OK


def _list(session: Session, parts: list[bytes]) -> bytes:
    """Those of the same name alone: who asks is no business of others."""
    lines: list[str] = []
    left = min(LIST_CHARS_MAX, session.state.settings.reply_bytes_max >> 1)
    for one in session.state.sessions.values():
        if one is session or _name_of(one) == _name_of(session):
            line = _client_line(one) + "\n"
            left -= len(line)
            if left < 0:
                break
            lines.append(line)
    return encode_reply("".join(lines))


def _info(session: Session, parts: list[bytes]) -> bytes:
    return encode_reply(_client_line(session) + "\n")


def _ignore_option(session: Session, parts: list[bytes]) -> bytes:
    return OK if parts[2].upper() in (b"ON", b"OFF") else SYNTAX


def _name_of(session: Session) -> str:
    return "" if session.identity is None else session.identity.name


def _client_line(session: Session) -> str:
    age_s = max(0, int(session.state.now_s - session.began_s))
    return (
        f"id={session.id} addr={session.peer} name={session.name} age={age_s} db=0 "
        f"cmd={session.last.lower()} tot-cmds={session.commands} user={_name_of(session)} "
        f"lib-name={session.library} lib-ver={session.library_version} resp={session.protocol}"
    )


_CLIENT: Final[dict[bytes, tuple[int, Callable[[Session, list[bytes]], bytes]]]] = {
    b"ID": (2, _id),
    b"GETNAME": (2, _get_name),
    b"SETNAME": (3, _set_name),
    b"SETINFO": (4, _set_info),
    b"LIST": (0, _list),
    b"INFO": (2, _info),
    b"NO-EVICT": (3, _ignore_option),
    b"NO-TOUCH": (3, _ignore_option),
}


def trace(session: Session, parts: list[bytes]) -> bytes:
    """SG.TRACE traceparent: whose span the next command belongs to, where commands are traced."""
    if not TRACEPARENT_BYTES[0] <= len(parts[1]) <= TRACEPARENT_BYTES[1]:
        return SYNTAX
    session.traceparent = parts[1]
    return OK


def info(session: Session, parts: list[bytes]) -> bytes:
    """INFO [section]...: what clients look for before they trust a server."""
    state = session.state
    uptime_s = max(0, int(state.now_s - state.began_s))
    sections = {
        "Server": (
            f"redis_version:{REDIS_VERSION}",
            "redis_mode:standalone",
            f"sluicegate_version:{state.settings.version}",
            f"uptime_in_seconds:{uptime_s}",
        ),
        "Clients": (f"connected_clients:{len(state.sessions)}",),
        "Persistence": ("loading:0",),
        "Stats": (
            f"total_connections_received:{state.connections}",
            f"total_commands_processed:{state.commands}",
        ),
        "Replication": ("role:master", "connected_slaves:0"),
        "Cluster": ("cluster_enabled:0",),
        "Keyspace": (),
    }
    wanted = {text_of(part).capitalize() for part in parts[1:]}
    if not wanted or wanted & {"All", "Default", "Everything"}:
        wanted = set(sections)
    lines = [
        "\r\n".join([f"# {name}", *lines]) + "\r\n"
        for name, lines in sections.items()
        if name in wanted
    ]
    return encode_reply("\r\n".join(lines))


def command(session: Session, parts: list[bytes]) -> bytes:
    """COMMAND [COUNT | DOCS [name]... | INFO [name]... | LIST]: the table, for clients."""
    table = session.state.table
    what = parts[1].upper() if len(parts) > 1 else b"INFO"
    if what == b"COUNT":
        return encode_reply(len(table.rows)) if len(parts) == 2 else SYNTAX
    if what == b"LIST":
        return encode_reply([row.name.lower() for row in table.rows]) if len(parts) == 2 else SYNTAX
    if what not in (b"INFO", b"DOCS"):
        return unknown_subcommand("COMMAND", parts)
    rows: list[Command | None] = [*table.rows]
    if len(parts) > 2:
        rows = [table.find(part) for part in parts[2:]]
    if what == b"INFO":
        return encode_reply(
            [None if row is None else row.describe() for row in rows], session.protocol
        )
    docs = {
        row.name.lower(): {"summary": row.summary, "since": "0.1.0", "group": "connection"}
        for row in rows
        if row is not None
    }
    return encode_reply(docs, session.protocol)


CONNECTION: Final = (
    Command("PING", 1, 2, False, ping, "Whether the server is there"),
    Command("ECHO", 2, 2, False, echo, "The message, back"),
    Command("HELLO", 1, 0, True, hello, "The protocol to speak, and who speaks"),
    Command("AUTH", 2, 3, True, auth, "Who speaks"),
    Command("CLIENT", 2, 0, False, client, "What is known of connections"),
    Command("COMMAND", 1, 0, False, command, "This table"),
    Command("INFO", 1, 0, False, info, "What is known of the server"),
    Command("SG.TRACE", 2, 2, False, trace, "Whose span the next command belongs to"),
    Command("QUIT", 1, 0, True, quit_, "Ends the connection"),
    Command("RESET", 1, 1, True, reset, "The connection as it was at first"),
    Command("SELECT", 2, 2, False, select, "The database: there is only 0"),
)
