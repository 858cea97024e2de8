"""What accounts use up in hours and months, over nodes and masters that come and go."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.reasons import (
    CHANNELS_FULL,
    CONNECTIONS_FULL,
    HOURLY_LIMIT,
    MONTHLY_LIMIT,
    Reason,
)
from sluicegate.contracts.usage import PeriodCount, UsageCount, UsageReport
from sluicegate.policies.quota.periods import HOUR_US, hour_end_us, hour_of, month_end_us, month_of
from sluicegate.policies.quota.usage import (
    UsageMeter,
    UsagePlan,
    UsageSettings,
    hour_of_month,
)
from sluicegate.policies.quota.usage_master import UsageMaster

S = 1_000_000
NOW_US = int(datetime(2030, 1, 31, 22, 30, tzinfo=UTC).timestamp()) * S


def meter_of(plan: UsagePlan, node: str = "n", boot: int = 1) -> UsageMeter:
    return UsageMeter(node, boot, lambda _: plan)


def exchange(meter: UsageMeter, master: UsageMaster, now_us: int) -> None:
    for report in meter.report(now_us, lambda _: master.name).values():
        meter.receive(master.receive(report, now_us))


def reason_of(meter: UsageMeter, now_us: int) -> Reason | None:
    refusal = meter.refusal("a", now_us)
    return None if refusal is None else refusal.reason


def used(meter: UsageMeter, now_us: int, period: str = "month") -> int:
    view = meter.view("a", now_us)[period]
    assert isinstance(view, dict)
    return int(view["used"])


def test_a_period_ends_when_the_next_one_begins() -> None:
    for now_us in (NOW_US, NOW_US + HOUR_US, NOW_US + 2 * HOUR_US, NOW_US - 700 * HOUR_US):
        for of, end in ((hour_of, hour_end_us), (month_of, month_end_us)):
            assert of(end(of(now_us)) - 1) == of(now_us)
            assert of(end(of(now_us))) == of(now_us) + 1


@given(st.datetimes(datetime(1970, 1, 1), datetime(2500, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_months_are_those_of_the_calendar(day: datetime) -> None:
    now_us = int(day.timestamp()) * S
    first = day.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    assert month_end_us(month_of(now_us) - 1) == int(first.timestamp()) * S
    assert month_of(now_us) % 12 == (day.month + 9) % 12


def test_a_hundred_million_a_month_are_restricted_at_three_and_a_half_million_an_hour() -> None:
    """The source's example: ten times the month in proportion, and two and a half times that."""
    plan = hour_of_month(UsagePlan(month=100_000_000), 10)
    meter = meter_of(plan)
    meter.spend("a", 3_472_222, NOW_US, NOW_US)
    assert reason_of(meter, NOW_US) is None
    meter.spend("a", 1, NOW_US, NOW_US)
    assert reason_of(meter, NOW_US) is HOURLY_LIMIT
    assert hour_of_month(UsagePlan(hour=7, month=720), 10).hour == 7
    assert hour_of_month(UsagePlan(month=720), 0).hour == 0


def test_an_account_is_warned_long_before_it_is_restricted_and_free_in_the_next_hour() -> None:
    meter = meter_of(UsagePlan(hour=100))
    warned_at = []
    for count in range(1, 251):
        assert reason_of(meter, NOW_US) is None
        meter.spend("a", 1, NOW_US, NOW_US)
        if meter.warnings("a", NOW_US):
            warned_at.append(count)
    assert warned_at == list(range(80, 251))
    (warning,) = meter.warnings("a", NOW_US)
    assert warning == ("hour", 250, 100, 250)
    refusal = meter.refusal("a", NOW_US)
    assert refusal is not None
    assert refusal.retry_after_us == hour_end_us(hour_of(NOW_US)) - NOW_US
    assert reason_of(meter, NOW_US + refusal.retry_after_us) is None
    assert meter.warnings("a", NOW_US + refusal.retry_after_us) == []


def test_a_month_goes_on_over_the_hour_and_ends_with_the_month() -> None:
    meter = meter_of(UsagePlan(month=100))
    meter.spend("a", 200, NOW_US, NOW_US)
    meter.spend("a", 50, NOW_US + HOUR_US, NOW_US + HOUR_US)
    assert reason_of(meter, NOW_US + HOUR_US) is MONTHLY_LIMIT
    assert reason_of(meter, NOW_US + 2 * HOUR_US) is None
    assert used(meter, NOW_US + 2 * HOUR_US) == 0


def test_what_was_accepted_in_the_last_hour_is_none_of_this_one() -> None:
    meter = meter_of(UsagePlan(hour=100, month=1_000))
    meter.spend("a", 30, NOW_US, NOW_US + HOUR_US)
    assert used(meter, NOW_US + HOUR_US, "hour") == 0
    assert used(meter, NOW_US + HOUR_US) == 30


