from __future__ import annotations

import pytest

from sluicegate import BadValue, Decision
from sluicegate.contracts.reasons import REASONS, GrpcCode, Reason, RetryAdvice
from sluicegate.telemetry.labels import (
    OTHER,
    OUTCOMES,
    RULE_CHARS_MAX,
    RuleLabels,
    outcome_of,
    reason_of,
)
from tests.telemetry.decisions import STORE_UNAVAILABLE, allowed, refused, tried_out
from tests.telemetry.threads import in_threads


@pytest.mark.parametrize(
    ("decision", "outcome", "reason"),
    [
        (allowed(), "allowed", ""),
        (refused(), "refused", "rate_limited"),
        (tried_out(), "shadow_refused", "rate_limited"),
        (allowed(degraded=True), "degraded_allowed", ""),
        (refused("a", STORE_UNAVAILABLE, degraded=True), "degraded_refused", "store_unavailable"),
        (allowed(shadow=True), "allowed", ""),
        (tried_out("a", STORE_UNAVAILABLE, degraded=True), "shadow_refused", "store_unavailable"),
        (allowed(shadow=True, degraded=True), "degraded_allowed", ""),
        (refused("a", None), "refused", ""),
    ],
)
def test_a_decision_has_one_outcome_and_its_reason(
    decision: Decision, outcome: str, reason: str
) -> None:
    assert (outcome_of(decision), reason_of(decision)) == (outcome, reason)
    assert outcome in OUTCOMES


def test_a_reason_outside_the_table_is_other() -> None:
    homemade = Reason(
        "homemade",
        "Somebody made it up.",
        http_status=429,
        grpc_code=GrpcCode.UNAVAILABLE,
        resp_error="LIMITED",
        retry=RetryAdvice.LATER,
    )
    assert reason_of(refused("a", homemade)) == OTHER
    assert all(reason_of(refused("a", reason)) == name for name, reason in REASONS.items())


def test_the_first_rules_keep_their_names_and_the_others_share_one() -> None:
    labels = RuleLabels(2)
    assert [labels.label(rule) for rule in "abcab"] == ["a", "b", OTHER, "a", "b"]


def test_a_name_that_no_page_can_show_has_none() -> None:
    labels = RuleLabels(3)
    assert labels.label("x" * (RULE_CHARS_MAX + 1)) == OTHER
    assert labels.label("\ud800") == OTHER
    assert labels.label(OTHER) == OTHER
    # None of them has cost a place.
    assert [labels.label(rule) for rule in ("x" * RULE_CHARS_MAX, "é", "c")] == [
        "x" * RULE_CHARS_MAX,
        "é",
        "c",
    ]


@pytest.mark.usefixtures("hasty_threads")
def test_threads_that_bring_new_rules_at_once_never_get_more_than_the_bound() -> None:
    rounds = [RuleLabels(3) for _ in range(300)]
    columns: list[list[str]] = []

    def work(at: int) -> None:
        columns.append([labels.label(f"r{at}") for labels in rounds])

    in_threads(8, work)
    for row in zip(*columns, strict=True):
        assert (row.count(OTHER), len(set(row))) == (5, 4)


def test_a_bound_below_one_is_told() -> None:
    with pytest.raises(BadValue, match="rules_max"):
        RuleLabels(0)
