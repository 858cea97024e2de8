from __future__ import annotations

import random
from fractions import Fraction
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.adaptive_lifo import (
    CANCELLED,
    EXPIRED,
    OVERFLOWED,
    POPPED,
    QUEUED,
    QueueEntry,
)
from sluicegate.kernels.weighted_queue import QueueClass, WeightedQueue

MS = 1_000
SECOND = 1_000_000
HOUR = 3_600 * SECOND

Lost = list[QueueEntry[str]]


def fifo(rank: int = 0, share: int = 1) -> QueueClass:
    return QueueClass(rank, share, None)


def queue_of(
    *classes: QueueClass, length_max: int = 1_000, floors: dict[int, int] | None = None
) -> WeightedQueue[str]:
    return WeightedQueue(classes, length_max=length_max, floors=floors or {})


def filled(queue: WeightedQueue[str], *items: str, cost: int = 1) -> None:
    """Queue one entry for every letter, class by class; none may be lost."""
    lost: Lost = []
    for index, letters in enumerate(items):
        for letter in letters:
            queue.push(index, letter, HOUR, 0, lost, 1, cost)
    assert not lost


def served(queue: WeightedQueue[str], count: int = 1_000, *, floors: bool = True) -> str:
    lost: Lost = []
    items = ""
    for _ in range(count):
        entry = queue.pop(0, lost, floors)
        if entry is None:
            break
        assert entry.fate == POPPED
        items += entry.item
    assert not lost
    return items


def fates(lost: Lost) -> list[tuple[str, int]]:
    return [(entry.item, entry.fate) for entry in lost]


# Who is served next.


def test_a_smaller_rank_goes_first_always() -> None:
    queue = queue_of(fifo(rank=2), fifo(rank=0), fifo(rank=1))
    filled(queue, "cc", "aaa", "b")
    assert served(queue) == "aaabcc"


def test_classes_of_a_rank_share_by_their_shares() -> None:
    queue = queue_of(fifo(share=2), fifo(share=1))
    filled(queue, "aaaaaa", "bbb")
    assert served(queue) == "abaabaaba"


def test_shares_count_cost_and_not_entries() -> None:
    queue = queue_of(fifo(), fifo())
    lost: Lost = []
    for _ in range(2):
        queue.push(0, "A", HOUR, 0, lost, 1, 10)
    for _ in range(20):
        queue.push(1, "b", HOUR, 0, lost, 1, 1)
    assert served(queue) == "A" + "b" * 10 + "A" + "b" * 10


def test_a_class_that_was_away_neither_hoards_its_share_nor_owes_for_what_it_used_alone() -> None:
    queue = queue_of(fifo(), fifo())
    filled(queue, "a" * 50)
    assert served(queue, 40) == "a" * 40
    lost: Lost = []
    for _ in range(10):
        queue.push(1, "b", HOUR, 0, lost)
    assert served(queue) == "ba" * 10


def test_within_a_rank_shares_and_between_ranks_strictness() -> None:
    queue = queue_of(fifo(0, 1), fifo(1, 3), fifo(1, 1))
    filled(queue, "aa", "bbbbbb", "cc")
    assert served(queue) == "aabcbbbcbb"


def test_a_class_whose_queue_stands_serves_its_newest_first_and_the_others_do_not() -> None:
    queue = queue_of(QueueClass(0, standing_us=100 * MS), fifo(1))
    lost: Lost = []
    for index, item in ((0, "a"), (0, "b"), (1, "x"), (1, "y")):
        queue.push(index, item, HOUR, 0, lost)
    popped = [queue.pop(SECOND, lost) for _ in range(4)]
    assert [entry.item for entry in popped if entry] == ["b", "a", "x", "y"]
    assert queue.pop(SECOND, lost) is None


