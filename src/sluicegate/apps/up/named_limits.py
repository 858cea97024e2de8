"""NamedLimits: the limiter with its named rules; it has the counts count every answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import final

from sluicegate.apps.up.counts import Snapshot, UpCounts
from sluicegate.apps.up.settings import KEYS_MAX, NamedRule
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.limits import limiter
from sluicegate.limits.limiter import Limiter


@final
class NamedLimits:
    """Decides by rule and key."""

    def __init__(
        self, rules: Sequence[NamedRule], clock: Clock, *, keys_max: int = KEYS_MAX
    ) -> None:
        self.rules = {rule.name: rule for rule in rules}
        self.clock = clock
        self.counts = UpCounts(self.rules, clock.now_us())
        self._limiter = Limiter(
            rules={rule.name: rule.limit for rule in rules}, keys_max=keys_max, clock=clock
        )

    def check(self, rule: str, key: str, cost: int) -> Decision:
        """Decide whether `key` may spend `cost` of `rule`; the rule must be one of ours."""
        asked_us = self.clock.now_us()
        decision = self._limiter.take(key, cost, rule)
        now_us = self.clock.now_us()
        self.counts.decided(rule, key, decision, now_us - asked_us, now_us)
        return decision

    def snapshot(self) -> Snapshot:
        """What the counts has counted until now."""
        return self.counts.snapshot(self.clock.now_us())

    def keys(self) -> dict[str, int]:
        """How many keys each rule tracks."""
        return {name: self._limiter.keys_tracked(name) for name in self.rules}


def compiled() -> bool:
    """Whether the decisions run as machine code, or interpreted from the same source."""
    return Path(limiter.__file__).suffix != ".py"
