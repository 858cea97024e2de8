from __future__ import annotations

import multiprocessing
import os
import threading
import time
from pathlib import Path

import pytest

from sluicegate import system

_CHANCE = system.SystemChance()  # from before any fork


def _draw() -> float:
    return _CHANCE.draw()


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_forked_processes_draw_differently() -> None:
    fork = multiprocessing.get_context("fork")
    with fork.Pool(1) as first, fork.Pool(1) as second:
        draws = [pool.apply(_draw) for pool in (first, second)]
    assert len({*draws, _draw()}) == 3


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


def test_a_threads_times_are_its_own() -> None:
    before = system.thread_times()
    until = time.thread_time() + 0.05
    while time.thread_time() < until:
        pass
    others = threading.Thread(target=sum, args=(range(1_000_000),))
    others.start()
    others.join()
    after = system.thread_times()
    assert after.ran_us - before.ran_us >= 40_000
    assert after.waited_us >= before.waited_us >= 0


@pytest.mark.parametrize(
    ("group", "folder", "line", "held_us"),
    [
        ("0::/pod/one\n", "pod/one", "throttled_usec 2500", 2_500),
        ("0::/pod/one\n", "", "throttled_usec 2500", 2_500),  # mounted within the container
        ("2:cpu,cpuacct:/pod\n1:name=x:/\n", "cpu,cpuacct/pod", "throttled_time 7000000", 7_000),
        ("3:memory:/pod\n", "memory/pod", "throttled_usec 9", 0),
    ],
)
def test_how_long_a_cgroup_was_held_back_is_read_in_both_versions(
    tmp_path: Path, group: str, folder: str, line: str, held_us: int
) -> None:
    (tmp_path / "cgroup").write_text(group)
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    (tmp_path / folder / "cpu.stat").write_text(f"nr_periods 9\nnr_throttled 3\n{line}\n")
    throttling = system.Throttling(str(tmp_path / "cgroup"), str(tmp_path))
    assert throttling.held_us() == held_us


def test_a_process_without_a_cgroup_was_never_held_back(tmp_path: Path) -> None:
    assert system.Throttling(str(tmp_path / "none"), str(tmp_path)).held_us() == 0
    assert system.Throttling().held_us() >= 0
