"""Times: how commands say when a value is to expire, and the rows that ask and change it.

Where Redis accepts an instant in the past, writing the value deletes it at once. Replies are
rounded as Redis rounds them; expiry itself is exact to the microsecond.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Sequence
from functools import partial
from typing import Final

from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.key_values import Row
from sluicegate.doors.resp.errors import NOT_INTEGER
from sluicegate.doors.resp.kv.call import integer, integer_of, now_us
from sluicegate.doors.resp.kv.plan import Plan, RowSet
from sluicegate.doors.resp.kv.values import row_of
from sluicegate.doors.resp.session import Session
from sluicegate.wire.resp import encode_reply, error_line
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
_CONDITIONS: Final = frozenset({b"NX", b"XX", b"GT", b"LT"})
_NOT_WITH_NX: Final = error_line(
    "ERR NX and XX, GT or LT options at the same time are not compatible"
)
_NOT_TOGETHER: Final = error_line("ERR GT and LT options at the same time are not compatible")


def ttl_of(session: Session, name: str, word: bytes, part: bytes) -> int:
    """The time that an option says, in microseconds from now; at least one."""
    unit_us, is_instant = TIMES[word]
    most = TTL_US_MAX // unit_us
    number = integer_of(part)
    if number is None:
        raise BadValue("time", text_of(part), _within(word, most))
    if not 0 < number <= most:
        remedy = f"invalid expire time in '{name}' command: {_within(word, most)}"
        raise BadValue("time", number, remedy)
    return max(1, number * unit_us - now_us(session)) if is_instant else number * unit_us


def instant_of(word: bytes, part: bytes) -> int:
    """The instant that an option says, in microseconds since 1970; 0 if it says a time from now.

    It is held as it is, however long the command waits for its turn. `ttl_of` has checked it.
    """
    unit_us, is_instant = TIMES[word]
    return int(part) * unit_us if is_instant else 0


def _within(word: bytes, most: int) -> str:
    return f"give {text_of(word)} a whole number from 1 to {most:,}"


def plan_expire(_session: Session, parts: list[bytes]) -> Plan | bytes:
    """EXPIRE key seconds [NX | XX | GT | LT]."""
    return _plan_expire(parts, _S, False)


def plan_pexpire(_session: Session, parts: list[bytes]) -> Plan | bytes:
    """PEXPIRE key milliseconds [NX | XX | GT | LT]."""
    return _plan_expire(parts, _MS, False)


def plan_expire_at(_session: Session, parts: list[bytes]) -> Plan | bytes:
    """EXPIREAT key instant [NX | XX | GT | LT], in seconds since 1970."""
    return _plan_expire(parts, _S, True)


def plan_pexpire_at(_session: Session, parts: list[bytes]) -> Plan | bytes:
    """PEXPIREAT key instant [NX | XX | GT | LT], in milliseconds since 1970."""
    return _plan_expire(parts, _MS, True)


def _plan_expire(parts: list[bytes], unit_us: int, is_instant: bool) -> Plan | bytes:
    conditions = {part.upper() for part in parts[3:]}
    for word in parts[3:]:
        if word.upper() not in _CONDITIONS:
            return error_line(f"ERR Unsupported option {text_of(word[:64])}")
    if b"NX" in conditions and len(conditions) > 1:
        return _NOT_WITH_NX
    if {b"GT", b"LT"} <= conditions:
        return _NOT_TOGETHER
    number = integer_of(parts[2])
    if number is None:
        return NOT_INTEGER
    most = TTL_US_MAX // unit_us
    if abs(number) > most:
        name = text_of(parts[0]).lower()
        return error_line(
            f"ERR invalid expire time in '{name}' command: give a whole number up to {most:,}"
        )
    run = partial(_expire, number * unit_us, is_instant, conditions)
    return Plan([parts[1]], run, reads=bool(conditions), writes=True)


def _expire(
    time_us: int,
    is_instant: bool,
    conditions: Collection[bytes],
    rows: RowSet,
    sorts: Sequence[bytes],
) -> bytes:
    (sort,) = sorts
    row = rows.get(sort)
    if row is None:
        return integer(0)
    until_us = time_us if is_instant else rows.now_us + time_us
    expires_us = row.expires_us  # 0 is for ever: no instant is later
    refused = (
        (b"NX" in conditions and expires_us > 0)
        or (b"XX" in conditions and not expires_us)
        or (b"GT" in conditions and (not expires_us or until_us <= expires_us))
        or (b"LT" in conditions and 0 < expires_us <= until_us)
    )
    if refused:
        return integer(0)
    if until_us <= rows.now_us:
        rows.delete(sort)
    else:
        rows.put(sort, row.value, until_us)
    return integer(1)


def plan_persist(_session: Session, parts: list[bytes]) -> Plan | bytes:
    """PERSIST key: 1 if it would have expired."""
    return Plan([parts[1]], _persist, reads=True, writes=True)


def _persist(rows: RowSet, sorts: Sequence[bytes]) -> bytes:
    (sort,) = sorts
    row = rows.get(sort)
    if row is None or not row.expires_us:
        return integer(0)
    rows.put(sort, row.value)
    return integer(1)


def ttl(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """TTL key: seconds; -1 for ever, -2 nothing there."""
    return _time_left(session, parts[1], _S)


def pttl(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """PTTL key: the same in milliseconds."""
    return _time_left(session, parts[1], _MS)


def _time_left(session: Session, key: bytes, unit_us: int) -> MaybeAwaitable[bytes]:
    row = row_of(session, key)
    if row is None or isinstance(row, Row):
        return _left(now_us(session), row, unit_us)
    return _time_left_later(session, row, unit_us)


async def _time_left_later(session: Session, answer: Awaitable[Row | None], unit_us: int) -> bytes:
    row = await answer
    return _left(now_us(session), row, unit_us)


def plan_ttl(_session: Session, parts: list[bytes]) -> Plan | bytes:
    """Of TTL."""
    return Plan([parts[1]], partial(_tell_left, _S), reads=True)


def plan_pttl(_session: Session, parts: list[bytes]) -> Plan | bytes:
    """Of PTTL."""
    return Plan([parts[1]], partial(_tell_left, _MS), reads=True)


def _tell_left(unit_us: int, rows: RowSet, sorts: Sequence[bytes]) -> bytes:
    return _left(rows.now_us, rows.get(sorts[0]), unit_us)


def _left(at_us: int, row: Row | None, unit_us: int) -> bytes:
    if row is None:
        return integer(_GONE)
    left_ms = _ms_left(at_us, row)
    return integer(left_ms if unit_us == _MS else _seconds(left_ms))


def expire_time(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """EXPIRETIME key: the instant in seconds since 1970; -1 without one, -2 without a value."""
    return _end(session, parts[1], _S)


def pexpire_time(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """PEXPIRETIME key: the same in milliseconds."""
    return _end(session, parts[1], _MS)


def _end(session: Session, key: bytes, unit_us: int) -> MaybeAwaitable[bytes]:
    row = row_of(session, key)
    if row is None or isinstance(row, Row):
        return _left(0, row, unit_us)
    return _end_later(row, unit_us)


async def _end_later(answer: Awaitable[Row | None], unit_us: int) -> bytes:
    return _left(0, await answer, unit_us)


def plan_expire_time(_session: Session, parts: list[bytes]) -> Plan | bytes:
    """Of EXPIRETIME."""
    return Plan([parts[1]], partial(_tell_end, _S), reads=True)


def plan_pexpire_time(_session: Session, parts: list[bytes]) -> Plan | bytes:
    """Of PEXPIRETIME."""
    return Plan([parts[1]], partial(_tell_end, _MS), reads=True)


def _tell_end(unit_us: int, rows: RowSet, sorts: Sequence[bytes]) -> bytes:
    return _left(0, rows.get(sorts[0]), unit_us)


def time_(session: Session, parts: list[bytes]) -> bytes:
    """TIME: seconds since 1970, and microseconds."""
    at_us = now_us(session)
    return encode_reply([b"%d" % (at_us // _S), b"%d" % (at_us % _S)])


def ms_left(session: Session, row: Row) -> int:
    """Milliseconds, rounded up; -1 for ever."""
    return _ms_left(now_us(session), row)


def _ms_left(at_us: int, row: Row) -> int:
    return -(-max(1, row.expires_us - at_us) // _MS) if row.expires_us else _FOR_EVER


def _seconds(left_ms: int) -> int:
    return left_ms if left_ms < 0 else (left_ms + 500) // 1_000
