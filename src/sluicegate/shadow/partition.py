"""Partition: which queries must be replayed together, and how the work is shared out.

Two queries belong together if they share a counter under either rule set, directly or through
others. What does not belong together cannot change each other's outcomes, so it may be replayed in
different processes, and the outcome is the same for any number of them. A rule that counts all work
together ties all of it into one group, and then there is nothing to share out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sluicegate.contracts.store import Key
from sluicegate.shadow.side import ReplaySide

ONE_GROUP_SHARE: Final = 0.9  # a group of so much of the work leaves too little for the others


def groups_of(sides: Sequence[ReplaySide], queries: int) -> list[int]:
    """For each query the first one of its group."""
    above = list(range(queries))
    owner: dict[tuple[int, Key], int] = {}

    def top(query: int) -> int:
        while above[query] != query:
            above[query] = above[above[query]]
            query = above[query]
        return query

    for number, side in enumerate(sides):
        for query in range(queries):
            for _, key in side.prepared[query].counters():
                other = owner.setdefault((number, key), query)
                if other != query:
                    one, two = top(query), top(other)
                    above[max(one, two)] = min(one, two)
    return [top(query) for query in range(queries)]


def distribute(groups: Sequence[int], requests: Sequence[int], parts: int) -> list[list[int]]:
    """The queries of each part, so that parts have about as many requests; never an empty part."""
    weights: dict[int, int] = {}
    for query, group in enumerate(groups):
        weights[group] = weights.get(group, 0) + requests[query]
    loads = [0] * parts
    part_of: dict[int, int] = {}
    for group, weight in sorted(weights.items(), key=lambda one: (-one[1], one[0])):
        part = loads.index(min(loads))
        part_of[group] = part
        loads[part] += weight
    made: list[list[int]] = [[] for _ in range(parts)]
    for query, group in enumerate(groups):
        made[part_of[group]].append(query)
    return [queries for queries in made if queries]


def largest_share(groups: Sequence[int], requests: Sequence[int]) -> float:
    """How much of the work is in the largest group."""
    weights: dict[int, int] = {}
    for query, group in enumerate(groups):
        weights[group] = weights.get(group, 0) + requests[query]
    total = sum(weights.values())
    return max(weights.values()) / total if total else 1.0
