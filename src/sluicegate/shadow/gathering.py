"""Gathering: requests one by one, in about the order in which they came, to a capture.

Whoever reads a log, imports one or makes one up adds to it; what is the same ask is kept once.
Requests may come somewhat out of order, as those of a log that is written when they end: they are
put into order once, at the end.

Bounds: `requests_max` requests and `asks_max` different asks; what is beyond is refused by `add`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice
from operator import le
from typing import Final, final

from sluicegate.contracts.checks import CheckRequest, MeshRequest
from sluicegate.contracts.errors import BadValue
from sluicegate.shadow.ask_keys import AskKey, whole_key
from sluicegate.shadow.captured import ALL, UNKNOWN, Captured
from sluicegate.shadow.entities import NO_KEYS, entity_of

REQUESTS_MAX_DEFAULT: Final = 20_000_000
ASKS_MAX_DEFAULT: Final = 5_000_000
_PIECE: Final = 1 << 16  # sorted by itself
_STEP: Final = 1 << 12  # of each run, taken at a time


@final
class Gathering:
    """A capture in the making. `mesh_keys` are the keys that single out an entity."""

    __slots__ = ("_captured", "_known", "_mesh_keys", "asks_max", "requests_max")

    def __init__(
        self,
        *,
        share: int = ALL,
        mesh_keys: Sequence[str] = NO_KEYS,
        requests_max: int = REQUESTS_MAX_DEFAULT,
        asks_max: int = ASKS_MAX_DEFAULT,
    ) -> None:
        for name, bound in (("requests_max", requests_max), ("asks_max", asks_max)):
            if bound < 1:
                raise BadValue(name, bound, "give a whole number, at least 1")
        self._captured = Captured(share=share)
        self._known: dict[AskKey, int] = {}
        self._mesh_keys = mesh_keys
        self.requests_max = requests_max
        self.asks_max = asks_max

    def __len__(self) -> int:
        return len(self._captured)

    @property
    def room(self) -> int:
        """How many more requests there may be."""
        return self.requests_max - len(self._captured)

    def add(self, ask: CheckRequest | MeshRequest, at_us: int, outcome: int = UNKNOWN) -> bool:
        """One request; False if it has reached a bound, and was counted as lost."""
        number = self.number(ask) if self.room > 0 else -1
        if number < 0:
            self._captured.lost += 1
            return False
        captured = self._captured
        captured.at_us.append(at_us)
        captured.which.append(number)
        captured.outcomes.append(outcome)
        return True

    def number(self, ask: CheckRequest | MeshRequest) -> int:
        """Which of the asks it is; -1 if there may be no more of them."""
        return self.number_of(whole_key(ask), ask)

    def number_of(self, key: AskKey, ask: CheckRequest | MeshRequest) -> int:
        """The same for an ask whose key is known."""
        number = self._known.get(key)
        if number is None:
            captured = self._captured
            number = len(captured.asks)
            if number >= self.asks_max:
                return -1
            self._known[key] = number
            captured.asks.append(ask)
            captured.entities.append(entity_of(ask, self._mesh_keys))
        return number

    def extend(self, at_us: array[int], which: array[int], outcomes: array[int]) -> None:
        """Many requests at once, of asks that have their numbers; as many as there is room for."""
        captured, room = self._captured, self.room
        captured.lost += max(len(at_us) - room, 0)
        captured.at_us.extend(at_us[:room])
        captured.which.extend(which[:room])
        captured.outcomes.extend(outcomes[:room])

    def lose(self, requests: int) -> None:
        """So many that should be here are not."""
        self._captured.lost += requests

    def captured(self) -> Captured:
        """The capture, in order of time; what was at one instant stays as it was added."""
        in_order(self._captured)
        return self._captured


def in_order(captured: Captured) -> None:
    """Put the requests of a capture into order of time.

    Pieces are sorted where they stand and then merged, so it takes one more copy of the columns
    and little beside, however large the capture.
    """
    at_us = captured.at_us
    if ascending(at_us):
        return
    runs = _sorted_runs(captured)
    merged_at, merged_which, merged_outcomes = array("q"), array("I"), array("b")
    while runs:
        # Whatever is not after this instant is in the next piece of its run.
        until_us = min(at_us[min(begin + _STEP, end) - 1] for begin, end in runs)
        piece: list[int] = []
        left: list[tuple[int, int]] = []
        for begin, end in runs:
            place = bisect_right(at_us, until_us, begin, end)
            piece.extend(range(begin, place))
            if place < end:
                left.append((place, end))
        runs = left
        piece.sort(key=at_us.__getitem__)
        merged_at.extend([at_us[place] for place in piece])
        merged_which.extend([captured.which[place] for place in piece])
        merged_outcomes.extend([captured.outcomes[place] for place in piece])
    captured.at_us, captured.which, captured.outcomes = merged_at, merged_which, merged_outcomes


def ascending(at_us: Sequence[int]) -> bool:
    """Whether no instant is before the one that precedes it."""
    return all(map(le, at_us, islice(at_us, 1, None)))


def _sorted_runs(captured: Captured) -> list[tuple[int, int]]:
    """Sort each piece by itself; where each run of pieces that are in order begins and ends."""
    at_us, which, outcomes = captured.at_us, captured.which, captured.outcomes
    runs: list[tuple[int, int]] = []
    for begin in range(0, len(at_us), _PIECE):
        end = min(begin + _PIECE, len(at_us))
        if not ascending(at_us[begin:end]):
            order = sorted(range(begin, end), key=at_us.__getitem__)
            at_us[begin:end] = array("q", [at_us[place] for place in order])
            which[begin:end] = array("I", [which[place] for place in order])
            outcomes[begin:end] = array("b", [outcomes[place] for place in order])
        if runs and at_us[begin - 1] <= at_us[begin]:
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((begin, end))
    return runs
