"""Times: how commands say when a value is to expire, and the rows that ask and change it.

An instant that has passed, where Redis takes one, makes a value that is gone as it is written. What
is reply is rounded as Redis rounds it; a value's time is kept to the microsecond.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.key_values import CallContext, KeyValues, Row
from sluicegate.doors.resp.errors import NOT_INTEGER
from sluicegate.doors.resp.kv.arguments import place_of
from sluicegate.doors.resp.kv.context import await_row, call_of, integer, key_values, now_us
from sluicegate.doors.resp.kv.values import row_of
from sluicegate.doors.resp.session import Session
from sluicegate.wire.resp import error_line, whole_number
from sluicegate.wire.text import text_of

TTL_US_MAX: Final = (1 << 62) - 1

_S: Final = 1_000_000
_MS: Final = 1_000
# The options that say a time: microseconds of one, and whether it is an instant.
TIMES: Final[dict[bytes, tuple[int, bool]]] = {
    b"EX": (_S, False),
    b"PX": (_MS, False),
    b"EXAT": (_S, True),
    b"PXAT": (_MS, True),
}
_GONE: Final = -2
_FOR_EVER: Final = -1


def ttl_of(session: Session, name: str, word: bytes, part: bytes) -> int:
    """The time that an option says, in microseconds from now; at least one."""
    unit_us, is_instant = TIMES[word]
    most = TTL_US_MAX // unit_us
    try:
        number = whole_number(part)
    except ValueError:
        raise BadValue("time", text_of(part), _within(word, most)) from None
    if not 0 < number <= most:
        remedy = f"invalid expire time in '{name}' command: {_within(word, most)}"
        raise BadValue("time", number, remedy)
    return max(1, number * unit_us - now_us(session)) if is_instant else number * unit_us


def _within(word: bytes, most: int) -> str:
    return f"give {text_of(word)} a whole number from 1 to {most:,}"


def left_us(session: Session, row: Row) -> int:
    """_SetOptions long this row has left, at least 1; 0 is for ever."""
    return max(1, row.expires_us - now_us(session)) if row.expires_us else 0


def expire(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """EXPIRE key seconds."""
    return _expire(session, parts, _S, False)


def pexpire(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """PEXPIRE key milliseconds."""
    return _expire(session, parts, _MS, False)


def expire_at(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """EXPIREAT key instant, in seconds since 1970."""
    return _expire(session, parts, _S, True)


def pexpire_at(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """PEXPIREAT key instant, in milliseconds since 1970."""
    return _expire(session, parts, _MS, True)


def _expire(
    session: Session, parts: list[bytes], unit_us: int, is_instant: bool
) -> MaybeAwaitable[bytes]:
    try:
        number = whole_number(parts[2])
    except ValueError:
        return NOT_INTEGER
    table, partition, sort = place_of(parts[1])
    most = TTL_US_MAX // unit_us
    if abs(number) > most:
        name = session.last.lower()
        return error_line(
            f"ERR invalid expire time in '{name}' command: give a whole number up to {most:,}"
        )
    ttl_us = number * unit_us - (now_us(session) if is_instant else 0)
    service, call = key_values(session), call_of(session)
    if ttl_us <= 0:
        return _count(service.remove(table, [(partition, sort)], call))
    return _count(service.expire(table, partition, sort, ttl_us, call))


async def _count(work: Awaitable[int]) -> bytes:
    return integer(int(await work))


def persist(session: Session, parts: list[bytes]) -> Awaitable[bytes]:
    """PERSIST key: 1 if it would have expired."""
    return _persist(key_values(session), parts[1], call_of(session, True))


async def _persist(service: KeyValues, key: bytes, call: CallContext) -> bytes:
    table, partition, sort = place_of(key)
    row = await await_row(service.get(table, partition, sort, call))
    if row is None or not row.expires_us:
        return integer(0)
    return integer(int(await service.expire(table, partition, sort, 0, call)))


def ttl(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """TTL key: seconds; -1 for ever, -2 nothing there."""
    return _time_left(session, parts[1], _S)


def pttl(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """PTTL key: the same in milliseconds."""
    return _time_left(session, parts[1], _MS)


def _time_left(session: Session, key: bytes, unit_us: int) -> MaybeAwaitable[bytes]:
    row = row_of(session, key)
    if row is None or isinstance(row, Row):
        return _left(session, row, unit_us)
    return _time_left_later(session, row, unit_us)


async def _time_left_later(session: Session, answer: Awaitable[Row | None], unit_us: int) -> bytes:
    return _left(session, await answer, unit_us)


def _left(session: Session, row: Row | None, unit_us: int) -> bytes:
    if row is None:
        return integer(_GONE)
    return integer(ms_left(session, row) if unit_us == _MS else _seconds(ms_left(session, row)))


def ms_left(session: Session, row: Row) -> int:
    """Milliseconds, rounded up; -1 for ever."""
    return -(-left_us(session, row) // _MS) if row.expires_us else _FOR_EVER


def _seconds(left_ms: int) -> int:
    return left_ms if left_ms < 0 else (left_ms + 500) // 1_000
