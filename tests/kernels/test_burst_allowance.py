"""What a long line gains in pauses is reckoned from arrivals alone; chance gains little of it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from sluicegate.kernels.burst_allowance import BurstAllowance, BurstAllowanceSettings

pytestmark = pytest.mark.prove

MS = 1_000
S = 1_000_000
# All that was gained is remembered.
EXACT = BurstAllowanceSettings(
    short_us=10 * MS, fade_us=20 * S, chance_permille_min=1, gained_permille_max=1_000_000
)
CHANCE_US = 20 * MS
WORK_US = 1


def after_burst(work_us: int, patience_us: int = S) -> BurstAllowance:
    """All of it comes at the instant 0, to empty lines."""
    allowance = BurstAllowance(EXACT)
    allowance.patience_us = patience_us
    allowance.record_refusal(0, 0)
    for _ in range(work_us // WORK_US):
        allowance.record_arrival(WORK_US, 0)
    return allowance


def gained_us(allowance: BurstAllowance) -> float:
    return allowance.gained * CHANCE_US


def test_what_the_long_line_has_left_when_the_short_one_is_empty_is_gained() -> None:
    allowance = after_burst(60 * MS)
    allowance.advance(10 * MS)  # the short line is empty now
    assert allowance.gained == 0
    allowance.advance(60 * MS)  # so is the long one
    assert gained_us(allowance) == pytest.approx(50 * MS, abs=200)
    before_us = gained_us(allowance)
    allowance.advance(70 * MS)
    assert gained_us(allowance) <= before_us, "nobody is left, in either line"


@pytest.mark.parametrize(("patience_ms", "gained_ms"), [(80, 50), (30, 20), (11, 1), (5, 0)])
def test_what_comes_after_callers_have_gone_is_not_gained(patience_ms: int, gained_ms: int) -> None:
    allowance = after_burst(60 * MS, patience_ms * MS)
    allowance.advance(100 * MS)
    assert gained_us(allowance) == pytest.approx(gained_ms * MS, abs=300)


def test_while_the_places_stand_still_both_lines_do() -> None:
    allowance = after_burst(60 * MS)
    allowance.record_arrival(0, 100 * MS, stalled=True)
    assert allowance.gained == 0
    allowance.advance(160 * MS)
    assert gained_us(allowance) == pytest.approx(50 * MS, abs=200)


def test_no_more_than_by_chance_allows_nothing_and_an_eighth_more_all() -> None:
    found = []
    for work_ms in (29, 31, 32, 34):  # 10 ms of which are the short line's
        allowance = after_burst(work_ms * MS)
        allowance.advance(100 * MS)
        found.append(allowance.us)
    assert found[0] == 0
    assert 0 < found[1] < found[2] < found[3] == 400 * MS


def test_nothing_is_reckoned_before_a_refusal_or_long_after_the_last() -> None:
    allowance = BurstAllowance(BurstAllowanceSettings())
    assert not allowance.counts
    allowance.record_refusal(30 * MS, 1 * S)
    assert counts(allowance)
    allowance.advance(2 * S)
    assert counts(allowance)
    allowance.advance(5 * S)
    assert not counts(allowance)


def test_it_begins_with_the_line_that_stands() -> None:
    allowance = BurstAllowance(EXACT)
    allowance.record_refusal(100 * MS, 0)
    allowance.record_arrival(WORK_US, 0)
    allowance.advance(100 * MS)
    assert gained_us(allowance) == pytest.approx(90 * MS, abs=500)


def test_where_bursts_are_expected_the_first_refusal_has_all_of_it_and_an_overload_none() -> None:
    chance, allowance = Random(5), BurstAllowance()
    allowance.record_refusal(20 * MS, 0, expected=True)
    assert allowance.us == 400 * MS
    assert feed(allowance, steady(2.0), 64, chance, 0, 1_200 * MS)[-1] > 0
    assert feed(allowance, steady(2.0), 64, chance, 1_200 * MS, 1_500 * MS)[-1] == 0


def test_none_is_none() -> None:
    allowance = BurstAllowance(BurstAllowanceSettings(allowance_us_max=0))
    allowance.record_refusal(0, 0)
    assert not allowance.counts


def test_a_setting_out_of_its_range_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="chance_permille_min must be from 1 to 1000"):
        BurstAllowanceSettings(chance_permille_min=1_001)


def test_a_clock_that_goes_back_counts_for_nothing() -> None:
    allowance = after_burst(60 * MS)
    allowance.advance(-1 * S)
    assert allowance.gained == 0
    allowance.advance(-1 * S + 60 * MS)
    assert gained_us(allowance) == pytest.approx(50 * MS, abs=200)


Spans = Iterator[tuple[float, float]]  # for how long, and how many times the capacity comes


def steady(load: float) -> Spans:
    while True:
        yield 1.0 * S, load


def on_off(load: float, on_us: float, off_us: float, chance: Random) -> Spans:
    while True:
        yield chance.expovariate(1 / on_us), load * (on_us + off_us) / on_us
        yield chance.expovariate(1 / off_us), 0.0


def feed(
    allowance: BurstAllowance, spans: Spans, room: int, chance: Random, begin_us: int, end_us: int
) -> list[int]:
    """Have units come, `room` of which are a short line; return the allowance as each comes."""
    work_us = 20 * MS / room
    found: list[int] = []
    span_begin_us = float(begin_us)
    for span_us, load in spans:
        at_us, span_end_us = span_begin_us, span_begin_us + span_us
        while load > 0:
            at_us += chance.expovariate(load / work_us)
            if at_us >= min(span_end_us, end_us):
                break
            allowance.record_refusal(20 * MS, int(at_us))
            allowance.record_arrival(work_us, int(at_us))
            found.append(allowance.us)
        span_begin_us = span_end_us
        if span_begin_us >= end_us:
            break
    return found


@pytest.mark.parametrize("load", [0.9, 1.0, 1.1, 1.4, 5.0])
@pytest.mark.parametrize("room", [2, 4, 8, 32, 64])
def test_steady_arrivals_have_no_allowance_at_any_load(room: int, load: float) -> None:
    found = feed(BurstAllowance(), steady(load), room, Random(1), 0, 10 * S)
    assert sum(us > 0 for us in found) <= 0.01 * len(found)


@pytest.mark.parametrize(
    ("load", "on_ms", "off_ms"), [(1.0, 100, 100), (2.0, 50, 50), (1.0, 20, 60), (1.4, 100, 100)]
)
@pytest.mark.parametrize("room", [8, 32, 64])
def test_bursts_have_all_of_it_within_two_seconds(
    room: int, load: float, on_ms: int, off_ms: int
) -> None:
    chance = Random(2)
    spans = on_off(load, on_ms * MS, off_ms * MS, chance)
    found = feed(BurstAllowance(), spans, room, chance, 0, 10 * S)
    later = found[len(found) // 5 :]
    assert sum(us == 400 * MS for us in later) >= 0.9 * len(later)


def test_an_overload_after_bursts_has_none_after_2_2_s_and_the_next_bursts_have_it() -> None:
    chance, allowance = Random(3), BurstAllowance()
    bursts = on_off(1.0, 100 * MS, 100 * MS, chance)
    feed(allowance, bursts, 64, chance, 0, 3 * S)
    found = feed(allowance, steady(2.0), 64, chance, 3 * S, 4 * S + 800 * MS)
    assert found[-1] == 400 * MS, "bursts may last as long"
    found = feed(allowance, steady(2.0), 64, chance, 4 * S + 800 * MS, 5 * S + 300 * MS)
    assert found[-1] == 0
    assert feed(allowance, bursts, 64, chance, 5 * S + 300 * MS, 7 * S)[-1] == 400 * MS


def spills(allowance: BurstAllowance) -> bool:
    return allowance.spills


def counts(allowance: BurstAllowance) -> bool:
    return allowance.counts


@pytest.mark.parametrize(("load", "spilled"), [(1.0, False), (1.1, False), (1.5, True), (3, True)])
def test_it_spills_while_more_than_a_fifth_finds_no_room_in_a_long_line(
    load: float, spilled: bool
) -> None:
    chance, allowance = Random(4), BurstAllowance()
    feed(allowance, on_off(load, 50 * MS, 50 * MS, chance), 64, chance, 0, 5 * S)
    assert spills(allowance) is spilled


def test_of_slow_work_all_spans_are_as_many_times_as_long() -> None:
    found = []
    for times in (1, 50):
        allowance = BurstAllowance()
        allowance.fit(times)
        allowance.record_refusal(0, 0)
        for at in range(1, 60):
            allowance.record_arrival(60 * MS * times * (at % 4 == 0), at * 10 * MS * times)
        found.append(allowance.us // times)
    assert found[0] > 100 * MS
    assert found[1] == pytest.approx(found[0], rel=0.001)


def test_what_was_gained_while_work_seemed_quick_is_little_once_it_is_slow() -> None:
    allowance = after_burst(60 * MS)
    allowance.advance(60 * MS)
    before = allowance.gained
    allowance.fit(16)
    assert allowance.gained == pytest.approx(before / 16)
    allowance.fit(1)
    assert allowance.gained == pytest.approx(before)
