from __future__ import annotations

import heapq
import random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.adaptive_lifo import (
    CANCELLED,
    EXPIRED,
    OVERFLOWED,
    POPPED,
    QUEUED,
    AdaptiveLifo,
    QueueEntry,
)

MS = 1_000
SECOND = 1_000_000
HOUR = 3_600 * SECOND

Lost = list[QueueEntry[str]]


def drained(queue: AdaptiveLifo[str], now_us: int) -> str:
    """The items in the order in which the queue hands them out."""
    lost: Lost = []
    items = ""
    while (entry := queue.pop(now_us, lost)) is not None:
        items += entry.item
    assert not lost
    return items


def fates(lost: Lost) -> list[tuple[str, int]]:
    return [(entry.item, entry.fate) for entry in lost]


def test_it_is_first_in_first_out_while_it_empties_in_time() -> None:
    queue: AdaptiveLifo[str] = AdaptiveLifo(length_max=10, standing_us=100 * MS)
    lost: Lost = []
    for at, item in enumerate("abc"):
        queue.push(item, SECOND, at * 50 * MS, lost)
    assert not queue.lifo
    assert drained(queue, 100 * MS) == "abc"


def test_it_turns_to_newest_first_when_it_was_last_empty_too_long_ago() -> None:
    queue: AdaptiveLifo[str] = AdaptiveLifo(length_max=10, standing_us=100 * MS)
    lost: Lost = []
    for at, item in enumerate("abc"):
        queue.push(item, SECOND, at * 50 * MS, lost)
    first = queue.pop(100 * MS, lost)
    second = queue.pop(100 * MS + 1, lost)
    assert first is not None
    assert second is not None
    assert (first.item, second.item) == ("a", "c")
    assert queue.lifo


def test_it_turns_back_only_when_it_has_emptied() -> None:
    queue: AdaptiveLifo[str] = AdaptiveLifo(length_max=10, standing_us=100 * MS)
    lost: Lost = []
    for item in "abc":
        queue.push(item, SECOND, 0, lost)
    popped = [queue.pop(101 * MS, lost), queue.pop(101 * MS, lost)]
    assert [entry.item for entry in popped if entry] == ["c", "b"]
    queue.push("d", SECOND, 102 * MS, lost)
    assert drained(queue, 103 * MS) == "da"
    for item in "ef":
        queue.push(item, SECOND, 104 * MS, lost)
    assert drained(queue, 204 * MS) == "ef"


@pytest.mark.parametrize("way", ["cancel", "expire", "evict"])
def test_any_way_of_emptying_turns_it_back(way: str) -> None:
    queue: AdaptiveLifo[str] = AdaptiveLifo(length_max=10, standing_us=100 * MS)
    lost: Lost = []
    entry = queue.push("a", 200 * MS, 0, lost)
    queue.expire(101 * MS, lost)
    turned = [queue.lifo]
    if way == "cancel":
        queue.cancel(entry, 150 * MS)
    elif way == "evict":
        queue.evict(150 * MS, lost)
    else:
        queue.expire(200 * MS, lost)
    turned.append(queue.lifo)
    assert turned == [True, False]
    for item in "bc":
        queue.push(item, SECOND, 200 * MS, lost)
    lost.clear()
    assert drained(queue, 300 * MS) == "bc"


def test_without_a_standing_time_it_never_turns_and_with_zero_it_turns_at_once() -> None:
    for standing_us, order in ((None, "abc"), (0, "cba")):
        queue: AdaptiveLifo[str] = AdaptiveLifo(length_max=10, standing_us=standing_us)
        for item in "abc":
            queue.push(item, 2 * HOUR, 0, [])
        assert drained(queue, HOUR) == order


def test_an_expired_entry_comes_back_as_lost_at_the_instant_its_timeout_ends() -> None:
    queue: AdaptiveLifo[str] = AdaptiveLifo(length_max=10)
    lost: Lost = []
    queue.push("a", 50 * MS, 0, lost)
    queue.push("b", 50 * MS, 1, lost)
    queue.expire(50 * MS - 1, lost)
    assert lost == []
    queue.expire(50 * MS, lost)
    assert fates(lost) == [("a", EXPIRED)]
    assert lost[0].waited_us == 50 * MS
    assert queue.pop(51 * MS, lost) is None
    assert fates(lost) == [("a", EXPIRED), ("b", EXPIRED)]


