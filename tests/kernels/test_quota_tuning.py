from __future__ import annotations

import math
import statistics
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.kernels.quota_tuning import (
    QuotaProposal,
    UsageLevel,
    day_levels,
    fit_level,
    median,
    profile,
    propose,
    sufficing_quota,
)

DAYS = 30
HOURS = 24 * DAYS
Curve = list[int | None]


def hourly(at: int, hour: int, weekday: int = -1) -> bool:
    """Whether hour `at` of a month that began on a Monday is that hour (of that weekday)."""
    return at % 24 == hour and weekday in {-1, at // 24 % 7}


def daily_season() -> Curve:
    return [200 if hourly(at, 20) else 100 for at in range(HOURS)]


def quota(curve: Curve) -> int | None:
    return propose(curve).quota


# Ten months with known answers. The default headroom is 30 per cent.


def test_flat_usage_gets_its_headroom() -> None:
    assert propose([100] * HOURS) == QuotaProposal(
        quota=130,
        reason="The usual peak is 100 on Monday 00:00; with 30% headroom that makes 130.",
        estimate=130,
        seasonal_peak=100,
        spread=1.0,
        growth=1.0,
        headroom_percent=30,
        busiest="Monday 00:00",
        days=30,
        above=0,
    )


def test_a_daily_season_gets_the_headroom_of_its_peak_hour() -> None:
    made = propose(daily_season())
    assert (made.quota, made.busiest, made.above) == (260, "Monday 20:00", 0)


def test_a_weekly_season_is_no_outlier() -> None:
    made = propose([300 if hourly(at, 20, weekday=5) else 100 for at in range(HOURS)])
    assert (made.quota, made.busiest, made.spread) == (390, "Saturday 20:00", 1.0)


def test_a_spike_that_came_once_is_ignored_and_told() -> None:
    curve = daily_season()
    curve[300] = 1_000_000
    made = propose(curve)
    assert (made.quota, made.above) == (260, 1)
    assert "1 of 720 were above it" in made.reason


def test_growth_is_carried_on_modestly() -> None:
    made = propose([1_000 + 10 * (at // 24) for at in range(HOURS)])
    # Day 29 stands at 1290, fourteen days later at 1430: 11 per cent more.
    assert made.seasonal_peak == pytest.approx(1_290, rel=0.005)
    assert made.growth == pytest.approx(1_430 / 1_290, rel=0.005)
    assert made.quota == pytest.approx(1_430 * 1.3, rel=0.005)
    assert "growth adds 11% in 14 days" in made.reason
    assert "falling" not in made.reason


def test_a_step_is_taken_at_its_new_level_and_not_carried_on() -> None:
    made = propose([100 if at < 20 * 24 else 200 for at in range(HOURS)])
    assert (made.quota, made.growth) == (260, 1.0)
    assert "the level stepped from 1.00 to 2.00" in made.reason


def test_gaps_are_left_out() -> None:
    curve = daily_season()
    curve[100:200] = [None] * 100
    made = propose(curve)
    assert (made.quota, made.days) == (260, 25)


def test_a_month_of_zeros_gets_the_floor() -> None:
    made = propose([0] * HOURS, floor=50)
    assert (made.quota, made.estimate, made.busiest) == (50, 0, "")
    assert made.reason == "No usual day of 30 had any usage. Raised to the floor of 50."


@pytest.mark.parametrize("day", [0, 12, 29])
def test_a_day_of_outage_changes_nothing(day: int) -> None:
    curve = daily_season()
    curve[24 * day : 24 * day + 24] = [0] * 24
    assert quota(curve) == 260


def test_noise_is_covered_by_the_spread_of_usual_days() -> None:
    rng = Random(1)
    made = propose([int(100 * rng.uniform(0.8, 1.2)) for _ in range(HOURS)])
    assert made.seasonal_peak == pytest.approx(115, abs=4)
    assert made.seasonal_peak * made.spread == pytest.approx(119, abs=1)  # of 100 to 120
    assert made.quota == pytest.approx(155, abs=2)
    assert made.above == 0
    assert "a usual day's highest is 1.0" in made.reason


# More of the same.


def test_work_that_runs_once_a_day_at_no_fixed_hour_is_seen() -> None:
    curve: Curve = [0] * HOURS
    for day in range(DAYS):
        curve[24 * day + 5 * day % 24] = 500  # never twice at one hour of a weekday
    made = propose(curve)
    assert (made.quota, made.busiest) == (650, "")
    assert made.reason.startswith("Usage keeps no hours; a usual day's highest is 500;")


def test_daily_totals_are_tuned_by_weekday() -> None:
    curve: Curve = [150 if day % 7 == 3 else 100 for day in range(DAYS)]
    made = propose(curve, hourly=False, first_weekday=6)
    assert (made.quota, made.busiest) == (195, "Wednesday")


def test_one_wild_and_one_dead_day_do_not_bend_the_growth_of_daily_totals() -> None:
    curve: Curve = [1_000 + 20 * day for day in range(DAYS)]
    plain = propose(curve, hourly=False)
    curve[12], curve[3] = 10**9, 0
    bent = propose(curve, hourly=False)
    assert plain.quota == pytest.approx((1_580 + 280) * 1.3, rel=0.01)
    assert bent.quota == pytest.approx(plain.quota, rel=0.01)


def test_falling_usage_is_followed_to_today_and_no_further() -> None:
    made = propose([1_000 - 20 * (at // 24) for at in range(HOURS)])
    assert made.seasonal_peak == pytest.approx(420, rel=0.02)
    assert made.growth == 1.0
    assert "usage is falling" in made.reason


def test_wild_growth_is_carried_on_by_a_quarter_at_most() -> None:
    made = propose([100 + 100 * (at // 24) for at in range(HOURS)])
    assert made.growth == 1.25
    assert (
        propose([100 + 100 * (at // 24) for at in range(HOURS)], growth_percent_max=0).growth == 1.0
    )
    assert propose([100 + 100 * (at // 24) for at in range(HOURS)], horizon_days=0).growth == 1.0


@pytest.mark.parametrize(("since", "peak"), [(25, 200), (26, 100)])
def test_a_step_is_believed_when_five_of_the_last_seven_days_show_it(since: int, peak: int) -> None:
    assert propose([100 if at < since * 24 else 200 for at in range(HOURS)]).seasonal_peak == peak


def test_a_step_down_is_taken_too() -> None:
    made = propose([200 if at < 15 * 24 else 100 for at in range(HOURS)])
    assert (made.quota, made.above) == (130, 15 * 24)


def test_two_weeks_are_enough_and_one_spike_in_them_is_ignored() -> None:
    curve: Curve = [100] * (14 * 24)
    curve[50] = 100_000
    assert quota(curve) == 130


# Floor, cap, the present quota, too little data.


def test_a_proposal_is_held_between_floor_and_cap() -> None:
    low, high = propose([100] * HOURS, floor=131), propose([100] * HOURS, cap=129)
    assert (low.quota, high.quota) == (131, 129)
    assert low.reason.endswith("Raised to the floor of 131.")
    assert high.reason.endswith("Held at the cap of 129.")
    assert propose([100] * HOURS, floor=130, cap=130).reason.endswith("makes 130.")


@pytest.mark.parametrize(
    ("current", "proposed"),
    [(118, 130), (119, None), (130, None), (144, None), (145, 130), (0, 130)],
)
def test_a_change_within_the_dead_band_is_not_proposed(current: int, proposed: int | None) -> None:
    made = propose([100] * HOURS, current=current)
    assert (made.quota, made.estimate) == (proposed, 130)
    assert ("no change" in made.reason) == (proposed is None)


def test_the_dead_band_includes_its_edge() -> None:
    assert propose([100] * HOURS, current=100, dead_band_percent=30).quota is None
    assert propose([100] * HOURS, current=100, dead_band_percent=29).quota == 130


def test_usage_that_reached_the_quota_is_told() -> None:
    assert "reached the present quota 30 times" in propose(daily_season(), current=200).reason
    assert "reached" not in propose(daily_season(), current=201).reason


def test_too_few_days_give_no_proposal_and_the_reason() -> None:
    curve: Curve = [100] * (20 * 24)
    for day in range(7):
        curve[24 * day : 24 * day + 7] = [None] * 7
    made = propose(curve)
    assert (made.quota, made.days) == (None, 13)
    assert made.reason == "Only 13 of 20 days have enough data; 14 are needed."
    curve[6] = 100  # 18 hours of a day are enough
    assert quota(curve) == 130


def test_fractions_are_rounded_up_and_rounding_errors_are_not() -> None:
    assert quota([101] * HOURS) == 132  # 131.3
    assert propose([100] * HOURS, headroom_percent=10).quota == 110  # 110.00000000000001 in floats
    assert propose([1] * HOURS, headroom_percent=0).quota == 1


def test_counts_near_two_to_the_53_keep_their_size() -> None:
    most = 1 << 53
    assert propose([most] * HOURS, headroom_percent=0).quota == most
    with pytest.raises(ValueError, match=r"usage\[5\]"):
        propose([0] * 5 + [most + 1] + [0] * 18)


@pytest.mark.parametrize("curve", [[], [1] * 23, [1] * 25, [1] * (24 * 93)])
def test_usage_that_is_not_of_whole_days_within_the_bound_is_refused(curve: Curve) -> None:
    with pytest.raises(ValueError, match="usage must be of 1 to 92 whole days"):
        propose(curve)


def test_from_one_day_to_the_bound_are_read() -> None:
    assert propose([1] * 24).reason == "Only 1 of 1 days have enough data; 14 are needed."
    assert propose([1] * (24 * 92)).days == 92


def test_a_negative_usage_is_refused_with_its_place() -> None:
    with pytest.raises(ValueError, match=r"usage\[700\] must be from 0"):
        propose([*[1] * 700, -1, *[1] * 19])


def test_settings_at_the_ends_of_their_ranges_are_allowed() -> None:
    made = propose(
        [1] * HOURS,
        current=0,
        floor=0,
        cap=0,
        dead_band_percent=0,
        headroom_percent=0,
        days_min=7,
        growth_percent_max=0,
        horizon_days=0,
    )
    assert made.quota is None  # 0 is within 0% of 0
    most = propose([1] * HOURS, headroom_percent=1_000, growth_percent_max=1_000, days_max=400)
    assert most.quota == 11
    assert propose([1] * HOURS, current=1, dead_band_percent=1_000).quota is None


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"first_weekday": 7}, "first_weekday"),
        ({"floor": -1}, "floor"),
        ({"cap": 0}, "cap"),
        ({"current": -1}, "current"),
        ({"headroom_percent": -1}, "headroom_percent"),
        ({"headroom_percent": 1_001}, "headroom_percent"),
        ({"dead_band_percent": -1}, "dead_band_percent"),
        ({"dead_band_percent": 1_001}, "dead_band_percent"),
        ({"growth_percent_max": 1_001}, "growth_percent_max"),
        ({"days_min": 6}, "days_min"),
        ({"days_min": 93}, "days_min"),
        ({"days_max": 6}, "days_max"),
        ({"days_max": 401}, "days_max"),
        ({"horizon_days": -1}, "horizon_days"),
        ({"growth_percent_max": -1}, "growth_percent_max"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(fields: dict[str, int], wrong: str) -> None:
    with pytest.raises(ValueError, match=rf"^{wrong} must be"):
        propose([1] * HOURS, **fields)  # type: ignore[arg-type]


# The parts.


def test_the_median_of_two_is_the_lower() -> None:
    assert median([]) == 0.0
    assert median([9.0, 1.0]) == 1.0
    assert median([9.0, 1.0, 2.0]) == 2.0
    assert median([9.0, 1.0, 2.0, 4.0]) == 3.0


def test_a_level_never_falls_to_nothing() -> None:
    assert UsageLevel("slope", 1.0, -0.1, 0, 0.0).at(50) == 0.05
    assert UsageLevel("step", 1.0, 0.0, 10, 0.0).at(10) == 0.05
    assert UsageLevel("step", 1.0, 0.0, 10, 0.0).at(9) == 1.0


def test_without_a_known_day_the_level_is_flat() -> None:
    assert fit_level([None] * 30) == fit_level([]) == UsageLevel("flat", 1.0, 0.0, 0, 1.0)


def test_a_small_lean_stays_flat() -> None:
    rng = Random(3)
    for _ in range(100):
        levels = [1.0 + rng.uniform(-0.1, 0.1) + 0.001 * day for day in range(DAYS)]
        assert fit_level(levels).kind == "flat"


@given(st.floats(0.5, 2.0), st.floats(0.01, 0.1), st.integers(0, 29))
def test_a_slope_is_found_with_any_one_day_wild(base: float, slope: float, wild: int) -> None:
    levels: list[float | None] = [base + slope * day for day in range(DAYS)]
    levels[wild] = 1e6
    fit = fit_level(levels)
    assert fit.kind == "slope"
    assert fit.slope == pytest.approx(slope, rel=0.01)
    assert fit.at(29) == pytest.approx(base + slope * 29, rel=0.01)


@given(st.floats(0.1, 1.0), st.floats(1.5, 3.0), st.integers(8, 22), st.integers(0, 29))
def test_a_step_is_found_with_any_one_day_wild(
    before: float, after: float, cut: int, wild: int
) -> None:
    levels: list[float | None] = [before if day < cut else after for day in range(DAYS)]
    levels[wild] = None
    fit = fit_level(levels)
    assert (fit.kind, fit.base, fit.after) == ("step", before, after)
    assert fit.at(cut) == after or wild == cut


@settings(max_examples=50, deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(0, 1_000)), min_size=14 * 24, max_size=14 * 24))
def test_the_profile_is_the_median_of_each_hour_of_the_week(curve: Curve) -> None:
    days = [
        [None if value is None else float(value) for value in curve[at : at + 24]]
        for at in range(0, len(curve), 24)
    ]
    shape = profile(days)
    assert len(shape) == 7 * 24
    for place in range(7 * 24):
        pair = [value for value in (curve[place], curve[place + 7 * 24]) if value is not None]
        assert shape[place] == min(pair, default=0)
    levels = day_levels(days, [100.0] * (7 * 24))
    for day, level in zip(days, levels, strict=True):
        values = [value / 100 for value in day if value is not None]
        assert level == (median(values) if values else None)


def test_hours_that_hardly_matter_do_not_say_how_a_day_stands() -> None:
    shape = [1.0] * 20 + [100.0, 100.0, 100.0, 10.0]
    day: list[float | None] = [*([50.0] * 20), 100.0, 100.0, 50.0, 0.0]
    assert day_levels([day], shape * 7) == [1.0]


def test_a_day_is_measured_by_its_own_weekday() -> None:
    shape = [float(100 + 10 * place) for place in range(7 * 24)]
    days: list[list[float | None]] = [
        [value * (1.0 + day) for value in shape[24 * (day % 7) : 24 * (day % 7) + 24]]
        for day in range(10)
    ]
    assert day_levels(days, shape) == [pytest.approx(1.0 + day) for day in range(10)]


# Properties of the whole.

noisy = st.integers(0, 1_000_000).map(
    lambda seed: [
        int(1_000 * Random(seed * 720 + at).uniform(0.7, 1.3)) + 400 * hourly(at, seed % 24)
        for at in range(HOURS)
    ]
)
few = settings(max_examples=25, deadline=None)


@few
@given(noisy)
def test_without_growth_it_is_the_highest_weekdays_usual_highest_with_headroom(
    curve: list[int],
) -> None:
    """The oracle, for a month that is flat: three lines of a statistics library."""
    highest = [max(curve[24 * day : 24 * day + 24]) for day in range(DAYS)]
    usual = max(statistics.median(highest[weekday::7]) for weekday in range(7))
    usage: list[float | None] = [*map(float, curve)]
    days = [usage[at : at + 24] for at in range(0, HOURS, 24)]
    assert fit_level(day_levels(days, profile(days))).kind == "flat"
    assert propose([*curve]).quota == math.ceil(usual * 1.3 - 1e-6)


@few
@given(noisy, st.integers(0, HOURS - 1), st.integers(0, 10**9))
def test_one_wild_hour_cannot_lift_it_above_what_other_days_had(
    curve: list[int], at: int, wild: int
) -> None:
    others = [max(curve[24 * day : 24 * day + 24]) for day in range(DAYS) if day != at // 24]
    curve[at] = wild
    made = propose([*curve])
    assert made.growth == 1.0
    assert min(others) * 1.3 <= made.estimate <= max(others) * 1.3 + 1


@few
@given(noisy, st.integers(2, 1_000))
def test_usage_times_a_number_gives_the_quota_times_it(curve: list[int], times: int) -> None:
    one, many = propose([*curve]), propose([value * times for value in curve])
    assert abs(many.estimate - one.estimate * times) <= times + 1
    assert many.busiest == one.busiest


@few
@given(noisy, st.integers(1, 5_000), st.integers(0, 5_000), st.integers(1, 5_000))
def test_nothing_is_proposed_outside_floor_and_cap_or_inside_the_dead_band(
    curve: list[int], floor: int, room: int, current: int
) -> None:
    made = propose([*curve], floor=floor, cap=floor + room, current=current, dead_band_percent=20)
    if made.quota is None:
        target = min(max(made.estimate, floor), floor + room)
        assert 5 * abs(target - current) <= current
    else:
        assert floor <= made.quota <= floor + room
        assert 5 * abs(made.quota - current) > current


@pytest.mark.parametrize(
    ("asked_peak", "current", "quota"),
    [(640.0, 100, 832), (100.5, 100, 131), (100.0, 100, None), (0.0, 100, None), (10.0, 0, 13)],
)
def test_what_would_have_done_for_a_while_is_its_peak_and_headroom_and_never_less_than_now(
    asked_peak: float, current: int, quota: int | None
) -> None:
    assert sufficing_quota(asked_peak, current) == quota
