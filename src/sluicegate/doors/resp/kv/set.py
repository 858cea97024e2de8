"""Set: the rows of the table that write under a condition: SET, GETDEL, GETEX and SG.PUTIF.

What returns the old value, or keeps its time, reads, and writes on condition that nothing came
between; so it is one step for all who look, and is repeated, `TRIES_MAX` times at most.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, final

from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.errors import BadValue, Conflict
from sluicegate.contracts.key_values import (
    TAG_BYTES,
    CallContext,
    KeyValues,
    Row,
    Write,
    WriteCondition,
    WriteIfResult,
    tag_of,
)
from sluicegate.doors.resp.errors import SYNTAX
from sluicegate.doors.resp.kv.arguments import bytes_of, place_of
from sluicegate.doors.resp.kv.context import (
    await_ok,
    await_row,
    bulk,
    call_of,
    key_values,
    null_reply,
)
from sluicegate.doors.resp.kv.expiry import TIMES, left_us, ttl_of
from sluicegate.doors.resp.kv.values import get
from sluicegate.doors.resp.session import Reply, Session
from sluicegate.wire.resp import OK, encode_reply
from sluicegate.wire.text import text_of

TRIES_MAX: Final = 16

_ABSENT: Final = WriteCondition(absent=True)
_PRESENT: Final = WriteCondition(present=True)


@final
class _SetOptions:
    """The options of a SET."""

    __slots__ = ("absent", "keep", "old", "present", "ttl_us")

    def __init__(self) -> None:
        self.absent = False
        self.present = False
        self.keep = False  # the time that it has
        self.old = False  # tell the value that was there
        self.ttl_us = 0


def set_(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """SET key value [NX | XX] [GET] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]."""
    table, partition, sort = place_of(parts[1])
    value = parts[2]
    service = key_values(session)
    if len(parts) == 3:
        return await_ok(service.write(table, [Write(partition, sort, value)], call_of(session)))
    options = _parse_options(session, parts)
    if options is None:
        return SYNTAX
    if options.old or (options.keep and not options.absent):
        return _swap(session, parts[1], value, options, call_of(session, True), null_reply(session))
    write = Write(partition, sort, value, options.ttl_us)
    if options.absent or options.present:
        condition = _ABSENT if options.absent else _PRESENT
        tried = service.write_if(table, write, condition, call_of(session))
        return _ok_if_done(tried, null_reply(session))
    return await_ok(service.write(table, [write], call_of(session)))


def _parse_options(session: Session, parts: list[bytes]) -> _SetOptions | None:
    """The options; None if they cannot be together, or are none."""
    options = _SetOptions()
    timed, time = b"", b""
    at = 3
    size = len(parts)
    while at < size:
        word = parts[at].upper()
        if word == b"NX" and not options.present:
            options.absent = True
        elif word == b"XX" and not options.absent:
            options.present = True
        elif word == b"GET":
            options.old = True
        elif word == b"KEEPTTL" and not timed:
            options.keep = True
        elif word in TIMES and at + 1 < size and timed in (b"", word) and not options.keep:
            at += 1
            timed, time = word, parts[at]
        else:
            return None
        at += 1
    if timed:
        options.ttl_us = ttl_of(session, "set", timed, time)
    return options


async def _ok_if_done(work: Awaitable[WriteIfResult], missing: bytes) -> bytes:
    return OK if (await work).done else missing


async def _swap(
    session: Session,
    key: bytes,
    value: bytes | None,
    options: _SetOptions,
    call: CallContext,
    missing: bytes,
) -> bytes:
    """Read, and write if nothing came between; None deletes."""
    table, partition, sort = place_of(key)
    service = key_values(session)
    for _ in range(TRIES_MAX):
        row = await await_row(service.get(table, partition, sort, call))
        if row is None:
            if options.present:
                return missing
            write, condition = Write(partition, sort, value, options.ttl_us), _ABSENT
        elif options.absent:
            return bulk(row.value)
        else:
            ttl_us = left_us(session, row) if options.keep else options.ttl_us
            write = Write(partition, sort, value, ttl_us)
            condition = WriteCondition(tag=tag_of(row.value))
        if (await service.write_if(table, write, condition, call)).done:
            if not options.old:
                return OK
            return missing if row is None else bulk(row.value)
    raise Conflict(text_of(key), f"{TRIES_MAX} times in turn")


def getdel(session: Session, parts: list[bytes]) -> Awaitable[bytes]:
    """GETDEL key: its value, once and for all."""
    options = _SetOptions()
    options.old = options.present = True
    return _swap(session, parts[1], None, options, call_of(session, True), null_reply(session))


def getex(session: Session, parts: list[bytes]) -> bytes | Awaitable[Reply]:
    """GETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST]."""
    size = len(parts)
    if size == 2:
        return get(session, parts)
    word = parts[2].upper()
    if word == b"PERSIST" and size == 3:
        return _get_and_expire(
            key_values(session), parts[1], 0, call_of(session, True), null_reply(session)
        )
    if word in TIMES and size == 4:
        ttl_us = ttl_of(session, "getex", word, parts[3])
        call = call_of(session, True)
        return _get_and_expire(key_values(session), parts[1], ttl_us, call, null_reply(session))
    return SYNTAX


async def _get_and_expire(
    service: KeyValues, key: bytes, ttl_us: int, call: CallContext, missing: bytes
) -> bytes:
    table, partition, sort = place_of(key)
    row = await await_row(service.get(table, partition, sort, call))
    if row is None or not await service.expire(table, partition, sort, ttl_us, call):
        return missing
    return bulk(row.value)


def put_if(session: Session, parts: list[bytes]) -> Awaitable[bytes]:
    """SG.PUTIF key value (ABSENT | PRESENT | TAG hex) [EX s | PX ms | EXAT s | PXAT ms].

    Whether it was written; else the tag and value that are there, as far as they are known.
    """
    table, partition, sort = place_of(parts[1])
    word = parts[3].upper()
    at = 4
    if word == b"ABSENT":
        condition = _ABSENT
    elif word == b"PRESENT":
        condition = _PRESENT
    elif word == b"TAG" and len(parts) > 4:
        tag = bytes_of("tag", parts[4], TAG_BYTES, ", as SG.PUTIF returned them")
        condition = WriteCondition(tag=tag)
        at = 5
    else:
        raise BadValue("condition", text_of(parts[3]), "give ABSENT, PRESENT or TAG and a tag")
    ttl_us = 0
    if len(parts) > at:
        word = parts[at].upper()
        if word not in TIMES or len(parts) != at + 2:
            raise BadValue("option", text_of(parts[at]), "give one of EX, PX, EXAT and PXAT")
        ttl_us = ttl_of(session, "sg.putif", word, parts[at + 1])
    write = Write(partition, sort, parts[2], ttl_us)
    tried = key_values(session).write_if(table, write, condition, call_of(session))
    return _put(tried, session.protocol)


async def _put(work: Awaitable[WriteIfResult], protocol: int) -> bytes:
    tried = await work
    row: Row | None = None if tried.done else tried.row
    reply: list[tuple[str, object]] = [
        ("done", 1 if tried.done else 0),
        ("tag", None if row is None else tag_of(row.value).hex()),
        ("value", None if row is None else row.value),
    ]
    if protocol == 3:
        return encode_reply(dict(reply), 3)
    return encode_reply([value for _, value in reply])
