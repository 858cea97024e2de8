from __future__ import annotations

import os
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate import Algorithm, BadValue, Limit, Limiter, Rule
from sluicegate.contracts.store import Store
from sluicegate.limits.claims import judge_remote
from sluicegate.limits.lease import HOT_REQUESTS, Leases, block_max
from sluicegate.limits.wait_lines import finish
from sluicegate.stores.memory.tables import table_for
from sluicegate.testing import HandClock
from tests.limits.world import Process, SlowStore

SECOND = 1_000_000
MINUTE = 60 * SECOND

LEASED = [
    Algorithm.GCRA,
    Algorithm.TOKEN_BUCKET,
    Algorithm.FIXED_WINDOW,
    Algorithm.SLIDING_WINDOW,
]


# The law: what all processes admit, one exact limit would have admitted too.


@settings(max_examples=100)
@given(
    algorithm=st.sampled_from(LEASED),
    count=st.integers(1, 40),
    period_us=st.sampled_from([7_777, 60_000, 1_000_000]),
    lease=st.sampled_from(["auto", "10%", "50%", "100%", 1, 3]),
    wrong_us=st.lists(st.integers(-5 * SECOND, 5 * SECOND), min_size=2, max_size=4),
    delays=st.tuples(st.sampled_from([0, 1, 3_000]), st.sampled_from([0, 1, 3_000])),
    story=st.lists(
        st.tuples(
            st.sampled_from(["take"] * 12 + ["kill", "idle", "close"]),
            st.integers(0, 3),  # which process
            st.integers(1, 4),  # cost
            st.sampled_from([0, 0, 0, 0, 0, 1, 40, 900, 7_777, 61_000]),  # then so much time passes
        ),
        min_size=30,
        max_size=150,
    ),
)
def test_leases_never_admit_what_one_exact_limit_would_refuse(
    algorithm: Algorithm,
    count: int,
    period_us: int,
    lease: str | int,
    wrong_us: list[int],
    delays: tuple[int, int],
    story: list[tuple[str, int, int, int]],
) -> None:
    limit = Limit(count, period_us=period_us, algorithm=algorithm)
    if isinstance(lease, int):
        lease = min(lease, count)
    clock = HandClock()
    store = SlowStore(clock, there_us=delays[0], back_us=delays[1])

    def start(number: int) -> Process:
        return Process(store, limit, lease=lease, wrong_us=wrong_us[number])

    processes = [start(number) for number in range(len(wrong_us))]
    exact = table_for("exact", limit, 10)
    admitted_us: list[tuple[int, int]] = []
    for what, number, cost, passes_us in story:
        which = number % len(processes)
        process = processes[which]
        if what == "take":
            sent_us = clock.now_us()
            calls_before = store.calls
            allowed = process.take(cost=cost)
            if allowed:
                # What the store admitted was admitted there, before the answer's way back and
                # before what was left of an earlier block was given back.
                at_us = sent_us if store.calls == calls_before else store.taken_us
                admitted_us.append((at_us, cost))
        elif what == "kill":
            processes[which] = start(which)
        elif what == "idle":
            clock.advance(ms=600)
            finish(process.keys.give_back(process.stores.blocking))
        else:
            finish(process.keys.give_back(process.stores.blocking, every=True))
        clock.advance(us=passes_us)
    for at_us, cost in admitted_us:
        assert exact.take("a", cost, at_us).allowed, (at_us, cost, admitted_us)


def test_a_lease_spares_the_store() -> None:
    clock = HandClock()
    store = SlowStore(clock)
    process = Process(store, Limit(10_000, period_us=MINUTE), lease=1_000)
    assert sum(process.take() for _ in range(5_000)) == 5_000
    assert store.calls == 5


def test_an_automatic_lease_begins_when_a_key_asks_often_and_follows_its_pace() -> None:
    clock = HandClock()
    store = SlowStore(clock)
    process = Process(store, Limit(1_000_000, period_us=MINUTE), lease="auto")
    for _ in range(HOT_REQUESTS - 1):
        process.take()
    assert store.calls == HOT_REQUESTS - 1
    assert process.keys.lease_count == 0
    for _ in range(100_000):
        process.take()
        clock.advance(us=10)
    # A hundred thousand a second: a block is a twentieth of that, once the steps have led there.
    assert store.calls < HOT_REQUESTS + 40
    assert process.keys.lease_count == 1


def test_a_key_that_asks_now_and_then_is_never_leased() -> None:
    clock = HandClock()
    store = SlowStore(clock)
    process = Process(store, Limit(1_000_000, period_us=MINUTE), lease="auto")
    for _ in range(200):
        process.take()
        clock.advance(s=1)
    assert store.calls == 200
    assert process.keys.lease_count == 0


def test_a_dear_unit_takes_as_much_of_the_block_as_it_costs() -> None:
    process = Process(SlowStore(HandClock()), Limit(100, period_us=MINUTE), lease=50)
    assert process.take(cost=1)
    assert process.take(cost=30)
    assert process.keys.take_here("a", 21, process.now_us()) is None
    assert process.keys.take_here("a", 20, process.now_us()) is not None


def test_a_block_dies_with_its_window() -> None:
    clock = HandClock()
    store = SlowStore(clock)
    process = Process(
        store, Limit(100, period_us=MINUTE, algorithm=Algorithm.FIXED_WINDOW), lease=50
    )
    to_edge_us = MINUTE - clock.now_us() % MINUTE
    clock.advance(us=to_edge_us - 1)
    assert process.take()
    assert process.take()
    assert store.calls == 1
    clock.advance(us=1)
    assert process.take()
    assert store.calls == 2


