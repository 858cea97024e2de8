"""Ejections on virtual time: hardly any without a reason, and a failing host out in a second."""

from __future__ import annotations

import statistics
from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final, final

import pytest

from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.durations import Exponential, Lognormal
from sluicegate.lab.random_source import RandomSource
from sluicegate.lab.rigs.hosts import HostsRig, balanced, play
from sluicegate.lab.speed_profile import SpeedProfile
from sluicegate.policies.client.outlier import OutlierSettings
from tests.prove.seeds import seeds

S: Final = 1_000_000
HOUR: Final = 3_600 * S
# Calls enough for every rule. One in a hundred fails somewhere, and at noon all are a third slower
# for five minutes.
DAY: Final = HostsRig(
    arrivals=Poisson(60),
    hosts=5,
    service=Lognormal(200_000.0, 1.0),
    timeout_us=10 * S,
    gray=0,
    errors=0.01,
    speed_profile=SpeedProfile(((12 * HOUR, 0.7), (12 * HOUR + 300 * S, 1.0))),
    span_us=24 * HOUR,
)
# From the tenth second on one of ten answers with an error at once.
FAILING: Final = HostsRig(
    arrivals=Poisson(150),
    service=Exponential(160_000.0),
    timeout_us=8 * S,
    gray=1,
    fails=1.0,
    gray_from_us=10 * S,
    span_us=13 * S,
)


@final
class FirstOut:
    """A picker that remembers when somebody was left out first, and who."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.at_us = -1
        self.hosts: Collection[str] = ()

    def pick(self, key: str, now_us: int) -> Any:
        found = self._inner.pick(key, now_us)
        if self.at_us < 0 and self._inner.out():
            self.at_us, self.hosts = now_us, tuple(self._inner.out())
        return found

    def out(self) -> Collection[str]:
        found: Collection[str] = self._inner.out()
        return found


def first_out(rig: HostsRig, seed: int, **settings: Any) -> FirstOut:
    """Play it until somebody is out."""
    pickers: list[FirstOut] = []

    def make(rig: HostsRig, source: RandomSource) -> FirstOut:
        make_inner = balanced(outlier=OutlierSettings(**settings))
        pickers.append(FirstOut(make_inner(rig, source)))
        return pickers[0]

    play(rig, make, seed)
    return pickers[0]


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=3, part=0))
def test_in_a_day_no_healthy_host_is_left_out(seed: int) -> None:
    run = play(DAY, balanced(), seed)
    assert run.calls > 5_000_000
    assert (run.false_ejections, run.out_max) == (0, 0), f"seed {seed}"


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=20, part=1))
def test_in_the_half_hour_around_noon_no_healthy_host_is_left_out(seed: int) -> None:
    slow = SpeedProfile(((600 * S, 0.7), (900 * S, 1.0)))
    run = play(replace(DAY, speed_profile=slow, span_us=1_800 * S), balanced(), seed)
    assert (run.false_ejections, run.out_max) == (0, 0), f"seed {seed}"


@pytest.mark.parametrize("seed", range(3))
def test_in_two_minutes_of_it_no_healthy_host_is_left_out(seed: int) -> None:
    run = play(replace(DAY, span_us=120 * S), balanced(), seed)
    assert (run.false_ejections, run.out_max) == (0, 0), f"seed {seed}"


def test_a_rule_that_takes_chance_for_evidence_leaves_healthy_hosts_out() -> None:
    """The control."""
    hasty = OutlierSettings(failures_in_row=1)
    assert play(replace(DAY, span_us=120 * S), balanced(outlier=hasty), 0).false_ejections > 0


def test_a_host_that_fails_is_out_within_a_second() -> None:
    """But where a long call that began before comes to a good end meanwhile, one in ten."""
    late_us = []
    for seed in range(20):
        found = first_out(FAILING, seed)
        assert found.hosts == ("host-0",)
        late_us.append(found.at_us - FAILING.gray_from_us)
    assert statistics.median(late_us) <= 850_000
    assert sum(late <= S for late in late_us) >= 18


def test_where_nobody_is_sent_to_see_it_is_hardly_asked_and_long_in() -> None:
    """The control: the price of its first failure keeps it from failing five times."""
    assert first_out(FAILING, 0, probe_us=0).hosts == ()


def test_without_the_rules_for_failures_it_stays() -> None:
    """The control."""
    off = {"failures_in_row": 0, "failure_percent": 0, "deviations": 0.0, "throughput_percent": 0}
    assert first_out(FAILING, 0, **off).hosts == ()
