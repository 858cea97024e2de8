"""Shards behind one dispatcher: what is open where, who gives up, and who misses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.scenario import run_trials
from sluicegate.lab.scenarios.slow_shard import (
    CAP,
    POOL,
    SCENARIO,
    Shards,
    curves,
    gate,
    measure,
    play,
    shared_pool,
)
from sluicegate.lab.speed_profile import STEADY, SpeedProfile

SECOND = 1_000_000
SLOW = SCENARIO.rigs["slow"]
SMALL = replace(
    SCENARIO, rigs={"slow": replace(SLOW, span_us=SECOND + SECOND // 2, warm_us=SECOND // 2)}
)


def met(candidate: str) -> bool:
    return run_trials(SMALL, [candidate], [1]).meets_goals(candidate)


def test_ours_meets_the_goals_for_a_second() -> None:
    assert met("gate")


@pytest.mark.prove
@pytest.mark.parametrize("candidate", SCENARIO.must_fail)
def test_who_must_fail_misses(candidate: str) -> None:
    assert not met(candidate)


def test_all_that_is_open_is_counted_at_its_shard_and_never_passes_what_the_gate_has() -> None:
    rig = Shards(
        speed_profile=SpeedProfile(((0, 1 / 50),)), per_s=2_000, shards=4, span_us=SECOND, warm_us=0
    )
    slow, *healthy = play(rig, shared_pool, 2)
    assert 40 < slow.inflight_peak <= POOL
    assert all(shard.inflight_peak < 40 for shard in healthy)
    assert all(shard.inflight == 0 for shard in [slow, *healthy]), "all were given up in the end"
    assert max(slow.inflight_at) == slow.inflight_peak
    capped = play(rig, gate, 2)[0]
    assert capped.inflight_peak == CAP
    assert capped.refused > 0


def test_a_call_is_given_up_at_its_deadline_wherever_it_stands() -> None:
    rig = Shards(
        speed_profile=SpeedProfile(((0, 1 / 1_000),)),
        per_s=500,
        shards=1,
        timeout_us=100_000,
        span_us=SECOND,
    )
    rig = replace(rig, warm_us=0)
    shard = play(rig, shared_pool, 3)[0]
    assert shard.failed > 400
    assert all(us <= 100_000 for us in shard.good_us)
    assert shard.success() < 0.05


def test_figures_are_of_the_worst_shard_and_curves_of_all_of_them() -> None:
    rig = Shards(speed_profile=STEADY, per_s=1_000, shards=3, slow=1, span_us=SECOND, warm_us=0)
    shards = play(rig, gate, 4)
    shards[2].failed += 500
    figures = measure(rig, shards)
    assert figures["success.healthy"] == shards[2].success() < 0.5
    assert figures["success.slow"] == shards[0].success() == 1.0
    drawn = curves(rig, shards)
    answered = sum(value for _, value in drawn["healthy_per_s"]) / 10
    assert answered == pytest.approx(shards[1].good + shards[2].good, abs=1)
    assert max(value for _, value in drawn["slow_inflight"]) == figures["slow_inflight_peak"]


def test_a_rig_of_no_shards_or_of_too_many_slow_ones_is_refused() -> None:
    with pytest.raises(BadValue, match="shards"):
        Shards(speed_profile=STEADY, shards=0)
    with pytest.raises(BadValue, match="slow"):
        Shards(speed_profile=STEADY, shards=2, slow=3)
