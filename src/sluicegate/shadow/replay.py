"""Replay: captured requests against two books on virtual time, as the limiter would have decided.

    captured ── instants and asks ── current  ──┐
                                 └── candidate ─┴── counts of what both did, by ask

A replay begins without history: no limit has counted anything yet, in either book. What came before
a limit could look back as far as it does is counted apart. Requests that are out of order are
replayed at the latest instant seen, as a clock that goes back stands still in the limiter too.

Work is shared by processes only where that cannot change an answer (see `parting.py`), so the
counts are the same for any number of them. Ctrl-C ends it between two blocks.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import accumulate
from operator import gt
from typing import Final, TypeAlias, final

from sluicegate.contracts.errors import BadValue
from sluicegate.rules.mesh.settings import MeshSettings
from sluicegate.rules.service_rule_set import ServiceRuleSet
from sluicegate.shadow.books import Rules
from sluicegate.shadow.captured import Captured
from sluicegate.shadow.gathering import ascending
from sluicegate.shadow.pair import Pair
from sluicegate.shadow.parting import ONE_GROUP_SHARE, groups_of, largest_share, shared_out
from sluicegate.shadow.rule_words import RuleName, name_of, spans_entities
from sluicegate.shadow.side import Side
from sluicegate.shadow.virtual import VirtualClock
from sluicegate.shadow.workers import Part, replay_parts

BLOCK: Final = 2_048  # requests between two looks at the world: some 10 ms of work
WORKERS_MAX: Final = 64

# Is told how many requests are done, of how many.
Progress: TypeAlias = Callable[[int, int], object]


@final
class Replayed:
    """What two books did with a capture.

    `spanning` are rules that count the work of several entities together. `processes` is how many
    did the work, and `alone` says why it was only one where more were wanted.
    """

    __slots__ = (
        "alone",
        "began_us",
        "candidate",
        "captured",
        "current",
        "ends_us",
        "out_of_order",
        "pair",
        "processes",
        "requests_by_ask",
        "spanning",
    )

    def __init__(self, captured: Captured, current: Rules, candidate: Rules, pair: Pair) -> None:
        self.captured: Final = captured
        self.current: Final = current
        self.candidate: Final = candidate
        self.pair: Final = pair
        self.began_us = 0
        self.ends_us = 0
        self.out_of_order = 0
        self.requests_by_ask: list[int] = []
        self.spanning: set[RuleName] = set()
        self.processes = 1
        self.alone = ""


def replay(
    captured: Captured,
    current: Rules,
    candidate: Rules,
    *,
    mesh: MeshSettings | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> Replayed:
    """Replay all of it; `mesh` is how the service is set for a mesh's questions."""
    if not 1 <= workers <= WORKERS_MAX:
        raise BadValue("workers", workers, f"give a whole number from 1 to {WORKERS_MAX}")
    settings = MeshSettings(semantics=current.semantics) if mesh is None else mesh
    _check(current, candidate, settings)
    at_us = captured.at_us
    if not ascending(at_us):
        at_us = array("q", accumulate(at_us, max))
    began_us, ends_us = (at_us[0], at_us[-1]) if at_us else (0, 0)
    pair = pair_of(
        current.book,
        candidate.book,
        settings,
        captured,
        began_us=began_us,
        ends_us=ends_us,
        by_candidate=current.empty,
    )
    replayed = Replayed(captured, current, candidate, pair)
    replayed.began_us, replayed.ends_us = began_us, ends_us
    if at_us is not captured.at_us:
        replayed.out_of_order = sum(map(gt, at_us, captured.at_us))
    replayed.requests_by_ask = _requests_by_ask(captured)
    replayed.spanning = _spanning(pair, captured)
    parts = _parts(replayed, settings, workers)
    if len(parts) == 1:
        run(pair, at_us, captured.which, captured.outcomes, progress)
        return replayed
    replayed.processes = len(parts)
    made = [_part(captured, at_us, asks) for asks in parts]
    done, total = 0, len(captured)
    for number, counts in replay_parts(made, current, candidate, settings, began_us, ends_us):
        pair.add(counts, parts[number])
        done += counts.replayed
        if progress is not None:
            progress(done, total)
    return replayed


def pair_of(
    current: ServiceRuleSet,
    candidate: ServiceRuleSet,
    mesh: MeshSettings,
    captured: Captured,
    *,
    began_us: int,
    ends_us: int,
    by_candidate: bool,
) -> Pair:
    """Both books with all asks taken in, before the first request."""
    clock = VirtualClock(began_us)
    one, other = Side(current, clock, mesh), Side(candidate, clock, mesh)
    pair = Pair(one, other, clock, began_us=began_us, ends_us=ends_us, by_candidate=by_candidate)
    for ask in captured.asks:
        pair.prepare(ask)
    one.begin()
    other.begin()
    return pair


def run(
    pair: Pair,
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


def _check(current: Rules, candidate: Rules, settings: MeshSettings) -> None:
    for rules in (current, candidate):
        if rules.semantics is not settings.semantics:
            remedy = "make both rulebooks and the mesh's settings with the same"
            raise BadValue("semantics", rules.semantics.value, remedy)


def _requests_by_ask(captured: Captured) -> list[int]:
    counts = [0] * len(captured.asks)
    for ask in captured.which:
        counts[ask] += 1
    return counts


def _spanning(pair: Pair, captured: Captured) -> set[RuleName]:
    """The rules that count several entities together: they say so, or they were seen to."""
    spanning: set[RuleName] = set()
    for side in (pair.current, pair.candidate):
        owner: dict[str, str] = {}
        for prepared, entity in zip(side.prepared, captured.entities, strict=True):
            for place, key in prepared.counters():
                rule = prepared.rules[place]
                if owner.setdefault(key, entity) != entity or spans_entities(rule):
                    spanning.add(name_of(rule))
    return spanning


def _parts(replayed: Replayed, settings: MeshSettings, workers: int) -> list[list[int]]:
    """The asks of each process; one list of all where the work cannot be shared."""
    pair, asks = replayed.pair, len(replayed.captured.asks)
    everything = [[*range(asks)]]
    if workers == 1 or not asks:
        return everything
    if settings.local_cache_max:
        replayed.alone = "the mesh remembers counters of all entities together (local_cache_max)"
        return everything
    groups = groups_of((pair.current, pair.candidate), asks)
    if largest_share(groups, replayed.requests_by_ask) > ONE_GROUP_SHARE:
        named = ", ".join(rule_id for _, rule_id in sorted(replayed.spanning)[:3])
        why = f": rules count them together ({named})" if named else ""
        replayed.alone = f"nearly all requests must be replayed in one process{why}"
        return everything
    return shared_out(groups, replayed.requests_by_ask, workers)


def _part(captured: Captured, at_us: array[int], asks: list[int]) -> Part:
    """The requests of these asks, their places counted anew."""
    places = dict(zip(asks, range(len(asks)), strict=True))
    kept = [at for at, ask in enumerate(captured.which) if ask in places]
    return Part(
        [captured.asks[ask] for ask in asks],
        array("q", [at_us[at] for at in kept]),
        array("I", [places[captured.which[at]] for at in kept]),
        array("b", [captured.outcomes[at] for at in kept]),
    )
