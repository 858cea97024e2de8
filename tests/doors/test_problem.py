from __future__ import annotations

import json

import pytest

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.guard import Judgement, RuleDecision
from sluicegate.contracts.reasons import (
    COST_ABOVE_LIMIT,
    DEADLINE,
    RATE_LIMITED,
    REASONS,
    STORE_UNAVAILABLE,
    Reason,
)
from sluicegate.contracts.rule import Limit
from sluicegate.doors.headers import refusal, unavailable
from sluicegate.doors.problem import body, details, status_of

FIVE = Limit(5, period_us=60_000_000)


def test_a_spent_limit_is_told_with_all_that_a_client_can_use() -> None:
    decision = Decision(False, 0, 11_400_001, 60_000_000, RATE_LIMITED, "login")
    free = Decision(True, 3, 0, 1, None, "all")
    counted = (RuleDecision("all", FIVE, free), RuleDecision("login", FIVE, decision))
    assert json.loads(body(Judgement(decision, counted))) == {
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Too many requests",
        "status": 429,
        "detail": "The limit for this key is spent.",
        "reason": "rate_limited",
        "rule": "login",
        "retry_after": 11.401,
        "violated-policies": ["login"],
    }


@pytest.mark.parametrize("reason", REASONS.values(), ids=lambda reason: reason.name)
def test_every_reason_has_a_status_a_type_and_a_sentence(reason: Reason) -> None:
    judgement = refusal(reason, "r")
    members = details(judgement)
    assert members["status"] == status_of(judgement) == reason.http_status
    assert members["detail"] == reason.sentence
    assert members["title"]
    assert ("retry_after" in members) == reason.retryable


def test_what_no_wait_will_turn_names_no_wait() -> None:
    decision = Decision(False, 5, -1, 0, COST_ABOVE_LIMIT, "r")
    assert "retry_after" not in details(Judgement(decision, ()))
    assert "retry_after" not in details(refusal(DEADLINE))


def test_a_guard_without_an_answer_is_our_fault_and_not_the_callers() -> None:
    assert status_of(unavailable()) == 503
    assert details(unavailable())["reason"] == STORE_UNAVAILABLE.name
    assert details(unavailable())["retry_after"] == 1


def test_a_refusal_that_lacks_its_reason_is_still_no_crash() -> None:
    nameless = Judgement(Decision(False, 0, 5, 5, None, "r"), ())
    assert status_of(nameless) == 503
    assert json.loads(body(nameless))["status"] == 503


def test_any_rule_name_makes_good_json() -> None:
    name = 'caf\u00e9 "\ud800\n'
    decision = Decision(False, 0, 5, 5, RATE_LIMITED, name)
    assert json.loads(body(Judgement(decision, ())))["rule"] == name
