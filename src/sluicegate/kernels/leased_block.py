"""Leased block: units that were debited elsewhere in advance, and are spent here one by one.

Whoever owns a limit hands out a block of its units for a while; a block is spent without asking
again, and void when its time is over. This is the arithmetic of one block at its holder: what is
left of it, when it dies, and how large the next one should be. Who gives it, for which key, and
what becomes of the rest are the caller's business (`limits/lease.py` leases from a store,
`client/blocks.py` from a service).

*Time.* A block lives from the instant at which it was requested, not from that at which it came:
the owner counts from later, so a unit is never spent too late, whatever the way back has cost. A
clock that goes back to before the request makes the block void too, for nothing is known of then.

*Size.* The next block is what was spent of late in `span_us`, by the pace since the last fill:

    pace  =  used * span_us / (now - filled)        `first` where there was no block before
    size  =  min(max(pace, last / 2, 1), max(4 * last, first))

It grows by a factor of four at most and shrinks by a half, because a pause says as little of the
next moment as a burst does. The caller bounds it by what the owner may spare.

*Ladder.* An owner that has less than is asked for should not refuse outright, so the request is a
row of falling amounts, each half of the one before, down to the cost that must be met.

Cost: a spend is three comparisons and two additions, 170 ns interpreted. Bounds: a ladder has at
most `rungs_max` rungs; `HotKeys` counts `keys_max` keys.
"""

from __future__ import annotations

from typing import Final, final

SHRINK: Final = 2
GROW: Final = 4


@final
class LeasedBlock:
    """What is left of a block, and how it was spent. Instants are those of one clock, in us."""

    __slots__ = (
        "deadline_us",
        "filled_us",
        "lapsed",
        "left",
        "sent_us",
        "size",
        "spent_us",
        "used",
        "wanted",
    )

    def __init__(self, now_us: int = 0) -> None:
        self.left = 0
        self.size = 0  # of the block when it came
        self.lapsed = 0  # what it died with
        self.sent_us = 0  # when it was requested
        self.deadline_us = 0
        self.filled_us = 0  # 0: there was none yet
        self.spent_us = now_us  # when something was last spent
        self.used = 0  # since the last fill
        self.wanted = 0  # the size that was last asked for

    def spend(self, cost: int, now_us: int) -> bool:
        """Spend `cost`; return False, and spend nothing, if the block does not hold as much."""
        left = self.left
        if left > 0 and not self.sent_us <= now_us < self.deadline_us:
            self.lapsed += left
            self.left = left = 0
        if left < cost:
            return False
        self.left = left - cost
        self.used += cost
        self.spent_us = now_us
        return True

    def expire(self, now_us: int) -> int:
        """Return what is left now; a block that is over has nothing left."""
        left = self.left
        if left > 0 and not self.sent_us <= now_us < self.deadline_us:
            self.lapsed += left
            self.left = left = 0
        return left

    def fill(self, units: int, used: int, sent_us: int, lives_us: int) -> None:
        """Hold a new block of `units`, requested at `sent_us`; `used` of its grant is spent."""
        self.left = self.size = units
        self.lapsed = 0
        self.used = used
        self.sent_us = self.filled_us = self.spent_us = sent_us
        self.deadline_us = sent_us + lives_us

    def take_rest(self) -> int:
        """Return what is left, and hold nothing from now on."""
        left, self.left = self.left, 0
        return left

    def next_size(self, now_us: int, span_us: int, first: int, most: int) -> int:
        """Return how large the next block should be, from its pace and its last size."""
        pace = first
        if self.filled_us:
            elapsed_us = now_us - self.filled_us
            pace = self.used * span_us // (elapsed_us if elapsed_us > 1 else 1)
        size = min(max(pace, self.wanted // SHRINK, 1), max(self.wanted * GROW, first), most)
        self.wanted = size
        return size

    def distance_us(self, reset_us: int, now_us: int) -> int:
        """Return what is now left of a wait of `reset_us` that was told with the block."""
        rest_us = reset_us - (now_us - self.sent_us)
        return rest_us if rest_us > 0 else 0


def ladder(cost: int, extra: int, rungs_max: int) -> list[int]:
    """Return falling amounts: `cost` and all of `extra`, half as much more, ..., the bare cost."""
    rungs: list[int] = []
    while extra > 0 and len(rungs) < rungs_max - 1:
        rungs.append(cost + extra)
        extra //= 2
    rungs.append(cost)
    return rungs


@final
class HotKeys:
    """Counts requests by key, in windows of `window_us`, to tell which keys ask often."""

    __slots__ = ("_hot_min", "_keys_max", "_since_us", "_window_us", "counts", "windows")

    def __init__(self, hot_min: int, window_us: int, keys_max: int) -> None:
        self._hot_min = hot_min
        self._window_us = window_us
        self._keys_max = keys_max
        self._since_us = 0
        self.counts: dict[object, int] = {}
        self.windows = 0  # how many have begun

    def add(self, key: object, now_us: int) -> bool:
        """Count one request of `key`; return whether it is hot in this window."""
        if now_us - self._since_us >= self._window_us or len(self.counts) >= self._keys_max:
            self.counts = {}
            self._since_us = now_us
            self.windows += 1
        count = self.counts[key] = self.counts.get(key, 0) + 1
        return count >= self._hot_min
