"""Moving rate: how fast an account goes, from counts in sub-intervals of time.

Source: "Building a distributed rate limiter that scales horizontally" (Ably, 2022), which measures
over 24 seconds in 4 sub-intervals of 6 and found that the sub-interval in progress makes the mean
swing: it begins at nothing, so the mean drops at every boundary and climbs until the next one. Its
rule is to leave the sub-interval in progress out if its data point is below the mean.

The exact reading taken here, where the words leave a choice:

- The window is 4 sub-intervals, of which the newest is the one in progress. So the mean is over
  3 whole ones or over all 4, and never looks back further than 24 s. (`sub_intervals=5` is the
  other reading, 4 whole ones beside the one in progress.)
- A data point is the count of a sub-interval, that of the one in progress as if it were whole
  already. Dividing it by the time it has lasted would call a single message in the first
  microsecond a rate of a million a second.
- The unadjusted mean is over all 4. To be below it is the same as to be below the mean of the
  whole ones: x < (S + x) / (n + 1) and x < S / n are both n * x < S. At equality the two means
  are equal, so it makes no difference whether equal counts as below.
- Before the first count there is nothing, and nothing counts as sub-intervals of 0: a new account
  and one that was idle for 24 s are the same, and either may be forgotten.

So the rule is a maximum, mean = max(S / n, (S + x) / (n + 1)) in counts a sub-interval, for S in
the n whole ones and x in the one in progress. It is written so below, in integers.

**Two speeds.** A ten-fold step takes seconds to show in 24: x must first outgrow the mean and then
counts as one of four. `TwoSpeedRate` takes the larger of that mean and the count of the last
second, in ten slots of 100 ms of which one is in progress: it spans 0.9 to 1 s and is divided by
1 s, so it never says too much. From rest to ten times a limit L, fed every 10 ms (the tests show
the table):

    seconds after the step       0.5      1       6      12      18      24
    the mean, in L              0.21   0.42     2.5     5.0     7.5    10.0
    two speeds, in L             5.0   10.0    10.0    10.0    10.0    10.0

The price: a burst of one second is taken for a rate, so an account that stays within its limit over
24 s may be seen above it for a moment. Going down, both take the 24 s: what was counted leaves when
its sub-interval does.

What is counted is integers and stays exact; a rate is a count and the span it stands for, compared
by cross multiplication, and becomes a float in `per_s` alone. Slots begin at whole multiples of
their width. A clock that goes back counts into the newest slot and moves nothing.

Cost: two additions and a comparison; a new slot clears those that it pushes out. Measured here, ns
an `add` on one core: MovingRate 120 interpreted, 37 compiled; TwoSpeedRate 210 and 42.
Bounds: from 2 to `SLOTS_MAX` slots of 1 to 2^53 us; a count from 0 to any size.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.kernels.bounds import within

SECOND_US: Final = 1_000_000
SLOTS_MAX: Final = 1 << 12
SLOT_US_MAX: Final = 1 << 53


def adjusted_mean(whole: int, slots: int, in_progress: int) -> tuple[int, int]:
    """The rule: `whole` counts in `slots` whole slots, and what the one in progress has.

    Returns a count and how many slots it stands for.
    """
    if in_progress * slots < whole:
        return whole, slots
    return whole + in_progress, slots + 1


@final
class SlotRing:
    """Counts in the last `slots` slots of `slot_us` each, the newest of which is in progress."""

    __slots__ = ("_counts", "_end_us", "_slot", "in_progress", "slot_us", "slots", "total")

    def __init__(self, slots: int, slot_us: int) -> None:
        self.slots = slots
        self.slot_us = slot_us
        self.total = 0
        self.in_progress = 0
        self._counts = [0] * slots
        self._slot = 0
        self._end_us = slot_us

    def add(self, count: int, now_us: int) -> None:
        """Count in the slot in progress."""
        if now_us >= self._end_us:
            self.advance(now_us)
        self.total += count
        self.in_progress += count

    def add_over(self, count: int, begin_us: int, end_us: int, now_us: int) -> None:
        """Count what came evenly between two instants, as far as they are within the slots."""
        self.advance(now_us)
        width_us = end_us - begin_us
        if width_us <= 0:
            self.add(count, now_us)
            return
        at_us = max(begin_us, (self._slot - self.slots + 1) * self.slot_us)
        while at_us < end_us:
            slot = at_us // self.slot_us
            until_us = min((slot + 1) * self.slot_us, end_us)
            part = (
                count * (until_us - begin_us) // width_us - count * (at_us - begin_us) // width_us
            )
            if slot >= self._slot:
                self.in_progress += part
            else:
                self._counts[slot % self.slots] += part
            self.total += part
            at_us = until_us

    def advance(self, now_us: int) -> None:
        """Begin the slot of `now_us`, and forget those that it pushes out."""
        if now_us < self._end_us:
            return
        slots, counts, old = self.slots, self._counts, self._slot
        counts[old % slots] = self.in_progress
        new = now_us // self.slot_us
        # After a long silence every place is cleared once, however many slots have passed.
        for slot in range(max(old + 1, new - slots + 1), new + 1):
            self.total -= counts[slot % slots]
            counts[slot % slots] = 0
        self.in_progress = 0
        self._slot = new
        self._end_us = (new + 1) * self.slot_us


@final
class MovingRate:
    """The mean over `sub_intervals` sub-intervals, by the rule above."""

    __slots__ = ("_ring",)

    def __init__(self, sub_intervals: int = 4, sub_interval_us: int = 6 * SECOND_US) -> None:
        within("sub_intervals", sub_intervals, 2, SLOTS_MAX)
        within("sub_interval_us", sub_interval_us, 1, SLOT_US_MAX)
        self._ring = SlotRing(sub_intervals, sub_interval_us)

    def add(self, count: int, now_us: int) -> None:
        """Count `count` units attempted at `now_us`."""
        if count < 0:
            raise ValueError(f"count must not be negative, not {count}")
        self._ring.add(count, now_us)

    def add_over(self, count: int, begin_us: int, end_us: int, now_us: int) -> None:
        """Count what came evenly between two past instants."""
        self._ring.add_over(count, begin_us, end_us, now_us)

    def mean(self, now_us: int) -> tuple[int, int]:
        """The rate as a count and the microseconds it stands for, exact."""
        ring = self._ring
        ring.advance(now_us)
        whole = ring.total - ring.in_progress
        count, slots = adjusted_mean(whole, ring.slots - 1, ring.in_progress)
        return count, slots * ring.slot_us

    def per_s(self, now_us: int) -> float:
        """The rate in units a second."""
        count, span_us = self.mean(now_us)
        return count * SECOND_US / span_us


@final
class TwoSpeedRate:
    """The larger of that mean and the count of the last `recent_slots`."""

    __slots__ = ("_recent", "_slow")

    def __init__(
        self,
        sub_intervals: int = 4,
        sub_interval_us: int = 6 * SECOND_US,
        recent_slots: int = 10,
        recent_slot_us: int = SECOND_US // 10,
    ) -> None:
        within("recent_slots", recent_slots, 2, SLOTS_MAX)
        within("recent_slot_us", recent_slot_us, 1, SLOT_US_MAX)
        self._slow = MovingRate(sub_intervals, sub_interval_us)
        self._recent = SlotRing(recent_slots, recent_slot_us)

    def add(self, count: int, now_us: int) -> None:
        """Count `count` units attempted at `now_us`."""
        self._slow.add(count, now_us)
        self._recent.add(count, now_us)

    def mean(self, now_us: int) -> tuple[int, int]:
        """The rate as a count and the microseconds it stands for, exact."""
        count, span_us = self._slow.mean(now_us)
        recent = self._recent
        recent.advance(now_us)
        recent_us = recent.slots * recent.slot_us
        if recent.total * span_us > count * recent_us:
            return recent.total, recent_us
        return count, span_us

    def per_s(self, now_us: int) -> float:
        """The rate in units a second."""
        count, span_us = self.mean(now_us)
        return count * SECOND_US / span_us
