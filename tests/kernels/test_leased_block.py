"""Leased block: spent while it lives, void afterwards, and sized by its pace."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.leased_block import HotKeys, LeasedBlock, ladder

SECOND = 1_000_000


class ByUnits:
    """The obvious block: a list of units, each with the instants between which it may be spent."""

    def __init__(self) -> None:
        self.units: list[tuple[int, int]] = []
        self.lapsed = 0

    def fill(self, units: int, sent_us: int, lives_us: int) -> None:
        self.units = [(sent_us, sent_us + lives_us)] * units
        self.lapsed = 0

    def spend(self, cost: int, now_us: int) -> bool:
        alive = [unit for unit in self.units if unit[0] <= now_us < unit[1]]
        self.lapsed += len(self.units) - len(alive)
        self.units = alive
        if len(alive) < cost:
            return False
        del self.units[:cost]
        return True


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("fill"), st.integers(0, 9), st.integers(0, 900)),
            st.tuples(st.just("spend"), st.integers(0, 5), st.integers(-200, 400)),
        ),
        max_size=40,
    )
)
def test_a_block_is_spent_as_a_list_of_units_with_dates_is(
    story: list[tuple[str, int, int]],
) -> None:
    block, oracle, now_us = LeasedBlock(), ByUnits(), 1_000
    for what, units, us in story:
        if what == "fill":
            block.fill(units, 0, now_us, us)
            oracle.fill(units, now_us, us)
        else:
            now_us = max(now_us + us, 0)
            assert block.spend(units, now_us) is oracle.spend(units, now_us)
        assert (block.left, block.lapsed) == (len(oracle.units), oracle.lapsed)


@given(st.integers(0, 50), st.lists(st.integers(0, 9), max_size=30))
def test_no_more_is_spent_than_came_and_the_rest_is_what_is_left(
    units: int, costs: list[int]
) -> None:
    block = LeasedBlock()
    block.fill(units, 0, 0, SECOND)
    spent = sum(cost for cost in costs if block.spend(cost, 1))
    assert spent == block.used
    assert block.take_rest() == units - spent
    assert not block.spend(1, 1)


def test_a_block_lives_from_its_request_until_its_deadline_and_not_on_it() -> None:
    block = LeasedBlock()
    block.fill(3, 0, 100, 50)
    assert block.spend(1, 149)
    assert block.expire(150) == 0
    assert block.lapsed == 2


def test_a_clock_from_before_the_request_voids_the_block() -> None:
    block = LeasedBlock()
    block.fill(3, 0, 100, 50)
    assert not block.spend(1, 99)
    assert block.lapsed == 3


@given(
    used=st.integers(0, 10_000),
    last=st.integers(0, 5_000),
    elapsed_us=st.integers(0, 2 * SECOND),
    first=st.integers(1, 100),
    most=st.integers(1, 100_000),
)
def test_the_next_size_follows_the_pace_by_steps_and_within_bounds(
    used: int, last: int, elapsed_us: int, first: int, most: int
) -> None:
    block = LeasedBlock()
    block.fill(0, used, 1, SECOND)
    block.wanted = last
    size = block.next_size(1 + elapsed_us, 50_000, first, most)
    assert size == block.wanted
    assert 1 <= size <= most
    assert size <= max(4 * last, first)
    assert size >= min(last // 2, most, max(4 * last, first))
    pace = used * 50_000 // max(elapsed_us, 1)
    if last // 2 <= pace <= max(4 * last, first) and 1 <= pace <= most:
        assert size == pace


def test_a_first_block_has_the_first_size() -> None:
    assert LeasedBlock().next_size(5, 50_000, 16, 1_000) == 16
    assert LeasedBlock().next_size(5, 50_000, 16, 10) == 10


@given(st.integers(0, 1_000), st.integers(0, 10**9), st.integers(1, 20))
def test_a_ladder_falls_by_halves_to_the_bare_cost(cost: int, extra: int, rungs_max: int) -> None:
    rungs = ladder(cost, extra, rungs_max)
    assert rungs[-1] == cost
    assert len(rungs) <= rungs_max
    assert rungs[0] == cost + (extra if rungs_max > 1 else 0)
    for high, low in pairwise(rungs):
        assert low < high or extra == 0
        assert low in (cost + (high - cost) // 2, cost)


def test_what_is_told_as_a_distance_is_counted_down_from_the_request() -> None:
    block = LeasedBlock()
    block.fill(1, 0, 100, SECOND)
    assert block.distance_us(500, 300) == 300
    assert block.distance_us(500, 900) == 0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 40)), max_size=60))
def test_a_key_is_hot_when_it_asks_often_within_one_window(asks: list[tuple[str, int]]) -> None:
    hot, now_us, since_us = HotKeys(3, 100, 1_000), 1_000, 0
    window: list[str] = []
    for key, us in asks:
        now_us += us
        if now_us - since_us >= 100:
            window, since_us = [], now_us
        window.append(key)
        assert hot.add(key, now_us) is (window.count(key) >= 3)


def test_keys_beyond_the_bound_begin_another_window() -> None:
    hot = HotKeys(2, SECOND, 3)
    for key in "abcd":
        hot.add(key, 1)
    assert hot.counts == {"d": 1}
    assert hot.windows == 1
