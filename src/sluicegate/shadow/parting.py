"""Parting: which asks must be replayed together, and how the work is shared out.

Two asks belong together if they share a counter under either book, directly or through others. What
does not belong together cannot change each other's answers, so it may be replayed in different
processes, and the outcome is the same for any number of them. A rule that counts all work together
ties all of it into one group, and then there is nothing to share out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sluicegate.shadow.side import Side

ONE_GROUP_SHARE: Final = 0.9  # a group of so much of the work leaves too little for the others


def groups_of(sides: Sequence[Side], asks: int) -> list[int]:
    """For each ask the first one of its group."""
    above = list(range(asks))
    owner: dict[tuple[int, str], int] = {}

    def top(ask: int) -> int:
        while above[ask] != ask:
            above[ask] = above[above[ask]]
            ask = above[ask]
        return ask

    for number, side in enumerate(sides):
        for ask in range(asks):
            for _, key in side.prepared[ask].counters():
                other = owner.setdefault((number, key), ask)
                if other != ask:
                    one, two = top(ask), top(other)
                    above[max(one, two)] = min(one, two)
    return [top(ask) for ask in range(asks)]


def shared_out(groups: Sequence[int], requests: Sequence[int], parts: int) -> list[list[int]]:
    """The asks of each part, so that parts have about as many requests; never an empty part."""
    weights: dict[int, int] = {}
    for ask, group in enumerate(groups):
        weights[group] = weights.get(group, 0) + requests[ask]
    loads = [0] * parts
    part_of: dict[int, int] = {}
    for group, weight in sorted(weights.items(), key=lambda one: (-one[1], one[0])):
        part = loads.index(min(loads))
        part_of[group] = part
        loads[part] += weight
    made: list[list[int]] = [[] for _ in range(parts)]
    for ask, group in enumerate(groups):
        made[part_of[group]].append(ask)
    return [asks for asks in made if asks]


def largest_share(groups: Sequence[int], requests: Sequence[int]) -> float:
    """How much of the work is in the largest group."""
    weights: dict[int, int] = {}
    for ask, group in enumerate(groups):
        weights[group] = weights.get(group, 0) + requests[ask]
    total = sum(weights.values())
    return max(weights.values()) / total if total else 1.0