def test_a_push_takes_out_what_has_expired_before_it_looks_for_room() -> None:
    queue: AdaptiveLifo[str] = AdaptiveLifo(length_max=1)
    lost: Lost = []
    queue.push("a", 10 * MS, 0, lost)
    assert queue.push("b", 10 * MS, 10 * MS, lost).fate == QUEUED
    assert fates(lost) == [("a", EXPIRED)]


def test_an_expired_entry_behind_a_longer_timeout_is_never_served() -> None:
    for standing_us, served in ((None, "a"), (0, "a")):
        queue: AdaptiveLifo[str] = AdaptiveLifo(length_max=10, standing_us=standing_us)
        lost: Lost = []
        queue.push("a", SECOND, 0, lost)
        queue.push("b", 10 * MS, 0, lost)
        queue.expire(10 * MS, lost)
        assert lost == []  # it holds its place until it reaches an end
        entry = queue.pop(10 * MS, lost)
        assert entry is not None
        assert entry.item == served
        assert queue.pop(10 * MS, lost) is None
        assert fates(lost) == [("b", EXPIRED)]


def test_a_timeout_of_nothing_is_lost_at_once_and_takes_no_room() -> None:
    queue: AdaptiveLifo[str] = AdaptiveLifo(length_max=1)
    lost: Lost = []
    queue.push("a", SECOND, 0, lost)
    for timeout_us in (0, -5):
        assert queue.push("b", timeout_us, 0, lost).fate == EXPIRED
    assert fates(lost) == [("b", EXPIRED)] * 2
    assert len(queue) == 1


def test_a_full_queue_that_empties_in_time_refuses_the_newcomer() -> None:
    queue: AdaptiveLifo[str] = AdaptiveLifo(length_max=2)
    lost: Lost = []
    for item in "abc":
        queue.push(item, SECOND, 0, lost)
    assert fates(lost) == [("c", OVERFLOWED)]
    assert drained(queue, 0) == "ab"


def test_a_full_queue_that_stands_pushes_out_its_oldest() -> None:
    queue: AdaptiveLifo[str] = AdaptiveLifo(length_max=2, standing_us=100 * MS)
    lost: Lost = []
    queue.push("a", SECOND, 0, lost)
    queue.push("b", SECOND, 1, lost)
    queue.push("c", SECOND, 101 * MS, lost)
    assert fates(lost) == [("a", OVERFLOWED)]
    assert lost[0].waited_us == 101 * MS
    lost.clear()
    assert drained(queue, 102 * MS) == "cb"


def test_weight_is_bounded_too() -> None:
    queue: AdaptiveLifo[str] = AdaptiveLifo(length_max=10, weight_max=100, standing_us=100 * MS)
    lost: Lost = []
    for item, weight in (("a", 40), ("b", 40), ("c", 20), ("d", 1)):
        queue.push(item, SECOND, 0, lost, weight)
    assert fates(lost) == [("d", OVERFLOWED)]
    assert queue.weight == 100
    queue.push("e", SECOND, 101 * MS, lost, 41)
    assert fates(lost)[1:] == [("a", OVERFLOWED), ("b", OVERFLOWED)]
    assert queue.weight == 61


def test_an_entry_heavier_than_the_whole_queue_pushes_nobody_out() -> None:
    queue: AdaptiveLifo[str] = AdaptiveLifo(length_max=10, weight_max=100, standing_us=0)
    lost: Lost = []
    queue.push("a", HOUR, 0, lost, 100)
    assert queue.push("b", HOUR, SECOND, lost, 101).fate == OVERFLOWED
    assert fates(lost) == [("b", OVERFLOWED)]


