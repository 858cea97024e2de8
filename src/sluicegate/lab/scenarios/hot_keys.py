"""Hot keys: a crowd asks for five keys, a million times a second, spread over fifty nodes.

Each caller stays within its quota, and the shard that holds the keys is lost all the same, with all
others who need it. Each node notices the keys by itself, keeps their answers for a few seconds,
fetches ahead of their end, and lets one fetch bring what many ask for at once; so the flood becomes
a trickle. The goals: of what is received for the hot keys at most one in a thousand is forwarded in
the first ten seconds, one in ten thousand from then on; the keys are noticed within 50 ms; and
those who read other keys feel nothing (their p99 grows by a tenth at most).
"""

from __future__ import annotations

from typing import Final

from sluicegate.lab.baselines.no_cache import NoCache
from sluicegate.lab.baselines.ttl_cache import TtlCache
from sluicegate.lab.checks import Goal
from sluicegate.lab.rigs.flood import Flood, Flooded, MakeFront, curves, measure, play
from sluicegate.lab.rigs.fronts import Shield
from sluicegate.lab.rigs.store import Store
from sluicegate.lab.scenario import (
    AS_BARS,
    OVER_TIME,
    TASKS,
    Contender,
    Picture,
    Scenario,
)
from sluicegate.lab.world import World
from sluicegate.policies.hot_key import HotKeySettings

# Noticed at 100, kept for 3 s, and fetched when it is gone; what is cold is fetched by each alone.
MUSSEL: Final = HotKeySettings(hot_min=100, hot_permille=0, ttl_us=3_000_000, jitter=0.0, beta=0.0)


def shield(world: World, store: Store) -> Shield:
    """`hot_key` and `coalesce`, with their defaults."""
    return Shield(world.clock, world.chance("shield"), store.get)


def mussel(world: World, store: Store) -> Shield:
    """The form of the system that this is modelled on."""
    return Shield(world.clock, world.chance("shield"), store.get, hot=MUSSEL, cold_too=False)


def without_coalesce(world: World, store: Store) -> Shield:
    """Each who misses fetches."""
    return Shield(world.clock, world.chance("shield"), store.get, coalesce=False)


def without_hot_key(world: World, store: Store) -> Shield:
    """One fetch at a time, and nothing is kept."""
    return Shield(world.clock, world.chance("shield"), store.get, hot_key=False)


def in_flood(make_front: MakeFront) -> Contender[Flood, Flooded]:
    """A contender that is a front."""
    return Contender(lambda rig, seed: play(rig, make_front, seed), TASKS)


SCENARIO: Final = Scenario(
    number=10,
    name="hot-keys",
    title="A million reads a second, four fifths of them of five keys",
    why="A shard that everybody asks for is lost, and with it whoever needs its other keys.",
    rigs={"flood": Flood()},
    contenders={
        "shield": in_flood(shield),
        "mussel": in_flood(mussel),
        "without-coalesce": in_flood(without_coalesce),
        "without-hot-key": in_flood(without_hot_key),
        "ttl-cache": in_flood(lambda world, store: TtlCache(world.clock, store.get)),
        "no-cache": in_flood(lambda world, store: NoCache(store.get)),
    },
    ours="shield",
    must_fail=("ttl-cache", "without-coalesce", "without-hot-key"),
    goals=(
        Goal(figure="early_ratio", at_most=1e-3),
        Goal(figure="steady_ratio", at_most=1e-4),
        Goal(figure="detect_ms", at_most=50.0),
        Goal(figure="usual_p99", at_most=1.1),
    ),
    measure=measure,
    curves=curves,
    shown=("early_ratio", "steady_ratio", "detect_ms", "usual_p99", "forwarded"),
    pictures=(
        Picture(
            "The funnel: reads of hot keys on one node",
            ("received", "not_cached", "forwarded"),
            AS_BARS,
            "reads",
            log_y=True,
        ),
        Picture(
            "What reaches the store for the hot keys",
            ("forwarded_per_s",),
            OVER_TIME,
            "reads a second",
            "seconds",
            log_y=True,
        ),
    ),
    scale="one node of the fifty, at its full 20,000 a second, with a fiftieth of the store",
)
