"""Transactions: MULTI, EXEC, DISCARD, WATCH and UNWATCH, of one partition.

Commands behind MULTI are checked and queued; EXEC carries them out as one update of the engine
(`plan.py`), so nobody sees half of it and nobody comes between. As in Redis a command that cannot
be queued has EXEC refuse all, and one that fails while the others are carried out fails alone. Keys
of another partition cannot be queued: no engine changes two partitions as one. What is watched is
compared when EXEC is carried out: value and time, so a row that is again as it was has not changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Final, final

from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.key_values import (
    CallContext,
    KeyValues,
    Row,
    RowsUpdate,
    Write,
    tag_of,
)
from sluicegate.doors.resp.errors import reply_to_error
from sluicegate.doors.resp.kv.call import call_of, key_values, now_us, place_of
from sluicegate.doors.resp.kv.plan import Plan, PlannedWork, sort_in
from sluicegate.doors.resp.session import Command, Reply, Session, Transaction
from sluicegate.wire.resp import OK, error_line

COMMANDS_MAX: Final = 1_000  # queued by one connection
COMMAND_BYTES_MAX: Final = 16 << 20  # of them
WATCHED_MAX: Final = 100  # keys of one connection

_QUEUED: Final = b"+QUEUED\r\n"
_NESTED: Final = error_line("ERR MULTI calls can not be nested")
_NO_EXEC: Final = error_line("ERR EXEC without MULTI")
_NO_DISCARD: Final = error_line("ERR DISCARD without MULTI")
_WATCH_INSIDE: Final = error_line("ERR WATCH inside MULTI is not allowed")
_ABORTED: Final = error_line("EXECABORT Transaction discarded because of previous errors.")
_INSIDE: Final = frozenset({"MULTI", "EXEC", "DISCARD", "WATCH", "QUIT", "RESET"})  # never queued


@final
class WatchedRow:
    """A row as it was when it was watched."""

    __slots__ = ("expires_us", "partition", "sort", "table", "tag")

    def __init__(self, table: str, partition: bytes, sort: bytes, row: Row | None) -> None:
        self.table = table
        self.partition = partition
        self.sort = sort
        self.tag = b"" if row is None else tag_of(row.value)
        self.expires_us = 0 if row is None else row.expires_us

    def is_still(self, row: Row | None) -> bool:
        """Whether this is that row."""
        if row is None:
            return not self.tag
        return row.expires_us == self.expires_us and tag_of(row.value) == self.tag


@final
class WatchedWork:
    """The work of a transaction, if what it watches is as it was; else `done` is not."""

    __slots__ = ("_sorts", "_watched", "_work", "done")

    def __init__(self, work: PlannedWork, watched: Sequence[WatchedRow]) -> None:
        self._work = work
        self._watched = watched
        self._sorts: Sequence[bytes] = ()
        self.done = False

    @property
    def replies(self) -> list[bytes]:
        """Return the replies of the commands."""
        return self._work.replies

    def update(self) -> RowsUpdate | None:
        """Return the update of all rows, those that are watched too."""
        update = self._work.update_of([one.sort for one in self._watched])
        if update is None:
            return None
        self._sorts = update.sorts
        return update._replace(decide=self.decide)

    def decide(self, rows: Sequence[Row | None], at_us: int) -> list[Write]:
        """Run all plans, unless a watched row has changed."""
        by_sort = dict(zip(self._sorts, rows, strict=True))
        self.done = all(one.is_still(by_sort[one.sort]) for one in self._watched)
        return self._work.decide(rows, at_us) if self.done else []


def enqueue(session: Session, row: Command, parts: list[bytes]) -> bytes | Awaitable[Reply]:
    """Queue a command of an open transaction; a few are carried out at once."""
    if row.name in _INSIDE:
        return row.run(session, parts)
    transaction = session.transaction
    assert transaction is not None  # whoever calls this has looked
    try:
        _check(transaction, row, parts)
    except BadValue as error:
        transaction.aborted = True
        return reply_to_error(error)
    transaction.commands.append((row, parts))
    return _QUEUED


def _check(transaction: Transaction, row: Command, parts: list[bytes]) -> None:
    if row.plan is None:
        raise BadValue("command", row.name, "send it before MULTI or behind EXEC")
    first, last, step = row.keys
    end = len(parts) if last < 0 else last + 1
    for key in parts[first:end:step]:
        if not transaction.partition:
            transaction.table, transaction.partition, _ = place_of(key)
        sort_in(transaction.table, transaction.partition, key)
    transaction.size_bytes += sum([len(part) for part in parts])
    if len(transaction.commands) >= COMMANDS_MAX or transaction.size_bytes > COMMAND_BYTES_MAX:
        remedy = f"queue at most {COMMANDS_MAX:,} commands and {COMMAND_BYTES_MAX:,} bytes"
        raise BadValue("transaction", row.name, remedy)


def multi(session: Session, parts: list[bytes]) -> bytes:
    """MULTI: what follows is queued."""
    if session.transaction is not None:
        return _NESTED
    session.transaction = Transaction()
    return OK


def discard(session: Session, parts: list[bytes]) -> bytes:
    """DISCARD: forget what is queued."""
    if session.transaction is None:
        return _NO_DISCARD
    session.end_transaction()
    return OK


def watch(session: Session, parts: list[bytes]) -> bytes | Awaitable[bytes]:
    """WATCH key...: have EXEC do nothing if one of them has changed."""
    if session.transaction is not None:
        return _WATCH_INSIDE
    if len(session.watched) + len(parts) - 1 > WATCHED_MAX:
        raise BadValue("keys", len(parts) - 1, f"watch at most {WATCHED_MAX:,}")
    table, partition, first = place_of(parts[1])
    sorts = [first, *[sort_in(table, partition, key) for key in parts[2:]]]
    return _watch(session, table, partition, sorts, key_values(session), call_of(session, True))


async def _watch(
    session: Session,
    table: str,
    partition: bytes,
    sorts: list[bytes],
    service: KeyValues,
    call: CallContext,
) -> bytes:
    rows = await _rows(service, table, partition, sorts, call)
    for sort, row in zip(sorts, rows, strict=True):
        session.watched.append(WatchedRow(table, partition, sort, row))
    return OK


async def _rows(
    service: KeyValues, table: str, partition: bytes, sorts: Sequence[bytes], call: CallContext
) -> Sequence[Row | None]:
    answer = service.get_each(table, [(partition, sort) for sort in sorts], call)
    return await answer if isinstance(answer, Awaitable) else answer


def unwatch(session: Session, parts: list[bytes]) -> bytes:
    """UNWATCH: forget what is watched."""
    session.watched = []
    return OK


def exec_(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """EXEC: carry out what is queued, as one."""
    transaction, watched = session.transaction, session.watched
    if transaction is None:
        return _NO_EXEC
    session.end_transaction()
    if transaction.aborted:
        return _ABORTED
    plans: list[Plan | bytes] = [
        _plan_of(session, row, words) for row, words in transaction.commands
    ]
    table, partition = transaction.table, transaction.partition
    if watched and not partition:
        table, partition = watched[0].table, watched[0].partition
    for one in watched:
        if one.table != table or one.partition != partition:
            key = f"{one.table}:{one.partition.decode('utf-8', 'backslashreplace')}"
            raise BadValue("watched", key, "watch keys of the partition that EXEC writes")
    work = WatchedWork(PlannedWork(plans, partition), watched)
    writes = any(isinstance(plan, Plan) and plan.writes for plan in plans)
    missing = b"_\r\n" if session.protocol == 3 else b"*-1\r\n"
    call = call_of(session, True)
    return _execute(key_values(session), table, work, writes, call, now_us(session), missing)


def _plan_of(session: Session, row: Command, parts: list[bytes]) -> Plan | bytes:
    """Return a queued command's plan, or what is wrong with it."""
    assert row.plan is not None  # it would not have been queued
    try:
        plan: Plan | bytes = row.plan(session, parts)
    except BadValue as error:
        return reply_to_error(error)
    return plan


async def _execute(
    service: KeyValues,
    table: str,
    work: WatchedWork,
    writes: bool,
    call: CallContext,
    at_us: int,
    missing: bytes,
) -> bytes:
    update = work.update()
    if update is None:
        work.decide((), at_us)
    elif writes:
        await service.update(table, update, call)
    else:
        work.decide(await _rows(service, table, update.partition, update.sorts, call), at_us)
    if not work.done:
        return missing
    replies = work.replies
    return b"*%d\r\n%b" % (len(replies), b"".join(replies))
