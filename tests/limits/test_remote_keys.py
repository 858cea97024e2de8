from __future__ import annotations

import asyncio

import pytest

from sluicegate import Algorithm, BadValue, Limit, Limiter
from sluicegate.contracts.store import Store
from sluicegate.limits.claims import judge_remote
from sluicegate.limits.rule import Failure, Mode
from sluicegate.limits.wait_lines import finish
from sluicegate.stores.memory.refusal_cache import Denials
from sluicegate.stores.memory.store import MemoryStore
from sluicegate.testing import HandClock
from tests.limits.world import Process, SlowStore

SECOND = 1_000_000
MINUTE = 60 * SECOND


# Denials.


def test_a_refused_key_is_refused_here_until_the_instant_that_was_named() -> None:
    clock = HandClock()
    store = SlowStore(clock)
    process = Process(store, Limit(1, period_us=5 * SECOND))
    assert process.take()
    refused = process.keys.take("a", 1, process.now_us())
    calls_before = store.calls
    clock.advance(s=2)
    again = process.keys.take("a", 1, process.now_us())
    assert store.calls == calls_before
    assert again.retry_after_us == refused.retry_after_us - 2 * SECOND
    assert again.reset_after_us == refused.reset_after_us - 2 * SECOND
    assert again.reason is refused.reason
    clock.advance(s=3)
    assert process.take()


def test_a_refusal_says_nothing_of_a_smaller_cost() -> None:
    store = SlowStore(HandClock())
    process = Process(store, Limit(10, period_us=MINUTE))
    process.take(cost=6)
    assert not process.take(cost=5)
    calls_before = store.calls
    assert not process.take(cost=7)
    assert store.calls == calls_before
    assert process.take(cost=4)


def test_a_refund_and_a_reset_are_heard_at_once() -> None:
    process = Process(SlowStore(HandClock()), Limit(2, period_us=MINUTE))
    process.take(cost=2)
    assert not process.take()
    process.keys.settle("a", -1, process.now_us(), process.now_us())
    assert process.take()
    assert not process.take()
    process.keys.reset("a")
    assert process.take(cost=2)


def test_a_refusal_is_believed_for_a_bounded_time_only() -> None:
    clock = HandClock()
    store = SlowStore(clock)
    process = Process(store, Limit(1, period_us=3_600 * SECOND))
    process.take()
    process.take()
    calls_before = store.calls
    clock.advance(s=9)
    process.take()
    assert store.calls == calls_before
    clock.advance(s=1)
    assert not process.take()
    assert store.calls == calls_before + 1


def test_the_wait_is_measured_from_before_the_store_was_asked() -> None:
    clock = HandClock()
    store = SlowStore(clock, there_us=300, back_us=500)
    process = Process(store, Limit(1, period_us=SECOND))
    process.take()
    before_us = process.now_us()
    refused = process.keys.take("a", 1, before_us)
    clock.advance(us=before_us + refused.retry_after_us - clock.now_us())
    # Asked again now, the store needs another 300 us to hear of it: it is not too early for it.
    assert process.take()


def test_whoever_counts_refusals_lets_the_store_hear_of_each() -> None:
    store = SlowStore(HandClock())
    process = Process(store, Limit(1, period_us=MINUTE), count_refused=True)
    for _ in range(5):
        process.take()
    assert store.calls == 5


def test_remembered_refusals_are_bounded() -> None:
    denials = Denials(keys_max=3)
    limiter = Limiter("1/minute", clock=HandClock())
    limiter.take("x")
    refused = limiter.take("x")
    for number in range(10):
        denials.remember(str(number), 1, refused, 0)
    assert len(denials) == 3
    assert denials.refusal("9", 1, 1) is not None
    assert denials.refusal("0", 1, 1) is None


# Without the store.


