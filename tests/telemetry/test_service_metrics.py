from __future__ import annotations

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.reasons import RATE_LIMITED, SHED
from sluicegate.telemetry.prometheus import page
from sluicegate.telemetry.service_metrics import OUTCOMES, TOOK_US_BOUNDS, ServiceMetrics

ALLOWED = Decision(True, 1, 0, 0, None, "r")
REFUSED = Decision(False, 0, 5, 5, RATE_LIMITED, "r")
SHED_ONE = Decision(False, 0, 5, 5, SHED, "shed")


def shadow() -> Decision:
    return Decision(True, 0, 5, 5, RATE_LIMITED, "r").with_marks(shadow=True)


def degraded(allowed: bool) -> Decision:
    reason = None if allowed else RATE_LIMITED
    return Decision(allowed, 0, 0, 0, reason, "r").with_marks(degraded=True)


def test_each_outcome_is_counted_by_priority_and_by_rule() -> None:
    tally = ServiceMetrics()
    decisions = [ALLOWED, REFUSED, SHED_ONE, degraded(True), degraded(False), shadow()]
    for times, decision in enumerate(decisions, 1):
        for _ in range(times):
            tally.record_decision("login", Criticality.BULK, decision, 3)
    assert tally.classes[Criticality.BULK] == [1, 2, 3, 4, 5, 6]
    assert tally.classes[Criticality.CRITICAL] == [0] * len(OUTCOMES)
    assert tally.rules == {"login": [1, 2, 3, 4, 5, 6]}
    assert tally.decisions == 21


def test_the_time_falls_into_the_bucket_whose_bound_it_does_not_pass() -> None:
    tally = ServiceMetrics()
    for bound in TOOK_US_BOUNDS:
        tally.record_decision("r", Criticality.BULK, ALLOWED, bound)
        tally.record_decision("r", Criticality.BULK, ALLOWED, bound + 1)
    assert tally.took == [1] + [2] * (len(TOOK_US_BOUNDS) - 1) + [1]
    tally.record_decision("r", Criticality.BULK, ALLOWED, -5)  # a clock that went back
    assert tally.took[0] == 2
    assert tally.took_us == 2 * sum(TOOK_US_BOUNDS) + len(TOOK_US_BOUNDS)


def test_rules_beyond_the_bound_are_counted_together() -> None:
    tally = ServiceMetrics(rules_max=2)
    for at in range(5):
        tally.record_decision(f"rule {at}", Criticality.BULK, ALLOWED, 1)
    assert set(tally.rules) == {"rule 0", "rule 1", "other"}
    assert tally.rules["other"][0] == 3
    assert tally.folded == 3


def test_a_page_shows_them_as_metrics() -> None:
    tally = ServiceMetrics()
    tally.record_decision("login", Criticality.BULK, SHED_ONE, 1_500)
    text = page(tally.families()).decode()
    assert 'sluicegate_limiter_decisions_total{priority="BULK",outcome="shed"} 1\n' in text
    assert 'sluicegate_limiter_rule_decisions_total{rule="login",outcome="shed"} 1\n' in text
    assert 'sluicegate_limiter_decision_seconds_bucket{le="0.001"} 0\n' in text
    assert 'sluicegate_limiter_decision_seconds_bucket{le="0.002"} 1\n' in text
    assert "sluicegate_limiter_decision_seconds_sum 0.0015\n" in text