def test_a_block_of_a_bucket_dies_after_its_life_and_the_store_keeps_its_share_back() -> None:
    clock = HandClock()
    store = SlowStore(clock)
    process = Process(store, Limit(1_000, period_us=SECOND), lease=500)
    assert process.keys.take("a", 1, process.now_us()).remaining == 949
    clock.advance(ms=49)
    assert process.keys.take_here("a", 1, process.now_us()) is not None
    clock.advance(ms=1)
    assert process.keys.take_here("a", 1, process.now_us()) is None


def test_many_processes_that_share_a_spent_limit_leave_little_of_it_unused() -> None:
    clock = HandClock()
    store = SlowStore(clock)
    processes = [Process(store, Limit(10_000, period_us=SECOND), lease="auto") for _ in range(8)]
    admitted = 0
    for _ in range(5_000):
        for process in processes:
            admitted += process.take()
        clock.advance(us=400)  # twice what the limit allows
    # Two seconds of it, and what the burst held.
    assert 0.93 * 30_000 <= admitted <= 30_000
    assert store.calls < 8 * 5_000 / 2


def test_what_idles_goes_back_to_the_store() -> None:
    clock = HandClock()
    store = SlowStore(clock)
    hour = Limit(3_600, period_us=3_600 * SECOND, algorithm=Algorithm.FIXED_WINDOW)
    process, other = Process(store, hour, lease=3_600), Process(store, hour)
    assert process.take()
    assert not other.take()
    clock.advance(ms=500)
    finish(process.keys.give_back(process.stores.blocking))
    assert process.keys.lease_count == 0
    other.keys._denials.forget("a")
    assert other.take(cost=3_599)
    assert not other.take(cost=2)


def test_a_closing_process_gives_everything_back() -> None:
    clock = HandClock()
    store = SlowStore(clock)
    process = Process(store, Limit(100, period_us=MINUTE), lease="100%")
    process.take(cost=30)
    finish(process.keys.give_back(process.stores.blocking, every=True))
    assert Process(store, Limit(100, period_us=MINUTE)).take(cost=70)


def test_a_reset_forgets_the_block_too() -> None:
    clock = HandClock()
    store = SlowStore(clock)
    process = Process(store, Limit(10, period_us=MINUTE), lease=10)
    process.take()
    process.keys.reset("a")
    # A bucket of ten keeps one back while it is leased.
    assert sum(process.take() for _ in range(20)) == 9


def test_a_peek_sees_what_is_here_and_what_is_in_the_store() -> None:
    clock = HandClock()
    store = SlowStore(clock)
    process = Process(store, Limit(100, period_us=MINUTE), lease=50)
    # A second's worth is kept back: two units.
    assert process.keys.take("a", 1, process.now_us()).remaining == 97
    assert process.keys.peek("a", 1, process.now_us()).remaining == 96
    assert process.keys.peek("a", 97, process.now_us()).allowed
    assert not process.keys.peek("a", 98, process.now_us()).allowed


def test_an_estimate_is_never_taken_from_a_lease() -> None:
    clock = HandClock()
    store = SlowStore(clock)
    process = Process(store, Limit(100, period_us=MINUTE), lease=50)
    process.take()
    calls_before = store.calls
    reservation = process.reserve("a", 10)
    assert reservation
    assert store.calls == calls_before + 1


def test_a_claim_of_one_limit_is_spent_from_a_lease_too() -> None:
    clock = HandClock()
    store = SlowStore(clock)
    process = Process(store, Limit(1_000, period_us=MINUTE), lease=100)
    for _ in range(50):
        charges = [(process.keys, "a", 1)]
        assert finish(judge_remote(cast("Store", store), charges, process.now_us())).decision
    assert store.calls == 1


def test_keys_with_blocks_are_bounded() -> None:
    leases = Leases("r", Limit(100, period_us=MINUTE), 10)
    for number in range(20_000):
        leases.block_for(str(number), 0)
    assert len(leases) == 10_000
    assert leases.block_for("one more", 0) is None


def test_a_child_does_not_spend_its_parents_block() -> None:
    process = Process(SlowStore(HandClock()), Limit(100, period_us=MINUTE), lease=50)
    process.take()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        left = process.keys.take_here("a", 1, process.now_us())
        os.write(writing, b"0" if left is None else b"1")
        os._exit(0)
    os.waitpid(child, 0)
    byte = os.read(reading, 1)
    os.close(reading)
    os.close(writing)
    assert byte == b"0"
    assert process.keys.take_here("a", 1, process.now_us()) is not None


# What may be said.


@pytest.mark.parametrize(
    ("lease", "most"), [("auto", 100), ("10%", 100), ("100%", 1_000), ("1%", 10), (7, 7)]
)
def test_a_block_is_bounded_by_what_was_said(lease: str | int, most: int) -> None:
    assert block_max(Limit(1_000, period_us=MINUTE), lease) == most


@pytest.mark.parametrize("lease", ["", "0%", "101%", "ten", "-5%", "1.5%", 0, -1, 1_001])
def test_a_lease_that_is_none_is_told(lease: str | int) -> None:
    with pytest.raises(BadValue, match="lease"):
        Limiter(Rule("1000/minute", lease=lease))


def test_leases_and_what_contradicts_them() -> None:
    with pytest.raises(BadValue, match="one limit only"):
        Limiter(Rule("10/s; 100/minute", lease="auto"))
    with pytest.raises(BadValue, match="count_refused"):
        Limiter(Rule("10/s", lease="auto", count_refused=True))
    with pytest.raises(BadValue, match="sliding_log"):
        Limiter(Rule("10/s", lease="auto", algorithm="sliding_log"))
    # A default is for those it suits.
    assert Limiter("10/s; 100/minute", lease="auto").take("a")
    with pytest.raises(BadValue, match="lease"):
        Limiter("10/s", lease="much")
