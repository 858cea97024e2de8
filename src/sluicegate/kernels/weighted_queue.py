"""Weighted queues of different classes: who is served next, and who gives way when it is full.

Source: Goyal, Vin and Cheng, "Start-Time Fair Queueing" (1996), inside strict ranks. Each class has
a queue of its own (`adaptive_lifo`: the newest first once it stands, or a plain FIFO), a `rank` and
a `share`. A smaller rank goes first, always. Classes of the same rank share what their rank is
served in proportion to their shares, counted in cost (request units), not in numbers:

    start tag of a class   S = max(V, S) when it comes to have something queued
    next to be served      the class with the least S;   V = S,   then S += cost / share

So all ranks different is strict priority, all ranks equal is fair queueing, and "criticality, and
within it tenants by weight" is both. Floors aside, while two classes of a rank have something
queued, what they were served of differs from their shares by no more than one entry of each: |A / a
- B / b| is at most (largest cost of A) / a + (largest cost of B) / b, over any span.

What was changed. The paper tags every packet as it arrives, which fixes the order within a class;
here the class carries the one tag that matters, so its queue may be LIFO, lose entries and forget
cancelled ones, and the cost is charged when an entry is served. Tags are integers: cost * L / share
with L the least common multiple of the shares of the rank, so no rounding favours anyone.

Strict ranks can starve the last one. `floors` promises a rank that many thousandths of the cost
served: it is owed that part of every cost, and goes first when it is owed one unit. It can get
ahead of its floor by one entry, and waits until that is paid back; but after `floor_us` without any
of it a tenth is enough. So a dear entry shuts out its rank for no longer, and no rank is served of
more than ten times its floor. `pop` takes `floors=False`: nothing is owed from then. In hard
overload a rank may have to rest: `rests_us` is how long it waits after one for the next that it is
owed.

A floor must hold in a short queue too, where what matters more leaves a lower rank no room to
stand. So a rank with nothing queued stays owed one unit, and no more, however long that lasts; and
the only entry of a rank that is owed a unit takes nobody's room (`spares`): it gets in where
`limit` says that the queue is full, and is not pushed out. Who matters more finds as much room as
without it. The bounds that the queue was made with hold for it as for any other.

The whole is bounded in number and in weight. When it is full, the least important rank gives way;
within a rank, the class that holds most for its share; of that class, the entry that
`adaptive_lifo` would push out. A newcomer that would have to push out a more important one is
refused, as is one whose own class holds most and is served in order. Nothing is pushed out for a
newcomer that cannot fit.

A class that is not served still gives back its dead: each `pop` looks at the old end of one class
more, in turn.

Not good at: many classes (each operation looks at all of them; a tenant is a class only if tenants
are few), costs that are only known later (charge the predicted cost).

Cost: O(classes) an operation. Bounds: 1 to `CLASSES_MAX` classes, shares from 1 to `SHARE_MAX`,
costs from 1, `length_max` and `weight_max` over all classes together. Tags stay machine words for
years if the shares of a rank have a small common multiple. A clock that goes back is what it is for
`adaptive_lifo`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import lcm
from typing import Final, Generic, NamedTuple, TypeVar, final

from sluicegate.kernels.adaptive_lifo import (
    LENGTH_MAX,
    OVERFLOWED,
    WEIGHT_MAX,
    AdaptiveLifo,
    QueueEntry,
)
from sluicegate.kernels.bounds import within

CLASSES_MAX: Final = 64
SHARE_MAX: Final = 1_000
PERMILLE: Final = 1_000
_BACK: Final = 10  # of what is owed back, one part in so many is enough after `floor_us`
NO_FLOORS: Final[Mapping[int, int]] = {}
FLOOR_US_MAX: Final = 1 << 60

T = TypeVar("T")


class QueueClass(NamedTuple):
    """What one class is due: its rank (0 first), its share of the rank, its order."""

    rank: int = 0
    share: int = 1
    standing_us: int | None = 100_000


@final
class _Rank(Generic[T]):
    __slots__ = ("after_us", "enough", "floor", "lanes", "number", "owed", "virtual")

    def __init__(self, number: int, floor: int) -> None:
        self.number = number
        self.floor = floor
        self.owed = 0
        self.after_us = -1  # when it was served
        self.enough = 0  # and what it has to be owed since, to be owed a unit after `floor_us`
        self.virtual = 0
        self.lanes: list[_Lane[T]] = []

    def length(self) -> int:
        length = 0
        for lane in self.lanes:
            length += lane.queue.length
        return length

    def next(self) -> _Lane[T] | None:
        best: _Lane[T] | None = None
        for lane in self.lanes:
            if lane.queue.length > 0 and (best is None or lane.start < best.start):
                best = lane
        return best


@final
class _Lane(Generic[T]):
    __slots__ = ("queue", "rank", "share", "start", "stride")

    def __init__(self, rank: _Rank[T], share: int, stride: int, queue: AdaptiveLifo[T]) -> None:
        self.queue = queue
        self.rank = rank
        self.share = share
        self.stride = stride
        self.start = 0


@final
class WeightedQueue(Generic[T]):
    """Queues of several classes that are filled and emptied as one."""

    __slots__ = (
        "_bound", "_floor_us", "_floors", "_lanes", "_length_max", "_ranks", "_sweep",
        "_weight_max",
    )  # fmt: skip

    def __init__(
        self,
        classes: Sequence[QueueClass],
        *,
        length_max: int,
        weight_max: int = WEIGHT_MAX,
        floors: Mapping[int, int] = NO_FLOORS,
        floor_us: int = FLOOR_US_MAX,
    ) -> None:
        """`floors` says of a rank how many thousandths of the cost it is served in any case.

        After `floor_us` without any it is owed some, however dear the last one was.
        """
        _check(classes, floors)
        within("floor_us", floor_us, 0, FLOOR_US_MAX)
        within("length_max", length_max, 1, LENGTH_MAX)
        within("weight_max", weight_max, 1, WEIGHT_MAX)
        self._bound = length_max
        self._length_max = length_max  # what `limit` says, the bound at most
        self._weight_max = weight_max
        self._floor_us = floor_us
        self._sweep = 0
        self._ranks: list[_Rank[T]] = [
            _Rank(number, floors.get(number, 0))
            for number in sorted({setting.rank for setting in classes})
        ]
        self._floors: list[_Rank[T]] = [rank for rank in self._ranks if rank.floor > 0]
        self._lanes: list[_Lane[T]] = []
        for setting in classes:
            common = lcm(*[other.share for other in classes if other.rank == setting.rank])
            queue: AdaptiveLifo[T] = AdaptiveLifo(
                length_max=length_max, weight_max=weight_max, standing_us=setting.standing_us
            )
            for rank in self._ranks:
                if rank.number == setting.rank:
                    lane = _Lane(rank, setting.share, common // setting.share, queue)
                    rank.lanes.append(lane)
                    self._lanes.append(lane)

    def __len__(self) -> int:
        length = 0
        for lane in self._lanes:
            length += lane.queue.length
        return length

    @property
    def weight(self) -> int:
        """What all that is queued weighs."""
        weight = 0
        for lane in self._lanes:
            weight += lane.queue.weight
        return weight

    def queue(self, index: int) -> AdaptiveLifo[T]:
        """The queue of one class, to look at."""
        return self._lanes[index].queue

    def limit(self, length_max: int) -> None:
        """Be full at so many from now on, if that is less than the bound it was made with.

        Who is queued stays: the next to come pushes out as many as are too many, or is refused.
        """
        self._length_max = max(1, min(length_max, self._bound))

    def push(
        self,
        index: int,
        item: T,
        timeout_us: int,
        now_us: int,
        lost: list[QueueEntry[T]],
        weight: int = 1,
        cost: int = 1,
    ) -> QueueEntry[T]:
        """Queue `item` in class `index`; the entry's `fate` says whether it is queued."""
        if not 0 <= index < len(self._lanes):
            raise ValueError(f"index must be from 0 to {len(self._lanes) - 1}, not {index}")
        if cost < 1:
            raise ValueError(f"cost must be from 1, not {cost}")
        if weight < 0:
            raise ValueError(f"weight must not be negative, not {weight}")
        lane = self._lanes[index]
        if timeout_us > 0 and self._full(weight):
            self.expire(now_us, lost)
            if not self._make_room(lane, weight, now_us, lost):
                entry = QueueEntry(item, weight, cost, 0, 0)
                entry.fate = OVERFLOWED
                lost.append(entry)
                return entry
        # Only a class that had nothing queued can be behind: no saved-up share.
        lane.start = max(lane.start, lane.rank.virtual)
        return lane.queue.push(item, timeout_us, now_us, lost, weight, cost)

    def pop(
        self, now_us: int, lost: list[QueueEntry[T]], floors: bool = True, rests_us: int = 0
    ) -> QueueEntry[T] | None:
        """Take out the entry whose turn it is, or None."""
        self._sweep = (self._sweep or len(self._lanes)) - 1
        self._lanes[self._sweep].queue.expire(now_us, lost)
        while True:
            first = self._first()
            owed = self._owed(now_us - rests_us) if floors else None
            rank = first if owed is None else owed
            lane = None if rank is None else rank.next()
            if rank is None or lane is None:
                return None
            start = lane.start
            entry = lane.queue.pop(now_us, lost)
            if entry is None:
                continue
            lane.start = start + entry.cost * lane.stride
            rank.virtual = start
            if floors:
                self._settle(rank, entry.cost, rank is first, now_us, rests=rests_us > 0)
            return entry

    def owes(self, index: int, served_by_us: int) -> bool:
        """Whether the rank of this class is owed a unit, and has nothing queued.

        And was last served at that time, or before.
        """
        rank = self._lanes[index].rank
        return rank.owed >= PERMILLE and rank.after_us <= served_by_us and rank.length() == 0

    def spares(self, index: int) -> bool:
        """Whether all that this class has queued is the one entry that its rank is owed."""
        lane = self._lanes[index]
        return lane.queue.length == 1 and lane.rank.owed >= PERMILLE and lane.rank.length() == 1

    def cancel(self, entry: QueueEntry[T], now_us: int) -> bool:
        """Take out this entry, wherever it stands; False if it is not queued here (any more)."""
        home = entry.home
        for lane in self._lanes:
            if lane.queue is home:
                return lane.queue.cancel(entry, now_us)
        return False

    def expire(self, now_us: int, lost: list[QueueEntry[T]]) -> None:
        """Take out what has expired at the old end of every class."""
        for lane in self._lanes:
            lane.queue.expire(now_us, lost)

    def _first(self) -> _Rank[T] | None:
        for rank in self._ranks:
            if rank.length() > 0:
                return rank
        return None

    def _owed(self, served_by_us: int) -> _Rank[T] | None:
        best: _Rank[T] | None = None
        for rank in self._floors:
            if (
                rank.owed >= PERMILLE
                and rank.after_us <= served_by_us
                and (best is None or rank.owed > best.owed)
                and rank.length() > 0
            ):
                best = rank
        return best

    def _settle(
        self, served: _Rank[T], cost: int, in_turn: bool, now_us: int, *, rests: bool
    ) -> None:
        for rank in self._floors:
            owed = rank.owed + cost * rank.floor
            if not 0 <= rank.after_us <= now_us:
                rank.after_us = now_us
            if rank is served:
                # In its turn it is paid what it is owed, and no more is held against it.
                least = min(owed, 0) if in_turn else owed - cost * PERMILLE
                owed = max(owed - cost * PERMILLE, least)
                rank.enough, rank.after_us = owed - owed // _BACK, now_us
            elif now_us - rank.after_us >= self._floor_us and owed >= rank.enough:
                owed = max(owed, PERMILLE)
            if owed > PERMILLE and (rests or rank.length() == 0):
                owed = PERMILLE
            rank.owed = owed

    def _spared(self) -> int:
        """How many entries take nobody's room."""
        spared = 0
        for rank in self._floors:
            if rank.owed >= PERMILLE and rank.length() > 0:
                spared += 1
        return spared

    def _full(self, weight: int) -> bool:
        length = 0
        for lane in self._lanes:
            queue = lane.queue
            length += queue.length
            weight += queue.weight
        if length < self._length_max or weight > self._weight_max:
            return weight > self._weight_max
        return length >= self._bound or length - self._spared() >= self._length_max

    def _make_room(
        self, lane: _Lane[T], weight: int, now_us: int, lost: list[QueueEntry[T]]
    ) -> bool:
        kept = 0
        for other in self._lanes:
            if other.rank.number < lane.rank.number:
                kept += other.queue.weight
        if kept + weight > self._weight_max:
            return False
        arriving = True
        while self._full(weight):
            length = len(self)
            spares = length < self._bound and self.weight + weight <= self._weight_max
            if spares and lane.rank.owed >= PERMILLE and lane.rank.length() == 0:
                return True
            by_weight = length < self._length_max
            least = weight if by_weight else 1
            victim = self._largest(lane, least, by_weight, arriving, spares)
            if victim is None or (victim is lane and arriving and not lane.queue.lifo):
                return False
            victim.queue.evict(now_us, lost)
            arriving = False
        return True

    def _largest(
        self, own: _Lane[T], newcomer: int, by_weight: bool, arriving: bool, spares: bool
    ) -> _Lane[T] | None:
        """Of the last rank that has anything queued, the class that holds most for its share."""
        worst: _Lane[T] | None = None
        worst_held = 0
        for at, lane in enumerate(self._lanes):
            queue = lane.queue
            held = queue.weight if by_weight else queue.length
            if lane is own and arriving:
                held += newcomer
            elif (
                queue.length == 0
                or lane.rank.number < own.rank.number
                or (spares and self.spares(at))
            ):
                continue
            if (
                worst is None
                or lane.rank.number > worst.rank.number
                or (lane.rank is worst.rank and held * worst.share > worst_held * lane.share)
            ):
                worst, worst_held = lane, held
        return worst


def _check(classes: Sequence[QueueClass], floors: Mapping[int, int]) -> None:
    if not 1 <= len(classes) <= CLASSES_MAX:
        raise ValueError(f"classes must be from 1 to {CLASSES_MAX} of them, not {len(classes)}")
    promised = 0
    for index, setting in enumerate(classes):
        if setting.rank < 0:
            raise ValueError(f"classes[{index}].rank must not be negative, not {setting.rank}")
        if not 1 <= setting.share <= SHARE_MAX:
            raise ValueError(
                f"classes[{index}].share must be from 1 to {SHARE_MAX}, not {setting.share}"
            )
    for rank, floor in floors.items():
        if not 0 <= floor <= PERMILLE:
            raise ValueError(f"floors[{rank}] must be from 0 to {PERMILLE}, not {floor}")
        promised += floor
    if promised > PERMILLE:
        raise ValueError(f"floors must be at most {PERMILLE} in sum, not {promised}")
