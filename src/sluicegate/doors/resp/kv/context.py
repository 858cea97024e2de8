"""Context: the call context of a key-value command, replies, and the commands that set options.

A `CallContext` is made when its command is run, from the options that the connection has set by
then. A result that is there at once is written at once; all else is a coroutine, whose error
becomes the reply where it is awaited.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import parse_criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.key_values import CallContext, KeyValues
from sluicegate.doors.resp.errors import SYNTAX
from sluicegate.doors.resp.session import Session, identity_of
from sluicegate.wire.resp import OK, whole_number
from sluicegate.wire.text import text_of

LONG_BYTES: Final = 4_096  # of a value that is worth a piece of its own
MS_MAX: Final = 1 << 43  # some 280 years

_NOTHING: Final = b"$-1\r\n"
_NULL: Final = b"_\r\n"
_MS: Final = 1_000


def key_values(session: Session) -> KeyValues:
    """The service."""
    service: KeyValues = session.state.service
    return service


def call_of(session: Session, strong: bool = False) -> CallContext:
    """Who asks, and how; `strong` where the reply must not come from a cache.

    A deadline is reply from when the command was read. That it then waited for others of the same
    connection is no queue of the service, and says null_reply of how it fares.
    """
    timeout_us = session.timeout_us
    return CallContext(
        identity_of(session),
        criticality=session.criticality,
        deadline_us=session.arrived_us + timeout_us if timeout_us else None,
        arrived_us=session.ready_us,
        strong=strong or session.strong,
    )


def now_us(session: Session) -> int:
    """The instant."""
    clock: Clock | None = session.state.clock
    if clock is None:
        raise BadValue("clock", None, "hand one to the door")
    return clock.now_us()


def null_reply(session: Session) -> bytes:
    """Return null in the connection's protocol."""
    return _NULL if session.protocol == 3 else _NOTHING


def bulk(value: bytes) -> bytes:
    """A value."""
    return b"$%d\r\n%b\r\n" % (len(value), value)


def add_bulk(reply: list[bytes], value: bytes) -> None:
    """A value, behind the parts so far: not copied, if it is long."""
    if len(value) < LONG_BYTES:
        reply.append(bulk(value))
        return
    reply.append(b"$%d\r\n" % len(value))
    reply.append(value)
    reply.append(b"\r\n")


def integer(number: int) -> bytes:
    """A number."""
    return b":%d\r\n" % number


async def await_ok(work: Awaitable[None]) -> bytes:
    """OK, once it is done."""
    await work
    return OK


def set_deadline(session: Session, parts: list[bytes]) -> bytes:
    """SG.DEADLINE ms: of the commands that follow, from when each has come; 0 is none."""
    try:
        timeout_ms = whole_number(parts[1])
    except ValueError:
        timeout_ms = -1
    if not 0 <= timeout_ms <= MS_MAX:
        raise BadValue("ms", text_of(parts[1]), f"give milliseconds from 0 (none) to {MS_MAX}")
    session.timeout_us = timeout_ms * _MS
    return OK


def set_criticality(session: Session, parts: list[bytes]) -> bytes:
    """SG.CRITICALITY class | DEFAULT: of the commands that follow."""
    name = text_of(parts[1])
    session.criticality = None if name.upper() == "DEFAULT" else parse_criticality(name)
    return OK


def set_strong(session: Session, parts: list[bytes]) -> bytes:
    """SG.STRONG ON | OFF: whether the commands that follow pass by every cache."""
    word = parts[1].upper()
    if word not in (b"ON", b"OFF"):
        return SYNTAX
    session.strong = word == b"ON"
    return OK
