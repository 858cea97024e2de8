from __future__ import annotations

import time
from pathlib import Path

import pytest

from sluicegate import system


def test_the_clock_tells_the_wall_time_and_never_goes_back() -> None:
    assert abs(system.now_us() - time.time_ns() // 1_000) < 5_000_000
    instants = [system.now_us() for _ in range(10_000)]
    assert instants == sorted(instants)
    assert system.SystemClock().now_us() >= instants[-1]


def test_chance_draws_from_nought_to_one_and_differs_by_instance() -> None:
    first, second = system.SystemChance(), system.SystemChance()
    draws = [first.draw() for _ in range(1_000)]
    assert all(0 <= draw < 1 for draw in draws)
    assert draws != [second.draw() for _ in range(1_000)]


def test_the_load_of_a_busy_moment_is_seen() -> None:
    meter = system.LoadMeter()
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        pass
    load = meter.look()
    assert 0 < load.cpu <= 1


def test_two_looks_at_one_instant_do_not_divide_by_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "_cpu_times", lambda: (5, 10))
    meter = system.LoadMeter()
    assert 0 <= meter.look().cpu <= 1


def test_pressure_is_read_or_known_to_be_missing() -> None:
    pressure = system.read_pressure()
    if Path("/proc/pressure/cpu").exists():
        assert pressure is not None
        assert all(0 <= share <= 1 for share in pressure)
    else:
        assert pressure is None
