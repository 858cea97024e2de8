from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from sluicegate.contracts.checks import STATUS_DEGRADED, CheckRequest, CheckResponse
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.reasons import RATE_LIMITED, SHED, STORE_UNAVAILABLE
from sluicegate.limits.glass.break_glass import ALL, GlassView, Opening
from sluicegate.rules.resources.service import Checker
from sluicegate.testing import Faults
from tests.rules.resources.stories import OpenGate, RecordingLedger, Story, book_of, native, rule

CRITICAL, DEGRADED, BEST_EFFORT, BULK = Criticality


def test_a_check_is_counted_under_the_rule_and_told_once() -> None:
    story = Story(rule("play", "/api/*", 3))
    answer = story.check("ann", "/api/v1", 2)
    assert answer.decision.allowed
    assert (answer.decision.rule_id, answer.decision.remaining, answer.limit) == ("play", 1, 3)
    assert (answer.priority, answer.status) == (DEGRADED, "")
    refused = story.check("ann", "/api/v2", 2)
    assert refused.decision.reason is RATE_LIMITED
    assert refused.decision.retry_after_us > 0
    assert story.ledger.lines == [
        ("ann", "play", 2, DEGRADED, True),
        ("ann", "play", 2, DEGRADED, False),
    ]
    assert story.ledger.decisions == [answer.decision, refused.decision]
    assert story.ledger.began == [story.now, story.now]


def test_a_burst_capacity_of_a_fifth_admits_a_fifth_more_in_the_window_and_not_one_more() -> None:
    story = Story(rule("r", limit=50, burst_capacity=1.2))
    assert story.admitted(100) == 60
    assert story.check().limit == 60


def test_without_a_rule_all_enters_and_nothing_is_counted() -> None:
    story = Story(rule("r", "/api/*", 1))
    answer = story.check("ann", "/other")
    assert (answer.decision.allowed, answer.decision.rule_id, answer.limit) == (True, "", -1)
    assert story.ledger.lines == [("ann", "", 1, DEGRADED, True)]
    assert story.check("ann", "/api").decision.allowed


def test_each_user_has_a_count_of_their_own_under_each_rule() -> None:
    story = Story(rule("a", "/a", 2), rule("b", "/b", 2))
    assert [story.admitted(3, user, path) for user in ("ann", "bob") for path in ("/a", "/b")] == [
        2, 2, 2, 2,
    ]  # fmt: skip


def test_what_is_counted_together_is_as_the_rule_says() -> None:
    story = Story(
        rule("u", "/u/{id}", 2),
        rule("r", "/r/{id}", 2, per="resource"),
        rule("both", "/b/{id}", 2, per="user+resource"),
    )
    places = [(user, path) for user in ("ann", "bob") for path in ("1", "/2?x")]
    assert [story.admitted(2, user, f"/u/{path}") for user, path in places] == [2, 0, 2, 0]
    assert [story.admitted(2, user, f"/r/{path}") for user, path in places] == [2, 2, 0, 0]
    assert [story.admitted(2, user, f"/b//{path}/") for user, path in places] == [2, 2, 2, 2]
    assert [story.admitted(2, user, f"/b/{path}") for user, path in places] == [0, 0, 0, 0]


def test_no_user_and_path_can_be_taken_for_another() -> None:
    story = Story(rule("r", "/*", 1, per="user+resource"))
    asks = [("a", "/b/c"), ("a/b", "/c"), ("a/", "/b/c"), ("a//b", "/c"), ("a", "/"), ("a/", "/")]
    assert [story.admitted(2, user, path) for user, path in asks] == [1] * len(asks)


def test_kinds_of_clients_are_told_by_their_header() -> None:
    story = Story(rule("tv", "/a", 1, client_type="TV"), rule("all", "/a", 2))
    tv = {"x-client-type": "TV"}
    assert story.check("ann", "/a", headers=tv).decision.rule_id == "tv"
    assert story.check("ann", "/a", headers={"x-client-type": "PHONE"}).decision.rule_id == "all"
    assert story.check("ann", "/a").decision.rule_id == "all"
    other = Story(rule("tv", "/a", client_type="TV"), top={"client_type_header": "X-Device"})
    assert other.check("ann", "/a", headers=tv).decision.rule_id == ""
    assert other.check("ann", "/a", headers={"x-device": "TV"}).decision.rule_id == "tv"