def test_shares_that_do_not_divide_one_another_are_exact() -> None:
    queue = queue_of(fifo(share=7), fifo(share=11), fifo(share=13), length_max=4_000)
    filled(queue, "a" * 1_000, "b" * 1_000, "c" * 1_000)
    items = served(queue, 31 * 50)
    assert [items.count(letter) for letter in "abc"] == [350, 550, 650]


# The floor.


def test_a_floor_serves_a_rank_its_part_in_spite_of_what_goes_first() -> None:
    queue = queue_of(fifo(0), fifo(1), floors={1: 100})
    filled(queue, "a" * 100, "b" * 100)
    items = served(queue, 100)
    assert items.count("b") == 9
    assert [at for at, letter in enumerate(items) if letter == "b"][:3] == [10, 20, 30]


def test_without_floors_the_last_rank_starves_and_is_owed_nothing_afterwards() -> None:
    queue = queue_of(fifo(0), fifo(1), floors={1: 100})
    filled(queue, "a" * 100, "b" * 100)
    assert served(queue, 50, floors=False) == "a" * 50
    assert served(queue, 11) == "a" * 10 + "b"


def test_a_floor_that_got_ahead_with_a_dear_entry_waits_until_it_is_paid_back() -> None:
    queue = queue_of(fifo(0), fifo(1), floors={1: 100})
    filled(queue, "a" * 500)
    lost: Lost = []
    for item in "BC":
        queue.push(1, item, HOUR, 0, lost, 1, 20)
    items = served(queue, 220)
    assert [items.index("B"), items.index("C")] == [10, 10 + 1 + 180]


def tended(queue: WeightedQueue[str], cost: int, pops: int) -> str:
    """Pop each second what matters more, of 1, with one of the lower rank always there."""
    items, lost = "", list[QueueEntry[str]]()
    for second in range(pops):
        if not queue.queue(1).length:
            queue.push(1, "B", HOUR, second * SECOND, lost, 1, cost)
        queue.push(0, "a", HOUR, second * SECOND, lost)
        entry = queue.pop(second * SECOND, lost)
        assert entry is not None
        items += entry.item
    return items


@pytest.mark.parametrize(("cost", "apart"), [(20, 21), (100, 90), (1_000, 900)])
def test_what_a_dear_entry_owes_is_let_go_once_a_tenth_of_it_is_paid_back(
    cost: int, apart: int
) -> None:
    bound: WeightedQueue[str] = WeightedQueue(
        [fifo(0), fifo(1)], length_max=5_000, floors={1: 100}, floor_us=20 * SECOND
    )
    items = tended(bound, cost, 1_200)
    first = items.index("B")
    assert items.index("B", first + 1) - first == apart
    unbound = queue_of(fifo(0), fifo(1), length_max=5_000, floors={1: 100})
    items = tended(unbound, cost, 1_200)
    assert items[first] == "B"
    assert items.find("B", first + 1) in (-1, first + 9 * cost + 1)


def test_a_rank_that_is_served_in_its_turn_is_charged_for_nothing_though_it_is_owed() -> None:
    queue = queue_of(fifo(0), fifo(1), fifo(2), floors={1: 100, 2: 100})
    filled(queue, "a" * 10)
    served(queue)
    filled(queue, "", "b", cost=500)
    assert served(queue) == "b"  # owed one unit, and nobody stands before it
    filled(queue, "a" * 15, "b")
    assert served(queue, 11).count("b") == 1


def test_a_rank_that_rests_has_one_after_each_rest_and_nothing_more_for_it_afterwards() -> None:
    queue = queue_of(fifo(0), fifo(1), floors={1: 100})
    filled(queue, "a" * 200, "b" * 20)
    lost: Lost = []
    before_us = [
        now_us
        for now_us in range(0, 100_000, 1_000)
        if (entry := queue.pop(now_us, lost, True, 30_000)) is not None and entry.item == "b"
    ]
    assert [later - one for one, later in pairwise(before_us)] == [30_000] * 2
    assert served(queue, 20).count("b") <= 3


