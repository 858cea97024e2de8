"""Labels: what a decision is called in metrics, spans and logs, in one place and bounded.

A label is a small word out of a closed set: an outcome, the name of a reason in the table of
contracts, the name of a rule up to a number of rules. Keys are never labels.
"""

from __future__ import annotations

from threading import RLock
from typing import Final, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.reasons import REASONS

ALLOWED: Final = "allowed"
REFUSED: Final = "refused"
SHADOW_REFUSED: Final = "shadow_refused"
DEGRADED_ALLOWED: Final = "degraded_allowed"
DEGRADED_REFUSED: Final = "degraded_refused"
OUTCOMES: Final = (ALLOWED, REFUSED, SHADOW_REFUSED, DEGRADED_ALLOWED, DEGRADED_REFUSED)

# What becomes of a leased unit.
LEASE_EVENTS: Final = ("taken", "spent", "returned", "lapsed")

# Where whatever has no label of its own is counted.
OTHER: Final = "other"
RULES_MAX_DEFAULT: Final = 200
RULE_CHARS_MAX: Final = 200


def outcome_of(decision: Decision) -> str:
    """What came of a decision; a trial's refusal is one whatever made it refuse."""
    if decision.shadow and decision.reason is not None:
        return SHADOW_REFUSED
    if decision.degraded:
        return DEGRADED_ALLOWED if decision.allowed else DEGRADED_REFUSED
    return ALLOWED if decision.allowed else REFUSED


def reason_of(decision: Decision) -> str:
    """The reason's name, or "" if there is none; one that is not in the table is `other`."""
    reason = decision.reason
    if reason is None:
        return ""
    return reason.name if reason.name in REASONS else OTHER


@final
class RuleLabels:
    """The first `rules_max` rules by their names, all further ones as `other`.

    So is a name of more than 200 characters, and one that no page in UTF-8 could show.
    """

    __slots__ = ("_labels", "_lock", "rules_max")

    def __init__(self, rules_max: int = RULES_MAX_DEFAULT) -> None:
        if rules_max < 1:
            raise BadValue("rules_max", rules_max, "give the number of rules to name, at least 1")
        self.rules_max = rules_max
        self._labels: set[str] = set()
        # Reentrant: a signal's handler may ask for a decision while this one is made.
        self._lock = RLock()

    def label(self, rule: str) -> str:
        """The label of a rule; once given it stays."""
        if rule in self._labels:
            return rule
        if len(self._labels) >= self.rules_max or rule == OTHER or not _showable(rule):
            return OTHER
        with self._lock:
            if rule in self._labels or len(self._labels) < self.rules_max:
                self._labels.add(rule)
                return rule
        return OTHER


def _showable(rule: str) -> bool:
    if len(rule) > RULE_CHARS_MAX:
        return False
    try:
        rule.encode()
    except UnicodeEncodeError:
        return False
    return True
