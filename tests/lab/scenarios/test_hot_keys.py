"""Hot keys: the flood, scaled down in time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.lab.baselines.caches import NoCache, TtlCache
from sluicegate.lab.rigs.read_paths import ShieldedReads
from sluicegate.lab.scenarios.hot_keys import (
    SCENARIO,
    FloodRig,
    FloodRun,
    MakeReadPath,
    curves,
    measure,
    mussel,
    play,
    shield,
    without_coalesce,
    without_hot_key,
)

SHORT = FloodRig(begin_us=100_000, early_us=400_000, span_us=700_000, phase_us=200_000)
BOUNDS = {goal.figure: goal.at_most for goal in SCENARIO.goals}


def flooded(make_front: MakeReadPath) -> dict[str, float]:
    return measure(SHORT, play(SHORT, make_front, 2))


def test_the_keys_are_noticed_at_once_and_fetched_a_few_times_and_others_feel_nothing() -> None:
    figures = flooded(shield)
    assert figures["detect_ms"] <= 50
    # Of all fetches of ten seconds most are made in the first moments: 6,400 reads, 40 fetches.
    assert figures["forwarded"] <= 40
    assert figures["usual_p99"] <= 1.25, "of some hundreds of reads"


@pytest.mark.prove
def test_what_is_cold_is_fetched_by_each_in_the_form_of_the_seed_and_noticed_later() -> None:
    ours, seeds = flooded(shield), flooded(mussel)
    assert seeds["forwarded"] > 10 * ours["forwarded"]
    assert seeds["detect_ms"] > 2 * ours["detect_ms"]


@pytest.mark.prove
@pytest.mark.parametrize("make_front", [without_coalesce, without_hot_key])
def test_with_a_policy_taken_out_the_store_is_asked_far_more(make_front: MakeReadPath) -> None:
    assert flooded(make_front)["forwarded"] > 3 * flooded(shield)["forwarded"]


@pytest.mark.prove
def test_the_baselines_are_asked_for_more_than_a_thousandth_of_ten_seconds() -> None:
    ten_seconds = 1e-3 * 160_000
    assert flooded(lambda world, store: NoCache(store.get))["forwarded"] > ten_seconds
    ttl = replace(SHORT, span_us=7_000_000, early_us=5_500_000, per_s=4_000.0, other_keys=10)
    figures = measure(ttl, play(ttl, lambda world, store: TtlCache(world.clock, store.get), 2))
    bound = BOUNDS["early_ratio"]
    assert isinstance(bound, float)
    assert figures["early_ratio"] > bound


def test_a_run_is_a_function_of_its_seed() -> None:
    tiny = replace(SHORT, span_us=400_000)
    assert play(tiny, shield, 5) == play(tiny, shield, 5) != play(tiny, shield, 6)


def lives(*forwarded_us: int) -> FloodRun:
    return FloodRun(0, [100] * 200, [0] * 200, [list(forwarded_us)], [0.0], [1], [1], 0)


def test_the_steady_ratio_is_over_whole_lives_and_counts_the_crowd_that_begins_one() -> None:
    rig = replace(SHORT, early_us=2_000_000)
    one_each = lives(500_000, 2_500_000, 5_500_000, 8_500_000)
    # Two lives of three seconds, 1,000 reads a second: what began before is not in it.
    assert measure(rig, one_each)["steady_ratio"] == pytest.approx(2 / 6_000)
    crowds = lives(2_500_000, 2_500_010, 2_500_020, 5_500_000, 5_500_010)
    assert measure(rig, crowds)["steady_ratio"] == pytest.approx(3 / 3_000)
    ceaseless = lives(*range(2_000_000, 20_000_000, 50_000))
    assert measure(rig, ceaseless)["steady_ratio"] == pytest.approx(20 / 1_000, rel=0.01)


def test_the_funnel_is_drawn_for_each_tenth_of_a_second() -> None:
    drawn = curves(SHORT, play(SHORT, shield, 2))
    assert [len(points) for points in drawn.values()] == [7, 7, 7]
    received = sum(value for _, value in drawn["received_per_s"])
    forwarded = sum(value for _, value in drawn["forwarded_per_s"])
    assert received > 100 * forwarded > 0


def test_shields_can_be_told_apart_by_what_was_taken_out() -> None:
    runs: list[ShieldedReads] = []

    def recorder(make: MakeReadPath) -> MakeReadPath:
        def made(world, store):  # type: ignore[no-untyped-def]
            runs.append(make(world, store))  # type: ignore[arg-type]
            return runs[-1]

        return made

    tiny = replace(SHORT, span_us=200_000)
    for make in (shield, without_coalesce, without_hot_key):
        play(tiny, recorder(make), 1)
    assert [(one.hot is None, one.shared is None) for one in runs] == [
        (False, False),
        (False, True),
        (True, False),
    ]
