"""Hot keys: the flood, scaled down in time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.lab.rigs.read_paths import ReadPath, ShieldedReads, VersionedStore
from sluicegate.lab.scenarios.hot_keys import (
    SCENARIO,
    FloodRig,
    FloodRun,
    MakeReadPath,
    TtlCache,
    absolute,
    curves,
    measure,
    mussel,
    play,
    shield,
    shielded,
    without_coalesce,
    without_hot_key,
)
from sluicegate.lab.world import World
from sluicegate.policies.cache.hot_key import HotKeySettings

SHORT = FloodRig(begin_us=100_000, early_us=400_000, span_us=700_000, phase_us=200_000)
NO_CACHE = shielded(hot_key=False, coalesce=False)
BOUNDS = {goal.figure: goal.at_most for goal in SCENARIO.goals}


def flooded(make_front: MakeReadPath) -> dict[str, float]:
    return measure(SHORT, play(SHORT, make_front, 2))


def test_flood_is_noticed_at_once_and_other_reads_feel_nothing() -> None:
    figures = flooded(shield)
    assert figures["detect_ms"] <= 50
    # Most fetches of ten seconds are made in the first moments: of 160,000 reads 160 are allowed.
    assert figures["forwarded"] <= 80
    assert figures["usual_p99"] <= 1.25, "of some hundreds of reads"


@pytest.mark.prove
def test_form_with_threshold_of_seed_notices_later() -> None:
    ours, seeds = flooded(shield), flooded(mussel)
    assert seeds["forwarded"] > 5 * ours["forwarded"]
    assert seeds["detect_ms"] > 2 * ours["detect_ms"]


def crowded(case: str, make_front: MakeReadPath, seed: int = 11) -> dict[str, float]:
    """A case of the scenario, four seconds of its crowd."""
    rig = replace(SCENARIO.rigs[case], begin_us=500_000, span_us=5_000_000, phase_us=500_000)
    return measure(rig, play(rig, make_front, seed))


@pytest.mark.parametrize("case", ["popular", "one-key", "zipf"])
def test_crowd_beyond_the_store_is_answered_after_one_second(case: str) -> None:
    assert crowded(case, shield)["answered"] >= 0.95
    assert crowded(case, NO_CACHE)["answered"] < 0.9


def test_threshold_in_reads_a_second_misses_500_popular_keys() -> None:
    figures = crowded("popular", absolute)
    assert figures["from_memory"] == 0
    assert figures["answered"] < 0.6
    assert crowded("zipf", absolute)["answered"] < 0.95


@pytest.mark.parametrize("case", ["idle", "calm"])
def test_reads_of_store_with_low_load_are_all_its_own(case: str) -> None:
    fronts: list[ShieldedReads] = []

    def make(world: World, store: VersionedStore) -> ReadPath:
        fronts.append(ShieldedReads(world.clock, world.chance("shield"), store.get, store.load))
        return fronts[-1]

    figures = crowded(case, make)
    assert (figures["from_memory"], figures["answered"]) == (0, 1)
    hot, shared = fronts[0].hot, fronts[0].shared
    assert hot is not None
    assert shared is not None
    assert (hot.stats().filled, hot.stats().cached_bytes, shared.stats().flown) == (0, 0, 0)


@pytest.mark.prove
@pytest.mark.parametrize("case", ["popular", "one-key", "zipf"])
@pytest.mark.parametrize("setting", ["saved_min", "counters", "window_us"])
@pytest.mark.parametrize("times", [0.5, 2.0])
def test_crowd_is_answered_with_settings_halved_or_doubled(
    case: str, setting: str, times: float
) -> None:
    usual = getattr(HotKeySettings(), setting)
    changed = HotKeySettings(**{setting: type(usual)(usual * times)})
    assert crowded(case, shielded(hot=changed))["answered"] >= 0.95


@pytest.mark.parametrize("make_front", [without_coalesce, without_hot_key])
def test_store_reads_more_when_policy_is_taken_out(make_front: MakeReadPath) -> None:
    assert flooded(make_front)["forwarded"] > 2 * flooded(shield)["forwarded"]


@pytest.mark.prove
def test_the_baselines_are_asked_for_more_than_a_thousandth_of_ten_seconds() -> None:
    ten_seconds = 1e-3 * 160_000
    assert flooded(NO_CACHE)["forwarded"] > ten_seconds
    ttl = replace(SHORT, span_us=7_000_000, early_us=5_500_000, per_s=4_000.0, other_keys=10)
    figures = measure(ttl, play(ttl, lambda world, store: TtlCache(world.clock, store.get), 2))
    bound = BOUNDS["early_ratio"]
    assert isinstance(bound, float)
    assert figures["early_ratio"] > bound


def test_a_run_is_a_function_of_its_seed() -> None:
    tiny = replace(SHORT, span_us=400_000)
    assert play(tiny, shield, 5) == play(tiny, shield, 5) != play(tiny, shield, 6)


def lives(*forwarded_us: int) -> FloodRun:
    return FloodRun(0, [100] * 200, [0] * 200, [list(forwarded_us)], [0.0], [1], [1], 0, 0, 0, 0)


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
