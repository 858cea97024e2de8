"""The gray host's rig, and the scenario scaled down."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.arrivals import Even, Poisson
from sluicegate.lab.durations import Constant
from sluicegate.lab.random_source import RandomSource
from sluicegate.lab.rigs.hosts import HostsRig, MakePicker, balanced, play, round_robin
from sluicegate.lab.scenario import run_trials
from sluicegate.lab.scenarios.gray_host import HOUR, SCENARIO
from tests.prove.seeds import first

S = 1_000_000
RIG = HostsRig(arrivals=Even(100), service=Constant(5_000), gray=0, span_us=10 * S)
SHORT = {
    name: replace(rig, gray_from_us=2 * S, span_us=9 * S)
    for name, rig in SCENARIO.rigs.items()
    if name != "calm-hour"
} | {"calm-hour": replace(HOUR, span_us=100 * S)}


def run(rig: HostsRig, make: MakePicker = round_robin) -> tuple[int, int]:
    ended = play(rig, make, 1)
    return ended.calls, ended.good


def test_hosts_that_are_well_answer_every_call() -> None:
    calls, good = run(RIG)
    assert calls == good == 999  # from 10 ms on every 10 ms; the last ones have not ended


def test_a_host_that_fails_loses_its_share_from_its_turn_on() -> None:
    assert run(replace(RIG, gray=1, fails=1.0)) == (999, 900)
    late = play(replace(RIG, gray=1, fails=1.0, gray_from_us=5 * S), round_robin, 1)
    assert late.lost_at[:4] == [0] * 4
    assert late.lost_at[6] == late.gray_at[6] == 10


def test_a_slow_host_is_slow_for_those_who_wait_and_their_work_is_done_all_the_same() -> None:
    # One worker, 10 calls a second of 200 ms each: every second waits longer, all but the first
    # few are given up, and none of the work is taken back.
    slow = replace(RIG, gray=1, workers=1, slower=40.0, timeout_us=300_000)
    ended = play(slow, round_robin, 1)
    assert sum(ended.lost_at) >= 95
    assert max(ended.good_us) <= 300_000


def test_calls_fail_here_and_there_on_any_host() -> None:
    ended = play(replace(RIG, errors=0.1, span_us=60 * S), round_robin, 1)
    assert 0.88 < ended.success < 0.92
    assert ended.false_ejections == ended.out_max == 0


def test_who_is_left_out_without_a_reason_is_counted() -> None:
    unlucky = replace(RIG, arrivals=Poisson(400), errors=0.6, span_us=20 * S)
    ended = play(unlucky, balanced(), 1)
    assert ended.out_max == 1
    assert ended.false_ejections >= 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("hosts", 0), ("gray", 11), ("slower", 0.5), ("fails", 1.1), ("errors", -0.1)],
)
def test_a_rig_that_cannot_be_is_refused(field: str, value: float) -> None:
    with pytest.raises(BadValue, match=field):
        replace(RIG, **{field: value})  # type: ignore[arg-type]


def test_the_same_seed_is_the_same_run() -> None:
    rig = replace(SHORT["slow"], span_us=4 * S)
    first, again = play(rig, balanced(), 3), play(rig, balanced(), 3)
    assert first.good_us == again.good_us
    assert first.good_us != play(rig, balanced(), 4).good_us
    assert RandomSource(3).of("balance").draw() == RandomSource(3).of("balance").draw()


@pytest.mark.parametrize(
    ("candidate", "well"),
    first(1, [("balance", True), ("round-robin", False), ("without-both", False)]),
)
def test_the_balancer_meets_the_goals_and_those_who_must_fail_do_not(
    candidate: str, well: bool
) -> None:
    short = replace(SCENARIO, rigs=SHORT)
    assert run_trials(short, [candidate], range(1)).meets_goals(candidate) is well


def test_its_curves_are_short_and_in_percent() -> None:
    rig = SHORT["fast-error"]
    curves = SCENARIO.curves(rig, play(rig, round_robin, 1))
    assert 8 < curves["lost_percent"][5][1] < 12
    assert all(len(points) <= 500 for points in curves.values())
