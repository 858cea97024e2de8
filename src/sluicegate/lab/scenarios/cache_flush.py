"""Cache flush: the cache is emptied, and the store behind it can do a tenth of what is asked.

While the cache is warm the store sees the few that miss. After a flush it sees all, falls behind,
and whoever waits gives up before his answer comes: so nothing fills the cache, the callers try
again, and the state lasts although its cause is long gone. The goal: the hit ratio is back at 95%
of what it was within twice the least time, which is what a store at its full speed takes to bring
the keys that are needed for it, the most wanted first.
"""

from __future__ import annotations

from typing import Final

from sluicegate.lab.baselines.caches import PlainLookAside
from sluicegate.lab.goals import Goal
from sluicegate.lab.retries import NAIVE, SMART
from sluicegate.lab.rigs.look_aside import (
    Fetch,
    Fill,
    GuardedPath,
    LookAside,
    candidate,
    curves,
    measure,
)
from sluicegate.lab.scenario import OVER_TIME, PlotSpec, Scenario
from sluicegate.lab.world import World


def without_coalesce(world: World, rig: LookAside, fetch: Fetch, fill: Fill) -> GuardedPath:
    """Each reader stands in the line for himself."""
    return GuardedPath(world, rig, fetch, fill, coalesce=False)


def without_queue(world: World, rig: LookAside, fetch: Fetch, fill: Fill) -> GuardedPath:
    """All fetches go to the store at once."""
    return GuardedPath(world, rig, fetch, fill, queue=False)


SCENARIO: Final = Scenario(
    number=5,
    name="cache-flush",
    title="A look-aside cache is flushed",
    why="A cache that the store cannot live without must come back by itself.",
    rigs={"budget": LookAside(retries=SMART), "naive": LookAside(retries=NAIVE)},
    candidates={
        "guarded": candidate(GuardedPath),
        "without-coalesce": candidate(without_coalesce),
        "without-queue": candidate(without_queue),
        "look-aside": candidate(lambda _, __, fetch, fill: PlainLookAside(fetch, fill)),
    },
    ours="guarded",
    must_fail=("look-aside", "without-queue"),
    goals=(Goal(figure="refill", at_most=2.0),),
    measure=measure,
    curves=curves,
    columns=("refill", "recovered_s", "least_s", "hits_at_end", "wasted_fetches"),
    plots=(
        PlotSpec("The hit ratio after a flush", ("hit_ratio",), OVER_TIME, "hits", "seconds"),
        PlotSpec(
            "What the store is asked for", ("fetched_per_s",), OVER_TIME, "a second", "seconds"
        ),
    ),
    scale="2,000 reads a second of 5,000 keys, a store of 200 a second",
)