def test_open_admits_and_says_that_nothing_was_counted() -> None:
    store = SlowStore(HandClock())
    process = Process(store, Limit(1, period_us=MINUTE), failure=Failure.OPEN)
    store.down = True
    decisions = [process.keys.take("a", 1, process.now_us()) for _ in range(3)]
    assert all(decision.allowed and decision.degraded for decision in decisions)
    assert "could not be asked" in decisions[0].explain()


def test_closed_refuses_and_names_the_reason() -> None:
    store = SlowStore(HandClock())
    process = Process(store, Limit(1, period_us=MINUTE), failure=Failure.CLOSED)
    store.down = True
    refused = process.keys.take("a", 1, process.now_us())
    assert refused.degraded
    assert refused.reason is not None
    assert refused.reason.name == "store_unavailable"
    store.down = False
    assert process.take()


@pytest.mark.parametrize(
    "algorithm", [Algorithm.GCRA, Algorithm.SLIDING_WINDOW, Algorithm.FIXED_WINDOW]
)
def test_local_counts_here_against_a_share_of_the_limit(algorithm: Algorithm) -> None:
    store = SlowStore(HandClock())
    limit = Limit(20, period_us=MINUTE, algorithm=algorithm)
    process = Process(store, limit, failure=Failure.LOCAL, local_share=0.25)
    store.down = True
    assert sum(process.take() for _ in range(20)) == 5
    assert process.keys.take("b", 1, process.now_us()).degraded
    assert sum(process.take("c") for _ in range(2)) == 2


def test_a_share_is_never_less_than_one_unit() -> None:
    store = SlowStore(HandClock())
    process = Process(store, Limit(3, period_us=MINUTE), failure=Failure.LOCAL, local_share=0.1)
    store.down = True
    assert sum(process.take() for _ in range(5)) == 1


def test_a_peek_without_the_store_takes_nothing_locally() -> None:
    store = SlowStore(HandClock())
    process = Process(store, Limit(1, period_us=MINUTE), failure=Failure.LOCAL)
    store.down = True
    for _ in range(3):
        assert process.keys.peek("a", 1, process.now_us()).allowed
    assert process.take()
    assert not process.keys.peek("a", 1, process.now_us()).allowed


def test_a_correction_without_the_store_fails_no_work() -> None:
    store = SlowStore(HandClock())
    process = Process(store, Limit(10, period_us=MINUTE))
    reservation = process.reserve("a", 5)
    store.down = True
    assert reservation.settle(2)
    store.down = False
    assert process.keys.peek("a", 0, process.now_us()).remaining == 5


def test_what_was_admitted_without_the_store_has_nothing_there_to_settle() -> None:
    store = SlowStore(HandClock())
    process = Process(store, Limit(10, period_us=MINUTE))
    store.down = True
    reservation = process.reserve("a", 5)
    assert reservation
    store.down = False
    assert not reservation.settle(10)
    assert process.keys.peek("a", 0, process.now_us()).remaining == 10


def test_a_lease_that_cannot_be_filled_is_decided_by_the_failure_policy() -> None:
    store = SlowStore(HandClock())
    process = Process(store, Limit(100, period_us=MINUTE), lease=10, failure=Failure.CLOSED)
    assert process.take()
    store.down = True
    # What was taken in advance is spent; it was debited while the store was there.
    assert sum(process.take() for _ in range(20)) == 10
    assert not process.take()
    store.down = False
    assert process.take()


# Several rules at once.


def judged(store: SlowStore, *processes: Process) -> list[tuple[str, bool]]:
    charges = [(process.keys, "a", 1) for process in processes]
    judgement = finish(judge_remote(_as_store(store), charges, store.clock.now_us()))
    return [(one.name, one.decision.allowed) for one in judgement.decisions]


def _as_store(store: SlowStore) -> Store:
    return store


