"""Hot keys: a crowd asks for five keys, a million times a second, spread over fifty nodes.

Each caller stays within its quota, and the shard that holds the keys is lost all the same, with all
others who need it. Each node notices the keys by itself, keeps their answers for a few seconds,
fetches ahead of their end, and lets one fetch bring what many ask for at once; so the flood becomes
a trickle. The goals: of what is received for the hot keys at most one in a thousand is forwarded in
the first ten seconds, one in ten thousand from then on; the keys are noticed within 50 ms; and
those who read other keys feel nothing (their p99 grows by a tenth at most).
"""

from __future__ import annotations

from typing import Any, Final

from sluicegate.lab.baselines.caches import NoCache, TtlCache
from sluicegate.lab.goals import Goal
from sluicegate.lab.rigs.flood import FloodRig, MakeReadPath, candidate, curves, measure
from sluicegate.lab.rigs.read_paths import ShieldedReads
from sluicegate.lab.scenario import (
    AS_BARS,
    OVER_TIME,
    PlotSpec,
    Scenario,
)
from sluicegate.policies.hot_key import HotKeySettings

# The form of the system that this is modelled on: noticed at 100, cached for 3 s, fetched when it
# has expired; cold keys are fetched by each reader alone.
MUSSEL: Final = HotKeySettings(hot_min=100, hot_permille=0, ttl_us=3_000_000, jitter=0.0, beta=0.0)


def shielded(**form: Any) -> MakeReadPath:
    """Return a maker of `hot_key` and `coalesce`, with their defaults where `form` says nothing."""
    return lambda world, store: ShieldedReads(
        world.clock, world.chance("shield"), store.get, **form
    )


shield: Final = shielded()
mussel: Final = shielded(hot=MUSSEL, coalesce_cold=False)
without_coalesce: Final = shielded(coalesce=False)
without_hot_key: Final = shielded(hot_key=False)

SCENARIO: Final = Scenario(
    number=10,
    name="hot-keys",
    title="A million reads a second, four fifths of them of five keys",
    why="A shard that everybody asks for is lost, and with it whoever needs its other keys.",
    rigs={"flood": FloodRig()},
    candidates={
        "shield": candidate(shield),
        "mussel": candidate(mussel),
        "without-coalesce": candidate(without_coalesce),
        "without-hot-key": candidate(without_hot_key),
        "ttl-cache": candidate(lambda world, store: TtlCache(world.clock, store.get)),
        "no-cache": candidate(lambda world, store: NoCache(store.get)),
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
    columns=("early_ratio", "steady_ratio", "detect_ms", "usual_p99", "forwarded"),
    plots=(
        PlotSpec(
            "The funnel: reads of hot keys on one node",
            ("received", "not_cached", "forwarded"),
            AS_BARS,
            "reads",
            log_y=True,
        ),
        PlotSpec(
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
