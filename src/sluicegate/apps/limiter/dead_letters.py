"""Dead letters: a decision made without the store, as a dead letter.

Called on the way of an answer while the store is silent, so it looks nothing up. The letter holds
the limit of the rule, to be judged later without the rules of that day.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.limits.dead_letter import DeadLetter
from sluicegate.limits.dead_letters import DeadLetters


@final
class DeadLetterWriter:
    """Offers dead letters; `why` returns the failure that was last seen.

    With `harsh`, fixed windows charge what they refuse, as Envoy's own service does.
    """

    __slots__ = ("_harsh", "_log", "_why")

    def __init__(self, log: DeadLetters, why: Callable[[], str], *, harsh: bool) -> None:
        self._harsh = harsh
        self._log = log
        self._why = why

    def __call__(
        self,
        entity: str,
        rule_id: str,
        cost: int,
        priority: Criticality,
        decision: Decision,
        at_us: int,
        limit: Limit | None,
    ) -> None:
        """Offer one."""
        reason = decision.reason
        self._log.offer(
            DeadLetter(
                entity,
                rule_id,
                cost,
                at_us,
                allowed=decision.allowed,
                limit=limit,
                priority=priority,
                degraded=decision.degraded,
                shadow=decision.shadow,
                harsh=self._harsh
                and limit is not None
                and limit.algorithm is Algorithm.FIXED_WINDOW,
                reason="" if reason is None else reason.name,
                why=self._why(),
            )
        )
