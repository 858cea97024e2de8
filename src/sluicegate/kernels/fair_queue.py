"""Fair queue: criticality first, callers by the time they have used, newest first when it stands.

Units wait by rank (0 is served first) and, inside a rank, by caller.

    which rank      the lowest number; a lower-priority rank is served first once it is owed a unit
    which caller    start-time fair queueing: the least service time used, so expensive work waits
                    for its share and cheap work never waits behind it
    which unit      in arrival order, until the oldest unit of the caller has waited longer than
                    its work takes; from then on the newest, until the caller's queue is empty

A rank that waits while others are served is owed `LOW_SHARE` of their time, so it never starves.
A unit with a deadline leaves the queue at the instant after which it can no longer finish.

Cost: a heap push and a few dict operations for each unit. Bounds: the owner calls `evict`.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush
from typing import Final, final

LOW_SHARE: Final = 0.02  # of the time that higher ranks use, for each lower rank that waits
_NEVER_US: Final = 1 << 62
_SPARE: Final = 64  # heap entries of units that have left


class Waiting:
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
        """A `deadline_us` below zero means that there is none."""
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
    """The units of one caller in one rank."""

    __slots__ = ("newest_first", "tag", "units")

    def __init__(self, tag: int) -> None:
        self.units: OrderedDict[int, Waiting] = OrderedDict()
        self.tag = tag
        self.newest_first = False


@final
class _Rank:
    """The callers of one rank."""

    __slots__ = ("callers", "heap", "owed_us", "virtual_us", "waiting")

    def __init__(self) -> None:
        self.callers: dict[str, _Caller] = {}
        self.heap: list[tuple[int, int, str]] = []  # tag, order, caller; stale entries are skipped
        self.virtual_us = 0
        self.owed_us = 0.0
        self.waiting = 0


@final
class FairQueue:
    """Units that wait for one resource."""

    __slots__ = ("_expiries", "_ranks", "_seq", "size_bytes", "waiting")

    def __init__(self, ranks: int) -> None:
        self._ranks = [_Rank() for _ in range(ranks)]
        self._expiries: list[tuple[int, int, Waiting]] = []
        self._seq = 0
        self.waiting = 0
        self.size_bytes = 0

    def push(self, unit: Waiting, need_us: int, now_us: int) -> None:
        """Add a unit that is expected to take `need_us`."""
        self._seq += 1
        unit.seq = self._seq
        unit.need_us = need_us
        unit.queued_us = now_us
        rank = self._ranks[unit.rank]
        caller = rank.callers.get(unit.caller)
        if caller is None:
            caller = rank.callers[unit.caller] = _Caller(rank.virtual_us)
        if not caller.units:
            caller.tag = max(caller.tag, rank.virtual_us)
            caller.newest_first = False
            heappush(rank.heap, (caller.tag, self._seq, unit.caller))
        caller.units[unit.seq] = unit
        rank.waiting += 1
        self.waiting += 1
        self.size_bytes += unit.size
        if unit.deadline_us >= 0:
            unit.latest_us = unit.deadline_us - need_us
            self._watch(unit)

    def pop(self, mean_us: float, now_us: int) -> Waiting | None:
        """Take the unit to be served next; `mean_us` is the mean time of all work here."""
        if not self.waiting:
            return None
        chosen = -1
        for number, rank in enumerate(self._ranks):
            if rank.waiting and (chosen < 0 or rank.owed_us > mean_us):
                chosen = number
                if rank.owed_us > mean_us:
                    break
        rank = self._ranks[chosen]
        name, caller = self._next_caller(rank)
        units = caller.units
        if not caller.newest_first:
            oldest = next(iter(units.values()))
            caller.newest_first = now_us - oldest.queued_us > oldest.need_us
        _, unit = units.popitem(last=caller.newest_first)
        rank.virtual_us = caller.tag
        caller.tag += unit.need_us
        if units:
            heappush(rank.heap, (caller.tag, unit.seq, name))
        self._forget(rank, unit)
        rank.owed_us = max(0.0, rank.owed_us - unit.need_us)
        for lower in range(chosen + 1, len(self._ranks)):
            if self._ranks[lower].waiting:
                self._ranks[lower].owed_us += LOW_SHARE * unit.need_us
        return unit

    def settle(self, unit: Waiting, took_us: int) -> None:
        """Charge its caller for the time that the unit took, instead of the estimate."""
        rank = self._ranks[unit.rank]
        caller = rank.callers.get(unit.caller)
        if caller is not None and caller.units:
            caller.tag += took_us - unit.need_us
            heappush(rank.heap, (caller.tag, unit.seq, unit.caller))

    def remove(self, unit: Waiting) -> bool:
        """Take out a unit that does not wait any more; False if it was not in the queue."""
        if not unit.seq:
            return False
        rank = self._ranks[unit.rank]
        del rank.callers[unit.caller].units[unit.seq]
        self._forget(rank, unit)
        return True

    def expire(self, now_us: int) -> Waiting | None:
        """Take out a unit that can no longer finish in time; None if there is none."""
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

    def evict(self, rank: int) -> Waiting | None:
        """Take out the oldest unit of the last rank, to make room for one of `rank`."""
        for number in range(len(self._ranks) - 1, rank - 1, -1):
            found: Waiting | None = None
            for caller in self._ranks[number].callers.values():
                if caller.units:
                    oldest = next(iter(caller.units.values()))
                    if found is None or oldest.seq < found.seq:
                        found = oldest
            if found is not None:
                self.remove(found)
                return found
        return None

    def waiting_of(self, rank: int) -> int:
        """Return how many units of a rank wait."""
        return self._ranks[rank].waiting

    def oldest_us(self, now_us: int, rank: int = -1) -> int:
        """Return how long the oldest unit of a rank, or of all, has waited."""
        oldest_us = 0
        for one in self._ranks if rank < 0 else (self._ranks[rank],):
            for caller in one.callers.values():
                for unit in caller.units.values():
                    oldest_us = max(oldest_us, now_us - unit.queued_us)
                    break
        return oldest_us

    def units(self) -> list[Waiting]:
        """Return all units that wait."""
        found: list[Waiting] = []
        for rank in self._ranks:
            for caller in rank.callers.values():
                found += caller.units.values()
        return found

    def _next_caller(self, rank: _Rank) -> tuple[str, _Caller]:
        heap = rank.heap
        while True:
            tag, _, name = heappop(heap)
            caller = rank.callers.get(name)
            if caller is not None and caller.units and caller.tag == tag:
                return name, caller

    def _forget(self, rank: _Rank, unit: Waiting) -> None:
        unit.seq = 0
        rank.waiting -= 1
        self.waiting -= 1
        self.size_bytes -= unit.size
        if not rank.waiting:  # the busy period has ended: nobody owes anything
            rank.callers.clear()
            rank.heap.clear()
            rank.virtual_us = 0
            rank.owed_us = 0.0
        elif len(rank.heap) > 2 * rank.waiting + _SPARE:
            self._rebuild(rank)

    def _rebuild(self, rank: _Rank) -> None:
        """Drop stale heap entries, and callers that have used no more than their share."""
        rank.callers = {
            name: caller
            for name, caller in rank.callers.items()
            if caller.units or caller.tag > rank.virtual_us
        }
        rank.heap = [
            (caller.tag, order, name)
            for order, (name, caller) in enumerate(rank.callers.items())
            if caller.units
        ]
        heapify(rank.heap)

    def _watch(self, unit: Waiting) -> None:
        heap = self._expiries
        heappush(heap, (unit.latest_us, unit.seq, unit))
        if len(heap) > 2 * self.waiting + _SPARE:
            self._expiries = [entry for entry in heap if entry[2].seq]
            heapify(self._expiries)
