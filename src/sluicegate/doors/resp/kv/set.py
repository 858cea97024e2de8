"""Set: the rows of the table that write under a condition: SET, GETSET, GETDEL, GETEX, SG.PUTIF.

What returns the old value, keeps its time or ends at an instant is one step of the engine's
(`plan.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Final, final

from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.key_values import (
    TAG_BYTES,
    Row,
    Write,
    WriteCondition,
    WriteIfResult,
    tag_of,
)
from sluicegate.doors.resp.errors import SYNTAX
from sluicegate.doors.resp.kv.call import (
    await_ok,
    bulk,
    bytes_of,
    call_of,
    integer,
    key_values,
    null_reply,
    place_of,
)
from sluicegate.doors.resp.kv.expiry import TIMES, instant_of, ttl_of
from sluicegate.doors.resp.kv.plan import Plan, RowSet, carry_out
from sluicegate.doors.resp.kv.values import get, plan_get
from sluicegate.doors.resp.session import Reply, Session
from sluicegate.wire.resp import OK, encode_reply
from sluicegate.wire.text import text_of

_ABSENT: Final = WriteCondition(absent=True)
_PRESENT: Final = WriteCondition(present=True)


@final
class _SetOptions:
    """The options of a SET."""

    __slots__ = ("absent", "keep", "old", "present", "ttl_us", "until_us")

    def __init__(self) -> None:
        self.absent = False
        self.present = False
        self.keep = False  # the time that it has
        self.old = False  # tell the value that was there
        self.ttl_us = 0
        self.until_us = 0  # of a time that is an instant


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
    if options.old or options.until_us or (options.keep and not options.absent):
        return carry_out(session, _plan_of(session, parts, options))
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
        options.until_us = instant_of(timed, time)
    return options


async def _ok_if_done(work: Awaitable[WriteIfResult], missing: bytes) -> bytes:
    return OK if (await work).done else missing


def plan_set(session: Session, parts: list[bytes]) -> Plan | bytes:
    """Of SET."""
    options = _parse_options(session, parts)
    return SYNTAX if options is None else _plan_of(session, parts, options)


def _plan_of(session: Session, parts: list[bytes], options: _SetOptions) -> Plan:
    run = partial(_set, parts[2], options, null_reply(session))
    size = len(parts[1]) + len(parts[2])
    return Plan([parts[1]], run, reads=options.old, writes=True, size_bytes=size)


def _set(
    value: bytes, options: _SetOptions, missing: bytes, rows: RowSet, sorts: Sequence[bytes]
) -> bytes:
    (sort,) = sorts
    row = rows.get(sort)
    refused = options.absent if row is not None else options.present
    if not refused:
        expires_us = options.until_us or _after(rows, options.ttl_us)
        if options.keep and row is not None:
            expires_us = row.expires_us
        rows.put(sort, value, expires_us)
    if options.old:
        return missing if row is None else bulk(row.value)
    return missing if refused else OK


def _after(rows: RowSet, ttl_us: int) -> int:
    return rows.now_us + ttl_us if ttl_us else 0


def plan_getset(session: Session, parts: list[bytes]) -> Plan | bytes:
    """GETSET key value: the value before."""
    options = _SetOptions()
    options.old = True
    return _plan_of(session, parts, options)


def setnx(session: Session, parts: list[bytes]) -> Awaitable[bytes]:
    """SETNX key value: 1 if nothing was there."""
    table, partition, sort = place_of(parts[1])
    write = Write(partition, sort, parts[2])
    return _one_if_done(key_values(session).write_if(table, write, _ABSENT, call_of(session)))


async def _one_if_done(work: Awaitable[WriteIfResult]) -> bytes:
    return integer(int((await work).done))


def plan_setnx(_session: Session, parts: list[bytes]) -> Plan | bytes:
    """Of SETNX."""
    run = partial(_set_absent, parts[2])
    return Plan([parts[1]], run, writes=True, size_bytes=len(parts[1]) + len(parts[2]))


def _set_absent(value: bytes, rows: RowSet, sorts: Sequence[bytes]) -> bytes:
    (sort,) = sorts
    if rows.get(sort) is not None:
        return integer(0)
    rows.put(sort, value)
    return integer(1)


def setex(session: Session, parts: list[bytes]) -> Awaitable[bytes]:
    """SETEX key seconds value."""
    return _set_for(session, parts, ttl_of(session, "setex", b"EX", parts[2]))


def psetex(session: Session, parts: list[bytes]) -> Awaitable[bytes]:
    """PSETEX key milliseconds value."""
    return _set_for(session, parts, ttl_of(session, "psetex", b"PX", parts[2]))


def _set_for(session: Session, parts: list[bytes], ttl_us: int) -> Awaitable[bytes]:
    table, partition, sort = place_of(parts[1])
    write = Write(partition, sort, parts[3], ttl_us)
    return await_ok(key_values(session).write(table, [write], call_of(session)))


def plan_setex(session: Session, parts: list[bytes]) -> Plan | bytes:
    """Of SETEX."""
    return _plan_for(session, parts, ttl_of(session, "setex", b"EX", parts[2]))


def plan_psetex(session: Session, parts: list[bytes]) -> Plan | bytes:
    """Of PSETEX."""
    return _plan_for(session, parts, ttl_of(session, "psetex", b"PX", parts[2]))


def _plan_for(session: Session, parts: list[bytes], ttl_us: int) -> Plan:
    options = _SetOptions()
    options.ttl_us = ttl_us
    return _plan_of(session, [parts[0], parts[1], parts[3]], options)


def plan_getdel(session: Session, parts: list[bytes]) -> Plan | bytes:
    """GETDEL key: its value, once and for all."""
    return Plan([parts[1]], partial(_take, null_reply(session)), reads=True, writes=True)


def _take(missing: bytes, rows: RowSet, sorts: Sequence[bytes]) -> bytes:
    (sort,) = sorts
    row = rows.get(sort)
    rows.delete(sort)
    return missing if row is None else bulk(row.value)


def getex(session: Session, parts: list[bytes]) -> bytes | Awaitable[Reply]:
    """GETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST]."""
    if len(parts) == 2:
        return get(session, parts)
    return carry_out(session, plan_getex(session, parts))


def plan_getex(session: Session, parts: list[bytes]) -> Plan | bytes:
    """Of GETEX."""
    size = len(parts)
    if size == 2:
        return plan_get(session, parts)
    word = parts[2].upper()
    ttl_us = until_us = 0
    if word in TIMES and size == 4:
        ttl_us, until_us = ttl_of(session, "getex", word, parts[3]), instant_of(word, parts[3])
    elif word != b"PERSIST" or size != 3:
        return SYNTAX
    run = partial(_get_and_expire, ttl_us, until_us, null_reply(session))
    return Plan([parts[1]], run, reads=True, writes=True)


def _get_and_expire(
    ttl_us: int, until_us: int, missing: bytes, rows: RowSet, sorts: Sequence[bytes]
) -> bytes:
    (sort,) = sorts
    row = rows.get(sort)
    if row is None:
        return missing
    rows.put(sort, row.value, until_us or _after(rows, ttl_us))
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
