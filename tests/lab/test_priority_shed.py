from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.lab.baselines.priority_shed import PriorityShed, cohort, level_of, move_mark

ALMOST_ONE = 1 - 2**-53


def offered(shed: PriorityShed, counts: list[int]) -> None:
    for level, count in enumerate(counts):
        if count:
            shed.admit(level, ALMOST_ONE, count)


# How the threshold moves.


def test_at_first_every_level_is_admitted() -> None:
    shed = PriorityShed(classes=4, cohorts=128)
    assert shed.threshold == 512
    assert all(shed.admit(level, ALMOST_ONE) for level in range(512))


def test_overloaded_it_comes_down_until_a_twentieth_less_would_be_admitted() -> None:
    assert move_mark([10] * 10, 10_000, True, 50, 10) == 9_500
    assert move_mark([1] * 100, 100_000, True, 50, 10) == 95_000
    assert move_mark([1] * 100, 40_000, True, 50, 10) == 38_000
    assert move_mark([1] * 100, 1_000, True, 50, 10) == 950
    assert move_mark([1] * 100, 1, True, 50, 10) == 0
    assert move_mark([1] * 100, 0, True, 50, 10) == 0


def test_not_overloaded_it_opens_until_a_hundredth_of_all_that_comes_is_added() -> None:
    assert move_mark([1] * 100, 50_000, False, 50, 10) == 51_000
    assert move_mark([1] * 100, 50_000, False, 50, 11) == 51_100
    assert move_mark([1] * 100, 50_900, False, 50, 10) == 51_900
    assert move_mark([1] * 100, 99_000, False, 50, 50) == 100_000
    assert move_mark([1] * 100, 100_000, False, 50, 10) == 100_000


def test_levels_that_nobody_asks_for_are_passed_over() -> None:
    assert move_mark([5, 0, 0, 0, 5], 5_000, True, 50, 10) == 4_900
    assert move_mark([5, 0, 0, 0, 5], 4_000, True, 50, 10) == 950
    assert move_mark([5, 0, 0, 0, 5], 1_000, False, 50, 10) == 4_020


def test_a_part_of_a_level_is_admitted_by_the_draw() -> None:
    shed = PriorityShed(classes=1, cohorts=2)
    offered(shed, [1, 1])
    shed.tick(True)
    assert shed.mark == 1_900
    assert shed.admit(0, ALMOST_ONE)
    assert shed.admit(1, 0.899)
    assert not shed.admit(1, 0.9)


def test_one_caller_who_is_all_the_traffic_is_admitted_in_part() -> None:
    """At thrice the capacity a third of it is to pass, window by window."""
    shed = PriorityShed()
    passed: list[int] = []
    for window in range(300):
        admitted = sum(shed.admit(400, at / 300) for at in range(300))
        shed.tick(overloaded=admitted > 100)
        if window >= 60:
            passed.append(admitted)
    assert 85 <= min(passed) <= max(passed) <= 115


def test_overloaded_with_nothing_counted_it_stays() -> None:
    assert move_mark([0] * 10, 7_000, True, 50, 10) == 7_000


def test_with_nothing_counted_it_opens_by_its_raise_of_all_levels() -> None:
    assert move_mark([0] * 512, 100_000, False, 50, 10) == 105_000
    assert move_mark([0] * 10, 3_000, False, 50, 10) == 4_000
    assert move_mark([0] * 10, 10_000, False, 50, 10) == 10_000


def test_what_is_refused_is_counted_too_or_it_could_never_open() -> None:
    shed = PriorityShed(classes=1, cohorts=10, keep_permille=0, cut_permille=100)
    for mark in (9_000, 8_100):
        offered(shed, [10] * 10)
        shed.tick(True)
        assert shed.mark == mark
    offered(shed, [10] * 10)
    shed.tick(False)
    assert shed.mark == 8_200


def test_a_tick_forgets_all_but_what_is_kept() -> None:
    shed = PriorityShed(classes=1, cohorts=100, keep_permille=0)
    offered(shed, [1] * 100)
    assert shed.tick(True) == 95
    assert shed.tick(True) == 95  # nothing came
    shed = PriorityShed(classes=1, cohorts=100, keep_permille=500)
    offered(shed, [1] * 100)
    assert shed.tick(True) == 95
    shed.tick(True)  # half of it still counts
    assert shed.mark == 90_250
    shed = PriorityShed(classes=1, cohorts=4, keep_permille=500)
    offered(shed, [4, 4, 4, 0])
    shed.tick(False)
    offered(shed, [0, 0, 0, 100])
    shed.tick(True)  # 2, 2, 2 and 100: a twentieth of 106 is 5.3
    assert shed.mark == 3_947


def test_decay_ends_at_nothing() -> None:
    shed = PriorityShed(classes=1, cohorts=10, keep_permille=999)
    offered(shed, [1])
    for _ in range(10_000):
        shed.tick(True)
    assert shed.mark == 1_000
    assert shed.tick(False) == 2  # one level of ten, as with nothing counted