def test_the_priority_is_settled_before_rules_and_gate_see_it() -> None:
    story = Story(
        rule("bulk", "/a", 5, priority_bucket="BULK"),
        rule("critical", "/a", 9, priority_bucket="CRITICAL"),
        top={
            "priorities": {"names": {"Start": "CRITICAL", "Pre*": "BULK"}},
            "callers": {"names": {"boss": "CRITICAL"}},
        },
    )
    start, pre = ({"x-netflix.request-name": name} for name in ("Start", "Prefetch"))
    assert story.check("ann", "/a", headers=start).decision.rule_id == "critical"
    assert story.check("ann", "/a", headers=pre).decision.rule_id == "bulk"
    claimed = story.check("ann", "/a", headers=start, priority=CRITICAL)
    assert (claimed.decision.rule_id, claimed.priority) == ("", DEGRADED)
    assert story.check("boss", "/a", priority=CRITICAL).decision.rule_id == "critical"
    assert story.gate.requests == [
        (CRITICAL, "ann"), (BULK, "ann"), (DEGRADED, "ann"), (CRITICAL, "boss"),
    ]  # fmt: skip


def test_what_is_shed_is_not_counted_and_is_told() -> None:
    story = Story(rule("r", limit=1))
    story.gate.shed[BULK] = Decision(False, 0, 5, 0, SHED, "")
    story.gate.word = STATUS_DEGRADED
    answer = story.check(priority=BULK)
    assert (answer.decision.reason, answer.limit, answer.status) == (SHED, -1, STATUS_DEGRADED)
    assert answer.priority is BULK
    assert story.ledger.lines == [("ann", "", 1, BULK, False)]
    assert story.check().decision.allowed


def test_rules_for_the_same_with_other_windows_apply_together_all_or_none() -> None:
    story = Story(rule("minute", "/a", 3), rule("hour", "/a", 5, window="1h"))
    assert story.admitted(4, path="/a") == 3
    assert story.check(path="/a").decision.rule_id == "minute"
    story.clock.advance(s=120)
    # What the minute refused took nothing from the hour.
    assert story.admitted(4, path="/a") == 2
    last = story.check(path="/a")
    assert (last.decision.rule_id, last.limit) == ("hour", 5)


def test_the_rule_that_binds_is_told_though_two_share_a_limit() -> None:
    story = Story(rule("mine", "/a", 2), rule("everyones", "/a", 2, per="resource"))
    assert story.admitted(2, "ann", "/a") == 2
    refused = story.check("bob", "/a")
    assert not refused.decision.allowed
    assert refused.decision.rule_id == "everyones"
    assert story.peek("bob", "/a").decision.rule_id == "everyones"
    story.clock.advance(s=120)
    assert story.check("cem", "/a").decision.allowed
    assert story.check("ann", "/a").decision.allowed
    story.clock.advance(s=120)
    mine = Story(rule("everyones", "/a", 2, per="resource"), rule("mine", "/a", 2))
    mine.check("ann", "/a", 2)
    asyncio.run(mine.checker.reset(CheckRequest("bob", "/a")))
    assert mine.check("ann", "/a").decision.rule_id == "mine"


def test_a_trial_refuses_nobody_and_says_what_it_would_have_done() -> None:
    story = Story(rule("trial", "/a", 1, mode="shadow"))
    first, second = story.check(path="/a"), story.check(path="/a")
    assert first.decision.shadow
    assert first.decision.reason is None
    assert second.decision.allowed
    assert second.decision.shadow
    assert second.decision.reason is RATE_LIMITED
    assert second.decision.rule_id == "trial"


def test_a_trial_beside_a_rule_never_binds() -> None:
    story = Story(rule("trial", "/a", 1, mode="shadow"), rule("real", "/a", 3))
    assert story.admitted(5, path="/a") == 3
    assert {line[1] for line in story.ledger.lines} == {"real"}
    assert story.peek("bob", "/a").decision.rule_id == "real"


def test_a_peek_says_what_a_check_would_and_changes_nothing() -> None:
    story = Story(rule("a", "/a", 2), rule("b", "/a", 9, window="1h"))
    for left in (2, 1, 0):
        for _ in range(3):
            answer = story.peek(path="/a")
            assert answer.decision.allowed is (left > 0)
        assert answer.decision.rule_id == "a"
        assert answer.limit == 2
        story.check(path="/a")
    assert len(story.ledger.lines) == 3
    assert not story.peek("bob", "/a", cost=3).decision.allowed
    assert story.peek("bob", "/none").limit == -1


def test_a_weight_of_nothing_only_looks_whether_one_more_would_enter() -> None:
    story = Story(rule("a", "/a", 1))
    assert story.check(path="/a", cost=0).decision.allowed
    assert story.check(path="/a").decision.allowed
    assert not story.check(path="/a", cost=0).decision.allowed
    assert len(story.ledger.lines) == 1


def test_several_are_decided_each_by_itself_in_order() -> None:
    story = Story(rule("a", "/a", 3))
    asks = [CheckRequest("ann", "/a", cost=weight) for weight in (2, 2, 1)]
    answers = cast("Sequence[CheckResponse]", story.checker.check_each(asks, story.now))
    assert [answer.decision.allowed for answer in answers] == [True, False, True]
    assert story.checker.check_each([], story.now) == []