def test_what_is_pushed_out_is_the_oldest_of_a_standing_queue_and_else_the_newest() -> None:
    for now_us, victim in ((100 * MS, "c"), (101 * MS, "a")):
        queue: AdaptiveLifo[str] = AdaptiveLifo(length_max=10, standing_us=100 * MS)
        lost: Lost = []
        for item in "abc":
            queue.push(item, SECOND, 0, lost)
        assert queue.evict(now_us, lost)
        assert fates(lost) == [(victim, OVERFLOWED)]
    assert not AdaptiveLifo[str](length_max=1).evict(0, [])


@pytest.mark.parametrize("standing_us", [None, 0])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_entry_is_cancelled_wherever_it_stands_and_once(
    at: int, standing_us: int | None
) -> None:
    queue: AdaptiveLifo[str] = AdaptiveLifo(length_max=10, standing_us=standing_us)
    lost: Lost = []
    entries = [queue.push(item, SECOND, 0, lost) for item in "abc"]
    assert queue.cancel(entries[at], 7 * MS)
    assert not queue.cancel(entries[at], 8 * MS)
    assert (entries[at].fate, entries[at].waited_us) == (CANCELLED, 7 * MS)
    assert len(queue) == 2
    left = "abc".replace("abc"[at], "")
    assert drained(queue, 9 * MS) == (left if standing_us is None else left[::-1])
    assert lost == []


def test_an_entry_of_another_queue_or_one_that_has_left_is_not_cancelled() -> None:
    here: AdaptiveLifo[str] = AdaptiveLifo(length_max=1)
    there: AdaptiveLifo[str] = AdaptiveLifo(length_max=1)
    entry = there.push("a", SECOND, 0, [])
    refused = there.push("b", SECOND, 0, [])
    assert not here.cancel(entry, 0)
    assert not there.cancel(refused, 0)
    assert len(there) == 1
    popped = there.pop(5, [])
    assert popped is entry
    assert not there.cancel(entry, 6)
    assert (entry.fate, entry.waited_us) == (POPPED, 5)


def test_a_clock_that_goes_back_makes_nobody_younger_than_nothing() -> None:
    queue: AdaptiveLifo[str] = AdaptiveLifo(length_max=10)
    lost: Lost = []
    entry = queue.push("a", 100 * MS, HOUR, lost)
    assert queue.pop(0, lost) is entry
    assert entry.waited_us == 0


def test_a_clock_that_goes_back_lets_time_go_on_from_there() -> None:
    queue: AdaptiveLifo[str] = AdaptiveLifo(length_max=10, standing_us=50 * MS)
    lost: Lost = []
    queue.push("a", 100 * MS, HOUR, lost)
    queue.push("b", 100 * MS, HOUR + 40 * MS, lost)
    queue.push("c", 100 * MS, 0, lost)  # an hour back: 40 ms have passed, as before
    queue.expire(11 * MS, lost)
    assert queue.lifo
    queue.expire(60 * MS - 1, lost)
    assert lost == []
    queue.expire(60 * MS, lost)
    assert fates(lost) == [("a", EXPIRED)]
    assert lost[0].waited_us == 100 * MS
    queue.expire(100 * MS, lost)
    assert fates(lost)[1:] == [("b", EXPIRED), ("c", EXPIRED)]


def test_a_queue_begun_after_the_clock_went_back_stands_no_sooner() -> None:
    queue: AdaptiveLifo[str] = AdaptiveLifo(length_max=10, standing_us=50 * MS)
    lost: Lost = []
    queue.expire(HOUR, lost)
    for item in "abc":
        queue.push(item, SECOND, 0, lost)
    assert drained(queue, 50 * MS) == "abc"


def test_an_entry_carries_its_cost_for_whoever_chooses_between_queues() -> None:
    queue: AdaptiveLifo[str] = AdaptiveLifo(length_max=1)
    assert queue.push("a", SECOND, 0, [], 1, 7).cost == 7


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"length_max": 0}, "length_max must be from 1"),
        ({"length_max": (1 << 32) + 1}, "length_max must be from 1"),
        ({"length_max": 1, "weight_max": 0}, "weight_max must be from 1"),
        ({"length_max": 1, "weight_max": (1 << 53) + 1}, "weight_max must be from 1"),
        ({"length_max": 1, "standing_us": -1}, "standing_us must not be negative"),
    ],
)
def test_settings_outside_their_range_are_refused(settings: dict[str, int], field: str) -> None:
    with pytest.raises(ValueError, match=field):
        AdaptiveLifo[str](**settings)


