"""Staleness: a cache in front of a store must not give back what its own node has overwritten.

A fetch that read before a write and comes back after it fills the cache with the past, for as long
as the cache keeps it; and who joins a fetch that began before his own write reads the past too. So
each key has an epoch: a write moves it, a fill of an older epoch is void, and nobody joins a flight
from before. The goals: no read on the node that wrote is older than its write, in any order of
events (`races`, of which a million are played in the long proofs); and on other nodes, which hear
of nothing, none is older than the time to live and one fetch.
"""

from __future__ import annotations

from typing import Any, Final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.clock import Clock
from sluicegate.lab.baselines.caches import TtlCache
from sluicegate.lab.goals import Goal
from sluicegate.lab.rigs.freshness import (
    FreshnessRig,
    NodesRig,
    RaceRig,
    candidate,
    measure,
)
from sluicegate.lab.rigs.read_paths import Get, ShieldedReads
from sluicegate.lab.scenario import AS_BARS, PlotSpec, Scenario
from sluicegate.policies.hot_key import HotKeySettings

DEFAULTS: Final = HotKeySettings()
RIGS: Final[dict[str, FreshnessRig]] = {
    "races": RaceRig(),
    "nodes": NodesRig(ttl_us=DEFAULTS.ttl_us),
}
HOT_AT_ONCE: Final = HotKeySettings(hot_min=1, hot_permille=0)


def shield(clock: Clock, chance: Chance, get: Get, hot_at_once: bool, **out: Any) -> ShieldedReads:
    """`hot_key` and `coalesce`; where every read counts, a key is hot with the first."""
    return ShieldedReads(clock, chance, get, hot=HOT_AT_ONCE if hot_at_once else DEFAULTS, **out)


def without_epochs(clock: Clock, chance: Chance, get: Get, hot_at_once: bool) -> ShieldedReads:
    """A write deletes what is kept, and any fill is taken."""
    return shield(clock, chance, get, hot_at_once, epochs=False)


def without_parting(clock: Clock, chance: Chance, get: Get, hot_at_once: bool) -> ShieldedReads:
    """Who asks after a write may join a fetch from before it."""
    return shield(clock, chance, get, hot_at_once, split_on_write=False)


def ttl_cache(clock: Clock, chance: Chance, get: Get, hot_at_once: bool) -> TtlCache:
    """A dict with times, and a delete on a write."""
    return TtlCache(clock, get, ttl_us=DEFAULTS.ttl_us)


SCENARIO: Final = Scenario(
    number=12,
    name="staleness",
    title="Reads after writes, through a cache and shared fetches",
    why="Whoever changes a price and reads the old one back has found a bug, not a cache.",
    rigs=RIGS,
    candidates={
        "shield": candidate(shield),
        "without-epochs": candidate(without_epochs),
        "without-parting": candidate(without_parting),
        "ttl-cache": candidate(ttl_cache),
    },
    ours="shield",
    must_fail=("ttl-cache", "without-epochs", "without-parting"),
    goals=(
        Goal(figure="stale_own", at_most=0.0),
        Goal(figure="stale_refills", at_most=0.0),
        Goal(figure="others_beyond_ms", at_most=0.0, cases=("nodes",)),
    ),
    measure=measure,
    columns=("stale_own", "stale_refills", "others_ms", "others_beyond_ms", "served"),
    plots=(
        PlotSpec(
            "Reads older than what their own node had written",
            ("stale_own", "stale_refills"),
            AS_BARS,
            "in all races of a run",
        ),
    ),
    scale="3,000 races a run; a million in the long proofs. Four nodes, three keys.",
)
