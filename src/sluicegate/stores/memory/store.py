"""Memory store: all tables of a process behind the contract of a store; it never suspends.

It finds tables and asks them. What a table forgets is in `table.py`, how it counts is in
`tables.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Any, Final, final

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.rule import Limit
from sluicegate.contracts.store import Charge, PartialTake, Ruling
from sluicegate.stores.memory.joint import charge_all, take_all
from sluicegate.stores.memory.table import KeyTable, TableCharge
from sluicegate.stores.memory.tables import table_for

KEYS_MAX_DEFAULT: Final = 1_000_000
RULES_MAX_DEFAULT: Final = 10_000


@final
class MemoryStore:
    """All tables of a process, as a `contracts.store.Store`; it never suspends."""

    __slots__ = ("_clock", "_closed", "_lock", "_tables", "keys_max", "rules_max")

    def __init__(
        self,
        clock: Callable[[], int],
        *,
        keys_max: int = KEYS_MAX_DEFAULT,
        rules_max: int = RULES_MAX_DEFAULT,
    ) -> None:
        self._clock = clock
        self._closed = False
        self._lock = Lock()
        self._tables: dict[str, KeyTable[Any]] = {}
        self.keys_max = keys_max
        self.rules_max = rules_max

    def table(self, rule_id: str, limit: Limit) -> KeyTable[Any]:
        """The table of a rule, made when first asked for, and anew when its limit has changed."""
        table = self._tables.get(rule_id)
        if table is None or table.limit != limit:
            with self._lock:
                table = self._tables.get(rule_id)
                if table is None or table.limit != limit:
                    if table is None and len(self._tables) >= self.rules_max:
                        raise too_many_rules(rule_id, self.rules_max)
                    table = self._tables[rule_id] = table_for(rule_id, limit, self.keys_max)
        return table

    def drop(self, rule_ids: Iterable[str]) -> None:
        """Forget these rules with all they have counted; else the tables of old rules pile up."""
        with self._lock:
            for rule_id in rule_ids:
                self._tables.pop(rule_id, None)

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        """Take every charge or none."""
        places, now_us = self._places(charges), self._now_us()
        decisions = take_all(places, now_us, keep=keep)
        ruling = Ruling(now_us, decisions)
        if keep and count_refused and not ruling.allowed:
            charge_all(places, now_us)
        return ruling

    async def take_some(self, charge: Charge, ladder: Sequence[int]) -> PartialTake:
        """Take the first cost of `ladder` that fits."""
        table, now_us = self.table(charge.rule_id, charge.limit), self._now_us()
        for units in ladder:
            decision = table.take(charge.key, units, now_us)
            if decision.allowed:
                return PartialTake(now_us, units, decision)
        return PartialTake(now_us, 0, decision)

    async def settle(self, charges: Sequence[Charge], taken_us: int | None = None) -> None:
        """Correct what was taken at `taken_us`."""
        now_us = self._now_us()
        for one in self._places(charges):
            one.table.settle(one.key, one.cost, now_us, taken_us)

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget what was taken."""
        self._now_us()
        for one in self._places(charges):
            one.table.reset(one.key)

    async def close(self) -> None:
        """Forget everything."""
        self._closed = True
        self._tables = {}

    def _now_us(self) -> int:
        if self._closed:
            raise Unavailable("the memory store", "it is closed")
        return self._clock()

    def _places(self, charges: Sequence[Charge]) -> list[TableCharge]:
        return [
            TableCharge(self.table(rule_id, limit), key, cost)
            for rule_id, limit, key, cost in charges
        ]


def too_many_rules(rule_id: str, rules_max: int) -> BadValue:
    """Return what is told to whoever puts into rules what belongs into keys."""
    return BadValue(
        "rule",
        rule_id,
        f"{rules_max:,} rules are in use already; give keys, not rules, what varies with each "
        "request",
    )
