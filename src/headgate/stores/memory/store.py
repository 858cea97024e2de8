"""Memory store: all tables of a process behind the contract of a store; it never suspends.

It finds tables and asks them. What a table forgets is in `table.py`, how it counts is in
`counting.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, Final, final

from headgate.contracts.decision import Decision
from headgate.contracts.errors import BadValue, Unavailable
from headgate.contracts.rule import Limit
from headgate.contracts.store import Take
from headgate.stores.memory.counting import table_for
from headgate.stores.memory.table import Table

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
        self._tables: dict[str, Table[Any]] = {}
        self.keys_max = keys_max
        self.rules_max = rules_max

    def table(self, rule_id: str, limit: Limit) -> Table[Any]:
        """The table of a rule, made when first asked for."""
        table = self._tables.get(rule_id)
        if table is None:
            with self._lock:
                table = self._tables.get(rule_id)
                if table is None:
                    if len(self._tables) >= self.rules_max:
                        raise BadValue(
                            "rule",
                            rule_id,
                            f"{self.rules_max:,} rules are in use already; "
                            "give keys, not rules, what varies with each request",
                        )
                    table = self._tables[rule_id] = table_for(rule_id, limit, self.keys_max)
        return table

    async def take(self, takes: Sequence[Take]) -> Sequence[Decision]:
        """Decide each take on its own, in the order given, at one instant."""
        if self._closed:
            raise Unavailable("the memory store", "it is closed")
        now_us = self._clock()
        return [
            self.table(take.rule_id, take.limit).take(take.key, take.cost, now_us) for take in takes
        ]

    async def close(self) -> None:
        """Forget everything."""
        self._closed = True
        self._tables = {}