def test_if_one_of_several_cannot_be_asked_none_is_counted() -> None:
    story = Story(rule("a", "/a", 3), requests_max=2)
    asks = [CheckRequest("ann", "/a"), CheckRequest("ann", "/a", cost=-1)]
    with pytest.raises(BadValue, match="weight"):
        story.checker.check_each(asks, story.now)
    with pytest.raises(BadValue, match="requests_max"):
        story.checker.check_each([CheckRequest("ann", "/a")] * 3, story.now)
    assert story.ledger.lines == []


@pytest.mark.parametrize(
    ("field", "ask"),
    [
        ("weight", CheckRequest("ann", "/a", cost=-1)),
        ("weight", CheckRequest("ann", "/a", cost=1 << 32)),
    ],
    ids=["negative", "heavy"],
)
def test_what_cannot_be_asked_is_named(field: str, ask: CheckRequest) -> None:
    story = Story(rule("a", "/a"))
    for method in (story.checker.check, story.checker.peek):
        with pytest.raises(BadValue) as caught:
            method(ask, story.now)
        assert caught.value.field == field
    assert story.gate.requests == []


def test_a_reset_forgets_what_the_rules_of_this_ask_have_counted() -> None:
    story = Story(rule("a", "/a", 1), rule("h", "/a", 1, window="1h"), rule("b", "/b", 1))
    for path in ("/a", "/b"):
        story.check("ann", path)
        story.check("bob", path)
    assert asyncio.run(story.checker.reset(CheckRequest("ann", "/a"))) == 2
    assert asyncio.run(story.checker.reset(CheckRequest("ann", "/none"))) == 0
    assert story.check("ann", "/a").decision.allowed
    assert not story.check("ann", "/b").decision.allowed
    assert not story.check("bob", "/a").decision.allowed


def test_a_book_is_swapped_by_assigning_it() -> None:
    story = Story(rule("a", "/a", 2))
    story.check(path="/a")
    book, shapes = book_of(native(rule("a", "/a", 2), rule("b", "/b", 1)))
    story.limiter.replace_rules({**story.shared_limits.rules, **shapes.rules})
    story.checker.book = book
    assert story.check(path="/b").decision.rule_id == "b"
    # What has stayed as it was has kept its counts.
    assert story.admitted(2, path="/a") == 1


# A store that answers later, or not at all.


def far(*rules: dict[str, object], **top: object) -> tuple[Story, Faults]:
    faults = Faults()
    return Story(*rules, top=top, limiter={"faults": faults}), faults


def test_a_far_store_answers_the_same_later() -> None:
    story, _ = far(rule("a", "/a", 2), rule("h", "/a", 9, window="1h"), rule("b", "/b", 3))

    async def play() -> None:
        answers = []
        for path, weight in [("/a", 1), ("/a", 2), ("/a", 1), ("/b", 2), ("/b", 2), ("/c", 1)]:
            soon = story.checker.check(CheckRequest("ann", path, cost=weight), story.now)
            answers.append(soon if isinstance(soon, CheckResponse) else await soon)
        assert [(one.decision.rule_id, one.decision.allowed, one.limit) for one in answers] == [
            ("a", True, 2), ("a", False, 2), ("a", True, 2), ("b", True, 3), ("b", False, 3),
            ("", True, -1),
        ]  # fmt: skip
        assert [line[1] for line in story.ledger.lines] == ["a", "a", "a", "b", "b", ""]
        for path, left in (("/a", 0), ("/b", 1)):
            soon = story.checker.peek(CheckRequest("ann", path), story.now)
            assert not isinstance(soon, CheckResponse)
            looked = await soon
            assert looked.decision.remaining == (left - 1 if left else 0)
        each = story.checker.check_each(
            [CheckRequest("bob", "/b"), CheckRequest("bob", "/c"), CheckRequest("bob", "/b")],
            story.now,
        )
        assert not isinstance(each, list)
        responses = await cast("asyncio.Future[list[CheckResponse]]", each)
        assert [one.decision.rule_id for one in responses] == ["b", "", "b"]
        assert await story.checker.reset(CheckRequest("ann", "/a")) == 2
        soon = story.checker.check(CheckRequest("ann", "/a", cost=2), story.now)
        assert not isinstance(soon, CheckResponse)
        assert (await soon).decision.allowed

    asyncio.run(play())


def test_a_far_refusal_that_is_believed_for_a_while_has_the_rules_name_each_time() -> None:
    story, _ = far(rule("a", "/a", 2), rule("h", "/a", 9, window="1h"), rule("b", "/b", 1))

    async def play() -> None:
        for path, name in (("/a", "a"), ("/b", "b")):
            decisions = []
            for _ in range(5):
                soon = story.checker.check(CheckRequest("ann", path), story.now)
                assert not isinstance(soon, CheckResponse)
                decisions.append((await soon).decision)
            assert [one.rule_id for one in decisions] == [name] * 5
            assert not decisions[-1].allowed

    asyncio.run(play())