def test_a_refused_group_takes_nothing_in_the_store_or_without_it() -> None:
    store = SlowStore(HandClock())
    wide = Process(store, Limit(5, period_us=MINUTE), failure=Failure.LOCAL, name="wide")
    narrow = Process(store, Limit(1, period_us=MINUTE), failure=Failure.LOCAL, name="narrow")
    assert judged(store, wide, narrow) == [("wide", True), ("narrow", True)]
    assert judged(store, wide, narrow) == [("wide", True), ("narrow", False)]
    assert wide.keys.peek("a", 0, wide.now_us()).remaining == 4
    calls_before = store.calls
    assert judged(store, wide, narrow) == [("narrow", False)]
    assert store.calls == calls_before, "the denial is known"
    store.down = True
    narrow.keys._denials.forget("a")
    assert judged(store, wide, narrow) == [("wide", True), ("narrow", True)]
    assert judged(store, wide, narrow) == [("wide", True), ("narrow", False)]
    assert wide.keys.peek("a", 0, wide.now_us()).remaining == 4


def test_one_closed_rule_closes_the_group() -> None:
    store = SlowStore(HandClock())
    open_ = Process(store, Limit(5, period_us=MINUTE), name="open")
    closed = Process(store, Limit(5, period_us=MINUTE), failure=Failure.CLOSED, name="closed")
    store.down = True
    assert judged(store, open_, closed) == [("open", True), ("closed", False)]


def test_a_trial_in_a_far_store_holds_up_nobody() -> None:
    store = SlowStore(HandClock())
    trial = Process(store, Limit(1, period_us=MINUTE), mode=Mode.SHADOW, name="tried")
    live = Process(store, Limit(5, period_us=MINUTE), name="kept")
    off = Process(store, Limit(1, period_us=MINUTE), mode=Mode.OFF, name="off")
    assert judged(store, trial, live, off) == [("kept", True), ("tried", True), ("off", True)]
    assert judged(store, trial, live, off) == [("kept", True), ("tried", True), ("off", True)]
    assert trial.keys.take("a", 1, trial.now_us()).shadow
    calls_before = store.calls
    assert off.take()
    assert store.calls == calls_before


def test_only_rules_that_count_refusals_are_charged_for_a_refused_group() -> None:
    store = SlowStore(HandClock())
    harsh = Process(store, Limit(5, period_us=MINUTE), count_refused=True, name="harsh")
    mild = Process(store, Limit(5, period_us=MINUTE), name="mild")
    empty = Process(store, Limit(1, period_us=MINUTE), name="empty")
    empty.take()
    judged(store, harsh, mild, empty)
    assert harsh.keys.peek("a", 0, harsh.now_us()).remaining == 4
    assert mild.keys.peek("a", 0, mild.now_us()).remaining == 5


# URLs.


@pytest.mark.parametrize("url", ["redis", "memory", ""])
def test_what_is_no_url_is_told(url: str) -> None:
    with pytest.raises(BadValue, match="store_url"):
        Limiter("1/s", store_url=url)


def test_an_unknown_scheme_is_told() -> None:
    with pytest.raises(BadValue, match="mysql"):
        Limiter("1/s", store_url="mysql://localhost/limits")


@pytest.mark.parametrize("url", ["memory:", "memory://", "async+memory://"])
def test_memory_has_the_names_that_other_libraries_give_it(url: str) -> None:
    assert Limiter("1/s", store_url=url).take("a")


def test_a_limiter_that_is_pinned_asks_the_store_of_its_loop_until_that_is_closed() -> None:
    clock = HandClock()
    opened: list[MemoryStore] = []

    def open_store() -> MemoryStore:
        opened.append(MemoryStore(clock.now_us))
        return opened[-1]

    limiter = Limiter("2/hour", open_store=open_store, clock=clock)

    async def ask() -> list[bool]:
        limiter.pin()
        allowed = [(await limiter.atake("ann")).allowed for _ in range(3)]
        await limiter.aclose()
        return allowed

    assert asyncio.run(ask()) == [True, True, False]
    limiter = Limiter("2/hour", open_store=open_store, clock=clock)
    assert asyncio.run(ask()) == [True, True, False]
    assert len(opened) == 2
