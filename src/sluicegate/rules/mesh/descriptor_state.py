"""Descriptor state: one descriptor of a request on its way from its rule to its status.

It has a counter for each limit of its rule. What a decision means for a counter is settled here:
whether it is over, what is left, and when to come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from sluicegate.contracts.checks import RESET_UNKNOWN, MeshStatus
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT, RATE_LIMITED
from sluicegate.contracts.store import SharedKey
from sluicegate.kernels.verdict import NEVER
from sluicegate.rules.mesh.identity import entity_of
from sluicegate.rules.mesh.rule import Counting, MeshRule
from sluicegate.rules.mesh.rule_stats import RuleStats

REMAINING_UNLIMITED: Final = (1 << 32) - 1
_SECOND_US: Final = 1_000_000


@final
class CounterState:
    """One counter of one descriptor."""

    __slots__ = (
        "cached",
        "cost",
        "counting",
        "decision",
        "key",
        "not_taken",
        "over",
        "remaining",
        "to_take",
    )

    def __init__(self, counting: Counting, key: SharedKey, cost: int) -> None:
        self.counting: Final = counting
        self.key: Final = key
        self.cost: Final = cost
        self.to_take = cost  # what is to be taken
        self.decision: Decision | None = None  # None: the limiter was not called
        self.cached = False  # in the cache as over, so the limiter was not called
        self.not_taken = False  # others were refused, so of this nothing was taken
        self.over = False  # by its limit, whether or not that is enforced
        self.remaining = 0

    def settle(self) -> None:
        """Read the decision."""
        decision = self.decision
        if decision is None:
            self.over = self.cached
            return
        left = decision.remaining
        if self.counting.above:
            # One unit is kept to tell passed from reached. A policy that admits without counting
            # says nothing is left, and nothing comes back.
            self.over = not decision.allowed or (left == 0 and decision.reset_after_us > 0)
            if left > 0:
                left -= 1
        else:
            self.over = not decision.allowed or (decision.shadow and decision.reason is not None)
            if self.not_taken:
                left = min(left + self.to_take, self.counting.room)
        self.remaining = 0 if self.over else left

    @property
    def uncounted(self) -> bool:
        """Whether nobody counted: no call, or admitted by policy because no store responded."""
        decision = self.decision
        if decision is None:
            return not self.cached
        return decision.degraded and decision.reset_after_us == 0 and decision.remaining == 0

    def reset_us(self, now_us: int) -> int:
        """Until when to wait, in whole seconds as the protocol's headers tell it."""
        counting = self.counting
        if counting.above:
            period_us = counting.period_us
            if period_us % _SECOND_US:
                return period_us - now_us % period_us
            return period_us - now_us // _SECOND_US * _SECOND_US % period_us
        decision = self.decision
        if decision is None or counting.blocks:
            return RESET_UNKNOWN
        wait_us = decision.reset_after_us
        if self.over and decision.retry_after_us > 0:
            wait_us = decision.retry_after_us
        return -(-wait_us // _SECOND_US) * _SECOND_US

    def status(self, shadow: bool, now_us: int) -> MeshStatus:
        """Its status on the wire; an empty one where nobody counted."""
        if self.uncounted:
            decision = self.decision
            return MeshStatus(decision is not None and not decision.allowed and not shadow)
        over = self.over
        return MeshStatus(
            over and not shadow, self.counting.wire_limit, self.remaining, self.reset_us(now_us)
        )

    def final_decision(self, rule_id: str, shadow: bool, now_us: int) -> Decision:
        """The decision in terms of the limit, for the ledger."""
        decision = self.decision
        over, reason = self.over, None
        reset_us = self.reset_us(now_us)
        retry_us = 0
        if over:
            reason = RATE_LIMITED if decision is None else decision.reason or RATE_LIMITED
            retry_us = NEVER if reason is COST_ABOVE_LIMIT else reset_us
        if reset_us < 0:
            reset_us = 0
        return Decision(
            not over or shadow,
            self.remaining,
            retry_us,
            reset_us,
            reason,
            rule_id,
            decision is not None and decision.degraded,
            shadow,
            decision is not None and decision.overridden,
        )

    def count(self, stats: RuleStats, near_ratio: float) -> None:
        """Add it to the statistics of its rule."""
        cost, counting, decision = self.cost, self.counting, self.decision
        if decision is None:
            stats.over_from_cache(cost)
            return
        room = counting.room
        near = int(room * near_ratio)
        if self.uncounted:
            stats.within(cost, 0, near)
        elif not self.over:
            stats.within(cost, room - self.remaining, near)
        elif counting.above:
            full = room + 1 - decision.remaining
            stats.over(cost, full - self.to_take if decision.allowed else full, room, near)
        else:
            stats.over(cost, room, room, near)


@final
class DescriptorState:
    """One descriptor: its rule, its cost, and its counters."""

    __slots__ = ("cost", "entity", "parts", "rule")

    def __init__(self, rule: MeshRule, entity: str, cost: int) -> None:
        self.rule: Final = rule
        self.entity: Final = entity
        self.cost: Final = cost
        self.parts: Final[list[CounterState]] = []
        form = rule.form
        for counting in form.countings:
            name = rule.rule_id if form.only is not None else rule.rule_id + counting.suffix
            part = CounterState(counting, SharedKey(entity, name), cost)
            if counting.blocks:
                part.decision = Decision(False, 0, NEVER, 0, COST_ABOVE_LIMIT, rule.rule_id)
            self.parts.append(part)

    @property
    def over(self) -> bool:
        """Whether one of its limits is passed and enforced."""
        if self.rule.form.shadow:
            return False
        return any(part.over for part in self.parts)

    def binding(self) -> CounterState | None:
        """The part that speaks for all: one that is over, else the one with the least left."""
        best: CounterState | None = None
        for part in self.parts:
            if part.over:
                return part
            less = best is not None and not part.uncounted and part.remaining < best.remaining
            if best is None or best.uncounted or less:
                best = part
        return best


def state_of(rule: MeshRule, entries: Sequence[tuple[str, str]], cost: int) -> DescriptorState:
    """Return the state of a descriptor that has this rule."""
    return DescriptorState(rule, entity_of(rule.form, entries), cost)
