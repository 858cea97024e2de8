"""Counters: INCR, DECR, INCRBY and DECRBY, each one step; the time to live of a counter stays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from sluicegate.doors.resp.errors import NOT_INTEGER
from sluicegate.doors.resp.kv.call import (
    INTEGER_DIGITS_MAX,
    INTEGER_MAX,
    INTEGER_MIN,
    integer,
    integer_of,
)
from sluicegate.doors.resp.kv.plan import Plan, RowSet
from sluicegate.doors.resp.session import Session
from sluicegate.wire.resp import error_line

_OVERFLOW: Final = error_line("ERR increment or decrement would overflow")
_DECREMENT_OVERFLOW: Final = error_line("ERR decrement would overflow")


def plan_incr(_session: Session, parts: list[bytes]) -> Plan | bytes:
    """INCR key: one more."""
    return _plan(parts[1], 1)


def plan_decr(_session: Session, parts: list[bytes]) -> Plan | bytes:
    """DECR key: one less."""
    return _plan(parts[1], -1)


def plan_incrby(_session: Session, parts: list[bytes]) -> Plan | bytes:
    """INCRBY key amount."""
    return _plan(parts[1], integer_of(parts[2]))


def plan_decrby(_session: Session, parts: list[bytes]) -> Plan | bytes:
    """DECRBY key amount."""
    amount = integer_of(parts[2])
    if amount == INTEGER_MIN:
        return _DECREMENT_OVERFLOW
    return _plan(parts[1], None if amount is None else -amount)


def _plan(key: bytes, amount: int | None) -> Plan | bytes:
    if amount is None:
        return NOT_INTEGER
    run = partial(_add, amount)
    return Plan([key], run, reads=True, writes=True, size_bytes=len(key) + INTEGER_DIGITS_MAX)


def _add(amount: int, rows: RowSet, sorts: Sequence[bytes]) -> bytes:
    (sort,) = sorts
    row = rows.get(sort)
    before = 0 if row is None else integer_of(row.value)
    if before is None:
        return NOT_INTEGER
    number = before + amount
    if not INTEGER_MIN <= number <= INTEGER_MAX:
        return _OVERFLOW
    rows.put(sort, b"%d" % number, 0 if row is None else row.expires_us)
    return integer(number)
