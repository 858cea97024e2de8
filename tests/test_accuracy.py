"""What is admitted, counted by what it truly cost: an oracle that knows the whole story.

Every take is remembered with its instant and with what it turned out to cost. What was truly used
beyond an estimate is not the limit's to stop, so a take counts here as the lesser of the two.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.contracts.rule import BURSTING, Algorithm, Limit
from sluicegate.stores.memory.joint import charge_all, take_all
from sluicegate.stores.memory.table import KeyTable, TableCharge
from sluicegate.stores.memory.tables import table_for

PERIOD = 1_200  # divides by all the numbers of cells below
LIMIT = 10

WINDOWS = [
    Limit(LIMIT, period_us=PERIOD, algorithm=Algorithm.FIXED_WINDOW),
    Limit(LIMIT, period_us=PERIOD, algorithm=Algorithm.SLIDING_LOG),
    *(
        Limit(LIMIT, period_us=PERIOD, cells=n, algorithm=Algorithm.SLIDING_WINDOW)
        for n in (1, 3, 10)
    ),
]
BUCKETS = [Limit(LIMIT, period_us=PERIOD, algorithm=way) for way in sorted(BURSTING, key=str)]

# A step: the time that passes, what is done, an amount, and which open reservation it is about.
steps = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 150), st.integers(0, 2 * PERIOD)),
        st.sampled_from(["take", "reserve", "reserve", "settle", "settle", "refund"]),
        st.integers(0, 12),
        st.integers(0, 5),
    ),
    max_size=60,
)


class Taken:
    """One admitted take: when, what was charged for it, what it truly cost."""

    def __init__(self, at_us: int, estimate: int) -> None:
        self.at_us = at_us
        self.estimate = estimate
        self.true = estimate
        self.settled_us = at_us

    @property
    def counted(self) -> int:
        return min(self.true, self.estimate)


def lived(keys: KeyTable[Any], story: list[tuple[int, str, int, int]]) -> list[Taken]:
    """Run a story over one key, and tell what was admitted, with its true costs."""
    all_taken: list[Taken] = []
    still_open: list[Taken] = []
    now_us = 10**6
    for gap_us, deed, amount, which in story:
        now_us += gap_us
        if deed == "settle" and still_open:
            taken = still_open.pop(which % len(still_open))
            keys.settle("a", amount - taken.estimate, now_us, taken.at_us)
            taken.true, taken.settled_us = amount, now_us
        elif deed == "refund" and all_taken and all_taken[-1].at_us == now_us:
            # Taken at this very instant, settled at once: `refund` as it is meant.
            taken = all_taken[-1]
            if taken not in still_open and taken.true >= amount:
                keys.settle("a", -amount, now_us, now_us)
                taken.true -= amount
        elif deed in ("take", "reserve") and keys.take("a", amount, now_us):
            all_taken.append(Taken(now_us, amount))
            if deed == "reserve":
                still_open.append(all_taken[-1])
    return all_taken


def used_at(limit: Limit, all_taken: list[Taken], now_us: int) -> Fraction:
    """What a limit that knew every true cost from the start would count at `now_us`."""
    whole_us = limit.period_us
    if limit.algorithm is Algorithm.FIXED_WINDOW:
        inside = [one for one in all_taken if one.at_us // whole_us == now_us // whole_us]
        return Fraction(sum(one.counted for one in inside if one.at_us <= now_us))
    if limit.algorithm is Algorithm.SLIDING_LOG:
        inside = [one for one in all_taken if now_us - whole_us < one.at_us <= now_us]
        return Fraction(sum(one.counted for one in inside))
    cell_us = whole_us // limit.cells
    cell, elapsed = divmod(now_us, cell_us)
    used = Fraction(0)
    for one in all_taken:
        behind = cell - one.at_us // cell_us
        if one.at_us <= now_us and behind < limit.cells:
            used += one.counted
        elif behind == limit.cells:
            used += one.counted * Fraction(cell_us - elapsed, cell_us)
    return used


@pytest.mark.parametrize("limit", WINDOWS, ids=repr)
@settings(max_examples=60)
@given(story=steps)
def test_no_window_ever_holds_more_true_cost_than_its_limit(
    limit: Limit, story: list[tuple[int, str, int, int]]
) -> None:
    all_taken = lived(table_for("r", limit, 10), story)
    for one in all_taken:
        assert used_at(limit, all_taken, one.at_us) <= limit.count


@pytest.mark.parametrize("limit", WINDOWS, ids=repr)
@settings(max_examples=60)
@given(story=steps, cost=st.integers(1, LIMIT))
def test_settling_within_the_window_leaves_the_count_of_true_costs(
    limit: Limit, story: list[tuple[int, str, int, int]], cost: int
) -> None:
    """No more is given back than was not used, and no less: not a unit is lost on the way."""
    story = [step for step in story if step[1] in ("take", "reserve")]
    keys = table_for("r", limit, 10)
    all_taken = lived(keys, story)
    now_us = 10**6 + sum(step[0] for step in story)
    for one in all_taken:
        one.true = min(cost, one.estimate)
        keys.settle("a", one.true - one.estimate, now_us, one.at_us)
    left = limit.count - used_at(limit, all_taken, now_us)
    assert keys.peek("a", 0, now_us).remaining == max(left // 1, 0)


@pytest.mark.parametrize("limit", BUCKETS, ids=repr)
@settings(max_examples=60)
@given(story=steps)
def test_a_bucket_exceeds_its_rate_and_burst_by_no_more_than_was_given_back_late(
    limit: Limit, story: list[tuple[int, str, int, int]]
) -> None:
    """A bucket cannot know what it was full of: what comes back late may be spent beside a burst.

    Between any two instants: the rate, one burst, and what was taken less than a burst's time
    before the first and given back since.
    """
    all_taken = lived(table_for("r", limit, 10), story)
    burst_us = limit.burst * limit.period_us // limit.count
    for first in all_taken:
        for last in all_taken:
            from_us, to_us = first.at_us, last.at_us
            used = sum(one.counted for one in all_taken if from_us <= one.at_us <= to_us)
            flowed = Fraction((to_us - from_us) * limit.count, limit.period_us)
            late = sum(
                one.estimate - one.counted
                for one in all_taken
                if from_us - burst_us < one.at_us < from_us <= one.settled_us <= to_us
            )
            assert from_us > to_us or used <= limit.burst + flowed + late


@pytest.mark.parametrize("limit", BUCKETS, ids=repr)
def test_a_bucket_takes_nothing_back_that_has_flowed_in_again_by_itself(limit: Limit) -> None:
    keys = table_for("r", limit, 10)
    assert keys.take("a", LIMIT, 0)
    assert keys.take("a", LIMIT, PERIOD)
    keys.settle("a", -LIMIT, PERIOD, 0)
    assert keys.peek("a", 0, PERIOD).remaining == 0
    keys.settle("a", -LIMIT, PERIOD + 120, 0)
    assert keys.peek("a", 0, PERIOD + 120).remaining == 1
    # Half a burst's time after the take, half a burst can still be missing because of it.
    keys.settle("a", -LIMIT, PERIOD + PERIOD // 2, PERIOD)
    assert keys.peek("a", 0, PERIOD + PERIOD // 2).remaining == LIMIT
    assert keys.take("a", LIMIT, PERIOD + PERIOD // 2)
    # Later still a quarter, beside the two and a half units that have flowed in since.
    keys.settle("a", -LIMIT, PERIOD + PERIOD * 3 // 4, PERIOD)
    assert keys.peek("a", 0, PERIOD + PERIOD * 3 // 4).remaining == 5


# More than was estimated.


@pytest.mark.parametrize("limit", WINDOWS, ids=repr)
@pytest.mark.parametrize("late_us", [0, 1, PERIOD, 10 * PERIOD])
def test_a_true_cost_above_its_estimate_is_charged_now_however_long_ago_it_was_taken(
    limit: Limit, late_us: int
) -> None:
    keys = table_for("r", limit, 10)
    keys.take("a", 1, 0)
    before = keys.peek("a", 0, late_us).remaining
    keys.settle("a", 3, late_us, 0)
    assert keys.peek("a", 0, late_us).remaining == before - 3
    keys.settle("a", 50, late_us, 0)
    assert keys.peek("a", 0, late_us).remaining == 0


# Several limits at once.


def test_what_several_limits_take_together_is_given_back_in_each_where_it_counts() -> None:
    tables = [table_for(str(limit), limit, 10) for limit in WINDOWS]
    asks = [TableCharge(table, "a", 6) for table in tables]
    assert all(take_all(asks, 0))
    for table in tables:
        table.settle("a", -4, PERIOD, 0)
    used = [LIMIT - table.peek("a", 0, PERIOD).remaining for table in tables]
    # The fixed window and the log have passed; of the cells the first is about to expire.
    assert used == [0, 0, 2, 2, 2]
    assert not all(take_all([*asks, TableCharge(tables[1], "a", 5)], 2 * PERIOD))
    assert all(len(table) == 1 for table in tables)
    assert [table.peek("a", 0, 2 * PERIOD).remaining for table in tables] == [LIMIT] * 5


def test_what_is_counted_although_refused_fills_each_limit_and_no_more() -> None:
    tables = [table_for(str(limit), limit, 10) for limit in WINDOWS]
    asks = [TableCharge(table, "a", 7) for table in tables]
    assert all(take_all(asks, 0))
    assert not any(take_all(asks, 1))
    charge_all(asks, 1)
    assert [table.peek("a", 0, 1).remaining for table in tables] == [0] * 5
    later = [table.peek("a", 0, 2 * PERIOD + 1) for table in tables]
    assert [decision.remaining for decision in later] == [LIMIT] * 5
