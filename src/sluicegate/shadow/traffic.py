"""Captured traffic: requests as they came, each different one (a *query*) kept once.

An hour of a service is millions of requests, but far fewer queries: the same user on the same path,
time after time. So a capture is a list of the queries, and of each request only when it came and
which query it was. That is small to keep and quick to replay, for what can be worked out about a
query is worked out once.
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
from sluicegate.shadow.entities import NO_KEYS, entity_of
from sluicegate.shadow.query_keys import QueryKey, full_key

# What the service decided when the request was captured.
UNKNOWN: Final = -1
ADMITTED: Final = 0
REFUSED: Final = 1

ALL: Final = 10_000  # entities that were captured, of so many


@final
class CapturedTraffic:
    """Requests in the order in which they came: `at_us[i]` is when `queries[which[i]]` came.

    `entities[n]` is whose work `queries[n]` is: the user, or what the descriptors single out. A
    capture has all requests of an entity or none; `share` of 10,000 entities are in it. `lost` are
    requests that should be here and are not, because a bound was reached.
    """

    __slots__ = ("at_us", "entities", "lost", "outcomes", "queries", "share", "which")

    def __init__(self, *, share: int = ALL) -> None:
        self.queries: list[CheckRequest | MeshRequest] = []
        self.entities: list[str] = []
        self.at_us = array("q")
        self.which = array("I")
        self.outcomes = array("b")
        self.share = share
        self.lost = 0

    def __len__(self) -> int:
        return len(self.which)


REQUESTS_MAX_DEFAULT: Final = 20_000_000
QUERIES_MAX_DEFAULT: Final = 5_000_000
_PIECE: Final = 1 << 16  # sorted by itself
_STEP: Final = 1 << 12  # of each run, taken at a time


@final
class TrafficBuilder:
    """Builds captured traffic; `mesh_keys` are the keys that single out an entity."""

    def __init__(
        self,
        *,
        share: int = ALL,
        mesh_keys: Sequence[str] = NO_KEYS,
        requests_max: int = REQUESTS_MAX_DEFAULT,
        queries_max: int = QUERIES_MAX_DEFAULT,
    ) -> None:
        for name, bound in (("requests_max", requests_max), ("queries_max", queries_max)):
            if bound < 1:
                raise BadValue(name, bound, "give a whole number, at least 1")
        self._traffic = CapturedTraffic(share=share)
        self._numbers: dict[QueryKey, int] = {}
        self._mesh_keys = mesh_keys
        self.requests_max = requests_max
        self.queries_max = queries_max

    def __len__(self) -> int:
        return len(self._traffic)

    @property
    def room(self) -> int:
        """How many more requests there may be."""
        return self.requests_max - len(self._traffic)

    def add(self, query: CheckRequest | MeshRequest, at_us: int, outcome: int = UNKNOWN) -> bool:
        """One request; False if it has reached a bound, and was counted as lost."""
        number = self.number(query) if self.room > 0 else -1
        if number < 0:
            self._traffic.lost += 1
            return False
        traffic = self._traffic
        traffic.at_us.append(at_us)
        traffic.which.append(number)
        traffic.outcomes.append(outcome)
        return True

    def number(self, query: CheckRequest | MeshRequest) -> int:
        """Which of the queries it is; -1 if there may be no more of them."""
        return self.number_of(full_key(query), query)

    def number_of(self, key: QueryKey, query: CheckRequest | MeshRequest) -> int:
        """The same for a query whose key is known."""
        number = self._numbers.get(key)
        if number is None:
            traffic = self._traffic
            number = len(traffic.queries)
            if number >= self.queries_max:
                return -1
            self._numbers[key] = number
            traffic.queries.append(query)
            traffic.entities.append(entity_of(query, self._mesh_keys))
        return number

    def extend(self, at_us: array[int], which: array[int], outcomes: array[int]) -> None:
        """Add many requests of queries that have numbers; as many as there is room for."""
        traffic, room = self._traffic, self.room
        traffic.lost += max(len(at_us) - room, 0)
        traffic.at_us.extend(at_us[:room])
        traffic.which.extend(which[:room])
        traffic.outcomes.extend(outcomes[:room])

    def lose(self, requests: int) -> None:
        """So many that should be here are not."""
        self._traffic.lost += requests

    def build(self) -> CapturedTraffic:
        """The capture, in order of time; what was at one instant stays as it was added."""
        in_order(self._traffic)
        return self._traffic


def in_order(traffic: CapturedTraffic) -> None:
    """Put the requests of a capture into order of time.

    Pieces are sorted where they stand and then merged, so it takes one more copy of the columns
    and little beside, however large the capture.
    """
    at_us = traffic.at_us
    if ascending(at_us):
        return
    runs = _sorted_runs(traffic)
    merged_at, merged_which, merged_outcomes = array("q"), array("I"), array("b")
    while runs:
        # Whatever is not after this instant is in the next piece of its run.
        until_us = min(at_us[min(begin + _STEP, end) - 1] for begin, end in runs)
        piece: list[int] = []
        merged: list[tuple[int, int]] = []
        for begin, end in runs:
            place = bisect_right(at_us, until_us, begin, end)
            piece.extend(range(begin, place))
            if place < end:
                merged.append((place, end))
        runs = merged
        piece.sort(key=at_us.__getitem__)
        merged_at.extend([at_us[place] for place in piece])
        merged_which.extend([traffic.which[place] for place in piece])
        merged_outcomes.extend([traffic.outcomes[place] for place in piece])
    traffic.at_us, traffic.which, traffic.outcomes = merged_at, merged_which, merged_outcomes


def ascending(at_us: Sequence[int]) -> bool:
    """Whether no instant is before the one that precedes it."""
    return all(map(le, at_us, islice(at_us, 1, None)))


def _sorted_runs(traffic: CapturedTraffic) -> list[tuple[int, int]]:
    """Sort each piece by itself; where each run of pieces that are in order begins and ends."""
    at_us, which, outcomes = traffic.at_us, traffic.which, traffic.outcomes
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