def test_levels_kept_are_never_shed() -> None:
    shed = PriorityShed(classes=2, cohorts=2, levels_kept=3, cut_permille=1_000)
    for _ in range(5):
        offered(shed, [9] * 4)
        shed.tick(True)
    assert [shed.admits(level) for level in range(4)] == [True, True, True, False]


def test_cost_counts_and_not_units() -> None:
    shed = PriorityShed(classes=1, cohorts=3, cut_permille=500, levels_kept=0)
    for _ in range(50):
        shed.admit(2, 0.5, 1)
    shed.admit(1, 0.5, 30)
    shed.admit(0, 0.5, 20)
    assert shed.tick(True) == 2
    shed = PriorityShed(classes=1, cohorts=3, cut_permille=500, levels_kept=0)
    for _ in range(49):
        shed.admit(2, 0.5, 1)
    shed.admit(1, 0.5, 31)
    shed.admit(0, 0.5, 20)
    assert shed.tick(True) == 1


def test_a_cost_of_zero_asks_without_counting() -> None:
    shed = PriorityShed(classes=1, cohorts=2)
    assert shed.admit(1, 0.5, 0)
    assert shed.tick(True) == 2


# The floor.


def test_a_floor_lets_a_share_of_every_refused_level_pass() -> None:
    shed = PriorityShed(classes=1, cohorts=2, floor=0.02, cut_permille=500)
    offered(shed, [1, 1])
    shed.tick(True)
    assert shed.admit(1, 0.019)
    assert not shed.admit(1, 0.02)


def test_in_hard_overload_there_is_no_floor() -> None:
    shed = PriorityShed(classes=1, cohorts=2, floor=0.02, cut_permille=500)
    offered(shed, [1, 1])
    shed.tick(True, hard=True)
    assert not shed.admit(1, 0.0)
    offered(shed, [1, 1])
    shed.tick(True)
    assert shed.admit(1, 0.0)


def test_without_a_floor_a_draw_of_nothing_does_not_pass() -> None:
    shed = PriorityShed(classes=1, cohorts=2, cut_permille=500)
    offered(shed, [1, 1])
    shed.tick(True)
    assert not shed.admit(1, 0.0)


# Properties and the oracle.

histories = st.lists(
    st.tuples(st.lists(st.integers(0, 20), min_size=12, max_size=12), st.booleans(), st.booleans()),
    max_size=8,
)


@given(histories, st.floats(0, 0.5), st.floats(0, 1, exclude_max=True))
def test_no_level_is_refused_while_a_less_important_one_is_admitted(
    windows: list[tuple[list[int], bool, bool]], floor: float, draw: float
) -> None:
    shed = PriorityShed(classes=3, cohorts=4, floor=floor)
    for counts, overloaded, hard in windows:
        offered(shed, counts)
        shed.tick(overloaded, hard)
        admitted = [shed.admit(level, draw, 0) for level in range(12)]
        assert admitted == sorted(admitted, reverse=True)
        plain = [shed.admits(level) for level in range(12)]
        assert plain == sorted(plain, reverse=True)