def test_it_says_of_a_rank_that_it_is_owed_one_and_has_none_queued() -> None:
    queue = queue_of(fifo(0), fifo(1), floors={1: 100})
    filled(queue, "a" * 20)
    served(queue, 9)
    assert not queue.owes(1, 0)
    served(queue, 1)
    assert queue.owes(1, 0)
    assert not queue.owes(0, 0)
    filled(queue, "", "b")
    assert not queue.owes(1, 0)


def test_a_rank_with_nothing_queued_stays_owed_one_unit_at_most_and_is_forgiven_nothing() -> None:
    queue = queue_of(fifo(0), fifo(1), floors={1: 100})
    filled(queue, "a" * 300)
    assert served(queue, 9) == "a" * 9
    lost: Lost = []
    queue.push(1, "B", HOUR, 0, lost, 1, 10)  # owed 0.9
    assert served(queue, 2) == "aB"
    assert served(queue, 200) == "a" * 200  # what it was ahead by, 20 times over
    for item in "CD":
        queue.push(1, item, HOUR, 0, lost, 1, 10)
    items = served(queue, 92)
    assert (items[0], items.index("D")) == ("C", 91)


def test_classes_of_a_rank_share_its_floor_whichever_of_them_waits() -> None:
    queue = queue_of(fifo(0), fifo(1, 2), fifo(1, 1), floors={1: 100})
    filled(queue, "a" * 200, "", "c" * 20)
    assert served(queue, 100).count("c") == 9  # as much as if it were the only one
    lost: Lost = []
    for _ in range(20):
        queue.push(1, "b", HOUR, 0, lost)
    items = served(queue, 92)
    assert (items.count("b"), items.count("c")) == (7, 3)


def test_a_rank_served_in_its_turn_is_owed_nothing_and_owes_nothing_for_it() -> None:
    queue = queue_of(fifo(0), fifo(1), floors={1: 200})
    filled(queue, "", "b" * 60)
    assert served(queue, 50) == "b" * 50
    filled(queue, "a" * 9)
    assert served(queue, 10) == "aaaaabaaaa"


def test_of_two_ranks_that_are_owed_the_one_owed_most_goes_first() -> None:
    queue = queue_of(fifo(0), fifo(1), fifo(2), floors={1: 100, 2: 400})
    lost: Lost = []
    queue.push(0, "A", HOUR, 0, lost, 1, 10)
    filled(queue, "", "b", "ccc")
    assert served(queue) == "Acccb"


@given(
    st.integers(1, 500),
    st.lists(st.integers(1, 30), min_size=60, max_size=60),
    st.lists(st.integers(1, 30), min_size=60, max_size=60),
)
def test_a_starving_rank_gets_its_floor_to_within_one_entry(
    floor_permille: int, costs: list[int], low_costs: list[int]
) -> None:
    queue: WeightedQueue[int] = WeightedQueue(
        [fifo(0), fifo(1)], length_max=200, floors={1: floor_permille}
    )
    lost: list[QueueEntry[int]] = []
    for cost in costs:
        queue.push(0, 0, HOUR, 0, lost, 1, cost)
    for cost in low_costs:
        queue.push(1, 1, HOUR, 0, lost, 1, cost)
    total = low = 0
    for _ in range(60):
        entry = queue.pop(0, lost)
        assert entry is not None
        total += entry.cost
        low += entry.cost * entry.item
        promised = Fraction(total * floor_permille, 1_000)
        # It is due when it is owed a unit, and the entry that made it so may be dear.
        assert promised - 1 - max(costs) <= low <= promised + max(low_costs)


