"""Places: as many at work in an engine as it can do at once, found while it works.

Watches the ends of admitted work, and resizes what stands before the engine: the queue, so that
whoever waits does so where somebody orders them; the lane of heavy work, to half or less; the
compartments of the bulkhead, each to its share. The number is `kernels/place_search.py`, which says
why it is found by trying and not by latency; that of the lane is `kernels/lane_search.py`. It
refuses nobody itself.

A place must be held until the engine has ended the work, also where nobody waits for the result any
more: else what was given up is at work beside what has its place, and no number is right.

With fewer places the queue lets nobody in until enough have left, and the bulkhead has fewer only
then: it would refuse those to whom the queue gave a place just before, of whatever class.

Cost: a few additions an end. Bound: never more than `most`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, final

from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.kernels.lane_search import LaneSearch
from sluicegate.kernels.place_search import PlaceSearch
from sluicegate.policies.bulkhead import Bulkhead
from sluicegate.policies.queue.operation_queue import OperationQueue
from sluicegate.policies.queue.queue import Queue
from sluicegate.policies.stack import BaseEndObserver

HEAVY_SHARE: Final = 2  # one place in so many is for heavy work, at most
_USUAL_WEIGHT: Final = 1 / 32


class PlaceStats(NamedTuple):
    """The number now, and how it was found."""

    places: int
    most: int
    tries: int
    accepted: int


@final
class Places(BaseEndObserver):
    """An observer of a stack that has these stages."""

    __slots__ = (
        "_accepted",
        "_bulkhead",
        "_drains",
        "_heavy",
        "_is_dear",
        "_lane",
        "_on_fewer",
        "_queue",
        "_search",
        "_tries",
        "_usual_us",
        "_was_cut",
    )

    def __init__(
        self,
        queue: Queue,
        heavy: OperationQueue,
        bulkhead: Bulkhead,
        most: int = 0,
        on_fewer: Callable[[], None] | None = None,
        is_dear: Callable[[int], bool] | None = None,
    ) -> None:
        """It begins with the queue's places; `on_fewer` hears of fewer places that do as much.

        Where nothing was in time it hears of them again once no more are at work: the line is in
        the queue only then.
        `is_dear` says whether a price keeps work away now, which would take places else.
        """
        self._queue = queue
        self._heavy = heavy
        self._bulkhead = bulkhead
        self._search = PlaceSearch(queue.places, most)
        self._lane = LaneSearch(max(1, queue.places // HEAVY_SHARE))
        self._usual_us: dict[str, float] = {}  # by operation; the chain has a few
        self._on_fewer = on_fewer
        self._is_dear = is_dear
        self._accepted = self._tries = 0
        self._was_cut = False  # there are fewer since nothing was in time, and not to try them
        self._drains = False  # more are at work than may be: the bulkhead has fewer places later

    def record_end(self, request: Request, outcome: Outcome, now_us: int) -> None:
        """Take in work that has left the engine; its place may have been taken again already."""
        if self._drains and self._queue.inflight <= self._queue.places:
            self._drains = False
            self._bulkhead.resize(self._queue.places)
            if self._was_cut and self._on_fewer is not None:
                self._on_fewer()
        measured = request.measured
        if outcome is Outcome.IGNORE or measured is None or measured.from_cache:
            return
        search, queue = self._search, self._queue
        left_us = request.remaining_us(now_us)
        late = left_us is not None and left_us <= 0
        if self._record_in_lane(request, measured.service_us, now_us):
            self._heavy.resize(self._lane.places, now_us)
        began_us = now_us - measured.service_us
        deadline_us = request.deadline_us
        waits_us = 0 if deadline_us is None else max(1, deadline_us - began_us)
        dear = self._is_dear is not None and self._is_dear(now_us)
        if search.record(
            began_us, now_us, queue.inflight, late=late, waits_us=waits_us, kept_away=dear
        ):
            places = search.places
            if self._lane.limit(max(1, places // HEAVY_SHARE)):
                self._heavy.resize(self._lane.places, now_us)
            self._drains = places < queue.places
            if not self._drains:
                self._bulkhead.resize(places)
            queue.resize(places, now_us)
            accepted = search.accepted > self._accepted
            self._was_cut = accepted and search.tries == self._tries
            self._accepted, self._tries = search.accepted, search.tries
            if accepted and self._on_fewer is not None:
                self._on_fewer()

    def _record_in_lane(self, request: Request, service_us: int, now_us: int) -> bool:
        """Take in what heavy work does to what is quick; return whether its lane has changed."""
        heavy = self._heavy
        if heavy.holds(request):
            return self._lane.record_heavy(heavy.inflight, now_us)
        usual_us = self._usual_us.get(request.operation, 0.0) or max(1.0, service_us)
        usual_us += (service_us - usual_us) * _USUAL_WEIGHT
        self._usual_us[request.operation] = max(1.0, usual_us)
        return self._lane.record_quick(service_us / usual_us, heavy.inflight, now_us)

    def stats(self) -> PlaceStats:
        """What it looks like now."""
        search = self._search
        return PlaceStats(search.places, search.most, search.tries, search.accepted)
