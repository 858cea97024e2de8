"""Keys: the rows of the table that ask whether keys are there, and delete them."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.engine import Place
from sluicegate.contracts.key_values import CallContext, KeyValues, Row
from sluicegate.doors.resp.errors import unknown_subcommand
from sluicegate.doors.resp.kv.points import places_of, row_of, rows_of
from sluicegate.doors.resp.kv.requests import call_of, key_values, whole
from sluicegate.doors.resp.session import Session
from sluicegate.wire.resp import encoded, text_of

_STRING: Final = b"+string\r\n"
_NONE: Final = b"+none\r\n"
# What redis-benchmark asks of a server before it begins.
_CONFIG: Final = {"save": "", "appendonly": "no"}


def delete(session: Session, parts: list[bytes]) -> Awaitable[bytes]:
    """DEL key...: how many were there."""
    return _removed(key_values(session), places_of(parts[1:]), call_of(session))


async def _removed(service: KeyValues, places: dict[str, list[Place]], call: CallContext) -> bytes:
    count = 0
    for table, those in places.items():
        count += await service.remove(table, list(dict.fromkeys(those)), call)
    return whole(count)


def exists(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """EXISTS key...: how many are there; one that is named twice counts twice."""
    rows = rows_of(session, parts[1:])
    if isinstance(rows, list):
        return _count(rows)
    return _counted(rows)


async def _counted(answer: Awaitable[list[Row | None]]) -> bytes:
    return _count(await answer)


def _count(rows: list[Row | None]) -> bytes:
    return whole(len(rows) - rows.count(None))


def type_(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """TYPE key: string or none."""
    row = row_of(session, parts[1])
    if row is None or isinstance(row, Row):
        return _type(row)
    return _typed(row)


async def _typed(answer: Awaitable[Row | None]) -> bytes:
    return _type(await answer)


def _type(row: Row | None) -> bytes:
    return _NONE if row is None else _STRING


def config(session: Session, parts: list[bytes]) -> bytes:
    """CONFIG GET name...: what a benchmark wants to know; nothing can be set."""
    if parts[1].upper() != b"GET":
        return unknown_subcommand("CONFIG", parts)
    wanted = {text_of(part).lower() for part in parts[2:]}
    told = {name: value for name, value in _CONFIG.items() if name in wanted}
    return encoded(told, session.protocol)