def test_a_short_queue_full_of_what_matters_more_has_room_for_the_one_that_is_owed() -> None:
    queue = queue_of(fifo(0), fifo(1), length_max=100, floors={1: 100})
    queue.limit(3)
    items, lost = "", list[QueueEntry[str]]()
    for _ in range(200):  # both come again and again, and one is served each time
        while queue.queue(0).length < 3:
            assert queue.push(0, "a", HOUR, 0, lost).fate == QUEUED
        queue.push(1, "b", HOUR, 0, lost)
        assert len(queue) <= 4
        items += served(queue, 1)
    assert items.count("b") == 19  # floor(200 / 10) - 1, for it is due once it is owed a unit
    assert {entry.item for entry in lost} == {"b"}


def test_the_one_that_is_owed_takes_nobody_s_room_and_is_not_pushed_out_a_second_one_is() -> None:
    queue = queue_of(fifo(0), fifo(1), fifo(2), length_max=100, floors={2: 100})
    filled(queue, "a" * 10)
    served(queue)
    queue.limit(3)
    filled(queue, "", "", "cd")
    assert [queue.spares(at) for at in range(3)] == [False, False, False]
    lost: Lost = []
    for _ in range(3):
        assert queue.push(0, "a", HOUR, 0, lost).fate == QUEUED
    assert fates(lost) == [("d", OVERFLOWED)]
    assert queue.spares(2)
    assert queue.push(1, "b", HOUR, 0, lost).fate == OVERFLOWED
    assert queue.push(2, "e", HOUR, 0, lost).fate == OVERFLOWED
    assert served(queue) == "caaa"
    assert not queue.spares(2)


@pytest.mark.parametrize(("length_max", "weight_max"), [(3, 100), (100, 3)])
def test_who_is_owed_has_no_room_beyond_the_bounds_of_the_queue(
    length_max: int, weight_max: int
) -> None:
    queue: WeightedQueue[str] = WeightedQueue(
        [fifo(0), fifo(1)], length_max=length_max, weight_max=weight_max, floors={1: 100}
    )
    for _ in range(10):
        filled(queue, "a")
        served(queue)
    filled(queue, "aa", "b")
    assert queue.spares(1)
    lost: Lost = []
    assert queue.push(0, "a", HOUR, 0, lost).fate == QUEUED
    assert queue.push(1, "b", HOUR, 0, lost).fate == OVERFLOWED
    assert fates(lost) == [("b", OVERFLOWED)] * 2
    assert served(queue) == "aaa"


# Who gives way.


def test_a_full_queue_gives_up_its_least_important_class_first() -> None:
    queue = queue_of(fifo(0), fifo(1), fifo(2), length_max=4)
    filled(queue, "a", "b", "cd")
    lost: Lost = []
    assert queue.push(0, "e", HOUR, 0, lost).fate == QUEUED
    assert queue.push(1, "f", HOUR, 0, lost).fate == QUEUED
    assert queue.push(0, "g", HOUR, 0, lost).fate == QUEUED
    assert fates(lost) == [("d", OVERFLOWED), ("c", OVERFLOWED), ("f", OVERFLOWED)]
    assert served(queue) == "aegb"


def test_a_smaller_bound_is_kept_by_the_next_to_come_and_a_larger_one_never_passes_the_first() -> (
    None
):
    queue = queue_of(fifo(0), fifo(1), length_max=6)
    filled(queue, "ab", "cdef")
    queue.limit(4)
    assert len(queue) == 6
    lost: Lost = []
    assert queue.push(1, "g", HOUR, 0, lost).fate == OVERFLOWED
    assert len(queue) == 6
    assert queue.push(0, "h", HOUR, 0, lost).fate == QUEUED
    assert len(queue) == 4
    assert fates(lost) == [(item, OVERFLOWED) for item in "gfed"]
    queue.limit(100)
    filled(queue, "jk")
    assert queue.push(0, "l", HOUR, 0, lost).fate == QUEUED
    assert fates(lost)[-1] == ("c", OVERFLOWED)
    assert served(queue) == "abhjkl"
    queue.limit(0)
    filled(queue, "m")
    assert queue.push(0, "n", HOUR, 0, lost).fate == OVERFLOWED


