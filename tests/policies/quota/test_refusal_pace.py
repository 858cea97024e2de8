"""Refusal pace: who is far over quota is slowed, by a bound, and nobody else."""

from __future__ import annotations

from sluicegate.policies.quota.refusal_pace import RefusalPace, RefusalPaceSettings

SETTINGS = RefusalPaceSettings(burst=200, refusals_per_s=100, delay_us_max=1_000_000)
SECOND_US = 1_000_000


def test_a_burst_of_refusals_slows_nobody_and_what_goes_beyond_does_by_a_bound() -> None:
    pace = RefusalPace(SETTINGS)
    now_us = SECOND_US
    pace.record("noisy", 0, 200, now_us)
    assert pace.delay_us("noisy", now_us) == 0
    pace.record("noisy", 0, 10, now_us)
    assert pace.delay_us("noisy", now_us) == 100_000
    assert pace.delay_us("noisy", now_us + 60_000) == 40_000
    pace.record("noisy", 0, 1_000_000, now_us)
    assert pace.delay_us("noisy", now_us) == SETTINGS.delay_us_max
    assert pace.delay_us("other", now_us) == 0
    # Quiet for as long as its burst and the delay take to be made up: as if nothing had been.
    later_us = now_us + 3 * SECOND_US
    assert pace.delay_us("noisy", later_us) == 0
    pace.record("noisy", 1, 0, later_us)
    assert "noisy" not in pace.due_us


def test_who_asks_for_somewhat_more_than_its_quota_is_never_slowed() -> None:
    for times in (2, 5, 9):
        pace = RefusalPace(SETTINGS)
        for second in range(1, 60):
            for part in range(100):
                now_us = second * SECOND_US + part * 10_000
                pace.record("busy", 1, 0, now_us)  # a request at a time, as without pipelining
                for _ in range(times - 1):
                    pace.record("busy", 0, 1, now_us)
                assert pace.delay_us("busy", now_us) == 0


def test_who_asks_for_a_hundred_times_its_quota_is_slowed_although_some_is_served() -> None:
    pace = RefusalPace(SETTINGS)
    for part in range(1_000):
        pace.record("noisy", 1, 99, SECOND_US + part * 1_000)
    assert pace.delay_us("noisy", 2 * SECOND_US) > SETTINGS.delay_us_max * 9 // 10


def test_callers_are_bounded() -> None:
    pace = RefusalPace(RefusalPaceSettings(callers_max=10))
    for number in range(1_000):
        pace.record(f"caller {number}", 0, 1, SECOND_US)
    assert sum(f"caller {number}" in pace.due_us for number in range(1_000)) == 10
