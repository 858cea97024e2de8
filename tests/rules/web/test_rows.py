"""Rows in the rules of an application, next to match rules."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sluicegate import Claim, Limiter
from sluicegate.contracts.guard import Judgement
from sluicegate.rules.problems import BadRules
from sluicegate.rules.web.guard import RulesGuard
from sluicegate.rules.web.rule_set import ROWS_AT_ONCE, WebRuleSet
from sluicegate.testing import HandClock
from tests.rules.web.arrivals import PlainArrival

EACH = {"window": "1m"}
RULES: dict[str, Any] = {
    "health": {"match": {"path": "/health"}, "exempt": True},
    "search": {"resource_path": "/search", "limit": 2, **EACH},
    "item": {"resource_path": "/items/{id}", "limit": 3, "per": "resource", **EACH},
    "tv": {"resource_path": "/search", "client_type": "TV", "limit": 1, **EACH},
    "rest": {"limit": 9, **EACH},
    "address": {"key": "address", "limit": "100/minute"},
}


def guard_of(rules: Any = RULES, **top: Any) -> RulesGuard:
    clock = HandClock()
    return RulesGuard({**top, "rules": rules}, Limiter(clock=clock), clock=clock)


def judged(guard: RulesGuard, came: PlainArrival) -> Judgement:
    judgement = guard.judge(came)
    assert judgement is not None
    return judgement


def names(judgement: Judgement) -> list[str]:
    return [one.name for one in judgement.decisions]


def test_most_specific_row_and_every_match_rule_apply_together() -> None:
    guard = guard_of()
    assert names(judged(guard, PlainArrival("/search/"))) == ["address", "search"]
    tv = PlainArrival("/search", headers={"x-client-type": "TV"})
    assert names(judged(guard, tv)) == ["address", "tv"]
    assert names(judged(guard, PlainArrival("/items/7"))) == ["address", "item"]
    assert names(judged(guard, PlainArrival("/other"))) == ["address", "rest"]
    assert guard.judge(PlainArrival("/health")) is None
    assert len(guard.book) == 6


def test_refusal_of_a_row_names_the_row_and_charges_no_match_rule() -> None:
    guard = guard_of()
    decisions = [judged(guard, PlainArrival("/search", user="ann")).decision for _ in range(3)]
    assert [one.allowed for one in decisions] == [True, True, False]
    assert decisions[-1].rule_id == "search"
    assert judged(guard, PlainArrival("/x", user="bob")).decisions[0].decision.remaining == 97


def test_row_counts_users_and_addresses_of_those_without() -> None:
    guard = guard_of()
    for caller in ({"user": "ann"}, {"user": "bob"}, {"address": "192.0.2.1"}):
        for _ in range(2):
            assert judged(guard, PlainArrival("/search", **caller)).decision.allowed  # type: ignore[arg-type]
        assert not judged(guard, PlainArrival("/search", **caller)).decision.allowed  # type: ignore[arg-type]
    for n in range(4):  # all share the count of a path
        judgement = judged(guard, PlainArrival("/items/7", user=f"u{n}"))
        assert judgement.decision.allowed is (n < 3)


def test_two_rows_of_one_shared_limit_keep_their_names() -> None:
    rules = {
        "a": {"resource_path": "/p", "limit": 5, **EACH},
        "b": {"resource_path": "/p", "limit": 5, "per": "resource", **EACH},
    }
    assert names(judged(guard_of(rules), PlainArrival("/p", user="ann"))) == ["a", "b"]


def test_priorities_and_quotas_work_as_in_a_service() -> None:
    guard = guard_of(
        {"bulk": {"priority_bucket": "BULK", "limit": 1, **EACH}},
        callers={"names": {"nightly": "CRITICAL"}, "quotas": {"nightly": "2/m"}},
        priorities={"header": "x-name", "names": {"Export*": "BULK"}},
    )
    export = PlainArrival("/", user="ann", headers={"x-name": "ExportAll"})
    assert names(judged(guard, export)) == ["bulk"]
    assert guard.judge(PlainArrival("/", user="ann")) is None
    assert names(judged(guard, PlainArrival("/", user="nightly"))) == ["quota:nightly"]


def test_asyncio_judges_by_the_same_names() -> None:
    guard = guard_of()
    judgement = asyncio.run(guard.ajudge(PlainArrival("/search")))
    assert judgement is not None
    assert names(judgement) == ["address", "search"]


def test_rows_in_a_file_keep_their_counts_over_a_reload(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("version: 1\nrules:\n  a: {resource_path: /a, limit: 2, window: 1m}\n")
    clock = HandClock()
    guard = RulesGuard(file, Limiter(clock=clock), watch_every_s=None, clock=clock)
    with guard:
        judged(guard, PlainArrival("/a"))
        file.write_text(file.read_text() + "  b: {resource_path: /b, limit: 9, window: 1m}\n")
        assert guard.reload()
        assert judged(guard, PlainArrival("/a")).decision.remaining == 0


def test_claims_of_rows_leave_room_in_a_request() -> None:
    def rules(count: int) -> dict[str, Any]:
        several = {f"r{n}": {"key": "user", "limit": "1/s"} for n in range(count)}
        return {"rules": {**several, "row": {"limit": 5, **EACH}}}

    most = 64 - ROWS_AT_ONCE
    WebRuleSet.of(rules(most))
    with pytest.raises(BadRules, match=f"at most {most} may"):
        WebRuleSet.of(rules(most + 1))


def test_row_that_can_never_matter_is_rejected_with_its_line() -> None:
    text = """version: 1
rules:
  a: {resource_path: /a, limit: 5, window: 1m}
  b: {resource_path: /a, limit: 7, window: 1m}
"""
    with pytest.raises(BadRules, match=r"line 4: rules\.b: 'b' .* keep one of them"):
        WebRuleSet.parse(text)


def test_match_rules_alone_claim_by_name() -> None:
    book = WebRuleSet.of({"rules": {"a": {"key": "user", "limit": "1/s"}}})
    assert book.rows is None
    assert book.claims(PlainArrival(user="ann")) == [Claim("user:ann", "a", 1)]