def test_a_newcomer_never_pushes_out_a_more_important_entry() -> None:
    queue = queue_of(fifo(0), fifo(1), length_max=2)
    filled(queue, "ab")
    lost: Lost = []
    entry = queue.push(1, "c", HOUR, 0, lost)
    assert (entry.fate, fates(lost)) == (OVERFLOWED, [("c", OVERFLOWED)])
    assert served(queue) == "ab"


def test_within_a_rank_the_class_that_holds_most_for_its_share_gives_way() -> None:
    queue = queue_of(fifo(0, 4), fifo(0, 1), fifo(0, 1), length_max=7)
    filled(queue, "aaaa", "bbb")
    lost: Lost = []
    queue.push(2, "c", HOUR, 0, lost)  # 4 for 4 shares, 3 for 1: the second class holds most
    assert fates(lost) == [("b", OVERFLOWED)]
    assert queue.push(1, "B", HOUR, 0, lost).fate == OVERFLOWED
    assert queue.push(0, "A", HOUR, 0, lost).fate == QUEUED
    assert fates(lost)[1:] == [("B", OVERFLOWED), ("b", OVERFLOWED)]


def test_a_class_that_stands_makes_room_for_its_own_newcomer_by_its_oldest() -> None:
    queue = queue_of(QueueClass(0, standing_us=0), fifo(0), length_max=3)
    filled(queue, "ab", "x")
    lost: Lost = []
    assert queue.push(0, "c", HOUR, SECOND, lost).fate == QUEUED
    assert fates(lost) == [("a", OVERFLOWED)]


def test_weight_is_bounded_over_all_classes() -> None:
    queue: WeightedQueue[str] = WeightedQueue([fifo(0), fifo(1)], length_max=10, weight_max=100)
    lost: Lost = []
    queue.push(1, "a", HOUR, 0, lost, 30)
    queue.push(1, "b", HOUR, 0, lost, 30)
    queue.push(0, "c", HOUR, 0, lost, 40)
    assert (queue.weight, lost) == (100, [])
    queue.push(0, "d", HOUR, 0, lost, 31)
    assert fates(lost) == [("b", OVERFLOWED), ("a", OVERFLOWED)]
    assert queue.weight == 71


def test_nothing_is_pushed_out_for_a_newcomer_that_cannot_fit() -> None:
    queue: WeightedQueue[str] = WeightedQueue([fifo(0), fifo(1)], length_max=10, weight_max=100)
    lost: Lost = []
    queue.push(0, "a", HOUR, 0, lost, 60)
    queue.push(1, "b", HOUR, 0, lost, 30)
    queue.push(1, "c", HOUR, 0, lost, 41)
    queue.push(0, "d", HOUR, 0, lost, 101)
    assert fates(lost) == [("c", OVERFLOWED), ("d", OVERFLOWED)]
    assert len(queue) == 2


def test_a_heavy_newcomer_of_a_class_served_in_order_is_refused_before_its_equals_go() -> None:
    queue: WeightedQueue[str] = WeightedQueue([fifo(0), fifo(0)], length_max=10, weight_max=100)
    lost: Lost = []
    queue.push(0, "a", HOUR, 0, lost, 60)
    assert queue.push(1, "b", HOUR, 0, lost, 61).fate == OVERFLOWED
    assert queue.push(1, "c", HOUR, 0, lost, 59).fate == QUEUED
    assert fates(lost) == [("b", OVERFLOWED), ("a", OVERFLOWED)]


def test_what_a_class_holds_is_counted_in_the_bound_that_is_reached() -> None:
    for length_max, weight_max, victim in ((4, 1_000, "b"), (100, 33, "A")):
        queue: WeightedQueue[str] = WeightedQueue(
            [fifo(0), fifo(0), fifo(0)], length_max=length_max, weight_max=weight_max
        )
        lost: Lost = []
        queue.push(0, "A", HOUR, 0, lost, 30)
        for _ in range(3):
            queue.push(1, "b", HOUR, 0, lost, 1)
        queue.push(2, "c", HOUR, 0, lost, 1)
        assert fates(lost) == [(victim, OVERFLOWED)]


