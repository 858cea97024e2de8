"""Months of thirty days with known answers, from usage files to the proposed quota.

The answers are worked out here by hand: what a usual busiest hour asks for, times what is stated
beside it, times 1.3 for the headroom.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.apps.quota.series import RU_MAX, Month, TuneSettings, callers_of
from sluicegate.telemetry.usage_files import DAY_MINUTES, UsageMinute
from tests.apps.quota.months import DAYS, MONDAY, Curve, tuned, write_month

WEEKEND = (5, 6)


def flat(day: int, hour: int) -> int:
    return 100


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A month in which a shop asked for 100 RU a second, always."""
    folder = tmp_path_factory.mktemp("shop")
    write_month(folder, {"shop": flat})
    return folder


def weekly(day: int, hour: int) -> int:
    return 300 if day % 7 == 4 and hour == 18 else 100


def nightly(day: int, hour: int) -> int:
    return 500 if hour == 3 else 0


def growing(day: int, hour: int) -> int:
    return 1_000 + 10 * day


def stepping(day: int, hour: int) -> int:
    return 100 if day < 18 else 250


def falling(day: int, hour: int) -> int:
    return 1_000 - 20 * day


def wild(day: int, hour: int) -> int:
    return 1_000_000 if (day, hour) == (11, 5) else 100


def daily(day: int, hour: int) -> int:
    return 200 if 9 <= hour < 18 else 20


def weekends(day: int, hour: int) -> int:
    return 400 if day % 7 in WEEKEND and 10 <= hour < 20 else 0


def seldom(day: int, hour: int) -> int:
    return 900 if day in {6, 19} and hour == 1 else 0


# The quota that follows, by hand, and by how much of it the answer may be off.
CURVES: dict[str, tuple[Curve, float, float]] = {
    "flat": (flat, 100 * 1.3, 0),
    "weekly": (weekly, 300 * 1.3, 0),  # Fridays at six in the evening, every week
    "nightly": (nightly, 500 * 1.3, 0),
    # Day 29 stands at 1,290, and 14 days later it will be at 1,430.
    "growing": (growing, 1_430 * 1.3, 0.01),
    "stepping": (stepping, 250 * 1.3, 0),  # the new level, not carried on
    "falling": (falling, 420 * 1.3, 0.02),  # where the last day is, and no lower
    "wild": (wild, 100 * 1.3, 0),  # once is an outlier
    "daily": (daily, 200 * 1.3, 0),
    "weekends": (weekends, 400 * 1.3, 0),
}


@pytest.mark.parametrize("name", CURVES)
def test_a_month_with_a_known_answer_gets_it(tmp_path: Path, name: str) -> None:
    curve, answer, off = CURVES[name]
    write_month(tmp_path, {name: curve, "somebody": flat})
    made = tuned(tmp_path)[name].proposal
    assert made.quota == pytest.approx(answer, rel=off, abs=1 if off else 0)
    assert made.days == DAYS


def test_what_the_quota_cut_off_counts_as_asked_for(tmp_path: Path) -> None:
    # 500 RU/s were asked for every noon, of which 200 were admitted: 300 refused, for 60 seconds.
    write_month(tmp_path, {"cut": lambda day, hour: 500 if hour == 12 else 10}, quota=200)
    one = tuned(tmp_path, {"cut": 200})["cut"]
    assert one.proposal.quota == 650
    assert one.refused_ru == DAYS * 300 * 60
    assert "reached the present quota 30 times" in one.proposal.reason


def test_dead_days_and_gaps_change_nothing_but_how_much_is_known(tmp_path: Path) -> None:
    dead = {3, 4, 17}

    def gaps(day: int, hour: int) -> int:
        off = day in dead or (day == 10 and hour < 9)
        return 0 if off else daily(day, hour)

    write_month(tmp_path, {"shop": gaps})
    one = tuned(tmp_path)["shop"]
    assert one.proposal.quota == 260
    # Whole days of silence are unknown; nine hours of it are nine hours of nothing.
    assert one.proposal.days == DAYS - len(dead)
    assert [day for day in range(DAYS) if one.hours[24 * day + 12] is None] == sorted(dead)
    assert one.hours[240:249] == [0] * 9


def test_too_few_days_propose_nothing_and_say_so(tmp_path: Path) -> None:
    write_month(tmp_path, {"new": flat}, first_day=MONDAY + DAYS - 13, days=13)
    one = tuned(tmp_path)["new"]
    assert one.proposal.quota is None
    assert one.proposal.reason == "Only 13 of 30 days have enough data; 14 are needed."
    assert tuned(tmp_path, wishes=TuneSettings(days_min=13))["new"].proposal.quota == 130


def test_who_alone_works_once_a_night_has_whole_days(tmp_path: Path) -> None:
    write_month(tmp_path, {"export": nightly})
    one = tuned(tmp_path)["export"]
    assert one.proposal.quota == 650
    # Before its first hour and after its last nobody can tell whether anybody was there.
    assert one.hours[:3] == [None] * 3
    assert one.hours[-20:] == [None] * 20
    assert one.proposal.days == DAYS - 1


