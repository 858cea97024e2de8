"""Decisions to tell an observer of, and the instants to tell them with."""

from __future__ import annotations

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT, RATE_LIMITED, STORE_UNAVAILABLE, Reason
from sluicegate.testing import START_US

__all__ = ["COST_ABOVE_LIMIT", "NOW", "RATE_LIMITED", "SECOND", "STORE_UNAVAILABLE"]

SECOND = 1_000_000
NOW = START_US


def allowed(rule: str = "login", *, degraded: bool = False, shadow: bool = False) -> Decision:
    return Decision(True, 3, 0, SECOND, None, rule).with_marks(degraded=degraded, shadow=shadow)


def refused(
    rule: str = "login", reason: Reason | None = RATE_LIMITED, *, degraded: bool = False
) -> Decision:
    return Decision(False, 0, 2_500_000, SECOND, reason, rule).with_marks(degraded=degraded)


def tried_out(
    rule: str = "login", reason: Reason = RATE_LIMITED, *, degraded: bool = False
) -> Decision:
    """What a rule in shadow mode would have refused."""
    decision = Decision(True, 0, 2_500_000, SECOND, reason, rule)
    return decision.with_marks(degraded=degraded, shadow=True)
