"""Joint charges: several limits charged at once, all or nothing.

Either each of them admits the cost, and each is charged, or nothing is charged anywhere. The locks
of all tables concerned are acquired in one order by everyone, so two joint charges cannot wait for
each other, and nobody sees one half done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.store import Key
from sluicegate.kernels.verdict import NEVER
from sluicegate.stores.memory.table import KeyTable, LocalKeys, TableCharge


def take_all(charges: Sequence[TableCharge], now_us: int, *, keep: bool = True) -> list[Decision]:
    """Take from all of them or from none; one decision for each, in their order."""
    costs: dict[tuple[KeyTable[Any], str], int] = {}
    for charge in charges:
        # The same key of the same table twice is one charge of both.
        costs[charge.table, charge.key] = costs.get((charge.table, charge.key), 0) + charge.cost
    tables = sorted({table for table, _ in costs}, key=id)
    locked: list[KeyTable[Any]] = []
    try:
        for table in tables:
            table.lock.acquire()
            locked.append(table)
        decided = {place: _decide(place, cost, now_us, False) for place, cost in costs.items()}
        if keep and all(decision.allowed for decision in decided.values()):
            decided = {place: _decide(place, cost, now_us, True) for place, cost in costs.items()}
            if not all(decision.allowed for decision in decided.values()):
                # A table had no room for one more key: the others get back what they gave.
                for (table, key), decision in decided.items():
                    if decision.allowed:
                        table.settle_locked(key, -costs[table, key], now_us, now_us)
        return [decided[charge.table, charge.key] for charge in charges]
    finally:
        for table in locked:
            table.lock.release()


def charge_all(charges: Sequence[TableCharge], now_us: int) -> None:
    """Charge every one of them, as far as it can hold it: what was refused counts all the same."""
    for charge in charges:
        charge.table.settle(charge.key, charge.cost, now_us, now_us)


def _decide(place: tuple[KeyTable[Any], str], cost: int, now_us: int, keep: bool) -> Decision:
    table, key = place
    return table.decide(key, cost, now_us, keep)


def binding(decisions: Sequence[Decision]) -> Decision:
    """The one that speaks for all: the refusal that lasts longest, or else the least left."""
    if len(decisions) == 1:
        return decisions[0]
    refused = [decision for decision in decisions if not decision.allowed]
    if not refused:
        return min(decisions, key=_by_remaining)
    return max(refused, key=_by_wait)


def _by_remaining(decision: Decision) -> tuple[int, int]:
    return decision.remaining, -decision.reset_after_us


def _by_wait(decision: Decision) -> tuple[bool, int]:
    return decision.retry_after_us == NEVER, decision.retry_after_us


@final
class AllOf(LocalKeys):
    """Several limits on the same key, used as one."""

    __slots__ = ("_tables",)

    def __init__(self, tables: Sequence[KeyTable[Any]]) -> None:
        self._tables = list(tables)

    def take(self, key: Key, cost: int, now_us: int) -> Decision:
        """Take from every limit or from none; the decision is the binding one."""
        return binding(take_all(self.charges(key, cost), now_us))

    def peek(self, key: Key, cost: int, now_us: int) -> Decision:
        """Return what `take` would answer; nothing is taken."""
        return binding(take_all(self.charges(key, cost), now_us, keep=False))

    def settle(self, key: Key, correction: int, now_us: int, taken_us: int | None) -> None:
        """Charge `correction` more in every limit, or give back if negative."""
        for table in self._tables:
            table.settle(key, correction, now_us, taken_us)

    def reset(self, key: Key) -> None:
        """Forget what `key` has taken, in every limit."""
        for table in self._tables:
            table.reset(key)

    def charges(self, key: Key, cost: int) -> list[TableCharge]:
        """Return this key in each of the limits."""
        return [TableCharge(table, key, cost) for table in self._tables]

    def __len__(self) -> int:
        return max([len(table) for table in self._tables])
