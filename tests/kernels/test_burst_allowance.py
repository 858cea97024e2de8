"""Bursts with pauses make an allowance as long as the pauses; a steady load makes none."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from sluicegate.kernels.burst_allowance import BurstAllowance, BurstAllowanceSettings

MS = 1_000
S = 1_000_000
TIGHT_US = 10 * MS
WAIT_US = 500 * MS
WORK_US = 300.0  # for all places together


def allowance_of(settings: BurstAllowanceSettings | None = None) -> BurstAllowance:
    allowance = BurstAllowance(settings or BurstAllowanceSettings())
    allowance.fit(TIGHT_US, WAIT_US)
    allowance.begin(0)
    return allowance


def steady(load: float, until_us: int, seed: int = 1) -> Iterator[int]:
    chance = random.Random(seed)
    at_us = 0.0
    while (at_us := at_us + chance.expovariate(load / WORK_US)) < until_us:
        yield int(at_us)


def bursts(load: float, on_us: int, off_us: int, until_us: int) -> Iterator[int]:
    """At `load` over all, nothing in the pauses."""
    step_us = WORK_US * on_us / (load * (on_us + off_us))
    for begin_us in range(0, until_us, on_us + off_us):
        for at in range(int(on_us / step_us)):
            yield begin_us + int(at * step_us)


def play(allowance: BurstAllowance, instants: Iterator[int]) -> BurstAllowance:
    for at_us in instants:
        allowance.record(WORK_US, at_us)
    return allowance


@pytest.mark.parametrize("load", [0.8, 1.3, 2.0, 10.0])
def test_a_steady_load_makes_none(load: float) -> None:
    assert play(allowance_of(), steady(load, 2 * S)).us == 0


@pytest.mark.parametrize(("on_ms", "off_ms"), [(50, 50), (20, 60), (100, 100)])
def test_a_few_bursts_make_one_that_lasts_over_the_pauses(on_ms: int, off_ms: int) -> None:
    instants = bursts(2.0, on_ms * MS, off_ms * MS, 3 * (on_ms + off_ms) * MS + 1)
    found = play(allowance_of(), instants)
    assert off_ms * MS <= found.us <= WAIT_US - TIGHT_US


def test_it_spills_where_a_part_cannot_be_served_however_long_it_waits() -> None:
    assert play(allowance_of(), bursts(2.0, 50 * MS, 50 * MS, 3 * S)).spills
    assert not play(allowance_of(), bursts(1.0, 50 * MS, 50 * MS, 3 * S)).spills
    assert play(allowance_of(), steady(2.0, 3 * S)).spills


def test_a_pause_that_nobody_can_wait_for_is_none() -> None:
    """All lines are idle in it alike, but for what the longest still holds."""
    assert play(allowance_of(), bursts(0.05, 1 * MS, 60 * S, 600 * S)).us == 0


def test_bursts_that_are_over_are_forgotten() -> None:
    allowance = play(allowance_of(), bursts(2.0, 50 * MS, 50 * MS, 1 * S))
    assert allowance.us > 0
    for at_us in range(1 * S, 30 * S, 150):  # twice the capacity, without a pause
        allowance.record(WORK_US, at_us)
    assert allowance.us == 0


def test_a_silence_ends_the_count_and_the_next_wait_begins_anew() -> None:
    allowance = play(allowance_of(), bursts(2.0, 50 * MS, 50 * MS, 1 * S))
    allowance.record(WORK_US, 3_600 * S)
    assert (allowance.us, allowance.spills, allowance.counts) == (0, False, False)
    allowance.begin(3_600 * S)
    assert allowance.counts


def test_the_most_is_the_most_and_none_is_none() -> None:
    little = allowance_of(BurstAllowanceSettings(allowance_us_max=40 * MS))
    assert play(little, bursts(2.0, 50 * MS, 200 * MS, 3 * S)).us == 40 * MS
    none = allowance_of(BurstAllowanceSettings(allowance_us_max=0))
    assert not none.counts


def test_a_clock_that_goes_back_drains_nothing() -> None:
    allowance = allowance_of()
    allowance.begin(0)
    for at_us in (10 * S, 1 * S, 1 * S + 5 * MS):
        allowance.record(WORK_US, at_us)
    assert allowance.us == 0


def test_a_setting_out_of_its_range_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="spared_permille must be from 0 to 1000"):
        BurstAllowanceSettings(spared_permille=1_001)
