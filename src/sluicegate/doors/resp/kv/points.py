"""Points: the rows of the table that read and write single values: GET, MGET, MSET, STRLEN.

`kv_set` has SET and what else is written under a condition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import cast

from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.engine import Place
from sluicegate.contracts.key_values import CallContext, KeyValues, Row, Write
from sluicegate.doors.resp.errors import wrong_arity
from sluicegate.doors.resp.kv.names import place_of
from sluicegate.doors.resp.kv.requests import (
    LONG_BYTES,
    add_bulk,
    bulk,
    call_of,
    done,
    key_values,
    nothing,
    whole,
)
from sluicegate.doors.resp.session import Session
from sluicegate.doors.resp.table import Reply
from sluicegate.wire.resp import OK


def get(session: Session, parts: list[bytes]) -> bytes | Awaitable[Reply]:
    """GET key."""
    row = row_of(session, parts[1])
    if row is None:
        return nothing(session)
    if isinstance(row, Row):
        return bulk(row.value)
    return _got(row, nothing(session))


async def _got(answer: Awaitable[Row | None], missing: bytes) -> Reply:
    row = await answer
    if row is None:
        return missing
    if len(row.value) < LONG_BYTES:
        return bulk(row.value)
    told: list[bytes] = []
    add_bulk(told, row.value)
    return told


def strlen(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """STRLEN key: 0 where there is nothing."""
    row = row_of(session, parts[1])
    if row is None or isinstance(row, Row):
        return _length(row)
    return _measured(row)


async def _measured(answer: Awaitable[Row | None]) -> bytes:
    return _length(await answer)


def _length(row: Row | None) -> bytes:
    return whole(0 if row is None else len(row.value))


def mget(session: Session, parts: list[bytes]) -> bytes | Awaitable[Reply]:
    """MGET key...: a value or nothing for each."""
    rows = rows_of(session, parts[1:])
    if isinstance(rows, list):
        return b"".join(_each(rows, nothing(session)))
    return _each_later(rows, nothing(session))


async def _each_later(answer: Awaitable[list[Row | None]], missing: bytes) -> Reply:
    return _each(await answer, missing)


def _each(rows: list[Row | None], missing: bytes) -> list[bytes]:
    told = [b"*%d\r\n" % len(rows)]
    for row in rows:
        if row is None:
            told.append(missing)
        else:
            add_bulk(told, row.value)
    return told


def mset(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """MSET key value...: those of one partition all or none, table after table."""
    if len(parts) % 2 == 0:
        return wrong_arity("mset")
    writes: dict[str, list[Write]] = {}
    for at in range(1, len(parts), 2):
        table, partition, sort = place_of(parts[at])
        writes.setdefault(table, []).append(Write(partition, sort, parts[at + 1]))
    service, call = key_values(session), call_of(session)
    if len(writes) == 1:
        table, those = next(iter(writes.items()))
        return done(service.write(table, those, call))
    return _written(service, writes, call)


async def _written(service: KeyValues, writes: dict[str, list[Write]], call: CallContext) -> bytes:
    for table, those in writes.items():
        await service.write(table, those, call)
    return OK


def places_of(keys: list[bytes]) -> dict[str, list[Place]]:
    """The places of these keys by their tables, in their order."""
    found: dict[str, list[Place]] = {}
    for key in keys:
        table, partition, sort = place_of(key)
        found.setdefault(table, []).append((partition, sort))
    return found


def row_of(session: Session, key: bytes) -> MaybeAwaitable[Row | None]:
    """The row at this key."""
    table, partition, sort = place_of(key)
    return key_values(session).get(table, partition, sort, call_of(session))


def rows_of(session: Session, keys: list[bytes]) -> MaybeAwaitable[list[Row | None]]:
    """The rows at these keys, in their order; of several tables side by side."""
    service, call = key_values(session), call_of(session)
    by_table = places_of(keys)
    if len(by_table) == 1:
        table, places = next(iter(by_table.items()))
        rows = service.get_each(table, places, call)
        if isinstance(rows, (list, tuple)):
            return list(rows)
        return _listed(rows)
    answers = [service.get_each(table, places, call) for table, places in by_table.items()]
    tables = [key[: key.find(b":")].decode("ascii") for key in keys]
    if all(isinstance(answer, (list, tuple)) for answer in answers):
        told = cast("list[Sequence[Row | None]]", answers)
        return _in_order(tables, dict(zip(by_table, told, strict=True)))
    return _gathered(tables, list(by_table), answers)


async def _listed(answer: MaybeAwaitable[Sequence[Row | None]]) -> list[Row | None]:
    if isinstance(answer, Awaitable):
        answer = await answer
    return list(answer)


async def _gathered(
    tables: list[str], names: list[str], answers: list[MaybeAwaitable[Sequence[Row | None]]]
) -> list[Row | None]:
    told = await asyncio.gather(*[_listed(answer) for answer in answers])
    return _in_order(tables, dict(zip(names, told, strict=True)))


def _in_order(tables: list[str], by_table: dict[str, Sequence[Row | None]]) -> list[Row | None]:
    following = {table: iter(rows) for table, rows in by_table.items()}
    return [next(following[table]) for table in tables]
