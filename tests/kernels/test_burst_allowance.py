"""Idle time counts as far as refused work would have filled it, and no further."""

from __future__ import annotations

import pytest

from sluicegate.kernels.burst_allowance import BurstAllowance, BurstAllowanceSettings

MS = 1_000
S = 1_000_000
FADE_US = 20 * S
PLACES = 4
EXACT = BurstAllowanceSettings(fade_us=FADE_US, spared_permille=0, times=1)


def test_idle_places_behind_refusals_that_were_still_in_time_make_an_allowance() -> None:
    allowance = BurstAllowance(EXACT)
    allowance.record_refusal(80 * MS, late_us=100 * MS, now_us=0)
    allowance.record(idle=0, places=PLACES, now_us=10 * MS)
    assert allowance.us == 0
    allowance.record(idle=2, places=PLACES, now_us=20 * MS)
    assert allowance.us == 2 * 10 * MS // PLACES


def test_no_more_is_lost_than_was_refused() -> None:
    allowance = BurstAllowance(EXACT)
    allowance.record_refusal(8 * MS, late_us=100 * MS, now_us=0)
    allowance.record(idle=PLACES, places=PLACES, now_us=50 * MS)
    assert allowance.us == 8 * MS // PLACES
    allowance.record(idle=PLACES, places=PLACES, now_us=60 * MS)
    assert allowance.us <= 8 * MS // PLACES


def test_what_would_have_been_too_late_is_not_missed() -> None:
    allowance = BurstAllowance(EXACT)
    allowance.record_refusal(1 * S, late_us=10 * MS, now_us=0)
    allowance.record(idle=0, places=PLACES, now_us=5 * MS)
    allowance.record(idle=PLACES, places=PLACES, now_us=1 * S)  # 5 ms of it counts
    assert 4_700 <= allowance.us <= 5 * MS
    allowance.record(idle=PLACES, places=PLACES, now_us=2 * S)
    assert allowance.us <= 5 * MS
    late = BurstAllowance(EXACT)
    late.record_refusal(1 * S, late_us=0, now_us=0)
    assert not late.counts


def test_a_place_that_is_idle_beside_three_at_work_is_no_pause() -> None:
    allowance = BurstAllowance(EXACT)
    allowance.record_refusal(1 * S, late_us=1 * S, now_us=0)
    allowance.record(idle=1, places=PLACES, now_us=100 * MS)
    assert allowance.us == 0
    allowance.record(idle=2, places=PLACES, now_us=110 * MS)
    assert allowance.us == 2 * 10 * MS // PLACES


def test_a_refusal_long_ago_is_not_counted_with_the_next() -> None:
    allowance = BurstAllowance(EXACT)
    allowance.record_refusal(1 * S, late_us=10 * MS, now_us=0)
    allowance.record(idle=1, places=PLACES, now_us=8 * MS)
    before_us = allowance.us
    allowance.record_refusal(4 * MS, late_us=40 * MS, now_us=20 * MS)
    allowance.record(idle=PLACES, places=PLACES, now_us=20 * MS)
    allowance.record(idle=PLACES, places=PLACES, now_us=40 * MS)
    assert before_us <= allowance.us <= before_us + 4 * MS // PLACES + 10 * MS


def test_what_is_spared_makes_no_allowance_and_the_most_is_the_most() -> None:
    settings = BurstAllowanceSettings(
        fade_us=FADE_US, spared_permille=5, times=1, allowance_us_max=50 * MS
    )
    allowance = BurstAllowance(settings)
    spared_us = FADE_US * 5 // 1_000
    allowance.record_refusal(100 * S, late_us=100 * S, now_us=0)
    allowance.record(idle=1, places=1, now_us=spared_us)
    assert allowance.us == 0
    allowance.record(idle=1, places=1, now_us=spared_us + 20 * MS)
    assert 19 * MS <= allowance.us <= 20 * MS
    allowance.record(idle=1, places=1, now_us=10 * S)
    assert allowance.us == 50 * MS


