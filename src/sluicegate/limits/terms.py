"""Terms: a rule as a limiter keeps it, and what the terms add to tables in this process.

Most rules add nothing, and are asked as bare tables. The others are wrapped: a trial admits what
its table refuses, a harsh one charges it all the same, and one that is off asks nobody.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.rule import Limit
from sluicegate.contracts.store import Key
from sluicegate.limits.rule import Failure, Mode
from sluicegate.stores.memory.table import LocalKeys, TableCharge


@final
class Terms:
    """All that is kept of a rule, with nothing left open."""

    __slots__ = ("count_refused", "failure", "lease", "limits", "local_share", "mode", "name")

    def __init__(
        self,
        name: str,
        limits: list[tuple[str, Limit]],
        *,
        failure: Failure,
        local_share: float,
        lease: str | int | None,
        mode: Mode,
        count_refused: bool,
    ) -> None:
        self.name = name
        self.limits = limits  # (rule_id, limit)
        self.failure = failure
        self.local_share = local_share
        self.lease = lease
        self.mode = mode
        self.count_refused = count_refused

    def _fields(self) -> tuple[object, ...]:
        return (
            self.name,
            tuple(self.limits),
            self.failure,
            self.local_share,
            self.lease,
            self.mode,
            self.count_refused,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Terms) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())


def as_trial(decision: Decision) -> Decision:
    """Return what a trial makes of a decision: it is reported as it is, and holds nobody up."""
    return Decision(
        True,
        decision.remaining,
        decision.retry_after_us,
        decision.reset_after_us,
        decision.reason,
        decision.rule_id,
        decision.degraded,
        True,
        decision.overridden,
        decision.limit,
        decision.cause,
    )


def off_decision(terms: Terms) -> Decision:
    """The decision of a rule that is off; it binds nobody, so it is marked like a trial's."""
    least = min(limit.burst for _, limit in terms.limits)
    return Decision(True, least, 0, 0, None, terms.name, shadow=True, limit=least)


@final
class KeysWithTerms(LocalKeys):
    """A table whose rule is not simply enforced."""

    __slots__ = ("keys", "terms")

    def __init__(self, keys: LocalKeys, terms: Terms) -> None:
        self.keys: Final = keys
        self.terms: Final = terms

    def take(self, key: Key, cost: int, now_us: int) -> Decision:
        """Take `cost` as the terms say."""
        if self.terms.mode is Mode.OFF:
            return off_decision(self.terms)
        decision = self.keys.take(key, cost, now_us)
        if not decision.allowed and self.terms.count_refused:
            self.keys.settle(key, cost, now_us, now_us)
        return as_trial(decision) if self.terms.mode is Mode.SHADOW else decision

    def peek(self, key: Key, cost: int, now_us: int) -> Decision:
        """Return what `take` would answer."""
        if self.terms.mode is Mode.OFF:
            return off_decision(self.terms)
        decision = self.keys.peek(key, cost, now_us)
        return as_trial(decision) if self.terms.mode is Mode.SHADOW else decision

    def settle(self, key: Key, correction: int, now_us: int, taken_us: int | None) -> None:
        """Charge more after the fact, or give back."""
        if self.terms.mode is not Mode.OFF:
            self.keys.settle(key, correction, now_us, taken_us)

    def reset(self, key: Key) -> None:
        """Forget what `key` has taken."""
        self.keys.reset(key)

    def charges(self, key: Key, cost: int) -> list[TableCharge]:
        """Return this key in each of the tables."""
        return self.keys.charges(key, cost)

    def __len__(self) -> int:
        return len(self.keys)
