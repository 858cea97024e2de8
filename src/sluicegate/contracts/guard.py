"""Guard: decides for an arrival.

A door translates: it turns a request into an arrival, calls its guard, and turns the judgement into
status, headers and body. Which rules match and how they are counted is not its business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from sluicegate.contracts.arrival import Arrival
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import Limit
from sluicegate.kernels.native import mypyc_attr


class RuleDecision(NamedTuple):
    """What one rule's limit has decided."""

    name: str
    limit: Limit
    decision: Decision


class Judgement(NamedTuple):
    """The decision that binds, and that of every limit, in the order of the rules."""

    decision: Decision
    decisions: Sequence[RuleDecision]


@mypyc_attr(native_class=False)  # for whoever subclasses it
class Guard(Protocol):
    """Judges arrivals; None if no rule is about this one."""

    def judge(self, arrival: Arrival) -> Judgement | None:
        """Judge it now, from a thread that may wait."""
        ...

    async def ajudge(self, arrival: Arrival) -> Judgement | None:
        """Judge it now, from an event loop."""
        ...


def check_guard(guard: object, method: str = "judge") -> None:
    """Refuse what is no guard before the first request does; a limiter has the same names."""
    if not callable(getattr(guard, method, None)) or hasattr(guard, "take"):
        raise BadValue("guard", guard, 'give a guard, as RulesGuard("rules.yaml", limiter)')


def check_limiter(
    limiter: object, methods: Sequence[str] = ("judge", "ajudge", "limits_of")
) -> None:
    """Refuse what is no limiter before the first request does."""
    for method in methods:
        if isinstance(limiter, type) or not callable(getattr(limiter, method, None)):
            raise BadValue("limiter", limiter, 'give a limiter, as Limiter("10/minute")')
