"""Plan: a command that reads and writes rows of one partition as one, and how it is carried out.

A plan names its rows and has a function from these rows to its reply, which may change them on the
way. It knows nothing of engines, and waits for nothing: whoever writes may call it again, on the
engine's thread, until nothing came between. Several plans of one partition are carried out as one
(`transactions.py`): each sees what those before it changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, final

from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.key_values import CallContext, KeyValues, Row, RowsUpdate, Write
from sluicegate.doors.resp.kv.call import call_of, key_values, place_of
from sluicegate.doors.resp.session import Run, Session

REPLY_BYTES_MAX: Final = 16 << 20  # of all replies of one transaction


@final
class RowSet:
    """Rows of one partition, while commands change them."""

    __slots__ = ("_changed", "_rows", "now_us")

    def __init__(self, sorts: Sequence[bytes], rows: Sequence[Row | None], now_us: int) -> None:
        self.now_us = now_us
        self._rows = dict(zip(sorts, rows, strict=True))
        self._changed: set[bytes] = set()

    def get(self, sort: bytes) -> Row | None:
        """Return the row there now."""
        return self._rows[sort]

    def put(self, sort: bytes, value: bytes, expires_us: int = 0) -> None:
        """Have this value there; one that has expired already is none.

        An instant that has passed is a microsecond from now (`ttl_of`): nothing would be for ever.
        """
        gone = 0 < expires_us <= self.now_us + 1
        self._rows[sort] = None if gone else Row(sort, value, expires_us)
        self._changed.add(sort)

    def delete(self, sort: bytes) -> bool:
        """Have nothing there; return whether there was anything."""
        if self._rows[sort] is None:
            return False
        self._rows[sort] = None
        self._changed.add(sort)
        return True

    def writes(self, partition: bytes) -> list[Write]:
        """Return what makes the changes last."""
        writes = []
        for sort in sorted(self._changed):
            row = self._rows[sort]
            if row is None:
                writes.append(Write(partition, sort, None))
            else:
                ttl_us = row.expires_us - self.now_us if row.expires_us else 0
                writes.append(Write(partition, sort, row.value, ttl_us))
        return writes


# From rows, and the sort keys that the command names, to its reply.
RunPlan: TypeAlias = "Callable[[RowSet, Sequence[bytes]], bytes]"


@final
class Plan:
    """One command. `reads` is whether its reply tells what rows hold; `writes`, if it may write."""

    __slots__ = ("partition", "reads", "run", "size_bytes", "sorts", "table", "writes")

    def __init__(
        self,
        keys: Sequence[bytes],
        run: RunPlan,
        *,
        reads: bool = False,
        writes: bool = False,
        size_bytes: int = 0,
    ) -> None:
        self.table, self.partition, first = place_of(keys[0])
        self.sorts = [first, *[sort_in(self.table, self.partition, key) for key in keys[1:]]]
        self.run = run
        self.reads = reads
        self.writes = writes
        self.size_bytes = size_bytes


# Builds the plan of a command; what is wrong with the command is its reply, or is raised.
PlanMaker: TypeAlias = "Callable[[Session, list[bytes]], Plan | bytes]"


@final
class PlannedWork:
    """Plans of one partition; `replies` are those of the last time that they were run."""

    __slots__ = ("_partition", "_plans", "_sorts", "replies")

    def __init__(self, plans: Sequence[Plan | bytes], partition: bytes) -> None:
        self._plans = plans
        self._partition = partition
        self._sorts: list[bytes] = []
        self.replies: list[bytes] = []

    def decide(self, rows: Sequence[Row | None], now_us: int) -> list[Write]:
        """Run all plans, one behind the other, on these rows."""
        row_set = RowSet(self._sorts, rows, now_us)
        replies: list[bytes] = []
        size = 0
        for plan in self._plans:
            reply = plan.run(row_set, plan.sorts) if isinstance(plan, Plan) else plan
            size += len(reply)
            if size > REPLY_BYTES_MAX:
                remedy = f"read less at a time: replies have at most {REPLY_BYTES_MAX:,} bytes"
                raise BadValue("replies", f"{size:,} bytes and more", remedy)
            replies.append(reply)
        self.replies = replies
        return row_set.writes(self._partition)

    def update_of(self, watched: Sequence[bytes] = ()) -> RowsUpdate | None:
        """Return the update of all the rows that are named; None without any."""
        plans = [plan for plan in self._plans if isinstance(plan, Plan)]
        named = [sort for plan in plans for sort in plan.sorts]
        self._sorts = list(dict.fromkeys([*named, *watched]))
        size = sum([plan.size_bytes for plan in plans])
        reads = any(plan.reads for plan in plans)
        if not self._sorts:
            return None
        return RowsUpdate(self._partition, self._sorts, self.decide, size, reads)


def sort_in(table: str, partition: bytes, key: bytes) -> bytes:
    """Return the sort key of a key of this partition; refuse one of another."""
    its_table, its_partition, sort = place_of(key)
    if its_table != table or its_partition != partition:
        remedy = "name keys of one partition (table:partition:...), or send them one by one"
        raise BadValue("key", key[:64].decode("utf-8", "backslashreplace"), remedy)
    return sort


def carry_out(session: Session, plan: Plan | bytes) -> MaybeAwaitable[bytes]:
    """Carry out one command by itself."""
    if not isinstance(plan, Plan):
        return plan
    return _carry_out(key_values(session), plan, call_of(session))


def run_of(plan: PlanMaker) -> Run:
    """Return what runs a command that is carried out by its plan, also when it is alone."""
    return lambda session, parts: carry_out(session, plan(session, parts))


async def _carry_out(service: KeyValues, plan: Plan, call: CallContext) -> bytes:
    work = PlannedWork([plan], plan.partition)
    update = work.update_of()
    assert update is not None  # a plan names a row at least
    await service.update(plan.table, update, call)
    return work.replies[0]