def test_once_others_gave_way_the_newcomer_is_not_refused_any_more() -> None:
    queue: WeightedQueue[str] = WeightedQueue(
        [fifo(0, 4), fifo(0, 1)], length_max=100, weight_max=100
    )
    lost: Lost = []
    for _ in range(4):
        queue.push(0, "a", HOUR, 0, lost, 19)
    for _ in range(24):
        queue.push(1, "b", HOUR, 0, lost, 1)
    assert queue.push(0, "A", HOUR, 0, lost, 19).fate == QUEUED
    # From 24 for one share down to 19; 76 for four shares is no less, and gives way then.
    assert [item for item, _ in fates(lost)] == ["b"] * 5 + ["a"]


def test_expired_entries_go_before_anybody_is_pushed_out() -> None:
    queue = queue_of(fifo(0), fifo(1), length_max=2)
    lost: Lost = []
    queue.push(0, "a", 10 * MS, 0, lost)
    queue.push(1, "b", HOUR, 0, lost)
    assert queue.push(0, "c", HOUR, 10 * MS, lost).fate == QUEUED
    assert fates(lost) == [("a", EXPIRED)]


def test_a_timeout_of_nothing_pushes_nobody_out() -> None:
    queue = queue_of(fifo(0), fifo(1), length_max=1)
    filled(queue, "", "b")
    lost: Lost = []
    assert queue.push(0, "a", 0, 0, lost).fate == EXPIRED
    assert fates(lost) == [("a", EXPIRED)]


def test_a_class_that_is_not_served_gives_back_its_dead_within_as_many_pops_as_classes() -> None:
    queue = queue_of(fifo(0), fifo(1), fifo(2))
    lost: Lost = []
    for index, item in ((1, "b"), (2, "c")):
        queue.push(index, item, 10 * MS, 0, lost)
    for _ in range(3):
        queue.push(0, "a", HOUR, 0, lost)
    for _ in range(3):
        assert queue.pop(10 * MS, lost) is not None
    assert sorted(fates(lost)) == [("b", EXPIRED), ("c", EXPIRED)]


def test_dead_entries_are_passed_over_when_their_class_has_its_turn() -> None:
    queue = queue_of(fifo(0), fifo(1))
    lost: Lost = []
    queue.push(0, "a", 10 * MS, 0, lost)
    queue.push(1, "b", HOUR, 0, lost)
    entry = queue.pop(SECOND, lost)
    assert entry is not None
    assert entry.item == "b"
    assert fates(lost) == [("a", EXPIRED)]


def test_expire_looks_at_every_class() -> None:
    queue = queue_of(fifo(0), fifo(1))
    filled(queue, "a", "b")
    lost: Lost = []
    queue.expire(HOUR, lost)
    assert fates(lost) == [("a", EXPIRED), ("b", EXPIRED)]


def test_an_entry_is_cancelled_in_whichever_class_it_stands_and_once() -> None:
    queue = queue_of(fifo(0), fifo(1))
    lost: Lost = []
    entries = [queue.push(index, "ab"[index], HOUR, 0, lost) for index in (0, 1)]
    elsewhere = queue_of(fifo(0)).push(0, "x", HOUR, 0, lost)
    assert queue.cancel(entries[1], 5)
    assert (entries[1].fate, entries[1].waited_us) == (CANCELLED, 5)
    assert not queue.cancel(entries[1], 6)
    assert not queue.cancel(elsewhere, 6)
    assert served(queue) == "a"
    assert queue.queue(1).length == 0


