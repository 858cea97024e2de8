"""Fleet limit: the limit of a resource that several dispatchers use, where its slots are unknown.

One dispatcher leads: it finds the limit from the sums over all of them, by the rules of
`kernels/found_limit.py`, and the others follow. A window is `WINDOW` units that have ended in the
fleet, or at least `FEW` while there is no limit or after half a patience, and lasts as long as the
work takes by itself: units that are sent together end together. After a change the units in flight
belong to no window, and it begins only when their number is near the limit.

Bounds: one record of one window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, final

from sluicegate.kernels.found_limit import FEW, HALF, WINDOW, FoundLimit, Window
from sluicegate.policies.admission.resource import RANKS

_FIRST: Final = 2  # windows in one, after the first cut


class SharedLoad(NamedTuple):
    """The load of a resource at one dispatcher, or the sums over all of them.

    `ended`, `spent_us` and `patience_us` only grow.
    """

    inflight: int
    ended: int
    spent_us: int  # on what has ended
    patience_us: int  # of its callers
    waiting: tuple[int, ...]  # by rank
    slots: int = 0  # as they were found; 0: no limit


NOTHING: Final = SharedLoad(0, 0, 0, 0, (0,) * RANKS)


def sum_of(loads: Sequence[SharedLoad], slots: int) -> SharedLoad:
    """Return the load of a fleet, of whose resource `slots` were found."""
    return SharedLoad(
        sum(load.inflight for load in loads),
        sum(load.ended for load in loads),
        sum(load.spent_us for load in loads),
        sum(load.patience_us for load in loads),
        tuple(map(sum, zip(*(load.waiting for load in loads), strict=True))),
        slots,
    )


@final
class FleetLimit:
    """The limit of one resource, as one dispatcher finds it."""

    __slots__ = (
        "_before",
        "_begun",
        "_draining",
        "_found",
        "_idle",
        "_queued",
        "_since_us",
        "_wanted",
    )

    def __init__(self, limit: int = 0) -> None:
        """Begin with the `limit` that this dispatcher has found by itself; 0 for none."""
        self._found = FoundLimit()
        self._found.follow(limit)
        self._draining = False  # more are in flight than the limit
        self._before = 0  # units that must have ended before a window begins; 0: none
        self._wanted = WINDOW
        self._begun, self._since_us = NOTHING, 0
        self._idle, self._queued = True, False

    @property
    def slots(self) -> int:
        """How many units may be in flight in the whole fleet; 0 if there is no limit."""
        return self._found.limit if self._found.limiting else 0

    def follow(self, load: SharedLoad, now_us: int) -> None:
        """Take the limit that was found by the dispatcher that leads."""
        self._found.follow(load.slots)
        self._draining, self._before = False, 0
        self._begin(load, now_us)

    def find(self, load: SharedLoad, now_us: int) -> None:
        """Learn from the sums of the fleet."""
        self._idle = self._idle or not load.inflight
        self._queued = self._queued or any(load.waiting)
        if (
            self._is_settling(load)
            or self._begun is NOTHING
            or load.ended < self._begun.ended  # the store has forgotten
        ):
            self._begin(load, now_us)
            return
        count = load.ended - self._begun.ended
        if not count:
            return
        found = self._found
        patience_us = (load.patience_us - self._begun.patience_us) / count
        mean_us = (load.spent_us - self._begun.spent_us) / count
        age_us = now_us - self._since_us
        long = not found.limiting or age_us > HALF * patience_us
        if age_us < (found.alone_us or mean_us) or count < (FEW if long else self._wanted):
            return
        was, found.patience_us = found.limit, patience_us
        found.judge(self._window(load, mean_us, age_us / count), now_us)
        self._draining = found.limiting and found.limit != was
        self._wanted = _FIRST * WINDOW if found.first else WINDOW
        self._begin(load, now_us)

    def _is_settling(self, load: SharedLoad) -> bool:
        """Whether units are in flight that were sent before the limit was heard of."""
        if self._draining:
            if load.inflight > 2 * self._found.limit:
                return True
            self._draining = False
            self._before = load.ended + load.inflight
        if load.ended >= self._before or not load.inflight:
            self._before = 0
        return self._before > 0

    def _window(self, load: SharedLoad, mean_us: float, each_us: float) -> Window:
        """Return the measures of the window, in which a unit took `mean_us` and ended `each_us`."""
        return Window(
            mean_us,
            slow=mean_us > HALF * self._found.patience_us,
            inflight=mean_us / each_us,
            times=mean_us,  # operations are unknown here; only its changes count
            late=mean_us > self._found.patience_us > 0,
            each_us=0.0 if self._idle else each_us,
            here=load.inflight,
            draining=load.inflight < self._begun.inflight,
            queued=self._queued,
        )

    def _begin(self, load: SharedLoad, now_us: int) -> None:
        self._begun, self._since_us = load, now_us
        self._idle = not load.inflight
        self._queued = False
