from __future__ import annotations

import asyncio

import pytest

from sluicegate import Claim, Limiter, Refused, Rule
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT, RATE_LIMITED
from sluicegate.testing import HandClock, admit_all, answering_limiter, hand_limiter, refuse_all


def test_a_hand_limiter_counts_on_the_clock_that_comes_with_it() -> None:
    limiter, clock = hand_limiter("2/minute", rules={"login": "1/hour"})
    assert limiter.take("ann")
    assert limiter.take("ann", 1)
    assert not limiter.take("ann")
    clock.advance(s=30)
    assert limiter.take("ann")
    assert limiter.take("ann", rule="login")
    assert not limiter.take("ann", rule="login")


def test_a_wait_on_a_hand_limiter_moves_its_clock() -> None:
    limiter, clock = hand_limiter("1/hour")
    began_us = clock.now_us()
    for _ in range(3):
        assert limiter.wait("ann")
    assert clock.now_us() - began_us == 2 * 3_600_000_000


def test_two_hand_limiters_may_share_a_clock() -> None:
    clock = HandClock()
    first, one = hand_limiter("1/s", clock=clock)
    second, other = hand_limiter("1/s", clock=clock)
    assert one is other is clock
    for limiter in (first, second):
        assert limiter.take("ann")
        assert not limiter.take("ann")


def test_refuse_all_refuses_whatever_it_is_asked() -> None:
    with refuse_all("5/minute", rules={"login": "9/hour"}, retry_after_s=30) as limiter:
        decision = limiter.take("ann")
        assert (decision.allowed, decision.reason) == (False, RATE_LIMITED)
        assert decision.retry_after_s == 30
        assert not limiter.take("ann", 0)
        assert not limiter.take("ben", rule="login")
        assert not limiter.take("ben", rule="7/day")
        assert not limiter.peek("ann")
        assert not limiter.reserve("ann")
        assert not limiter.take_all(Claim("ann"), Claim("ann", "login"))
        assert not limiter.wait("ann", timeout_s=1)
        with pytest.raises(Refused), limiter.limit("1/s", key="job"):
            pass


def test_refuse_all_may_refuse_for_any_reason() -> None:
    with refuse_all(retry_after_s=-1, reason=COST_ABOVE_LIMIT) as limiter:
        decision = limiter.take("ann")
        assert decision.reason is COST_ABOVE_LIMIT
        assert decision.retry_after_us == -1


def test_admit_all_admits_whatever_it_is_asked() -> None:
    with admit_all(Rule("1/day"), rules={"login": "1/hour"}) as limiter:
        for _ in range(5):
            assert limiter.take("ann")
            assert limiter.take("ann", rule="login")
            assert limiter.take_all(Claim("ann"), Claim("ann", "login"))


def test_both_answer_tasks_as_they_answer_threads() -> None:
    async def story() -> None:
        async with refuse_all() as limiter:
            assert not await limiter.atake("ann")
            assert not await limiter.areserve("ann")
            assert not await limiter.atake_all(Claim("ann"), Claim("ben"))
        async with admit_all() as limiter:
            assert await limiter.atake("ann")

    asyncio.run(story())


def test_a_limiter_may_be_told_its_answers_one_by_one() -> None:
    limiter, answers = answering_limiter("5/minute")
    with limiter:
        answers.refuse(1, retry_after_s=60)
        # Were the refusal believed until its minute is over, the second would be refused as well.
        assert [bool(limiter.take("ann")) for _ in range(3)] == [False, True, True]
        assert [charge.key for charge in answers.asked] == ["ann"] * 3


def test_what_was_asked_can_be_looked_at() -> None:
    limiter, answers = answering_limiter(rules={"login": "5/minute"})
    with limiter:
        limiter.take("user:ann", 3, "login")
    (charge,) = answers.asked
    assert (charge.rule_id, charge.key, charge.cost) == ("login", "user:ann", 3)
    assert charge.limit.count == 5


def test_they_are_limiters_like_any_other() -> None:
    for limiter in (hand_limiter("1/s")[0], refuse_all(), admit_all()):
        assert isinstance(limiter, Limiter)
        limiter.close()