def test_each_node_knows_what_all_have_used() -> None:
    master = UsageMaster("m")
    meters = [meter_of(UsagePlan(hour=100), name) for name in "xyz"]
    for meter in meters:
        meter.spend("a", 84, NOW_US, NOW_US)
        exchange(meter, master, NOW_US)
    for meter in meters:
        meter.refresh()
        exchange(meter, master, NOW_US)
        assert used(meter, NOW_US, "hour") == 252
        assert reason_of(meter, NOW_US) is HOURLY_LIMIT


def test_connections_and_channels_count_over_all_nodes_and_not_those_of_a_silent_one() -> None:
    master = UsageMaster("m")
    here, there = (meter_of(UsagePlan(connections=3, channels=2), name) for name in "xy")
    for _ in range(2):
        there.connect("a", NOW_US)
    there.count_channels("a", 1, NOW_US)
    here.connect("a", NOW_US)
    exchange(there, master, NOW_US)
    exchange(here, master, NOW_US)
    refusal = here.connect_refusal("a", NOW_US)
    assert refusal is not None
    assert refusal.reason is CONNECTIONS_FULL
    assert here.open_refusal("a") is None
    here.count_channels("a", 1, NOW_US)
    refusal = here.open_refusal("a")
    assert refusal is not None
    assert refusal.reason is CHANNELS_FULL
    later_us = NOW_US + 31 * S
    exchange(here, master, later_us)
    assert here.connect_refusal("a", later_us) is None
    assert here.open_refusal("a") is None


def test_who_is_refused_hears_with_the_next_report_that_one_has_ended_elsewhere() -> None:
    master = UsageMaster("m")
    here, there = (meter_of(UsagePlan(connections=2, channels=1), name) for name in "xy")
    there.connect("a", NOW_US)
    there.count_channels("a", 1, NOW_US)
    exchange(there, master, NOW_US)
    here.connect("a", NOW_US)
    exchange(here, master, NOW_US)
    there.disconnect("a")
    there.count_channels("a", -1, NOW_US)
    exchange(there, master, NOW_US)
    soon_us = NOW_US + S  # before anything is reported by itself again
    assert here.connect_refusal("a", soon_us) is not None
    exchange(here, master, soon_us)
    assert here.connect_refusal("a", soon_us) is None
    assert here.open_refusal("a") is None


def test_a_dead_node_holds_nothing() -> None:
    master = UsageMaster("m")
    here, there = (meter_of(UsagePlan(connections=1), name) for name in "xy")
    there.connect("a", NOW_US)
    exchange(there, master, NOW_US)
    here.connect_refusal("a", NOW_US)
    here.spend("a", 1, NOW_US, NOW_US)
    exchange(here, master, NOW_US)
    assert here.connect_refusal("a", NOW_US) is not None
    master.forget_node("y")
    here.spend("a", 1, NOW_US, NOW_US)
    exchange(here, master, NOW_US)
    assert here.connect_refusal("a", NOW_US) is None
    here.disconnect("a")  # none that was counted
    assert here.connect_refusal("a", NOW_US) is None


def test_a_new_master_goes_on_with_what_a_dead_node_had_used() -> None:
    old, new = UsageMaster("old"), UsageMaster("new")
    alive, dead = (meter_of(UsagePlan(hour=100), name) for name in "xy")
    dead.spend("a", 70, NOW_US, NOW_US)
    exchange(dead, old, NOW_US)
    alive.spend("a", 30, NOW_US, NOW_US)
    exchange(alive, old, NOW_US)
    alive.spend("a", 5, NOW_US, NOW_US)
    exchange(alive, new, NOW_US)
    assert used(alive, NOW_US) == 105
    fresh = meter_of(UsagePlan(hour=100), "z")  # what it uses was in no sum
    fresh.spend("a", 10, NOW_US, NOW_US)
    exchange(fresh, new, NOW_US)
    assert used(fresh, NOW_US) == 115
    dead.spend("a", 1, NOW_US, NOW_US)  # it is back, with what its disk kept
    exchange(dead, new, NOW_US)
    assert used(dead, NOW_US) == 116


def test_a_node_that_has_lost_its_disk_does_not_give_back_what_was_used() -> None:
    master = UsageMaster("m")
    meter = meter_of(UsagePlan(hour=100))
    meter.spend("a", 70, NOW_US, NOW_US)
    exchange(meter, master, NOW_US)
    again = meter_of(UsagePlan(hour=100), boot=2)
    again.spend("a", 3, NOW_US, NOW_US)
    exchange(again, master, NOW_US)
    assert used(again, NOW_US) == 73


def test_what_was_kept_is_gone_on_with_in_its_own_period_alone() -> None:
    meter = meter_of(UsagePlan(hour=100))
    meter.spend("a", 70, NOW_US, NOW_US)
    saved = meter.unsaved()
    assert meter.unsaved() == []
    meter.keep_unsaved(saved)
    assert meter.unsaved() == saved
    for later_us, hour, month in ((0, 70, 70), (HOUR_US, 0, 70), (2 * HOUR_US, 0, 0)):
        again = meter_of(UsagePlan(hour=100), boot=2)
        again.load(saved, NOW_US + later_us)
        assert used(again, NOW_US + later_us, "hour") == hour
        assert used(again, NOW_US + later_us) == month


