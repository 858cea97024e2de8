"""History: how commits descend from each other.

Both questions are one walk: paint what one commit descends from in one colour, what the other does
in another, newest first, until all that is left to look at has both. Dates only say what to look at
next; where they are wrong the walk is longer, and the answer the same. Parents never change, so
they are remembered.
"""

from __future__ import annotations

import heapq
import os
from typing import Final, NamedTuple, final

from sluicegate.contracts.errors import BadValue
from sluicegate.rules.repository.objects import Objects
from sluicegate.rules.repository.settings import RepositorySettings

_ONE: Final = 1
_OTHER: Final = 2
_STALE: Final = 4  # older than something both descend from
_BOTH: Final = _ONE | _OTHER


class _CommitStep(NamedTuple):
    """A commit as a walk sees it."""

    parents: tuple[str, ...]
    at_s: int


@final
class History:
    """How the commits of one repository descend from each other."""

    __slots__ = ("_objects", "_settings", "_shallow", "_steps")

    def __init__(self, objects: Objects, common: str, settings: RepositorySettings) -> None:
        self._objects = objects
        self._settings = settings
        self._shallow = os.path.join(common, "shallow")
        self._steps: dict[str, _CommitStep] = {}

    def step(self, hex_id: str) -> _CommitStep:
        """A commit's parents and when it was made."""
        step = self._steps.get(hex_id)
        if step is None:
            commit = self._objects.commit(hex_id)
            parents = tuple(parent.decode("ascii") for parent in commit.parents)
            if parents and hex_id in self._cut_off():
                return _CommitStep((), int(commit.commit_time))
            step = _CommitStep(parents, int(commit.commit_time))
            if len(self._steps) >= self._settings.parents_kept_max:
                self._steps = {}
            self._steps[hex_id] = step
        return step

    def line(self, start: str, count_max: int) -> list[str]:
        """A commit, its first parent, that one's first parent, and so on."""
        line: list[str] = []
        at: str | None = start
        while at is not None and len(line) < count_max:
            line.append(at)
            parents = self.step(at).parents
            at = parents[0] if parents else None
        return line

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether the newer one is the older one, or descends from it."""
        return older == newer or self._paint(older, newer).get(older, 0) & _BOTH == _BOTH

    def merge_base(self, one: str, other: str) -> str | None:
        """The newest commit both descend from; None where there is none."""
        if one == other:
            return one
        colours = self._paint(one, other)
        common = [
            hex_id for hex_id, has in colours.items() if has & _BOTH == _BOTH and not has & _STALE
        ]
        # Wrong dates may leave one that is older than another.
        best = [
            hex_id
            for hex_id in common
            if not any(hex_id != newer and self.is_ancestor(hex_id, newer) for newer in common)
        ]
        return max(best, key=lambda hex_id: (self.step(hex_id).at_s, hex_id), default=None)

    def _paint(self, one: str, other: str) -> dict[str, int]:
        colours = {one: _ONE, other: _OTHER}
        queue = [(-self.step(hex_id).at_s, hex_id) for hex_id in colours]
        heapq.heapify(queue)
        looks = 0
        while any(not colours[hex_id] & _STALE for _, hex_id in queue):
            _, hex_id = heapq.heappop(queue)
            looks += 1
            if looks > self._settings.walk_max:
                raise BadValue(
                    "repository.walk_max",
                    self._settings.walk_max,
                    f"{one} and {other} are further apart; raise it",
                )
            colour = colours[hex_id]
            if colour & _BOTH == _BOTH:
                colour |= _STALE
            for parent in self.step(hex_id).parents:
                previous = colours.get(parent, 0)
                if previous | colour != previous:
                    colours[parent] = previous | colour
                    heapq.heappush(queue, (-self.step(parent).at_s, parent))
        return colours

    def _cut_off(self) -> frozenset[str]:
        """The commits whose parents a shallow clone left out."""
        try:
            with open(self._shallow, encoding="ascii") as file:
                return frozenset(file.read().split())
        except (OSError, UnicodeDecodeError):
            return frozenset()
