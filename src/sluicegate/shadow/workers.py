"""Workers: parts of a replay in processes of their own.

A child gets the files of both rule sets and makes them itself; queries travel as plain values, for
a compiled class does not travel. The law: children never outlive us. Whoever stops taking counts
(an error, Ctrl-C) ends them at once, and a child whose parent has died ends itself.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Final, NamedTuple, TypeAlias

from sluicegate.command_line.process_pool import process_pool
from sluicegate.contracts.checks import CheckRequest, Descriptor, MeshRequest, Override
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.rulebook import Files
from sluicegate.rules.mesh.rule import Semantics
from sluicegate.rules.mesh.settings import MeshSettings
from sluicegate.shadow.pair import PairCounts
from sluicegate.shadow.pair_run import pair_of, run
from sluicegate.shadow.replay_rules import ReplayRules
from sluicegate.shadow.side import Query
from sluicegate.shadow.traffic import CapturedTraffic

Plain: TypeAlias = tuple[Any, ...]

_SETTINGS: Final = (
    "global_shadow",
    "header_names",
    "metadata",
    "near_ratio",
    "local_cache_max",
    "stop_when_over",
    "descriptors_max",
    "overrides_max",
    "tallies_max",
)


class ReplayPart(NamedTuple):
    """Queries, and the requests of them."""

    queries: Sequence[Query]
    at_us: array[int]
    which: array[int]
    outcomes: array[int]


class _Task(NamedTuple):
    """A part as it travels, with all that is needed to replay it."""

    queries: list[Plain]
    at_us: array[int]
    which: array[int]
    outcomes: array[int]
    current: Plain
    candidate: Plain
    mesh: Plain
    began_us: int
    ends_us: int


def replay_parts(
    parts: Sequence[ReplayPart],
    current: ReplayRules,
    candidate: ReplayRules,
    mesh: MeshSettings,
    began_us: int,
    ends_us: int,
) -> Iterator[tuple[int, PairCounts]]:
    """Replay each in a process of its own; the number of the part and its counts, as they end."""
    both, settings = (_plain_rules(current), _plain_rules(candidate)), _plain_settings(mesh)
    with process_pool(len(parts)) as pool:
        under_way: dict[Future[PairCounts], int] = {}
        for number, part in enumerate(parts):
            queries = [plain(query) for query in part.queries]
            _, at_us, which, outcomes = part
            task = _Task(queries, at_us, which, outcomes, *both, settings, began_us, ends_us)
            under_way[pool.submit(_replay_there, task)] = number
        for future in as_completed(under_way):
            try:
                counts = future.result()
            except BrokenProcessPool as error:
                problem = "it has died; with workers=1 all is replayed in this process"
                raise Unavailable("a process of the replay", problem) from error
            yield under_way[future], counts


def plain(query: Query) -> Plain:
    """A query as values that travel."""
    if isinstance(query, CheckRequest):
        claim = None if query.priority is None else int(query.priority)
        return (query.user_id, query.resource_path, dict(query.headers), query.cost, claim)
    descriptors = [
        (
            tuple(one.entries),
            None if one.override is None else (one.override.requests_per_unit, one.override.unit),
            one.cost,
        )
        for one in query.descriptors
    ]
    return (query.domain, descriptors, query.cost)


def parse_mesh_request(values: Plain) -> Query:
    """Return the query of these values."""
    if len(values) == 5:
        user_id, path, headers, weight, claim = values
        priority = None if claim is None else Criticality(claim)
        return CheckRequest(user_id, path, headers=headers, cost=weight, priority=priority)
    domain, settings, hits = values
    descriptors = [
        Descriptor(entries, override=None if limit is None else Override(*limit), cost=own)
        for entries, limit, own in settings
    ]
    return MeshRequest(domain, descriptors, hits)


# In a child.


def _replay_there(task: _Task) -> PairCounts:
    traffic = CapturedTraffic()
    traffic.queries += [parse_mesh_request(values) for values in task.queries]
    current, candidate = _rules_of(task.current), _rules_of(task.candidate)
    semantics, priority, settings = task.mesh
    mesh = MeshSettings(semantics=Semantics(semantics), priority=Criticality(priority), **settings)
    pair = pair_of(
        current.book,
        candidate.book,
        mesh,
        traffic,
        began_us=task.began_us,
        ends_us=task.ends_us,
        by_candidate=current.empty,
    )
    run(pair, task.at_us, task.which, task.outcomes)
    return pair.counts()


def _plain_rules(rules: ReplayRules) -> Plain:
    return (dict(rules.files), rules.semantics.value, rules.merge_domains)


def _rules_of(values: Plain) -> ReplayRules:
    files: Files = values[0]
    return ReplayRules(files, semantics=values[1], merge_domains=values[2])


def _plain_settings(mesh: MeshSettings) -> Plain:
    settings = {name: getattr(mesh, name) for name in _SETTINGS}
    return (mesh.semantics.value, int(mesh.priority), settings)