class SlowShed:
    """The oracle: what every mark would admit, and the best of them, tried one by one."""

    def __init__(self, keep_permille: int, cut_permille: int, raise_permille: int) -> None:
        self.keep = keep_permille
        self.cut = Fraction(cut_permille, 1_000)
        self.raised = raise_permille
        self.counts = [0] * 12
        self.mark = 12_000

    def admitted(self, mark: int) -> Fraction:
        whole, part = divmod(mark, 1_000)
        inside = Fraction(self.counts[whole] * part, 1_000) if part else Fraction(0)
        return sum(self.counts[:whole]) + inside

    def tick(self, came: list[int], overloaded: bool) -> int:
        self.counts = [count + new * 1_024 for count, new in zip(self.counts, came, strict=True)]
        now, total = self.admitted(self.mark), sum(self.counts)
        mark = self.mark
        if overloaded:
            while mark > 0 and self.admitted(mark) > now * (1 - self.cut):
                mark -= 1
        elif total == 0:
            mark = min(12, mark // 1_000 + max(1, 12 * self.raised // 1_000)) * 1_000
        else:
            target = now + total * Fraction(self.raised, 1_000)
            while mark < 12_000 and self.admitted(mark) < target:
                mark += 1
        self.mark = max(1_000, mark)
        self.counts = [int(Fraction(count * self.keep, 1_000)) for count in self.counts]
        return self.mark


@settings(max_examples=25)
@given(
    st.sampled_from([0, 500, 900]),
    st.sampled_from([1, 50, 300, 1_000]),
    st.sampled_from([1, 10, 200, 1_000]),
    histories,
)
def test_it_moves_as_the_slow_one_moves(
    keep_permille: int,
    cut_permille: int,
    raise_permille: int,
    windows: list[tuple[list[int], bool, bool]],
) -> None:
    shed = PriorityShed(
        classes=3,
        cohorts=4,
        keep_permille=keep_permille,
        cut_permille=cut_permille,
        raise_permille=raise_permille,
    )
    oracle = SlowShed(keep_permille, cut_permille, raise_permille)
    for counts, overloaded, _ in windows:
        offered(shed, counts)
        shed.tick(overloaded)
        assert shed.mark == oracle.tick(counts, overloaded)


@pytest.mark.parametrize("load", [2, 5, 10])
def test_under_any_load_it_sheds_the_lowest_class_and_keeps_the_service_full(load: int) -> None:
    """Classes of 10%, 20% and 30% of capacity, and the lowest for the rest of the load."""
    capacity = 128_000
    demand = [capacity // 10, capacity * 2 // 10, capacity * 3 // 10]
    demand.append(capacity * load - sum(demand))
    counts = [demand[level // 128] // 128 for level in range(512)]
    shed = PriorityShed()
    admitted: list[int] = []
    for window in range(200):
        offered(shed, counts)
        admitted.append(sum(counts[: shed.threshold]))
        shed.tick(overloaded=admitted[-1] > capacity)
        if window > 60:
            assert shed.admits(level_of(2, 127))
    settled = admitted[100:]
    assert 0.95 < sum(settled) / len(settled) / capacity < 1.08
    assert max(settled) < 1.12 * capacity


def test_it_comes_down_from_tenfold_overload_in_45_windows_and_opens_again_in_91() -> None:
    counts = [100] * 512
    shed = PriorityShed()
    down = 0
    while sum(counts[: shed.threshold]) > sum(counts) / 10:
        offered(shed, counts)
        shed.tick(overloaded=True)
        down += 1
    opened = 0
    while shed.threshold < 512:
        offered(shed, counts)
        shed.tick(overloaded=False)
        opened += 1
    assert (down, opened) == (45, 91)


# Cohorts.


def test_a_cohort_is_the_same_in_every_process() -> None:
    assert [cohort("user:1", 0), cohort("user:1", 1), cohort("", 0), cohort("ü\udcff", 0)] == [
        62,
        59,
        119,
        43,
    ]


def test_cohorts_are_of_even_size() -> None:
    sizes = Counter(cohort(f"user:{number}", 7) for number in range(12_800))
    assert len(sizes) == 128
    assert min(sizes.values()) > 60
    assert max(sizes.values()) < 140


def test_there_are_as_many_cohorts_as_said() -> None:
    assert {cohort(f"user:{number}", 7, 3) for number in range(100)} == {0, 1, 2}
    assert cohort("user:1", 7, 1) == 0


def test_users_who_share_a_cohort_in_one_hour_part_in_the_next() -> None:
    together = [user for user in map(str, range(20_000)) if cohort(user, 1) == 5]
    again = Counter(cohort(user, 2) for user in together)
    assert max(again.values()) < len(together) / 10


def test_a_level_is_a_class_and_a_cohort() -> None:
    assert level_of(0, 0) == 0
    assert level_of(3, 127) == 511
    assert level_of(2, 5, cohorts=10) == 25


# Bad input.


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"classes": 0}, "classes"),
        ({"classes": 65}, "classes"),
        ({"cohorts": 0}, "cohorts"),
        ({"cohorts": 1_025}, "cohorts"),
        ({"cut_permille": 0}, "cut_permille"),
        ({"cut_permille": 1_001}, "cut_permille"),
        ({"raise_permille": 0}, "raise_permille"),
        ({"raise_permille": 1_001}, "raise_permille"),
        ({"keep_permille": -1}, "keep_permille"),
        ({"keep_permille": 1_000}, "keep_permille"),
        ({"levels_kept": -1}, "levels_kept"),
        ({"levels_kept": 513}, "levels_kept"),
        ({"floor": -0.1}, "floor"),
        ({"floor": 1.0}, "floor"),
        ({"floor": float("nan")}, "floor"),
    ],
)
def test_settings_outside_their_range_are_refused(settings: dict[str, float], field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} must be from"):
        PriorityShed(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("level", [-1, 512])
def test_a_level_that_is_none_is_refused(level: int) -> None:
    with pytest.raises(ValueError, match=f"level must be from 0 to 511, not {level}"):
        PriorityShed().admit(level, 0.5)


def test_a_negative_cost_is_refused() -> None:
    with pytest.raises(ValueError, match="cost must not be negative, not -1"):
        PriorityShed().admit(0, 0.5, -1)


@pytest.mark.parametrize("draw", [-0.1, 1.0, float("nan"), float("inf")])
def test_a_draw_that_is_none_does_not_pass_the_floor(draw: float) -> None:
    shed = PriorityShed(classes=1, cohorts=2, floor=0.5)
    offered(shed, [1, 1])
    shed.tick(True)
    with pytest.raises(ValueError, match="draw must be from 0 to below 1"):
        shed.admit(1, draw)


@pytest.mark.parametrize("cohorts", [0, 1_025])
def test_a_number_of_cohorts_outside_its_range_is_refused(cohorts: int) -> None:
    with pytest.raises(ValueError, match="cohorts must be from 1 to 1024"):
        cohort("user", 0, cohorts)
