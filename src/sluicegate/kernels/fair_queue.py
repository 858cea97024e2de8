"""Fair queue: by importance, then by fair shares, then by arrival or, when crowded, newest first.

Units wait by rank (0 is the most important) and, inside a rank, by caller. The queue serves the
most important rank with units, or a lower rank that is owed one. Inside a rank, callers within an
equal share of its time go before callers above it. Among these:

    all in time     a unit that arrives would start within half of its patience: the oldest unit
    crowded         it would not, and until the queue is empty: the newest unit, as it has the most
                    time left; while the queue empties, the oldest that can be expected to finish

So expensive work waits for its share, and cheap work never waits behind it. A rank that waits while
others are served is owed `LOW_SHARE` of their time, so it never starves. A unit with a deadline
leaves the queue at the instant after which it can no longer finish.

Cost: a few heap and dict operations for each unit. Bounds: the owner calls `evict`.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final, final

PATIENCE_SHARE: Final = 0.5  # the rest is for the work itself, and for surprises
LOW_SHARE: Final = 0.02  # of the time that higher ranks use, for each lower rank that waits
HISTORY_US: Final = 10_000_000  # of service time; older use counts half
GAIN_MAX: Final = 16
_NEVER_US: Final = 1 << 62
NEWEST: Final = 256
_EXPIRING: Final = 64  # units that are passed over, as they would probably be late
_SPARE: Final = 64  # heap entries of units that have left


class QueuedUnit:
    """One unit in the queue."""

    __slots__ = (
        "caller",
        "deadline_us",
        "latest_us",
        "need_us",
        "queued_us",
        "rank",
        "seq",
        "size",
    )

    def __init__(self, rank: int, caller: str, deadline_us: int, size: int = 0) -> None:
        """Describe a unit; a `deadline_us` below zero means no deadline."""
        self.rank = rank
        self.caller = caller
        self.deadline_us = deadline_us
        self.size = size
        self.need_us = 0  # the time it is expected to take
        self.queued_us = 0
        self.latest_us = _NEVER_US  # it cannot finish in time if it starts after this instant
        self.seq = 0  # 0: not in the queue


@final
class _Caller:
    """The units of one caller in one rank, and the time that it has used in this busy period."""

    __slots__ = ("name", "units", "used_us")

    def __init__(self, name: str) -> None:
        self.name = name
        self.units: OrderedDict[int, QueuedUnit] = OrderedDict()
        self.used_us = 0


@final
class _Rank:
    """The callers of one rank: those within an equal share of its time, and those above it."""

    __slots__ = ("above", "callers", "need_us", "order", "owed_us", "used_us", "within")

    def __init__(self) -> None:
        self.callers: dict[str, _Caller] = {}
        # Entries that are out of date are skipped: the caller is in the other heap, or its newest
        # unit is another.
        self.within: list[tuple[int, str]] = []  # minus the newest unit's number, name
        self.above: list[tuple[int, str]] = []  # the time used, name
        self.used_us = 0
        self.need_us = 0  # of all that wait
        self.owed_us = 0.0
        self.order: OrderedDict[int, QueuedUnit] = OrderedDict()

    def is_within(self, caller: _Caller) -> bool:
        """Whether a caller has used no more than an equal share of the time."""
        return caller.used_us * len(self.callers) <= self.used_us

    def enter(self, caller: _Caller) -> None:
        """Put a caller that has units into its heap."""
        if self.is_within(caller):
            heappush(self.within, (-next(reversed(caller.units)), caller.name))
        else:
            heappush(self.above, (caller.used_us, caller.name))

    def next(self) -> _Caller:
        """Return the caller to be served next; there is one that waits."""
        above, within = self.above, self.within
        while True:
            while above:
                used_us, name = above[0]
                caller = self.callers.get(name)
                if caller is None or not caller.units or caller.used_us != used_us:
                    heappop(above)
                elif self.is_within(caller):
                    heappop(above)
                    self.enter(caller)
                else:
                    break
            while within:
                number, name = within[0]
                caller = self.callers.get(name)
                if caller is not None and -number in caller.units:
                    if self.is_within(caller):
                        return caller
                    heappop(within)
                    self.enter(caller)
                else:
                    heappop(within)
                    if caller is not None and caller.units and self.is_within(caller):
                        self.enter(caller)
            if above:
                return self.callers[above[0][1]]
            self.rebuild()

    def oldest(self) -> QueuedUnit:
        """Return the oldest unit; there is one."""
        return next(iter(self.order.values()))

    def first_in_time(self, now_us: int) -> QueuedUnit | None:
        """Return the first unit that would finish in time if it takes as long as expected."""
        for unit in islice(self.order.values(), _EXPIRING):
            if unit.deadline_us < 0 or now_us + unit.need_us <= unit.deadline_us:
                return unit
        return None

    def rebuild(self) -> None:
        """Make both heaps from the callers that have units."""
        self.within = []
        self.above = []
        for caller in self.callers.values():
            if caller.units:
                self.enter(caller)

    def use(self, caller: _Caller, us: int) -> None:
        """Charge a caller."""
        us = max(us, -caller.used_us)
        caller.used_us += us
        self.used_us += us
        if self.used_us > HISTORY_US * len(self.callers):
            self.used_us = 0
            for one in self.callers.values():
                one.used_us //= 2
                self.used_us += one.used_us
            self.rebuild()


@final
class FairQueue:
    """Units that wait for one resource."""

    __slots__ = (
        "_expiries",
        "_gained",
        "_ranks",
        "_seq",
        "crowded",
        "size_bytes",
        "waiting",
    )

    def __init__(self, ranks: int) -> None:
        self._ranks = [_Rank() for _ in range(ranks)]
        self._expiries: list[tuple[int, int, QueuedUnit]] = []
        self._seq = 0
        self._gained = 0  # recent arrivals minus units served
        self.crowded = False
        self.waiting = 0
        self.size_bytes = 0

    def push(
        self, unit: QueuedUnit, need_us: int, now_us: int, *, least_us: int = 0, slots: float = 1
    ) -> None:
        """Add a unit that is expected to take `need_us` of one of the `slots`.

        One that has less than `least_us` left cannot finish in time. A unit without a deadline is
        taken to be as patient as its work is long, for the order alone.
        """
        self._seq += 1
        self._gained = min(GAIN_MAX, self._gained + 1)
        unit.seq = self._seq
        unit.need_us = need_us
        unit.queued_us = now_us
        rank = self._ranks[unit.rank]
        caller = rank.callers.get(unit.caller)
        if caller is None:
            caller = rank.callers[unit.caller] = _Caller(unit.caller)
        caller.units[unit.seq] = unit
        rank.order[unit.seq] = unit
        rank.enter(caller)
        rank.need_us += need_us
        self.waiting += 1
        self.size_bytes += unit.size
        if unit.deadline_us < 0:
            patience_us = 2 * need_us
        else:
            unit.latest_us = unit.deadline_us - least_us
            patience_us = unit.deadline_us - now_us - need_us
            self._watch(unit)
        if not self.crowded:
            self.crowded = self._need_us() > PATIENCE_SHARE * patience_us * slots
        if len(rank.within) + len(rank.above) > 3 * len(rank.order) + _SPARE:
            rank.rebuild()

    def expect(self, unit: QueuedUnit, least_us: int) -> None:
        """Correct how long a unit that waits takes at least."""
        if unit.seq and unit.deadline_us >= 0:
            unit.latest_us = unit.deadline_us - least_us
            self._watch(unit)

    def pop(self, mean_us: float, now_us: int) -> QueuedUnit | None:
        """Take the unit to be served next; `mean_us` is the mean time of all work here."""
        if not self.waiting:
            return None
        rank = self._ranks[self._choose(mean_us)]
        if self.crowded and self._gained:
            caller = rank.next()
            unit = caller.units[next(reversed(caller.units))]
        else:
            found = rank.oldest() if not self.crowded else rank.first_in_time(now_us)
            if found is not None and rank.is_within(rank.callers[found.caller]):
                unit, caller = found, rank.callers[found.caller]
            else:
                caller = rank.next()
                unit = caller.units[next(iter(caller.units))]
        self.remove(unit)
        self._gained = max(0, self._gained - 1)
        rank.use(caller, unit.need_us)
        if caller.units:
            rank.enter(caller)
        rank.owed_us = max(0.0, rank.owed_us - unit.need_us)
        for lower in range(unit.rank + 1, len(self._ranks)):
            if self._ranks[lower].order:
                self._ranks[lower].owed_us += LOW_SHARE * unit.need_us
        return unit

    def settle(self, unit: QueuedUnit, took_us: int) -> None:
        """Charge its caller for the time that the unit took, instead of the estimate."""
        rank = self._ranks[unit.rank]
        caller = rank.callers.get(unit.caller)
        if caller is not None:
            rank.use(caller, took_us - unit.need_us)
            if caller.units:
                rank.enter(caller)

    def remove(self, unit: QueuedUnit) -> bool:
        """Take out a unit that does not wait any more; False if it was not in the queue."""
        if not unit.seq:
            return False
        rank = self._ranks[unit.rank]
        del rank.callers[unit.caller].units[unit.seq]
        del rank.order[unit.seq]
        unit.seq = 0
        rank.need_us -= unit.need_us
        self.waiting -= 1
        self.size_bytes -= unit.size
        if not self.waiting:  # the busy period has ended, and with it all shares
            self.crowded = False
            for one in self._ranks:
                one.callers.clear()
                one.within.clear()
                one.above.clear()
                one.used_us = one.need_us = 0
                one.owed_us = 0.0
        return True

    def expire(self, now_us: int) -> QueuedUnit | None:
        """Take out a unit that can no longer finish in time, if any."""
        heap = self._expiries
        while heap and (not heap[0][2].seq or heap[0][0] < now_us):
            unit = heappop(heap)[2]
            if unit.seq:
                self.remove(unit)
                return unit
        return None

    def next_expiry_us(self) -> int:
        """Return the instant of the next `expire`; -1 if no unit has a deadline."""
        heap = self._expiries
        while heap and not heap[0][2].seq:
            heappop(heap)
        return heap[0][0] + 1 if heap else -1

    def evict(self, rank: int) -> QueuedUnit | None:
        """Take out the oldest unit of the last rank, to make room for one of `rank`."""
        for number in range(len(self._ranks) - 1, rank - 1, -1):
            if self._ranks[number].order:
                found = self._oldest(number)
                self.remove(found)
                return found
        return None

    def waiting_of(self, rank: int) -> int:
        """Return how many units of a rank wait."""
        return len(self._ranks[rank].order)

    def ready_of(self, rank: int, start_us: int, need_us: int) -> int:
        """Return how many of the newest units of a rank can finish in time if they start then.

        A unit about which nothing is known takes `need_us`.
        """
        count = 0
        for unit in islice(reversed(self._ranks[rank].order.values()), NEWEST):
            if unit.deadline_us < 0 or start_us + (unit.need_us or need_us) <= unit.deadline_us:
                count += 1
        return count

    def oldest_us(self, now_us: int, rank: int = -1) -> int:
        """Return how long the oldest unit of a rank, or of all, has waited."""
        if not self.waiting or (rank >= 0 and not self._ranks[rank].order):
            return 0
        return now_us - self._oldest(rank).queued_us

    def units(self) -> list[QueuedUnit]:
        """Return all units that wait."""
        return [unit for rank in self._ranks for unit in rank.order.values()]

    def _oldest(self, number: int) -> QueuedUnit:
        """Return the oldest unit of a rank, or of all; there is one."""
        found: QueuedUnit | None = None
        for rank in self._ranks if number < 0 else (self._ranks[number],):
            if rank.order:
                unit = rank.oldest()
                if found is None or unit.seq < found.seq:
                    found = unit
        assert found is not None
        return found

    def _choose(self, mean_us: float) -> int:
        """Return the most important rank with units, or a lower rank that is owed one."""
        chosen = -1
        for number, rank in enumerate(self._ranks):
            if rank.order:
                if rank.owed_us > mean_us:
                    return number
                if chosen < 0:
                    chosen = number
        return chosen

    def _need_us(self) -> int:
        """Return how much work waits."""
        need_us = 0
        for rank in self._ranks:
            need_us += rank.need_us
        return need_us

    def _watch(self, unit: QueuedUnit) -> None:
        heap = self._expiries
        heappush(heap, (unit.latest_us, unit.seq, unit))
        if len(heap) > 2 * self.waiting + _SPARE:
            self._expiries = [entry for entry in heap if entry[2].seq]
            heapify(self._expiries)
