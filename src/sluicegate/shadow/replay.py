"""Replay: captured requests against two rule sets on virtual time, as the limiter would have
decided.

    traffic ── instants and queries ── current  ──┐
                                 └── candidate ─┴── counts of what both did, by query

A replay begins without history: no limit has counted anything yet, in either set. What came before
a limit could look back as far as it does is counted apart. Requests that are out of order are
replayed at the latest instant so far, as a clock that goes back stands still in the limiter too.

Work is shared by processes only where that cannot change an outcome (see `partition.py`), so the
counts are the same for any number of them. Ctrl-C ends it between two blocks.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from operator import gt
from typing import Final, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.store import Key
from sluicegate.rules.mesh.settings import MeshSettings
from sluicegate.shadow.pair import ReplayPair
from sluicegate.shadow.pair_run import Progress, pair_of, run
from sluicegate.shadow.partition import ONE_GROUP_SHARE, distribute, groups_of, largest_share
from sluicegate.shadow.replay_parts import VirtualClock
from sluicegate.shadow.replay_rules import ReplayRules
from sluicegate.shadow.rule_texts import RuleName, name_of, spans_entities
from sluicegate.shadow.side import Query, ReplaySide
from sluicegate.shadow.traffic import CapturedTraffic, ascending
from sluicegate.shadow.workers import ReplayPart, replay_parts

WORKERS_MAX: Final = 64


@dataclass
class ReplayResult:
    """What two rule sets did with a capture.

    `spanning` are rules that count the work of several entities together. `processes` is how many
    did the work, and `alone` says why it was only one where more were wanted.
    """

    traffic: CapturedTraffic
    current: ReplayRules
    candidate: ReplayRules
    pair: ReplayPair
    began_us: int = 0
    ends_us: int = 0
    out_of_order: int = 0
    requests_by_query: list[int] = field(default_factory=list)
    spanning: set[RuleName] = field(default_factory=set)
    processes: int = 1
    alone: str = ""


def replay(
    traffic: CapturedTraffic,
    current: ReplayRules,
    candidate: ReplayRules,
    *,
    mesh: MeshSettings | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> ReplayResult:
    """Replay all of it; `mesh` is how the service is set for a mesh's questions."""
    if not 1 <= workers <= WORKERS_MAX:
        raise BadValue("workers", workers, f"give a whole number from 1 to {WORKERS_MAX}")
    settings = MeshSettings(semantics=current.semantics) if mesh is None else mesh
    _check(current, candidate, settings)
    at_us = traffic.at_us
    if not ascending(at_us):
        at_us = array("q", accumulate(at_us, max))
    began_us, ends_us = (at_us[0], at_us[-1]) if at_us else (0, 0)
    pair = pair_of(
        current.book,
        candidate.book,
        settings,
        traffic,
        began_us=began_us,
        ends_us=ends_us,
        by_candidate=current.empty,
    )
    result = ReplayResult(traffic, current, candidate, pair)
    result.began_us, result.ends_us = began_us, ends_us
    if at_us is not traffic.at_us:
        result.out_of_order = sum(map(gt, at_us, traffic.at_us))
    result.requests_by_query = _requests_by_query(traffic)
    result.spanning = _spanning(pair, traffic)
    parts = _parts(result, settings, workers)
    if len(parts) == 1:
        run(pair, at_us, traffic.which, traffic.outcomes, progress)
        return result
    result.processes = len(parts)
    made = [_part(traffic, at_us, queries) for queries in parts]
    done, total = 0, len(traffic)
    for number, counts in replay_parts(made, current, candidate, settings, began_us, ends_us):
        pair.add(counts, parts[number])
        done += counts.replayed
        if progress is not None:
            progress(done, total)
    return result


def _check(current: ReplayRules, candidate: ReplayRules, settings: MeshSettings) -> None:
    for rules in (current, candidate):
        if rules.semantics is not settings.semantics:
            remedy = "make both rulebooks and the mesh's settings with the same"
            raise BadValue("semantics", rules.semantics.value, remedy)


def _requests_by_query(traffic: CapturedTraffic) -> list[int]:
    counts = [0] * len(traffic.queries)
    for query in traffic.which:
        counts[query] += 1
    return counts


def _spanning(pair: ReplayPair, traffic: CapturedTraffic) -> set[RuleName]:
    """The rules that count several entities together: by what they say, or by what they did."""
    spanning: set[RuleName] = set()
    for side in (pair.current, pair.candidate):
        owner: dict[Key, str] = {}
        for prepared, entity in zip(side.prepared, traffic.entities, strict=True):
            for place, key in prepared.counters():
                rule = prepared.rules[place]
                if owner.setdefault(key, entity) != entity or spans_entities(rule):
                    spanning.add(name_of(rule))
    return spanning


def _parts(result: ReplayResult, settings: MeshSettings, workers: int) -> list[list[int]]:
    """The queries of each process; one list of all where the work cannot be shared."""
    pair, queries = result.pair, len(result.traffic.queries)
    everything = [[*range(queries)]]
    if workers == 1 or not queries:
        return everything
    if settings.local_cache_max:
        result.alone = "the mesh remembers counters of all entities together (local_cache_max)"
        return everything
    groups = groups_of((pair.current, pair.candidate), queries)
    if largest_share(groups, result.requests_by_query) > ONE_GROUP_SHARE:
        rule_ids = ", ".join(rule_id for _, rule_id in sorted(result.spanning)[:3])
        why = f": rules count them together ({rule_ids})" if rule_ids else ""
        result.alone = f"nearly all requests must be replayed in one process{why}"
        return everything
    return distribute(groups, result.requests_by_query, workers)


def _part(traffic: CapturedTraffic, at_us: array[int], queries: list[int]) -> ReplayPart:
    """The requests of these queries, their places counted anew."""
    places = dict(zip(queries, range(len(queries)), strict=True))
    places_kept = [at for at, query in enumerate(traffic.which) if query in places]
    return ReplayPart(
        [traffic.queries[query] for query in queries],
        array("q", [at_us[at] for at in places_kept]),
        array("I", [places[traffic.which[at]] for at in places_kept]),
        array("b", [traffic.outcomes[at] for at in places_kept]),
    )


@final
class SingleReplay:
    """A rule set without history, and its queries, known by their places."""

    def __init__(
        self, rules: ReplayRules, queries: Iterable[Query], *, mesh: MeshSettings | None = None
    ) -> None:
        settings = MeshSettings(semantics=rules.semantics) if mesh is None else mesh
        if settings.semantics is not rules.semantics:
            remedy = "make the rulebook and the mesh's settings with the same"
            raise BadValue("semantics", rules.semantics.value, remedy)
        self._clock = VirtualClock()
        self._side = ReplaySide(rules.book, self._clock, settings)
        for query in queries:
            self._side.prepare(query)
        self._side.begin()

    def decide(self, query: int, at_us: int) -> int:
        """Decide and count: `ADMIT`, k where the k-th rule refuses, or `UNASKABLE`."""
        clock = self._clock
        if at_us > clock.at_us:
            clock.at_us = at_us
        return self._side.decide(query, clock.at_us)

    def priority(self, query: int) -> Criticality:
        """How much it matters, as these rules settle it."""
        return self._side.prepared[query].priority

    def rule_id(self, query: int, code: int) -> str:
        """The rule that a refusal names."""
        return self._side.prepared[query].rules[code - 1].rule_id