def test_it_fades_and_an_hour_of_silence_leaves_nothing() -> None:
    allowance = BurstAllowance(EXACT)
    allowance.record_refusal(100 * MS, late_us=1 * S, now_us=0)
    allowance.record(idle=1, places=1, now_us=100 * MS)
    full_us = allowance.us
    allowance.record(idle=1, places=1, now_us=100 * MS + FADE_US // 2)
    assert allowance.us == pytest.approx(full_us / 2, rel=0.01)
    allowance.record(idle=1, places=1, now_us=3_600 * S)
    assert allowance.us == 0
    assert not allowance.counts


def test_a_clock_that_goes_back_counts_for_nothing() -> None:
    allowance = BurstAllowance(EXACT)
    allowance.record_refusal(1 * S, late_us=20 * S, now_us=10 * S)
    allowance.record(idle=PLACES, places=PLACES, now_us=1 * S)
    assert allowance.us == 0
    allowance.record(idle=PLACES, places=PLACES, now_us=1 * S + 5 * MS)
    assert allowance.us == 5 * MS


def test_little_that_is_still_lost_holds_up_a_long_line() -> None:
    allowance = BurstAllowance(BurstAllowanceSettings(fade_us=FADE_US, spared_permille=0, times=8))
    allowance.record_refusal(1 * S, late_us=1 * S, now_us=0)
    allowance.record(idle=PLACES, places=PLACES, now_us=20 * MS)
    assert allowance.us == 8 * 20 * MS
    allowance.record(idle=PLACES, places=PLACES, now_us=100 * MS)
    assert allowance.us == 400 * MS


def test_a_unit_that_came_and_was_refused_before_the_line_makes_idle_time_no_pause() -> None:
    allowance = BurstAllowance(EXACT)
    allowance.record_refusal(80 * MS, late_us=100 * MS, now_us=0)
    allowance.record_missed()
    allowance.record(idle=PLACES, places=PLACES, now_us=10 * MS)
    assert allowance.us == 0


def spills(allowance: BurstAllowance) -> bool:
    return allowance.spills


def pauses(allowance: BurstAllowance) -> bool:
    return allowance.pauses


def test_it_spills_while_more_than_a_part_of_the_work_is_not_done() -> None:
    allowance = BurstAllowance(EXACT)
    allowance.record_late(100 * MS)  # nothing is counted before the first refusal
    allowance.record_refusal(10 * MS, late_us=1 * S, now_us=0)
    allowance.record(idle=0, places=PLACES, now_us=20 * MS)  # 80 ms of work done, 10 not
    assert not spills(allowance)
    allowance.record_late(20 * MS)
    allowance.record(idle=0, places=PLACES, now_us=21 * MS)
    assert spills(allowance)
    allowance.record(idle=0, places=PLACES, now_us=100 * MS)
    assert not spills(allowance)


def test_none_is_none() -> None:
    allowance = BurstAllowance(BurstAllowanceSettings(allowance_us_max=0))
    allowance.record_refusal(1 * S, late_us=20 * S, now_us=0)
    assert not allowance.counts


def test_a_setting_out_of_its_range_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="spared_permille must be from 0 to 1000"):
        BurstAllowanceSettings(spared_permille=1_001)


def trained(allowance_us_max: int = 400 * MS) -> BurstAllowance:
    """As long as it gets, and no pause is over yet."""
    allowance = BurstAllowance(BurstAllowanceSettings(allowance_us_max=allowance_us_max))
    allowance.record_refusal(10 * S, late_us=10 * S, now_us=0)
    allowance.record(idle=PLACES, places=PLACES, now_us=5 * S)
    allowance.record_refusal(10 * MS, late_us=30 * S, now_us=5 * S)
    assert allowance.us == allowance_us_max
    return allowance


def overload(allowance: BurstAllowance, begin_us: int, end_us: int) -> None:
    for now_us in range(begin_us, end_us, 5 * MS):
        allowance.record(idle=0, places=PLACES, now_us=now_us + 5 * MS)


def test_an_overload_without_a_pause_ends_the_allowance_and_the_first_pause_restores_it() -> None:
    allowance = trained()
    overload(allowance, 5 * S, 7 * S)
    assert pauses(allowance), "there was one within two seconds"
    assert allowance.us > 300 * MS
    overload(allowance, 7 * S, 9 * S)
    assert not pauses(allowance)
    assert allowance.us < 10 * MS
    allowance.record(idle=PLACES, places=PLACES, now_us=9 * S + 9 * MS)
    assert pauses(allowance)
    assert allowance.us > 250 * MS


def test_chance_that_leaves_a_place_idle_for_a_moment_is_no_pause() -> None:
    allowance = trained()
    for turn in range(40):
        begin_us = 5 * S + turn * 100 * MS
        overload(allowance, begin_us, begin_us + 95 * MS)
        allowance.record(idle=0, places=PLACES, now_us=begin_us + 99 * MS)
        allowance.record(idle=1, places=PLACES, now_us=begin_us + 100 * MS)
    assert not pauses(allowance)
    assert allowance.us < 10 * MS


def test_where_work_takes_longer_than_any_allowance_a_pause_is_seen_all_the_same() -> None:
    allowance = trained()
    allowance.record_refusal(10 * S, late_us=60 * S, now_us=5 * S)
    overload(allowance, 5 * S, 9 * S)
    assert not pauses(allowance)
    allowance.record(idle=PLACES, places=PLACES, now_us=9 * S + 60 * MS)
    assert pauses(allowance)


def test_without_an_allowance_there_is_nothing_to_record() -> None:
    allowance = BurstAllowance(BurstAllowanceSettings(allowance_us_max=0))
    allowance.record_refusal(1 * S, late_us=1 * S, now_us=0)
    allowance.record(idle=PLACES, places=PLACES, now_us=1 * S)
    assert (allowance.us, allowance.counts) == (0, False)


def test_of_slow_work_all_spans_are_as_many_times_as_long() -> None:
    found = []
    for times in (1, 50):
        allowance = BurstAllowance(BurstAllowanceSettings())
        allowance.fit(times)
        allowance.record_refusal(100 * S * times, late_us=100 * S * times, now_us=0)
        for at in range(1, 60):
            allowance.record(idle=at % 2 * 2, places=PLACES, now_us=at * 10 * MS * times)
        found.append(allowance.us // times)
    assert found[0] > 100 * MS
    assert found[1] == pytest.approx(found[0], rel=0.001)
