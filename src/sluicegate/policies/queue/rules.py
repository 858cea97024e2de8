"""Queue rules: when a unit that waits is better refused, in four forms and none.

The part of the `queue` policy that judges time; who is next is the queue's. There is one rule for
each class, because a class that is served first would hide that another stands. A rule answers two
questions: how long a newcomer may wait, and, whenever a place is free, whether the *oldest* of its
class has waited too long. The oldest, and not the one that is served: in a queue that has turned
round the newest is served, and its delay says nothing.

    codel       least delay of an interval above the target: what is older than twice that goes,
                until somebody of the class has not waited, or its line was empty while others
                of the class, or who matter less, stood in theirs; not while its length stands
                still (`standstill.py`)
    folly       by least delays alone, until one is at most the target again
    facebook    a newcomer may wait `normal_us`, or `aggressive_us` once the queue stands
    rfc8289     one goes every interval / sqrt(n), as for packets
    none        only the bounds of the queue

`codel` is the default; `kernels/codel.py` says what it does better. `rfc8289` is here to be
compared with: it waits for senders to slow down, and callers do not. At twice the load it answers
nothing in time (tests/kernels/test_codel.py).

Cost: `kernels/codel.py`. Bounds: a handful of integers a class.
"""

from __future__ import annotations

from math import sqrt
from typing import Final, final

from sluicegate.kernels.codel import Codel, CodelSettings, CodelTimeout
from sluicegate.policies.queue.standstill import Standstill

FORMS: Final = ("codel", "folly", "facebook", "rfc8289", "none")


class QueueRule:
    """The judgement of one class; by itself none."""

    __slots__ = ()

    def timeout_us(self, wait_us: int, queued: int, now_us: int) -> int:
        """How long a newcomer behind `queued` others may wait, who has no more than `wait_us`."""
        return wait_us

    def drop(self, delay_us: int, now_us: int) -> bool:
        """Whether the oldest, who has waited `delay_us`, is to go."""
        return False

    def record_empty(self) -> None:
        """Record that nobody is in this line, while others who matter no more wait in theirs."""

    def record_late(self) -> None:
        """Record that a unit of the class had no room, or no time left."""

    def still(self, delay_us: int, length: int, now_us: int) -> bool:
        """Whether a line of `length`, whose oldest has waited `delay_us`, is no overload."""
        return False

    def fit(self, service_us: int) -> None:
        """Scale to work that takes `service_us` when nothing is in its way."""

    def overloaded(self) -> bool:
        """Whether the class stands, as far as the rule can tell."""
        return False

    def target_us(self) -> int:
        """The delay that is still good; 0 if there is no such thing."""
        return 0


@final
class CodelRule(QueueRule):
    """Judged when a place is free, by the least delay of an interval."""

    __slots__ = ("_codel", "_standstill")

    def __init__(self, settings: CodelSettings, *, until_empty: bool) -> None:
        self._codel = Codel(settings, until_empty=until_empty)
        self._standstill = Standstill() if until_empty else None

    def drop(self, delay_us: int, now_us: int) -> bool:
        """By the kernel."""
        return self._codel.drop(delay_us, now_us)

    def record_empty(self) -> None:
        """End an overload."""
        self._codel.record_empty()

    def record_late(self) -> None:
        """More comes than is served."""
        if self._standstill is not None:
            self._standstill.record_late()

    def still(self, delay_us: int, length: int, now_us: int) -> bool:
        """By its lengths since it stands."""
        standstill, codel = self._standstill, self._codel
        if standstill is None:
            return False
        if delay_us <= codel.target_us and not codel.overloaded:
            standstill.record_calm()
            return False
        return standstill.holds(length, delay_us, now_us, 2 * codel.target_us, codel.interval_us)

    def fit(self, service_us: int) -> None:
        """Scale target and interval."""
        self._codel.fit(service_us)

    def overloaded(self) -> bool:
        """Whether the last whole interval had no short delay."""
        return self._codel.overloaded

    def target_us(self) -> int:
        """As it has been scaled."""
        return self._codel.target_us


@final
class FacebookRule(QueueRule):
    """Judged when a unit is queued, by how long ago the class was empty."""

    __slots__ = ("_codel", "_target_us")

    def __init__(self, settings: CodelSettings) -> None:
        self._codel = CodelTimeout(settings)
        self._target_us = settings.aggressive_us

    def timeout_us(self, wait_us: int, queued: int, now_us: int) -> int:
        """By the kernel."""
        return min(wait_us, self._codel.timeout_us(queued, now_us))

    def overloaded(self) -> bool:
        """Whether the last newcomer met a queue that stands."""
        return self._codel.standing

    def target_us(self) -> int:
        """The shorter timeout."""
        return self._target_us


@final
class PacketRule(QueueRule):
    """Nichols and Jacobson's rule for packets (RFC 8289): one drop, and the next ever sooner."""

    __slots__ = (
        "_above_us",
        "_count",
        "_dropping",
        "_interval_us",
        "_next_us",
        "_target_us",
    )

    def __init__(self, settings: CodelSettings) -> None:
        self._target_us = settings.target_us
        self._interval_us = settings.interval_us
        self._above_us = 0  # when the delay will have been above the target for an interval
        self._next_us = 0
        self._count = 0
        self._dropping = False

    def drop(self, delay_us: int, now_us: int) -> bool:
        """Whether this one is the next to go."""
        if delay_us < self._target_us:
            self._above_us = 0
            self._dropping = False
            return False
        if self._above_us == 0:
            self._above_us = now_us + self._interval_us
            return False
        if not self._dropping:
            if now_us < self._above_us:
                return False
            # Shortly after the last time it goes on at the rate that was right then.
            recent = now_us - self._next_us < 16 * self._interval_us
            self._count = self._count - 2 if recent and self._count > 2 else 1
            self._dropping = True
            self._next_us = self._after(now_us)
            return True
        if now_us < self._next_us:
            return False
        self._count += 1
        self._next_us = self._after(self._next_us)
        return True

    def overloaded(self) -> bool:
        """Whether it is dropping."""
        return self._dropping

    def target_us(self) -> int:
        """As it was set."""
        return self._target_us

    def _after(self, at_us: int) -> int:
        return at_us + int(self._interval_us / sqrt(self._count))