def test_who_alone_works_at_weekends_leaves_too_few_days(tmp_path: Path) -> None:
    write_month(tmp_path, {"games": weekends})
    proposal = tuned(tmp_path)["games"].proposal
    assert (proposal.quota, "days have enough data" in proposal.reason) == (None, True)


def test_who_comes_now_and_then_is_left_alone(tmp_path: Path) -> None:
    write_month(tmp_path, {"audit": seldom, "shop": flat})
    one = tuned(tmp_path, default=1_000)["audit"].proposal
    assert one.quota is None
    assert one.reason == "No usual day of 30 had any usage, so nothing is proposed."


def test_minutes_of_all_nodes_are_added_before_the_busiest_is_taken(tmp_path: Path) -> None:
    month = Month(MONDAY, 1)
    at = MONDAY * DAY_MINUTES
    month.add(
        {
            "shop": {
                at: UsageMinute(6_001, 1),
                at + 59: UsageMinute(5_000, 2),
                at + 60: UsageMinute(60, 0),
            }
        }
    )
    hours = month.hours()["shop"]
    assert hours[:2] == [101, 1]  # 6,001 in a minute are a little more than 100 a second
    assert month.refused_ru == {"shop": 3}
    write_month(tmp_path, {"shop": lambda day, hour: 77})
    assert set(tuned(tmp_path)["shop"].hours) == {77}  # 30 * 77 on either node


def test_what_a_dispatcher_does_for_itself_is_nobodys_quota(tmp_path: Path) -> None:
    write_month(tmp_path, {"(keeper)": flat, "(others)": flat, "shop": nightly})
    (one,) = tuned(tmp_path).values()
    assert one.name == "shop"
    assert None not in one.hours  # but it tells that somebody was there


@pytest.mark.parametrize(("now", "proposed"), [(118, 130), (119, None), (144, None), (145, 130)])
def test_near_the_quota_now_nothing_changes(shop: Path, now: int, proposed: int | None) -> None:
    # A tenth of 119 is 11.9, and 130 is 11 away; a tenth of 118 is 11.8, and 130 is 12 away.
    assert tuned(shop, {"shop": now})["shop"].proposal.quota == proposed
    assert tuned(shop, default=now)["shop"].proposal.quota == proposed


def test_floor_cap_and_headroom_are_kept(shop: Path) -> None:
    def quota(**wishes: int) -> int | None:
        return tuned(shop, wishes=TuneSettings(**wishes))["shop"].proposal.quota

    assert quota(floor=140) == 140
    assert quota(cap=120) == 120
    assert quota(headroom_percent=100) == 200
    assert quota(headroom_percent=0) == 100


def test_a_dead_band_of_nothing_tells_every_change(shop: Path) -> None:
    wishes = TuneSettings(dead_band_percent=0)
    assert tuned(shop, {"shop": 129}, wishes=wishes)["shop"].proposal.quota == 130
    assert tuned(shop, {"shop": 130}, wishes=wishes)["shop"].proposal.quota is None


def test_no_quota_is_proposed_that_no_budget_can_hold(tmp_path: Path) -> None:
    write_month(tmp_path, {"huge": lambda day, hour: RU_MAX})
    assert tuned(tmp_path)["huge"].proposal.quota == RU_MAX


def test_a_named_quota_is_told_from_everybodys(shop: Path) -> None:
    named, common = tuned(shop, {"shop": 50}, 70)["shop"], tuned(shop, {"app": 50}, 70)["shop"]
    assert (named.current, named.named) == (50, True)
    assert (common.current, common.named) == (70, False)
    assert tuned(shop)["shop"].current is None


def test_the_busiest_hour_has_its_weekday(tmp_path: Path) -> None:
    write_month(tmp_path, {"weekly": weekly})
    assert "on Friday 18:00" in tuned(tmp_path)["weekly"].proposal.reason


@settings(max_examples=100, deadline=None)
@given(st.sets(st.integers(0, 24 * 14 - 1), min_size=1))
def test_an_hour_is_known_if_the_silence_around_it_is_shorter_than_a_day(hours: set[int]) -> None:
    month = Month(MONDAY, 14)
    at = MONDAY * DAY_MINUTES
    month.add({"shop": {at + 60 * hour: UsageMinute(60, 0) for hour in hours}})
    for hour, value in enumerate(month.hours()["shop"]):
        before = max((one for one in hours if one <= hour), default=None)
        after = min((one for one in hours if one >= hour), default=None)
        is_known = before is not None and after is not None and after - before <= 24
        assert value == (int(hour in hours) if is_known else None)


def test_all_callers_come_in_the_order_of_their_names() -> None:
    month = Month(MONDAY, 14)
    for name in ("b", "c", "a"):
        month.add({name: {MONDAY * DAY_MINUTES: UsageMinute(1, 0)}})
    assert [one.name for one in callers_of(month, {}, None, TuneSettings())] == ["a", "b", "c"]