def test_a_negative_weight_is_refused_and_changes_nothing() -> None:
    queue: AdaptiveLifo[str] = AdaptiveLifo(length_max=1)
    with pytest.raises(ValueError, match="weight must not be negative, not -1"):
        queue.push("a", SECOND, 0, [], -1)
    assert len(queue) == 0


class Waiting(NamedTuple):
    number: int
    weight: int
    pushed_us: int
    expires_us: int


class SlowQueue:
    """The oracle: a list, oldest first, and every rule said out loud on it."""

    def __init__(self, length_max: int, weight_max: int, standing_us: int | None) -> None:
        self.length_max = length_max
        self.weight_max = weight_max
        self.standing_us = standing_us
        self.waiting: list[Waiting] = []
        self.lifo = False
        self.begun_us = 0
        self.left: list[tuple[int, int, int]] = []  # number, fate, how long it waited

    def leave(self, entry: Waiting, fate: int, now_us: int) -> None:
        if entry in self.waiting:
            self.waiting.remove(entry)
        self.left.append((entry.number, fate, now_us - entry.pushed_us))
        self.lifo = self.lifo and len(self.waiting) > 0

    def look(self, now_us: int) -> None:
        while self.waiting and self.waiting[0].expires_us <= now_us:
            self.leave(self.waiting[0], EXPIRED, now_us)
        if self.waiting and self.standing_us is not None:
            self.lifo = self.lifo or now_us > self.begun_us + self.standing_us

    def push(self, number: int, timeout_us: int, weight: int, now_us: int) -> None:
        self.look(now_us)
        entry = Waiting(number, weight, now_us, now_us + timeout_us)
        if timeout_us <= 0:
            self.leave(entry, EXPIRED, now_us)
            return
        if weight <= self.weight_max:
            while self.lifo and not self.fits(weight):
                self.leave(self.waiting[0], OVERFLOWED, now_us)
        if not self.fits(weight):
            self.leave(entry, OVERFLOWED, now_us)
            return
        if not self.waiting:
            self.begun_us = now_us
        self.waiting.append(entry)

    def fits(self, weight: int) -> bool:
        weight_waiting = sum(entry.weight for entry in self.waiting)
        return len(self.waiting) < self.length_max and weight_waiting + weight <= self.weight_max

    def pop(self, now_us: int) -> None:
        self.look(now_us)
        while self.waiting:
            entry = self.waiting[-1 if self.lifo else 0]
            expired = entry.expires_us <= now_us
            self.leave(entry, EXPIRED if expired else POPPED, now_us)
            if not expired:
                return

    def evict(self, now_us: int) -> None:
        self.look(now_us)
        if self.waiting:
            self.leave(self.waiting[0 if self.lifo else -1], OVERFLOWED, now_us)

    def cancel(self, number: int, now_us: int) -> None:
        for entry in list(self.waiting):
            if entry.number == number:
                self.leave(entry, CANCELLED, now_us)


operations = st.lists(
    st.tuples(
        st.sampled_from(["push", "push", "push", "pop", "cancel", "evict", "expire"]),
        st.integers(-20, 60),  # how far the clock moves
        st.integers(-1, 150),  # timeout, or which entry to cancel
        st.integers(0, 8),  # weight
    ),
    max_size=80,
)


