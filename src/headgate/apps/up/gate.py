"""Gate: the named rules, each with its table; it asks the table and has the tally count the answer.

The tables are the ones that `Limiter` asks. A `Limiter` calls a rule by its rate, so two rules of
one rate share their keys; here a rule has a name, and keys of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import final

from headgate.apps.up.settings import KEYS_MAX, Rule
from headgate.apps.up.tally import Snapshot, Tally
from headgate.contracts.clock import Clock
from headgate.contracts.decision import Decision
from headgate.stores import memory
from headgate.stores.memory import table_for


@final
class Gate:
    """Decides by rule and key."""

    def __init__(self, rules: Sequence[Rule], clock: Clock, *, keys_max: int = KEYS_MAX) -> None:
        self.rules = {rule.name: rule for rule in rules}
        self.clock = clock
        self.tally = Tally(self.rules, clock.now_us())
        self._tables = {rule.name: table_for(rule.name, rule.limit, keys_max) for rule in rules}

    def check(self, rule: str, key: str, cost: int) -> Decision:
        """Decide whether `key` may spend `cost` of `rule`; the rule must be one of ours."""
        asked_us = self.clock.now_us()
        decision = self._tables[rule].take(key, cost, asked_us)
        now_us = self.clock.now_us()
        self.tally.decided(rule, key, decision, now_us - asked_us, now_us)
        return decision

    def snapshot(self) -> Snapshot:
        """What the tally has counted until now."""
        return self.tally.snapshot(self.clock.now_us())

    def keys(self) -> dict[str, int]:
        """How many keys each rule tracks."""
        return {name: len(table) for name, table in self._tables.items()}


def compiled() -> bool:
    """Whether the decisions run as machine code, or interpreted from the same source."""
    return Path(memory.__file__).suffix != ".py"
