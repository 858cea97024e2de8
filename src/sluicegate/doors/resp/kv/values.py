"""Points: the rows of the table that read and write single values: GET, MGET, MSET, STRLEN.

`set` has SET and what else is written under a condition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any, Final, cast

from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.engine import Place
from sluicegate.contracts.errors import OutcomeUnknown, SluicegateError
from sluicegate.contracts.key_values import WRITES_MAX, CallContext, KeyValues, Row, Write
from sluicegate.doors.resp.errors import unknown_subcommand, wrong_arity
from sluicegate.doors.resp.kv.call import (
    LONG_BYTES,
    add_bulk,
    await_ok,
    bulk,
    call_of,
    integer,
    key_values,
    null_reply,
    place_of,
)
from sluicegate.doors.resp.kv.plan import Plan, RowSet
from sluicegate.doors.resp.session import Reply, Session
from sluicegate.wire.resp import OK, encode_reply
from sluicegate.wire.text import text_of


def get(session: Session, parts: list[bytes]) -> bytes | Awaitable[Reply]:
    """GET key."""
    row = row_of(session, parts[1])
    if row is None:
        return null_reply(session)
    if isinstance(row, Row):
        return bulk(row.value)
    return _get_later(row, null_reply(session))


async def _get_later(answer: Awaitable[Row | None], missing: bytes) -> Reply:
    row = await answer
    if row is None:
        return missing
    if len(row.value) < LONG_BYTES:
        return bulk(row.value)
    reply: list[bytes] = []
    add_bulk(reply, row.value)
    return reply


def strlen(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """STRLEN key: 0 where there is nothing."""
    row = row_of(session, parts[1])
    if row is None or isinstance(row, Row):
        return _length(row)
    return _strlen_later(row)


async def _strlen_later(answer: Awaitable[Row | None]) -> bytes:
    return _length(await answer)


def _length(row: Row | None) -> bytes:
    return integer(0 if row is None else len(row.value))


def mget(session: Session, parts: list[bytes]) -> bytes | Awaitable[Reply]:
    """MGET key...: a value or null for each."""
    rows = rows_of(session, parts[1:])
    if isinstance(rows, list):
        return b"".join(_each(rows, null_reply(session)))
    return _each_later(rows, null_reply(session))


async def _each_later(answer: Awaitable[list[Row | None]], missing: bytes) -> Reply:
    return _each(await answer, missing)


def _each(rows: list[Row | None], missing: bytes) -> list[bytes]:
    reply = [b"*%d\r\n" % len(rows)]
    for row in rows:
        if row is None:
            reply.append(missing)
        else:
            add_bulk(reply, row.value)
    return reply


def mset(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """MSET key value...: those of one partition all or none, table after table."""
    if len(parts) % 2 == 0:
        return wrong_arity("mset")
    writes: dict[str, list[Write]] = {}
    for at in range(1, len(parts), 2):
        table, partition, sort = place_of(parts[at])
        writes.setdefault(table, []).append(Write(partition, sort, parts[at + 1]))
    service, call = key_values(session), call_of(session)
    batches = _batches(writes)
    if len(batches) == 1:
        return await_ok(service.write(*batches[0], call))
    return _write_batches(service, batches, call)


def _batches(by_table: dict[str, list[Any]]) -> list[tuple[str, list[Any]]]:
    """Split places or writes into as many as one call takes; those of one partition stay together.

    Other callers have their turn between two of them.
    """
    batches: list[tuple[str, list[Any]]] = []
    for table, rows in by_table.items():
        if len(rows) <= WRITES_MAX:
            batches.append((table, rows))
            continue
        partitions: dict[bytes, list[Any]] = {}
        for row in rows:
            partitions.setdefault(row[0], []).append(row)
        batch: list[Any] = []
        for group in partitions.values():
            if batch and len(batch) + len(group) > WRITES_MAX:
                batches.append((table, batch))
                batch = []
            batch += group
        batches.append((table, batch))
    return batches


async def _write_batches(
    service: KeyValues, batches: Sequence[tuple[str, list[Write]]], call: CallContext
) -> bytes:
    made = False
    for table, those in batches:
        try:
            await service.write(table, those, call)
        except SluicegateError as error:
            if made:
                raise _part_made(error) from error
            raise
        made = True
    return OK


def _part_made(error: SluicegateError) -> OutcomeUnknown:
    """Return the error of a command that made changes before the one that failed."""
    return OutcomeUnknown("the service", f"only a part was made ({error})")


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
    service: KeyValues = session.state.service
    return service.get(table, partition, sort, call_of(session))


def rows_of(session: Session, keys: list[bytes]) -> MaybeAwaitable[list[Row | None]]:
    """The rows at these keys, in their order; of several tables side by side."""
    service, call = key_values(session), call_of(session)
    by_table = places_of(keys)
    if len(by_table) == 1:
        table, places = next(iter(by_table.items()))
        rows = service.get_each(table, places, call)
        if isinstance(rows, (list, tuple)):
            return list(rows)
        return _as_list(rows)
    answers = [service.get_each(table, places, call) for table, places in by_table.items()]
    tables = [key[: key.find(b":")].decode("ascii") for key in keys]
    if all(isinstance(answer, (list, tuple)) for answer in answers):
        reply = cast("list[Sequence[Row | None]]", answers)
        return _in_order(tables, dict(zip(by_table, reply, strict=True)))
    return _gather(tables, list(by_table), answers)


async def _as_list(answer: MaybeAwaitable[Sequence[Row | None]]) -> list[Row | None]:
    if isinstance(answer, Awaitable):
        answer = await answer
    return list(answer)


async def _gather(
    tables: list[str], names: list[str], answers: list[MaybeAwaitable[Sequence[Row | None]]]
) -> list[Row | None]:
    reply = await asyncio.gather(*[_as_list(answer) for answer in answers])
    return _in_order(tables, dict(zip(names, reply, strict=True)))


def _in_order(tables: list[str], by_table: dict[str, Sequence[Row | None]]) -> list[Row | None]:
    following = {table: iter(rows) for table, rows in by_table.items()}
    return [next(following[table]) for table in tables]


def plan_get(session: Session, parts: list[bytes]) -> Plan | bytes:
    """Of GET."""
    return Plan([parts[1]], partial(_tell, null_reply(session)), reads=True)


def _tell(missing: bytes, rows: RowSet, sorts: Sequence[bytes]) -> bytes:
    row = rows.get(sorts[0])
    return missing if row is None else bulk(row.value)


def plan_mget(session: Session, parts: list[bytes]) -> Plan | bytes:
    """Of MGET."""
    return Plan(parts[1:], partial(_tell_each, null_reply(session)), reads=True)


def _tell_each(missing: bytes, rows: RowSet, sorts: Sequence[bytes]) -> bytes:
    return b"".join(_each([rows.get(sort) for sort in sorts], missing))


def plan_strlen(_session: Session, parts: list[bytes]) -> Plan | bytes:
    """Of STRLEN."""
    return Plan([parts[1]], lambda rows, sorts: _length(rows.get(sorts[0])), reads=True)


def plan_exists(_session: Session, parts: list[bytes]) -> Plan | bytes:
    """Of EXISTS."""
    return Plan(
        parts[1:], lambda rows, sorts: _count([rows.get(sort) for sort in sorts]), reads=True
    )


def plan_type(_session: Session, parts: list[bytes]) -> Plan | bytes:
    """Of TYPE."""
    return Plan([parts[1]], lambda rows, sorts: _type(rows.get(sorts[0])), reads=True)


def plan_mset(_session: Session, parts: list[bytes]) -> Plan | bytes:
    """Of MSET."""
    if len(parts) % 2 == 0:
        return wrong_arity("mset")
    size = sum([len(part) for part in parts])
    return Plan(parts[1::2], partial(_set_each, parts[2::2]), writes=True, size_bytes=size)


def _set_each(values: Sequence[bytes], rows: RowSet, sorts: Sequence[bytes]) -> bytes:
    for sort, value in zip(sorts, values, strict=True):
        rows.put(sort, value)
    return OK


def plan_msetnx(_session: Session, parts: list[bytes]) -> Plan | bytes:
    """MSETNX key value...: 1 if none was there and all are written; of one partition."""
    if len(parts) % 2 == 0:
        return wrong_arity("msetnx")
    size = sum([len(part) for part in parts])
    return Plan(parts[1::2], partial(_set_absent, parts[2::2]), writes=True, size_bytes=size)


def _set_absent(values: Sequence[bytes], rows: RowSet, sorts: Sequence[bytes]) -> bytes:
    if any(rows.get(sort) is not None for sort in sorts):
        return integer(0)
    _set_each(values, rows, sorts)
    return integer(1)


def plan_delete(_session: Session, parts: list[bytes]) -> Plan | bytes:
    """Of DEL and UNLINK."""
    return Plan(
        parts[1:],
        lambda rows, sorts: integer(sum([rows.delete(sort) for sort in sorts])),
        writes=True,
    )


_STRING: Final = b"+string\r\n"
_NONE: Final = b"+none\r\n"
# What redis-benchmark asks of a server before it begins.
_CONFIG: Final = {"save": "", "appendonly": "no"}


def delete(session: Session, parts: list[bytes]) -> Awaitable[bytes]:
    """DEL key...: how many were there."""
    by_table = {table: list(dict.fromkeys(them)) for table, them in places_of(parts[1:]).items()}
    return _remove(key_values(session), _batches(by_table), call_of(session))


async def _remove(
    service: KeyValues, batches: Sequence[tuple[str, list[Place]]], call: CallContext
) -> bytes:
    count = 0
    for table, places in batches:
        try:
            count += await service.remove(table, places, call)
        except SluicegateError as error:
            if count:
                raise _part_made(error) from error
            raise
    return integer(count)


def exists(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """EXISTS key...: how many are there; one that is named twice counts twice."""
    rows = rows_of(session, parts[1:])
    if isinstance(rows, list):
        return _count(rows)
    return _count_later(rows)


async def _count_later(answer: Awaitable[list[Row | None]]) -> bytes:
    return _count(await answer)


def _count(rows: list[Row | None]) -> bytes:
    return integer(len(rows) - rows.count(None))


def type_(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """TYPE key: string or none."""
    row = row_of(session, parts[1])
    if row is None or isinstance(row, Row):
        return _type(row)
    return _type_later(row)


async def _type_later(answer: Awaitable[Row | None]) -> bytes:
    return _type(await answer)


def _type(row: Row | None) -> bytes:
    return _NONE if row is None else _STRING


def config(session: Session, parts: list[bytes]) -> bytes:
    """CONFIG GET name...: what a benchmark wants to know; nothing can be set."""
    if parts[1].upper() != b"GET":
        return unknown_subcommand("CONFIG", parts)
    wanted = {text_of(part).lower() for part in parts[2:]}
    reply = {name: value for name, value in _CONFIG.items() if name in wanted}
    return encode_reply(reply, session.protocol)