def test_a_silent_store_is_answered_for_by_the_rules_policy_and_marked() -> None:
    story, faults = far(
        rule("open", "/open", 1),
        rule("closed", "/closed", 1, failure="closed"),
        rule("local", "/local", 1, failure="local"),
    )
    faults.fail()

    async def play() -> None:
        decisions = {}
        for path in ("/open", "/closed", "/local", "/local", "/open"):
            soon = story.checker.check(CheckRequest("ann", path), story.now)
            assert not isinstance(soon, CheckResponse)
            decision = (await soon).decision
            assert decision.degraded
            assert decision.rule_id == path[1:]
            decisions[path] = decision
        assert decisions["/open"].allowed
        assert decisions["/closed"].reason is STORE_UNAVAILABLE
        assert decisions["/local"].reason is RATE_LIMITED
        assert all(decision.degraded for decision in story.ledger.decisions)

    asyncio.run(play())


def test_bounds_that_are_none_are_told() -> None:
    story = Story(rule("a", "/a"))
    for name in ("weight_max", "requests_max", "lease_us_max"):
        bound: dict[str, Any] = {name: 0}
        with pytest.raises(BadValue, match=name):
            Checker(story.limiter, OpenGate(), RecordingLedger(), **bound)
    with pytest.raises(BadValue, match="leases_max"):
        Checker(story.limiter, OpenGate(), RecordingLedger(), leases_max=-1)


def broken_for(rule: str, key: str, story: Story, for_s: int = 60) -> None:
    """Stop enforcement there for a while, and of nothing else."""
    until_us = story.now + for_s * 1_000_000
    opening = Opening("1", rule, key, until_us, story.now, "ann", "the rule is wrong")
    story.glass.show(GlassView(story.now, [opening]), story.now)


@pytest.mark.parametrize(
    ("rule_id", "user", "through"),
    [
        ("play", ALL, ["ann/play", "bob/play"]),
        (ALL, "ann", ["ann/play", "ann/list"]),
        ("play", "ann", ["ann/play"]),
        (ALL, ALL, ["ann/play", "ann/list", "bob/play", "bob/list"]),
    ],
)
def test_a_broken_glass_lets_through_what_it_names_and_nothing_else(
    rule_id: str, user: str, through: list[str]
) -> None:
    story = Story(rule("play", "/play", 1), rule("list", "/list", 1))
    broken_for(rule_id, user, story)
    asked = [(user, name) for user in ("ann", "bob") for name in ("play", "list")]
    admitted = {f"{user}/{name}": story.admitted(9, user, f"/{name}") for user, name in asked}
    assert [name for name, count in admitted.items() if count == 9] == through
    assert {count for name, count in admitted.items() if name not in through} <= {1}
    told = [one for one in story.ledger.decisions if one.overridden]
    assert len(told) == 9 * len(through)
    assert {one.rule_id for one in told} <= {"play", "list"}


def test_a_caller_whose_rule_is_not_enforced_still_has_its_quota() -> None:
    story = Story(rule("play", "/play", 1), top={"callers": {"quotas": {"batch": "3/m"}}})
    broken_for("play", ALL, story)
    assert story.admitted(9, "batch", "/play") == 3
    refused = story.check("batch", "/play").decision
    assert refused.reason is RATE_LIMITED
    assert not refused.overridden


def test_a_glass_that_is_whole_again_finds_counts_as_they_were() -> None:
    story = Story(rule("play", "/play", 2))
    assert story.admitted(1, "ann", "/play") == 1
    broken_for("play", ALL, story, for_s=5)
    assert story.admitted(50, "ann", "/play") == 50
    assert story.peek("ann", "/play").decision.overridden
    story.clock.advance(s=5)
    assert story.admitted(5, "ann", "/play") == 1


def test_a_broken_glass_does_not_stop_what_protects_the_service() -> None:
    story = Story(rule("play", "/play", 1))
    broken_for(ALL, ALL, story)
    story.gate.shed[DEGRADED] = Decision(False, 0, 1_000, 0, SHED, "shed")
    assert story.check("ann", "/play").decision.reason is SHED


def test_nothing_is_leased_while_the_glass_is_broken_and_the_holder_checks_each() -> None:
    story = Story(rule("play", "/play", 10))
    broken_for("play", ALL, story)
    lease = asyncio.run(story.checker.lease(CheckRequest("ann", "/play"), 5, story.now))
    assert (lease.units, lease.check.decision.allowed) == (0, True)
    assert story.checker.leases_open == 0
