"""Adaptive LIFO: first in, first out, until a queue stands; then the newest first.

Source: Maurer, "Fail at Scale" (2015). While a queue empties now and then, order is fairness and
costs nothing. Once it stands, whoever is at its old end has waited so long that the answer will
come too late, and serving in order makes everyone late. The newest still has all its time.

    a queue stands            when it was last empty more than `standing_us` ago
    it is served              oldest first until it stands, newest first from then on
    it is fair again          only when it has emptied, by whatever way its last entry left

The switch back waits for an empty queue (hysteresis): an order that flipped at a length would serve
half of each wave late. `standing_us=None` never switches (a bounded FIFO), 0 switches at once.

LIFO alone leaves the unlucky in the queue for ever, dead and taking memory. So every entry has a
timeout, every operation first takes out what has expired at the old end, and no expired entry is
ever served. The queue is bounded in number and in weight (bytes, say). When it is full, a queue
that stands pushes out its oldest, one that does not refuses the newcomer: whoever goes is the one
least likely to be answered in time.

Nothing disappears. Every entry that leaves without being popped or cancelled, a refused newcomer
too, is appended to `lost`, a list that the caller owns, and says in `fate` what became of it.

The clock of the queue only goes forward: when `now_us` goes back, no time passes in that step, and
time goes on from there. So no age is negative and nobody expires early.

32 workers of 10 ms, callers that give up after 100 ms, ten times the load that can be served:
answers in time as a share of capacity, their p99, and the longest queue (5 s, of which the first 2
do not count; the simulation is in tests/kernels/test_adaptive_lifo.py):

    order     timeout     length_max     answers     p99       longest queue
    FIFO      none             2,000     0                             2,000
    FIFO      100 ms           2,000     0                             2,000
    FIFO       90 ms           2,000     1.00       100 ms             2,000
    adaptive  100 ms           2,000     1.00        11 ms             2,000
    adaptive  100 ms       1,000,000     1.00        11 ms             3,155
    adaptive  none         1,000,000     1.00        11 ms           143,490, and growing

Not good at: fairness under overload, on purpose; very unequal timeouts (a dead entry is found only
when it reaches an end: it is never served, but holds its place until then); a heavy newcomer, which
may push out many light ones.

Cost: O(1) an operation, each expired entry being taken out once. The queue is a linked list, and
the handle by which an entry is cancelled is its node. Bounds: `length_max` and `weight_max`.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar, final

from sluicegate.kernels.bounds import within

LENGTH_MAX: Final = 1 << 32
WEIGHT_MAX: Final = 1 << 53

QUEUED: Final = 0
POPPED: Final = 1
CANCELLED: Final = 2
EXPIRED: Final = 3
OVERFLOWED: Final = 4

_NEVER_STANDS: Final = -1

T = TypeVar("T")


@final
class QueueEntry(Generic[T]):
    """One item in a queue, and the handle by which it is cancelled.

    `fate` says what became of it and `waited_us`, once it has left, how long it was queued. `cost`
    is carried for whoever chooses between queues. The rest is for the queue to write: where it
    stands, and since and until when by the queue's own clock.
    """

    __slots__ = (
        "cost",
        "expires_us",
        "fate",
        "home",
        "item",
        "newer",
        "older",
        "pushed_us",
        "waited_us",
        "weight",
    )

    def __init__(self, item: T, weight: int, cost: int, pushed_us: int, expires_us: int) -> None:
        self.item = item
        self.weight = weight
        self.cost = cost
        self.fate = QUEUED
        self.waited_us = 0
        self.pushed_us = pushed_us
        self.expires_us = expires_us
        self.home: AdaptiveLifo[T] | None = None
        self.newer: QueueEntry[T] | None = None
        self.older: QueueEntry[T] | None = None


@final
class AdaptiveLifo(Generic[T]):
    """A bounded queue that turns round when it stands."""

    __slots__ = (
        "_begun_us",
        "_latest_us",
        "_length_max",
        "_newest",
        "_standing_us",
        "_turned_back_us",
        "_weight_max",
        "length",
        "lifo",
        "oldest",
        "weight",
    )

    def __init__(
        self,
        *,
        length_max: int,
        weight_max: int = WEIGHT_MAX,
        standing_us: int | None = 100_000,
    ) -> None:
        within("length_max", length_max, 1, LENGTH_MAX)
        within("weight_max", weight_max, 1, WEIGHT_MAX)
        if standing_us is not None and standing_us < 0:
            raise ValueError(f"standing_us must not be negative, not {standing_us}")
        self._length_max = length_max
        self._weight_max = weight_max
        self._standing_us = _NEVER_STANDS if standing_us is None else standing_us
        self.oldest: QueueEntry[T] | None = None  # to look at; the next is its `newer`
        self._newest: QueueEntry[T] | None = None
        self._begun_us = 0  # When the first entry since it was last empty came.
        self._latest_us = 0
        self._turned_back_us = 0
        self.length = 0
        self.weight = 0
        self.lifo = False

    def __len__(self) -> int:
        return self.length

    @property
    def newest(self) -> QueueEntry[T] | None:
        """The one that joined last, to look at."""
        return self._newest

    def push(
        self,
        item: T,
        timeout_us: int,
        now_us: int,
        lost: list[QueueEntry[T]],
        weight: int = 1,
        cost: int = 1,
    ) -> QueueEntry[T]:
        """Queue `item` for at most `timeout_us`; the entry's `fate` says whether it is queued."""
        if weight < 0:
            raise ValueError(f"weight must not be negative, not {weight}")
        at_us = self.expire(now_us, lost)
        entry = QueueEntry(item, weight, cost, at_us, at_us + timeout_us)
        if timeout_us <= 0:
            entry.fate = EXPIRED
        elif not self._make_room(weight, at_us, lost):
            entry.fate = OVERFLOWED
        if entry.fate != QUEUED:
            lost.append(entry)
            return entry
        newest = self._newest
        if newest is None:
            self.oldest = entry
            self._begun_us = at_us
        else:
            newest.newer = entry
            entry.older = newest
        self._newest = entry
        entry.home = self
        self.length += 1
        self.weight += weight
        return entry

    def pop(self, now_us: int, lost: list[QueueEntry[T]]) -> QueueEntry[T] | None:
        """Take out the entry whose turn it is, or None."""
        at_us = self.expire(now_us, lost)
        while True:
            entry = self._newest if self.lifo else self.oldest
            if entry is None:
                return None
            if at_us < entry.expires_us:
                self._remove(entry, POPPED, at_us)
                return entry
            self._remove(entry, EXPIRED, at_us)
            lost.append(entry)

    def cancel(self, entry: QueueEntry[T], now_us: int) -> bool:
        """Take out this entry, wherever it stands; False if it is not queued here (any more)."""
        if entry.home is not self:
            return False
        self._remove(entry, CANCELLED, self._clock(now_us))
        return True

    def evict(self, now_us: int, lost: list[QueueEntry[T]]) -> bool:
        """Push out the entry least likely to be served in time; False if there is none."""
        at_us = self.expire(now_us, lost)
        entry = self.oldest if self.lifo else self._newest
        if entry is None:
            return False
        self._remove(entry, OVERFLOWED, at_us)
        lost.append(entry)
        return True

    def expire(self, now_us: int, lost: list[QueueEntry[T]]) -> int:
        """Take out what has expired at the old end; the other operations begin with this.

        Returns the time of the queue's own clock.
        """
        at_us = self._clock(now_us)
        entry = self.oldest
        while entry is not None and entry.expires_us <= at_us:
            self._remove(entry, EXPIRED, at_us)
            lost.append(entry)
            entry = self.oldest
        if (
            entry is not None
            and not self.lifo
            and self._standing_us != _NEVER_STANDS
            and at_us - self._begun_us > self._standing_us
        ):
            self.lifo = True
        return at_us

    def _clock(self, now_us: int) -> int:
        if now_us < self._latest_us:
            self._turned_back_us += self._latest_us - now_us
        self._latest_us = now_us
        return now_us + self._turned_back_us

    def _make_room(self, weight: int, at_us: int, lost: list[QueueEntry[T]]) -> bool:
        if weight > self._weight_max:
            return False
        while self.length >= self._length_max or self.weight + weight > self._weight_max:
            oldest = self.oldest
            if oldest is None or not self.lifo:
                return False
            self._remove(oldest, OVERFLOWED, at_us)
            lost.append(oldest)
        return True

    def _remove(self, entry: QueueEntry[T], fate: int, at_us: int) -> None:
        older, newer = entry.older, entry.newer
        if older is None:
            self.oldest = newer
        else:
            older.newer = newer
        if newer is None:
            self._newest = older
        else:
            newer.older = older
        entry.older = entry.newer = entry.home = None
        entry.fate = fate
        entry.waited_us = at_us - entry.pushed_us
        self.weight -= entry.weight
        self.length -= 1
        if self.length == 0:
            self.lifo = False
