"""Limiters for tests: on a hand-moved clock, or with answers instead of counts.

Each is a real `Limiter`, so whatever takes one takes these. Only its clock or its store is made for
tests. Settings that are not named here are handed to the limiter as they are.
"""

from __future__ import annotations

from typing import Any

from sluicegate.contracts.reasons import RATE_LIMITED, Reason
from sluicegate.limits.limiter import Limiter
from sluicegate.limits.rule import RuleLike
from sluicegate.stores.memory.store import MemoryStore
from sluicegate.testing.answers import AnswerStore
from sluicegate.testing.clock import HandClock
from sluicegate.testing.faults import Faults

# Said of nobody: where answers are told, the rule only gives them a name.
ANY_RULE = "1/second"


def hand_limiter(
    rule: RuleLike | None = None,
    *,
    clock: HandClock | None = None,
    faults: Faults | None = None,
    **settings: Any,
) -> tuple[Limiter, HandClock]:
    """Return a limiter whose time is moved by hand, and its clock.

    With `faults`, its counts are in a store that may be told to fail, as if it were far away.
    """
    clock = HandClock() if clock is None else clock
    if faults is not None:
        # One memory for all who open it, as a server would be.
        memory = MemoryStore(clock.now_us)
        settings["open_store"] = faults.around(lambda: memory)
    return Limiter(rule, clock=clock, **settings), clock


def answering_limiter(
    rule: RuleLike | None = ANY_RULE, **settings: Any
) -> tuple[Limiter, AnswerStore]:
    """Return a limiter that counts nothing, and the store that is told what it answers."""
    answers = AnswerStore(settings.get("clock"))
    # A refusal is not remembered where refusals are charged: each request is to have its own
    # answer.
    settings.setdefault("count_refused", True)
    return Limiter(rule, open_store=lambda: answers, **settings), answers


def refuse_all(
    rule: RuleLike | None = ANY_RULE,
    *,
    retry_after_s: float = 1.0,
    reason: Reason = RATE_LIMITED,
    **settings: Any,
) -> Limiter:
    """Return a limiter that refuses whatever it is asked."""
    limiter, answers = answering_limiter(rule, **settings)
    answers.refuse(retry_after_s=retry_after_s, reason=reason)
    return limiter


def admit_all(rule: RuleLike | None = ANY_RULE, **settings: Any) -> Limiter:
    """Return a limiter that admits whatever it is asked."""
    return answering_limiter(rule, **settings)[0]