@pytest.mark.parametrize(
    ("classes", "sentence"),
    [
        ([], "classes must be from 1 to 64 of them, not 0"),
        ([QueueClass()] * 65, "classes must be from 1 to 64 of them, not 65"),
        ([QueueClass(), QueueClass(rank=-1)], r"classes\[1\].rank must not be negative, not -1"),
        ([QueueClass(share=0)], r"classes\[0\].share must be from 1 to 1000, not 0"),
        ([QueueClass(share=1_001)], r"classes\[0\].share must be from 1 to 1000, not 1001"),
        ([QueueClass(standing_us=-1)], "standing_us must not be negative"),
    ],
)
def test_classes_outside_their_range_are_refused(classes: list[QueueClass], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        WeightedQueue[str](classes, length_max=1)


@pytest.mark.parametrize(
    ("floors", "sentence"),
    [
        ({1: -1}, r"floors\[1\] must be from 0 to 1000, not -1"),
        ({1: 1_001}, r"floors\[1\] must be from 0 to 1000, not 1001"),
        ({1: 501, 2: 500}, "floors must be at most 1000 in sum, not 1001"),
    ],
)
def test_floors_outside_their_range_are_refused(floors: dict[int, int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        queue_of(fifo(), floors=floors)


@pytest.mark.parametrize("bounds", [(0, 1), ((1 << 32) + 1, 1), (1, 0), (1, (1 << 53) + 1)])
def test_bounds_outside_their_range_are_refused(bounds: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="_max must be from 1 to 2"):
        WeightedQueue[str]([fifo()], length_max=bounds[0], weight_max=bounds[1])


@pytest.mark.parametrize(
    ("index", "weight", "cost", "field"),
    [(-1, 1, 1, "index"), (1, 1, 1, "index"), (0, -1, 1, "weight"), (0, 1, 0, "cost")],
)
def test_a_push_that_makes_no_sense_is_refused(
    index: int, weight: int, cost: int, field: str
) -> None:
    queue = queue_of(QueueClass(standing_us=0), length_max=1)
    filled(queue, "a")
    with pytest.raises(ValueError, match=f"{field} must"):
        queue.push(index, "b", SECOND, MS, [], weight, cost)
    assert served(queue) == "a"


class SlowFairQueue:
    """The oracle of order: exact fractions, one list a class, the rule said out loud."""

    def __init__(self, classes: list[QueueClass]) -> None:
        self.classes = classes
        self.waiting: list[list[tuple[int, int]]] = [[] for _ in classes]  # number, cost
        self.tags = [Fraction(0)] * len(classes)
        self.virtual = {setting.rank: Fraction(0) for setting in classes}

    def push(self, index: int, number: int, cost: int) -> None:
        if not self.waiting[index]:
            self.tags[index] = max(self.tags[index], self.virtual[self.classes[index].rank])
        self.waiting[index].append((number, cost))

    def pop(self) -> int | None:
        backlogged = [index for index, entries in enumerate(self.waiting) if entries]
        if not backlogged:
            return None
        index = min(backlogged, key=lambda at: (self.classes[at].rank, self.tags[at], at))
        number, cost = self.waiting[index].pop(0)
        self.virtual[self.classes[index].rank] = self.tags[index]
        self.tags[index] += Fraction(cost, self.classes[index].share)
        return number


classes_of_ranks = st.lists(
    st.builds(fifo, rank=st.integers(0, 2), share=st.integers(1, 9)), min_size=1, max_size=5
)


@given(
    classes_of_ranks,
    st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.integers(1, 20)), max_size=80),
)
def test_it_serves_in_the_order_of_the_slow_fair_queue(
    classes: list[QueueClass], moves: list[tuple[bool, int, int]]
) -> None:
    queue: WeightedQueue[int] = WeightedQueue(classes, length_max=1_000)
    oracle = SlowFairQueue(classes)
    lost: list[QueueEntry[int]] = []
    for number, (push, at, cost) in enumerate(moves):
        if push:
            queue.push(at % len(classes), number, HOUR, 0, lost, 1, cost)
            oracle.push(at % len(classes), number, cost)
        else:
            entry = queue.pop(0, lost)
            assert (None if entry is None else entry.item) == oracle.pop()


@given(
    st.lists(st.integers(1, 9), min_size=2, max_size=4),
    st.integers(0, 1 << 30),
    st.integers(0, 40),
)
def test_over_any_span_shares_differ_by_no_more_than_one_entry_of_each(
    shares: list[int], seed: int, begun: int
) -> None:
    chance = random.Random(seed)
    queue: WeightedQueue[int] = WeightedQueue(
        [fifo(share=share) for share in shares], length_max=1_000
    )
    lost: list[QueueEntry[int]] = []
    cost_max = [chance.randint(1, 30) for _ in shares]
    for index, dearest in enumerate(cost_max):
        for _ in range(100):  # more than is served below: all have something queued throughout
            queue.push(index, index, HOUR, 0, lost, 1, chance.randint(1, dearest))
    for _ in range(begun):
        queue.pop(0, lost)
    had = [0] * len(shares)
    for _ in range(50):
        entry = queue.pop(0, lost)
        assert entry is not None
        had[entry.item] += entry.cost
        for one, two in combinations(range(len(shares)), 2):
            apart = Fraction(had[one], shares[one]) - Fraction(had[two], shares[two])
            bound = Fraction(cost_max[one], shares[one]) + Fraction(cost_max[two], shares[two])
            assert abs(apart) <= bound


@given(
    st.lists(
        st.builds(
            QueueClass,
            rank=st.integers(0, 2),
            share=st.integers(1, 4),
            standing_us=st.sampled_from([None, 0, 30]),
        ),
        min_size=1,
        max_size=4,
    ),
    st.dictionaries(st.integers(1, 2), st.sampled_from([0, 50, 200]), max_size=2),
    st.integers(1, 6),
    st.integers(1, 20),
    st.lists(
        st.tuples(
            st.sampled_from(["push", "push", "push", "pop", "cancel", "expire", "limit"]),
            st.integers(0, 3),
            st.integers(-10, 40),
            st.integers(-1, 120),
            st.integers(0, 8),
        ),
        max_size=60,
    ),
)
def test_every_entry_ends_once_no_bound_is_passed_and_nobody_gives_way_to_a_lesser_one(
    classes: list[QueueClass],
    floors: dict[int, int],
    length_max: int,
    weight_max: int,
    moves: list[tuple[str, int, int, int, int]],
) -> None:
    queue: WeightedQueue[int] = WeightedQueue(
        classes, length_max=length_max, weight_max=weight_max, floors=floors
    )
    entries: list[QueueEntry[int]] = []
    ended: set[int] = set()
    now_us = 0
    for verb, at, gap_us, timeout_us, weight in moves:
        now_us += gap_us
        index = at % len(classes)
        lost: list[QueueEntry[int]] = []
        if verb == "push":
            entry = queue.push(index, index, timeout_us, now_us, lost, weight, 1 + weight)
            entries.append(entry)
            for out in lost:
                if out.fate == OVERFLOWED:
                    assert classes[out.item].rank >= classes[index].rank
            if entry.fate == OVERFLOWED:
                assert all(out.fate == EXPIRED for out in lost[:-1])
        elif verb == "pop":
            popped = queue.pop(now_us, lost)
            lost += [popped] if popped else []
        elif verb == "cancel":
            lost += [entry for entry in entries[at : at + 1] if queue.cancel(entry, now_us)]
        elif verb == "expire":
            queue.expire(now_us, lost)
        else:
            queue.limit(weight)
        for entry in lost:
            assert entry.fate != QUEUED
            assert entry.waited_us >= 0
            assert id(entry) not in ended
            ended.add(id(entry))
        queued = [entry for entry in entries if entry.fate == QUEUED]
        assert len(entries) == len(queued) + len(ended)
        assert len(queue) == len(queued) <= length_max
        assert queue.weight == sum(entry.weight for entry in queued) <= weight_max