def test_late_and_doubled_reports_and_those_of_an_earlier_start_change_nothing() -> None:
    master = UsageMaster("m")
    meter = meter_of(UsagePlan(hour=100), boot=5)
    meter.spend("a", 10, NOW_US, NOW_US)
    first = meter.report(NOW_US, lambda _: "m")["m"]
    meter.fail(first)
    meter.spend("a", 10, NOW_US, NOW_US)
    second = meter.report(NOW_US, lambda _: "m")["m"]
    for report in (second, first, second, first):
        (total,) = master.receive(report, NOW_US).totals
        assert total.hour_used == 20
    assert master.receive(second._replace(boot=4), NOW_US).totals == ()


def test_a_clock_that_is_hours_off_counts_nowhere_and_takes_nothing_away() -> None:
    master = UsageMaster("m")
    meter = meter_of(UsagePlan(hour=100))
    meter.spend("a", 10, NOW_US, NOW_US)
    exchange(meter, master, NOW_US)
    ahead = PeriodCount(hour_of(NOW_US) + 5, 9_999, 0, 9_999)
    month = PeriodCount(month_of(NOW_US), 1, 0, 0)
    (total,) = master.receive(
        UsageReport("skewed", 1, (UsageCount("a", ahead, month, 0, 0),)), NOW_US
    ).totals
    assert (total.hour_used, total.month_used) == (0, 11)
    meter.refresh()
    exchange(meter, master, NOW_US)
    assert used(meter, NOW_US, "hour") == 10


def test_accounts_are_bounded_and_idle_ones_forgotten() -> None:
    settings = UsageSettings(accounts_max=2, report_accounts_max=1)
    meter = UsageMeter("n", 1, lambda _: UsagePlan(hour=1), settings)
    for account in "abc":
        meter.spend(account, 1, NOW_US, NOW_US)
    assert meter.untracked == 1
    first, second = (meter.report(NOW_US, lambda _: "m")["m"] for _ in range(2))
    assert [one.account for one in (*first.counts, *second.counts)] == ["a", "b"]
    assert meter.report(NOW_US, lambda _: "m") == {}
    meter.unsaved()
    next_month_us = NOW_US + 3 * HOUR_US
    meter.report(next_month_us, lambda _: "m")
    meter.spend("c", 1, next_month_us, next_month_us)
    assert meter.untracked == 1
    master = UsageMaster("m", settings)
    for account in "abc":
        count = UsageCount(account, *second.counts[0][1:])
        master.receive(UsageReport("n", 1, (count,)), NOW_US)
    assert master.untracked == 1


def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(BadValue, match=r"usage\.restrict_percent"):
        UsageSettings(restrict_percent=0)


@given(st.integers(0, 1 << 32), st.sampled_from([0.0, 0.3]))
def test_the_sum_is_what_was_used_whatever_happens_on_the_way(  # noqa: PLR0912, a table of events
    seed: int, lost: float
) -> None:
    """Reports and replies are lost, doubled and late; masters change and nodes start again.

    With replies that are lost a new master may count an interval twice, and never one less.
    """
    rng = random.Random(seed)
    masters = [UsageMaster("m0"), UsageMaster("m1")]
    meters = {name: meter_of(UsagePlan(hour=1), name) for name in "xyz"}
    late: list[UsageReport] = []
    at, truth, boots = 0, 0, Counter[str]()

    def settle() -> None:
        for _ in range(2):
            for meter in meters.values():
                meter.spend("a", 0, NOW_US, NOW_US)
                exchange(meter, masters[at], NOW_US)

    for _ in range(rng.randrange(1, 40)):
        name = rng.choice("xyz")
        meter = meters[name]
        match rng.randrange(8):
            case 0 | 1 | 2:
                cost = rng.randrange(1, 100)
                truth += cost
                meter.spend("a", cost, NOW_US, NOW_US)
            case 3 | 4 | 5:
                for report in meter.report(NOW_US, lambda _: "m").values():
                    late.append(report)
                    if rng.random() < lost:
                        meter.fail(report)
                        continue
                    answer = masters[at].receive(report, NOW_US)
                    if rng.random() < lost:
                        meter.fail(report)
                    else:
                        meter.receive(answer)
            case 6:
                if late:
                    masters[at].receive(rng.choice(late), NOW_US)
            case _:
                if rng.random() < 0.5:
                    at = 1 - at
                    masters[at] = UsageMaster(f"m{at}")
                    late.clear()  # what was said to the old one
                else:  # a start again, with what the disk has
                    boots[name] += 1
                    again = meter_of(UsagePlan(hour=1), name, boot=1 + boots[name])
                    meter.spend("a", 0, NOW_US, NOW_US)
                    again.load(meter.unsaved(), NOW_US)
                    meters[name] = again
    settle()
    for meter in meters.values():
        assert used(meter, NOW_US) >= truth
        if not lost:
            assert used(meter, NOW_US) == truth