@given(st.integers(1, 6), st.integers(1, 20), st.sampled_from([None, 0, 30, 80]), operations)
def test_it_does_what_the_slow_queue_does(
    length_max: int,
    weight_max: int,
    standing_us: int | None,
    moves: list[tuple[str, int, int, int]],
) -> None:
    queue: AdaptiveLifo[int] = AdaptiveLifo(
        length_max=length_max, weight_max=weight_max, standing_us=standing_us
    )
    oracle = SlowQueue(length_max, weight_max, standing_us)
    entries: list[QueueEntry[int]] = []
    left: list[tuple[int, int, int]] = []
    told_us = passed_us = 0
    for verb, gap_us, number, weight in moves:
        queued_numbers = [entry.number for entry in oracle.waiting]
        if verb == "cancel" and number not in queued_numbers:
            if 0 <= number < len(entries):
                assert not queue.cancel(entries[number], told_us)
            continue
        told_us += gap_us
        passed_us += max(0, gap_us)
        lost: list[QueueEntry[int]] = []
        if verb == "push":
            entries.append(queue.push(len(entries), number, told_us, lost, weight))
            oracle.push(len(entries) - 1, number, weight, passed_us)
        elif verb == "pop":
            popped = queue.pop(told_us, lost)
            oracle.pop(passed_us)
            lost += [popped] if popped else []
        elif verb == "evict":
            queue.evict(told_us, lost)
            oracle.evict(passed_us)
        elif verb == "expire":
            queue.expire(told_us, lost)
            oracle.look(passed_us)
        else:
            assert queue.cancel(entries[number], told_us)
            oracle.cancel(number, passed_us)
            lost += [entries[number]]
        left += [(entry.item, entry.fate, entry.waited_us) for entry in lost]
        assert left == oracle.left
        assert queue.lifo == oracle.lifo
        assert len(queue) == len(oracle.waiting)
        assert queue.weight == sum(entry.weight for entry in oracle.waiting)
        assert len(queue) <= length_max
        assert queue.weight <= weight_max
    queued = [entry.item for entry in entries if entry.fate == QUEUED]
    assert queued == [entry.number for entry in oracle.waiting]


# What the order does to a service under ten times its load.

WORKERS = 32
SERVICE_US = 10 * MS
DEADLINE_US = 100 * MS


def answers(
    queue: AdaptiveLifo[int], *, timeout_us: int = DEADLINE_US, load: float = 10
) -> tuple[float, int, int]:
    """Answers in time as a share of capacity, their p99, and the longest queue."""
    chance = random.Random(1)
    span_us, warm_us = 5 * SECOND, 2 * SECOND
    per_us = load * WORKERS / SERVICE_US
    free_us = [0] * WORKERS
    lost: list[QueueEntry[int]] = []
    latencies_us: list[int] = []
    at_us, length = 0.0, 0
    while at_us < span_us:
        at_us += chance.expovariate(per_us)
        now_us = int(at_us)
        while free_us[0] <= now_us:
            entry = queue.pop(free_us[0], lost)
            if entry is None:
                heapq.heapreplace(free_us, now_us)
                break
            begun_us = heapq.heapreplace(free_us, free_us[0] + SERVICE_US)
            latency_us = begun_us + SERVICE_US - entry.item
            if latency_us <= DEADLINE_US and begun_us >= warm_us:
                latencies_us.append(latency_us)
        queue.push(now_us, timeout_us, now_us, lost)
        length = max(length, len(queue))
        lost.clear()
    latencies_us.sort()
    share = len(latencies_us) * SERVICE_US / (WORKERS * (span_us - warm_us))
    return share, latencies_us[len(latencies_us) * 99 // 100] if latencies_us else 0, length


def test_under_ten_times_the_load_the_newest_are_answered_where_the_oldest_are_too_late() -> None:
    share, latency_us_p99, length = answers(AdaptiveLifo(length_max=2_000))
    assert share > 0.99
    assert latency_us_p99 < 20 * MS
    assert length == 2_000
    fifo: AdaptiveLifo[int] = AdaptiveLifo(length_max=2_000, standing_us=None)
    assert answers(fifo)[0] < 0.01


def test_timeouts_bound_what_a_standing_queue_holds() -> None:
    _, _, length = answers(AdaptiveLifo(length_max=1_000_000))
    assert length < 3_500  # what arrives in a timeout
    _, _, length = answers(AdaptiveLifo(length_max=1_000_000), timeout_us=HOUR)
    assert length > 100_000
