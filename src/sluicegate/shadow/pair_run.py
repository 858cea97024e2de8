"""Pair run: both rule sets with the queries of a replay, and its requests one block after another.

In this process, whether that is the one that was asked or one of its workers. Not compiled: between
two blocks the interpreter looks at signals, so that Ctrl-C comes through.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final, TypeAlias

from sluicegate.rules.mesh.settings import MeshSettings
from sluicegate.rules.service_rule_set import ServiceRuleSet
from sluicegate.shadow.pair import ReplayPair
from sluicegate.shadow.replay_parts import VirtualClock
from sluicegate.shadow.side import ReplaySide
from sluicegate.shadow.traffic import CapturedTraffic

BLOCK: Final = 2_048  # requests between two looks at the world: some 10 ms of work

# Gets how many requests are done, of how many.
Progress: TypeAlias = Callable[[int, int], object]


def pair_of(
    current: ServiceRuleSet,
    candidate: ServiceRuleSet,
    mesh: MeshSettings,
    traffic: CapturedTraffic,
    *,
    began_us: int,
    ends_us: int,
    by_candidate: bool,
) -> ReplayPair:
    """Both rule sets with all queries prepared, before the first request."""
    clock = VirtualClock(began_us)
    one, other = ReplaySide(current, clock, mesh), ReplaySide(candidate, clock, mesh)
    pair = ReplayPair(
        one, other, clock, began_us=began_us, ends_us=ends_us, by_candidate=by_candidate
    )
    for query in traffic.queries:
        pair.prepare(query)
    one.begin()
    other.begin()
    return pair


def run(
    pair: ReplayPair,
    at_us: array[int],
    which: array[int],
    outcomes: array[int],
    progress: Progress | None = None,
) -> None:
    """Replay the requests in blocks, so that signals and progress come through."""
    total = len(which)
    for begin in range(0, total, BLOCK):
        end = min(begin + BLOCK, total)
        pair.step(at_us, which, outcomes, begin, end)
        if progress is not None:
            progress(end, total)
