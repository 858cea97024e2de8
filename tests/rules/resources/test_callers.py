from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.checks import CheckRequest
from sluicegate.limits.limiter import Limiter
from sluicegate.rules.resources.callers import CallerRules
from sluicegate.rules.resources.service import Checker
from sluicegate.testing import HandClock, SeededChance, hand_limiter
from tests.rules.resources.stories import (
    OpenGate,
    RecordingLedger,
    Story,
    book_of,
    problems_of,
    rule,
)


def with_callers(**fields: object) -> dict[str, object]:
    return {"callers": fields}


def test_a_quota_counts_everything_its_caller_asks_for_and_nobody_else() -> None:
    story = Story(top=with_callers(quotas={"batch": {"limit": 3, "window": "1m"}}))
    assert [story.check("batch", f"/{n}").decision.allowed for n in range(5)] == [
        True, True, True, False, False,
    ]  # fmt: skip
    refused = story.check("batch", "/more")
    assert (refused.decision.rule_id, refused.limit) == ("quota:batch", 3)
    assert story.admitted(10, "ann", "/1") == 10


def test_a_quota_may_be_written_as_a_rate() -> None:
    quotas = {"a": "3/m", "b": "4 / 1m", "c": "5/90s"}
    story = Story(top=with_callers(quotas=quotas))
    assert [story.admitted(9, name) for name in "abc"] == [3, 4, 5]


def test_a_quota_and_the_rules_for_the_ask_count_together_or_not_at_all() -> None:
    story = Story(rule("play", "/play", 2), top=with_callers(quotas={"batch": "4/m"}))
    assert story.admitted(5, "batch", "/play") == 2  # the rule binds, and the quota lost two
    assert story.admitted(5, "batch", "/other") == 2  # of four, so three refusals took nothing
    assert story.check("batch", "/play").decision.rule_id in {"play", "quota:batch"}
    assert story.check("batch", "/other").decision.rule_id == "quota:batch"


def test_a_quota_in_shadow_refuses_nobody() -> None:
    quotas = {"batch": {"limit": 1, "window": "1m", "mode": "shadow"}}
    story = Story(rule("play", "/play", 5), top=with_callers(quotas=quotas))
    assert story.admitted(9, "batch", "/play") == 5
    assert story.admitted(9, "batch", "/other") == 9


def test_a_penalty_makes_everything_dearer_for_one_caller() -> None:
    story = Story(rule("all", None, 10), top=with_callers(penalties={"scraper": 2.5}))
    assert story.admitted(20, "scraper") == 3  # each costs three
    assert story.admitted(20, "ann") == 10
    dear = Story(rule("all", None, 10), top=with_callers(penalties={"scraper": 2.5}))
    assert dear.check("scraper", cost=4).decision.remaining == 0  # exactly ten
    assert not dear.peek("scraper").decision.allowed
    assert dear.ledger.lines[0][2] == 4  # the ledger is told what was asked for


def test_what_a_penalty_makes_dear_cannot_be_leased() -> None:
    async def story() -> None:
        story = Story(rule("all", None, 100), top=with_callers(penalties={"scraper": 2}))
        got = await story.checker.lease(CheckRequest("scraper", "/"), 10, story.now)
        assert (got.units, got.check.decision.allowed) == (0, True)
        assert (await story.checker.lease(CheckRequest("ann", "/"), 10, story.now)).units == 10

    asyncio.run(story())


def test_a_quota_bounds_what_is_leased() -> None:
    async def story() -> None:
        story = Story(top=with_callers(quotas={"batch": "6/m"}))
        got = await story.checker.lease(CheckRequest("batch", "/"), 10, story.now)
        assert got.units == 5  # half of what was asked for
        assert story.admitted(9, "batch") == 1

    asyncio.run(story())


def test_the_defaults_of_a_file_are_for_its_rules_and_its_quotas() -> None:
    top = {"defaults": {"burst_capacity": 2}, **with_callers(quotas={"batch": "3/m"})}
    story = Story(rule("play", "/play", 4), top=top)
    assert story.admitted(20, "ann", "/play") == 8
    assert story.admitted(20, "batch", "/other") == 6


def test_a_new_book_changes_a_quota_at_once_and_keeps_what_is_not_changed() -> None:
    before, shapes = book_of({"version": 1, "callers": {"quotas": {"a": "5/m", "b": "5/m"}}})
    after, more = book_of({"version": 1, "callers": {"quotas": {"a": "5/m", "b": "7/m"}}})
    limiter: Limiter
    clock: HandClock
    limiter, clock = hand_limiter(rules={**shapes.rules, **more.rules})
    checker = Checker(limiter, OpenGate(), RecordingLedger(), book=before, chance=SeededChance(1))

    def admitted(user: str) -> int:
        asks = [checker.check(CheckRequest(user, "/"), clock.now_us()) for _ in range(10)]
        return sum(one.decision.allowed for one in asks)  # type: ignore[union-attr] # at once

    assert (admitted("a"), admitted("b")) == (5, 5)
    checker.book = after
    assert (admitted("a"), admitted("b")) == (0, 7)


def test_a_file_may_say_only_who_the_callers_are() -> None:
    assert problems_of({"version": 1, "callers": {"pins": ["playback"]}}) == []
    book, _ = book_of({"version": 1, "callers": {"pins": ["playback"]}})
    assert book.priorities.callers.pins == {"playback"}


@pytest.mark.parametrize(
    ("callers", "message"),
    [
        ({"quotas": {"a": "often"}}, "callers.quotas.a"),
        ({"quotas": {"a": {"limit": 0, "window": "1s"}}}, "callers.quotas.a.limit"),
        ({"quotas": {"a": {"limit": 5}}}, "callers.quotas.a.window_seconds"),
        ({"quotas": {"a": {"limit": 5, "window": "1s", "per": "user"}}}, "leave it out"),
        ({"quotas": {"a": {"limit": 5, "window": "1s", "path": "/"}}}, "callers.quotas.a.path"),
        ({"quotas": ["a"]}, "callers.quotas"),
        ({"penalties": {"a": 0.5}}, "callers.penalties.a"),
        ({"penalties": {"a": True}}, "callers.penalties.a"),
        ({"penalties": {"a": 1_001}}, "1,000"),
        ({"pins": "playback"}, "callers.pins"),
        ({"pins": [7]}, "put it in quotes"),
        ({"quota": {}}, "quotas"),
    ],
)
def test_what_is_wrong_with_callers_is_told_by_field(callers: object, message: str) -> None:
    (problem,) = problems_of({"version": 1, "callers": callers})
    assert message in problem


def test_no_rule_is_called_as_a_quota_is() -> None:
    (problem,) = problems_of({"version": 1, "rules": [rule("quota:batch")]})
    assert "begin it otherwise" in problem


@given(st.fractions(1, 1_000), st.integers(1, 1 << 40))
def test_a_price_is_rounded_up_to_the_next_whole_unit(factor: object, weight: int) -> None:
    callers = CallerRules(penalties={"a": factor})  # type: ignore[dict-item] # a fraction
    price = callers.price("a", weight)
    assert price - 1 < weight * factor <= price  # type: ignore[operator] # likewise
    assert callers.price("b", weight) == weight
