from __future__ import annotations

import asyncio

import pytest

from sluicegate import BadValue, Limit
from sluicegate.contracts.reasons import KEYS_EXHAUSTED, RATE_LIMITED
from sluicegate.contracts.store import Charge, Ruling
from sluicegate.testing import START_US, AnswerStore, HandClock

ANN = Charge("login", Limit(5, period_us=60_000_000), "ann", 2)
BEN = ANN._replace(key="ben", cost=9)


def take(store: AnswerStore, *charges: Charge, keep: bool = True) -> Ruling:
    return asyncio.run(store.take(charges or [ANN], keep=keep))


def test_it_admits_until_it_hears_otherwise() -> None:
    store = AnswerStore()
    ruling = take(store, ANN, BEN)
    assert ruling.allowed
    assert ruling.at_us == START_US
    assert [(one.rule_id, one.remaining) for one in ruling.decisions] == [
        ("login", 3),
        ("login", 0),
    ]
    store.refuse()
    assert not take(store).allowed
    store.admit()
    assert take(store).allowed


def test_a_refusal_says_why_and_when_to_come_back() -> None:
    store = AnswerStore(HandClock(7))
    store.refuse(retry_after_s=2.5, reason=KEYS_EXHAUSTED)
    at_us, (decision,) = take(store)
    assert at_us == 7
    assert (decision.allowed, decision.remaining) == (False, 0)
    assert (decision.retry_after_us, decision.reset_after_us) == (2_500_000, 2_500_000)
    assert decision.reason is KEYS_EXHAUSTED
    store.refuse(retry_after_s=-30)
    (decision,) = take(store).decisions
    assert (decision.retry_after_us, decision.reset_after_us) == (-1, 0)
    assert decision.reason is RATE_LIMITED


def test_answers_with_times_come_in_the_order_in_which_they_were_told() -> None:
    store = AnswerStore()
    store.refuse()
    store.admit(2)
    store.refuse(1, retry_after_s=7)
    store.admit(1)
    answers = [take(store).allowed for _ in range(6)]
    assert answers == [True, True, False, True, False, False]


def test_what_holds_for_all_asks_forgets_what_was_told_for_some() -> None:
    store = AnswerStore()
    store.refuse(3)
    store.admit()
    assert take(store).allowed


def test_an_ask_of_several_charges_takes_one_answer_and_a_look_takes_none() -> None:
    store = AnswerStore()
    store.refuse(1)
    assert not take(store, keep=False).allowed
    assert [bool(one) for one in take(store, ANN, BEN).decisions] == [False, False]
    assert take(store).allowed


def test_a_ladder_has_its_first_rung_or_nothing() -> None:
    store = AnswerStore()
    grant = asyncio.run(store.take_some(ANN, (8, 2)))
    assert (grant.units, bool(grant.decision)) == (8, True)
    store.refuse()
    grant = asyncio.run(store.take_some(ANN, (8, 2)))
    assert (grant.units, bool(grant.decision)) == (0, False)


def test_it_keeps_what_it_was_asked_and_no_more_than_that() -> None:
    store = AnswerStore(asked_max=2)
    take(store, ANN, BEN)
    take(store, ANN, keep=False)
    assert list(store.asked) == [ANN, BEN]
    take(store, ANN)
    assert list(store.asked) == [BEN, ANN]


def test_there_is_nothing_to_correct_and_nothing_to_close() -> None:
    store = AnswerStore()

    async def story() -> None:
        await store.settle([ANN], 5)
        await store.reset([ANN])
        await store.close()
        assert (await store.take([ANN])).allowed

    asyncio.run(story())


@pytest.mark.parametrize("times", [-1, 10_001])
def test_the_answers_that_may_wait_are_bounded(times: int) -> None:
    with pytest.raises(BadValue, match=r"times: .*10,000"):
        AnswerStore().refuse(times)
    with pytest.raises(BadValue, match="asked_max"):
        AnswerStore(asked_max=0)
