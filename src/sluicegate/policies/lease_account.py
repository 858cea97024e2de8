"""Lease account: what one caller has at one dispatcher, and what it has learned of it.

Only `leased_budget.py` uses it. Here is the arithmetic of a single caller: how an epoch ends, how
large its next block should be, what part of the quota it has been getting. Nothing here knows a
store, other callers, or what time it is beyond what it is told.

Three numbers are learned, each over epochs, the latest weighing `memory`: the *demand* (what was
asked, admitted or not, no more than the quota), and from it the size of a block; and the *share*,
which is all that is left when the store is gone:

    share = what was obtained of the quota + what nobody had taken of it / live dispatchers

The second part is what lets a caller that uses a third of its quota go on using it unevenly. It is
what the store said last, so it may count what others took a moment later: shares of a caller that
spends its quota add up to 1, those of one that does not to at most 2 - 1 / live.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.kernels.cost_model import MILLI

RUNGS_MAX: Final = 12
_EVEN: Final = -1.0  # nothing is learned: an even part


@final
class LeaseAccount:
    """Levels in thousandths of a request unit; below zero it owes."""

    __slots__ = (
        "asking",
        "block_mru",
        "block_us",
        "caller",
        "demand_mru",
        "dry_mru",
        "granted_mru",
        "least_mru",
        "left_mru",
        "level_mru",
        "local",
        "need_mru",
        "pace_mru",
        "quota_mru",
        "share",
        "unmet_mru",
        "wanting",
        "window",
    )

    def __init__(self, caller: str, quota_mru: int, window: int) -> None:
        self.caller = caller
        self.quota_mru = quota_mru
        self.window = window  # the epoch that all of this is about
        self.level_mru = 0
        self.granted_mru = 0
        self.demand_mru = 0
        self.left_mru = -1  # of the whole quota, as the store said last; -1: it said nothing
        self.dry_mru = 0  # the store has less than this; 0: who knows
        self.local = False  # filled here, by its share: the store is not asked in this epoch
        self.pace_mru = 0  # an epoch
        self.share = _EVEN
        self.block_mru = 0
        self.block_us = 0
        self.need_mru = 0  # the most that was missing for one request, since it was last asked for
        self.unmet_mru = 0  # all that was missing
        self.least_mru = 0  # the least that would have helped one
        self.wanting = False
        self.asking = False

    def part_mru(self, live: int) -> int:
        """What an epoch brings here without a store; never nothing, or nobody could ever ask."""
        share = self.share
        part = self.quota_mru // live if share < 0.0 else int(self.quota_mru * share)
        return part if part > 1 else 1

    def enter(self, window: int, live: int, memory: float, *, learns: bool) -> None:
        """The epoch is over: what is left of it is void, what is owed is not."""
        passed = window - self.window
        if passed < 1:
            passed = 1  # The store's clock went back.
        self._learn_demand(passed, memory)
        if learns and not self.local:
            self._learn_share(live, memory)
        self.window = window
        if self.level_mru > 0:
            self.level_mru = 0
        self.granted_mru = self.demand_mru = self.dry_mru = 0
        self.left_mru = -1
        self.local = False
        self.block_mru = 0
        self.need_mru = self.unmet_mru = self.least_mru = 0

    def fill(self, live: int) -> int:
        """Refill by the share, as far as this epoch has not brought it already; how much that is.

        What was asked, at what price and with what delay has no say in it.
        """
        self.local = True
        more = self.part_mru(live) - self.granted_mru
        if more <= 0:
            return 0
        self.level_mru += more
        self.granted_mru += more
        return more

    def pay(self, epochs: int, live: int) -> None:
        """Epochs that nobody looked at have passed: what they would have brought pays debt."""
        if self.level_mru < 0:
            level = self.level_mru + epochs * self.part_mru(live)
            self.level_mru = level if level < 0 else 0

    def idle(self) -> bool:
        """Whether it could be forgotten: it asks for nothing, owes nothing, waits for nothing."""
        busy = self.asking or self.wanting or self.pace_mru > 0 or self.demand_mru > 0
        return not busy and self.level_mru >= 0

    def lacks(self, mru: int) -> None:
        """A request was refused for want of so much."""
        self.unmet_mru += mru
        if mru > self.need_mru:
            self.need_mru = mru
        if self.least_mru == 0 or mru < self.least_mru:
            self.least_mru = mru

    def ladder(self, now_us: int, left_us: int, epoch_us: int, blocks: int, cap: int) -> list[int]:
        """What to ask the store for: what is spent in a moment, or less; empty if `cap` is spent.

        Never more than can be spent before the epoch ends, unless somebody waits for it.
        """
        span_us = epoch_us // blocks
        if left_us < span_us:
            span_us = left_us if left_us > 0 else 0
        wish = self.pace_mru * span_us // epoch_us
        block = self.block_mru
        if block > 0 and left_us >= span_us > 0 and (now_us - self.block_us) * 2 < span_us:
            # It went in half the time it was meant for.
            wish = max(wish, block * 2 * span_us * blocks // epoch_us)
        most = self.quota_mru // blocks
        wish = min(max(wish, MILLI), max(most, MILLI))
        unmet = self.unmet_mru if self.unmet_mru < self.quota_mru else self.quota_mru
        owed = -self.level_mru if self.level_mru < 0 else 0
        wish = min(max(wish, unmet, self.need_mru, owed), self.quota_mru, cap)
        least = self.least_mru if 0 < self.least_mru < MILLI else MILLI
        self.need_mru = self.unmet_mru = self.least_mru = 0
        rungs: list[int] = []
        while wish > least and len(rungs) < RUNGS_MAX - 1:
            rungs.append(wish)
            wish //= 2
        if wish > 0:
            rungs.append(least if least < cap else cap)
        return rungs

    def _learn_demand(self, passed: int, memory: float) -> None:
        demand = self.demand_mru if self.demand_mru < self.quota_mru else self.quota_mru
        pace = float(self.pace_mru)
        pace = float(demand) if self.pace_mru == 0 else pace + (demand - pace) * memory
        if passed > 1:
            pace *= (1.0 - memory) ** min(passed - 1, 1_000)
        self.pace_mru = int(pace)

    def _learn_share(self, live: int, memory: float) -> None:
        even = 1.0 / live
        share = self.share
        if self.demand_mru == 0 or self.left_mru < 0:
            # Who has not asked here for a while is worth an even part at most.
            if share > even:
                share *= 1.0 - memory
                self.share = share if share > even else even
            return
        seen = (self.granted_mru + self.left_mru / live) / self.quota_mru
        if seen > 1.0:
            seen = 1.0
        self.share = seen if share < 0.0 else share + (seen - share) * memory
