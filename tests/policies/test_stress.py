"""How the service is doing, as one picture; and when each signal counts."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Measured, Request
from sluicegate.policies.stress import (
    OTHERS,
    Stress,
    StressLevel,
    StressSettings,
    StressStats,
    _WindowMean,
)

S = 1_000_000
MS = 1_000
NOW = 1_000 * S
CALM, STRESSED, HARD = StressLevel


def worked(
    stress: Stress, service_us: int, *, begin_us: int, s: int, operation: str = "get"
) -> int:
    """A hundred pieces of work a second for so many seconds; where that ends."""
    for step in range(s * 100):
        stress.record_work(operation, service_us, begin_us + step * 10 * MS)
    return begin_us + s * S


def test_nothing_told_is_calm() -> None:
    picture = Stress().read(NOW)
    assert picture == (NOW, CALM, (), False, False, 0.0, 1.0, "", None, None, None)


def test_slow_work_is_seen_and_named_and_clears() -> None:
    stress = Stress()
    now_us = worked(stress, 10 * MS, begin_us=NOW, s=90)
    assert stress.read(now_us).level is CALM
    now_us = worked(stress, 20 * MS, begin_us=now_us, s=6)
    picture = stress.read(now_us)
    assert picture.level is STRESSED
    assert picture.slowest == "get"
    assert picture.ratio == pytest.approx(0.5, rel=0.03)
    assert (picture.slow, picture.crowded) == (True, False)
    assert picture.why == ("get is 2.0 times as slow as usual",)
    # Between leave (0.85) and enter (0.6) nothing changes.
    now_us = worked(stress, 14 * MS, begin_us=now_us, s=6)
    assert stress.read(now_us).slow
    now_us = worked(stress, 10 * MS, begin_us=now_us, s=6)
    assert stress.read(now_us).level is CALM
    now_us = worked(stress, 14 * MS, begin_us=now_us, s=6)
    assert not stress.read(now_us).slow
    assert stress.stats().times_stressed == 1


def test_very_slow_work_is_hard_overload() -> None:
    stress = Stress()
    now_us = worked(stress, 10 * MS, begin_us=NOW, s=90)
    now_us = worked(stress, 40 * MS, begin_us=now_us, s=6)
    assert stress.read(now_us).level is HARD


def test_stress_does_not_heal_while_work_is_slow_and_the_seeds_form_does() -> None:
    levels = {}
    for form, enter in (("frozen", 0.6), ("p2", 0.3)):
        stress = Stress(StressSettings(ratio=form, ratio_enter=enter))
        now_us = worked(stress, 10 * MS, begin_us=NOW, s=700)
        now_us = worked(stress, 40 * MS, begin_us=now_us, s=12)
        assert stress.read(now_us).slow, form
        now_us = worked(stress, 40 * MS, begin_us=now_us, s=1_200)
        levels[form] = stress.read(now_us).level
    assert levels == {"frozen": STRESSED, "p2": CALM}


def test_a_change_of_the_mix_is_not_a_slow_down() -> None:
    chance = random.Random(3)
    stress = Stress()
    for step in range(120_000):
        now_us = NOW + step * MS
        scan = chance.random() < (0.02 if step < 90_000 else 0.5)
        stress.record_work("scan" if scan else "get", 200 * MS if scan else 5 * MS, now_us)
    assert stress.read(now_us).level is CALM


def test_the_worst_class_counts() -> None:
    stress = Stress()
    worked(stress, 5 * MS, begin_us=NOW, s=90, operation="get")
    now_us = worked(stress, 50 * MS, begin_us=NOW, s=90, operation="put")
    worked(stress, 15 * MS, begin_us=now_us, s=6, operation="get")
    now_us = worked(stress, 50 * MS, begin_us=now_us, s=6, operation="put")
    picture = stress.read(now_us)
    assert picture.slow
    assert picture.slowest == "get"


def test_cache_hits_and_cancelled_work_are_not_the_backends() -> None:
    stress = Stress()
    request = Request("k", operation="get")
    stress.record_end(request, Outcome.SUCCESS, NOW)
    request.measured = Measured(100, from_cache=True)
    stress.record_end(request, Outcome.SUCCESS, NOW)
    request.measured = Measured(100)
    stress.record_end(request, Outcome.IGNORE, NOW)
    assert stress.stats().worked == 0
    stress.record_end(request, Outcome.SUCCESS, NOW)
    stress.record_end(request, Outcome.DROPPED, NOW)  # a timeout took at least that long
    assert stress.stats().worked == 2
    assert stress.read(NOW).level is CALM


def test_a_full_machine_is_crowded_with_hysteresis() -> None:
    stress = Stress(StressSettings(refresh_us=0))
    levels = []
    for utilization in (0.85, 0.86, 0.80, 0.98, 0.76, 0.75, 0.85):
        stress.record_utilization(utilization, NOW)
        levels.append(stress.read(NOW).level)
    assert levels == [CALM, STRESSED, STRESSED, HARD, STRESSED, CALM, CALM]
    stress.record_utilization(7.0, NOW)
    picture = stress.read(NOW)
    assert picture.utilization == 1.0
    assert picture.why == ("utilization is 100%",)
    assert (picture.slow, picture.crowded) == (False, True)


@pytest.mark.parametrize("utilization", [-0.1, float("nan"), float("inf")])
def test_a_utilization_that_is_none_is_refused(utilization: float) -> None:
    with pytest.raises(BadValue, match="utilization"):
        Stress().record_utilization(utilization, NOW)


def test_waiting_and_lagging_are_crowded_and_the_means_count() -> None:
    stress = Stress(StressSettings(refresh_us=0))
    for delay_ms in (10, 30, 20):
        stress.record_queue_delay(delay_ms * MS, NOW)
    assert stress.read(NOW).level is CALM
    stress.record_wait(Request("k"), 24 * MS, NOW)
    picture = stress.read(NOW)
    assert picture.queue_us == 21 * MS
    assert picture.crowded
    assert picture.why == ("work waits 21.0 ms in the queue",)
    stress.record_loop_lag(51 * MS, NOW)
    assert stress.read(NOW).why[1] == "the event loop is 51.0 ms late"
    assert stress.read(NOW).level is STRESSED
    stress.record_loop_lag(2 * S, NOW)
    assert stress.read(NOW).level is HARD


def test_the_depth_is_that_of_the_worst_of_what_crowds() -> None:
    stress = Stress(StressSettings(refresh_us=0))
    stress.record_utilization(0.9, NOW)
    assert stress.read(NOW).depth == pytest.approx(0.9 / 0.85)
    stress.record_loop_lag(100 * MS, NOW)
    assert stress.read(NOW).depth == 2.0
    stress.record_queue_delay(60 * MS, NOW)
    assert stress.read(NOW).depth == 3.0
    assert stress.read(NOW + 60 * S).depth == 0.0
    now_us = worked(stress, 400 * MS, begin_us=NOW + 60 * S, s=90)
    stress.record_queue_delay(800 * MS, now_us)
    assert stress.read(now_us).depth == pytest.approx(4.0, rel=0.02)


def test_a_long_wait_is_hard_overload() -> None:
    stress = Stress()
    stress.record_queue_delay(201 * MS, NOW)
    assert stress.read(NOW).level is HARD


def test_the_queues_numbers_grow_with_the_work_behind_it() -> None:
    stress = Stress()
    now_us = worked(stress, 400 * MS, begin_us=NOW, s=90)
    stress.record_queue_delay(190 * MS, now_us)
    assert stress.read(now_us).level is CALM
    worked(stress, 500 * MS, begin_us=NOW, s=90, operation="a slower one")
    stress.record_queue_delay(230 * MS, now_us)
    assert stress.read(now_us + 50 * MS).level is STRESSED


@pytest.mark.parametrize(
    ("signal", "kept_us"),
    [("record_utilization", 5 * S), ("record_queue_delay", 200 * MS), ("record_loop_lag", 5 * S)],
)
def test_a_sensor_that_falls_silent_is_forgotten(signal: str, kept_us: int) -> None:
    stress = Stress()
    getattr(stress, signal)(1 if signal == "record_utilization" else 10 * S, NOW)
    assert stress.read(NOW + kept_us).level is HARD
    picture = stress.read(NOW + kept_us + 100 * MS)
    assert picture.level is CALM
    assert (picture.utilization, picture.queue_us, picture.lag_us) == (None, None, None)


def test_the_picture_is_drawn_once_each_refresh_and_when_the_clock_went_back() -> None:
    stress = Stress()
    first = stress.read(NOW)
    stress.record_utilization(1.0, NOW)
    assert stress.read(NOW + 50 * MS - 1) is first
    assert stress.read(NOW + 50 * MS).level is HARD
    assert stress.read(NOW - S).at_us == NOW - S
    assert stress.stats().pictures == 3


def test_classes_beyond_the_bound_share_one() -> None:
    stress = Stress(StressSettings(operations_max=2))
    for number in range(40):
        stress.record_work(f"op{number}", 5 * MS, NOW)
    stats = stress.stats()
    assert isinstance(stats, StressStats)
    assert (stats.operations, stats.worked) == (3, 40)
    now_us = NOW
    for service_us, s in ((5 * MS, 90), (50 * MS, 6)):
        for operation in ("op0", "op1"):
            worked(stress, 5 * MS, begin_us=now_us, s=s, operation=operation)
        now_us = worked(stress, service_us, begin_us=now_us, s=s, operation="op39")
    assert stress.read(now_us).slowest == OTHERS


def test_names_that_somebody_invents_make_room_for_what_is_worked_at() -> None:
    """Else more of what is slow looks like work that has become slow, for ever."""
    stress = Stress(StressSettings(operations_max=2))
    for name in ("/wp-login.php", "/admin"):
        stress.record_work(name, 5 * MS, NOW)
    now_us = NOW
    for slow_percent in (1, 40):
        for nth in range(180 * 100):
            slow = nth % 100 < slow_percent
            stress.record_work("/slow" if slow else "/quick", (500 if slow else 5) * MS, now_us)
            now_us += 10 * MS
        assert stress.read(now_us).level is CALM


@given(
    readings=st.lists(st.tuples(st.integers(0, 400), st.integers(-50, 1_000)), max_size=40),
    ahead=st.integers(0, 3_000),
)
def test_a_window_mean_is_that_of_the_last_two_windows(
    readings: list[tuple[int, int]], ahead: int
) -> None:
    window_us, stale_us = 500, 2_000
    mean = _WindowMean(window_us, stale_us)
    windows: list[list[int]] = [[], []]
    begin_us, now_us, last_us = -window_us, 0, None
    for passed_us, value in readings:
        now_us += passed_us
        if now_us >= begin_us + window_us:
            windows = [windows[1] if now_us < begin_us + 2 * window_us else [], []]
            begin_us = now_us
        windows[1].append(max(value, 0))
        mean.add(value, now_us, window_us)
        last_us = now_us
    values = windows[0] + windows[1]
    expected = sum(values) // len(values) if values else None
    if last_us is not None and ahead > stale_us:
        expected = None
    assert mean.mean(now_us + ahead) == expected


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"ratio": "ewma"}, "stress.ratio"),
        ({"ratio_enter": 0.9}, "stress.ratio_enter"),
        ({"ratio_hard": 0.7}, "stress.ratio_hard"),
        ({"utilization_leave": 0.9}, "stress.utilization_leave"),
        ({"queue_us_leave": 20_001}, "stress.queue_us_leave"),
        ({"queue_us_hard": 10_000}, "stress.queue_us_enter"),
        ({"lag_us_leave": 60_000}, "stress.lag_us_leave"),
        ({"window_us": 0}, "stress.window_us"),
        ({"stale_us": 1}, "stress.stale_us"),
        ({"operations_max": 0}, "stress.operations_max"),
        ({"ratio_leave": float("nan")}, "stress.ratio_leave"),
    ],
)
def test_bad_settings_name_their_field(settings: dict[str, object], field: str) -> None:
    with pytest.raises(BadValue) as wrong:
        StressSettings(**settings)  # type: ignore[arg-type]
    assert wrong.value.field == field


def told_of_waits(callers: list[int], *, queue_standstill: bool = False) -> list[bool]:
    """Whether it was crowded each 50 ms, with so many in line that each wait for 25 ms."""
    settings = StressSettings(queue_standstill=queue_standstill)
    stress, crowded, now_us = Stress(settings), list[bool](), 10_000_000
    for waiting in callers:
        for _ in range(2):
            now_us += 25_000
            for _ in range(waiting):
                stress.record_queue_delay(25_000, now_us)
        crowded.append(stress.read(now_us).crowded)
    return crowded


def test_as_many_who_wait_as_before_are_no_sign_if_so_set() -> None:
    as_many = [50] * 40
    assert not any(told_of_waits(as_many, queue_standstill=True))
    assert all(told_of_waits(as_many))


def test_more_and_more_who_wait_are_a_sign_and_stay_one() -> None:
    crowded = told_of_waits([50] * 24 + [150] * 20, queue_standstill=True)
    assert not any(crowded[:24])
    assert all(crowded[36:])


def test_who_waits_for_as_long_as_hard_overload_is_a_sign_though_as_many_wait() -> None:
    stress = Stress(StressSettings(queue_standstill=True))
    for at_us in range(10_000_000, 11_000_000, 10_000):
        stress.record_queue_delay(250_000, at_us)
    assert stress.read(11_000_000).crowded


def test_the_sign_ends_when_waits_have_been_short_for_a_second() -> None:
    callers = [50] * 24 + [150] * 12 + [0] * 30 + [50] * 10
    assert any(told_of_waits(callers, queue_standstill=True)[:36])
    assert not any(told_of_waits(callers, queue_standstill=True)[66:])
