"""Lease account: what one caller has at one dispatcher, and its learned demand and share.

Only `leased_budget.py` uses it. Here is the arithmetic of a single caller: how an epoch ends, how
large its next block should be, what part of the quota it has been getting. Nothing here knows a
store, other callers or a clock.

Two numbers are learned over epochs, the latest weighing `memory`: the *demand* (of all requests,
admitted or not, no more than the quota), which gives the size of a block; and the *share*, which is
all that remains without the store:

    share = what was obtained of the quota + what nobody had taken of it / live dispatchers

The second part lets a caller that uses a third of its quota go on using it unevenly. It is the last
word of the store, so it may count what others took a moment later: shares of a caller that spends
its quota add up to 1, those of one that does not to at most 2 - 1 / live.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.kernels.cost_model import MILLI

RUNGS_MAX: Final = 12
EVEN: Final = -1.0  # no share is learned: an even part


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
        "lent_mru",
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
        self.lent_mru = 0  # in advance of a block that is late
        self.demand_mru = 0
        self.left_mru = -1  # of the whole quota, by the store's last answer; -1: none
        self.dry_mru = 0  # the store has less than this; 0: unknown
        self.local = False  # filled here, by its share, without the store in this epoch
        self.pace_mru = 0  # an epoch
        self.share = EVEN
        self.block_mru = 0
        self.block_us = 0
        self.need_mru = 0  # the largest shortage of one request since the last block request
        self.unmet_mru = 0  # the sum of shortages
        self.least_mru = 0  # the smallest of them
        self.wanting = False
        self.asking = False

    def part_mru(self, live: int) -> int:
        """Return what an epoch brings here without a store; at least 1, or nothing ever fits."""
        share = self.share
        part = self.quota_mru // live if share < 0.0 else int(self.quota_mru * share)
        return part if part > 1 else 1

    def enter(self, window: int, live: int, memory: float, *, learns: bool) -> None:
        """Begin another epoch: a level above zero lapses, a debt stays."""
        passed = window - self.window
        if passed < 1:
            passed = 1  # The store's clock went back.
        self._learn_demand(passed, memory)
        if learns and not self.local:
            self._learn_share(live, memory)
        self.window = window
        if self.level_mru > 0:
            self.level_mru = 0
        self.granted_mru = self.lent_mru = self.demand_mru = self.dry_mru = 0
        self.left_mru = -1
        self.local = False
        self.block_mru = 0
        self.need_mru = self.unmet_mru = self.least_mru = 0

    def fill(self, live: int) -> int:
        """Refill by the share, less what this epoch has brought already; return how much.

        Demand, price and delay have no influence on it.
        """
        self.local = True
        more = self._fill_to_part(live)
        self.lent_mru = 0
        return more

    def borrow(self, live: int) -> None:
        """Refill by the share before a late block arrives; `repay` takes the advance back."""
        self.lent_mru += self._fill_to_part(live)

    def repay(self) -> None:
        """Take the advance back; the spent part of it is owed."""
        self.level_mru -= self.lent_mru
        self.granted_mru -= self.lent_mru
        self.lent_mru = 0

    def _fill_to_part(self, live: int) -> int:
        more = self.part_mru(live) - self.granted_mru
        if more <= 0:
            return 0
        self.level_mru += more
        self.granted_mru += more
        return more

    def pay(self, epochs: int, live: int) -> None:
        """Pay debt from what epochs without a request would have brought."""
        if self.level_mru < 0:
            level = self.level_mru + epochs * self.part_mru(live)
            self.level_mru = level if level < 0 else 0

    def idle(self) -> bool:
        """Return whether it may be forgotten: no demand, no debt, no request."""
        busy = self.asking or self.wanting or self.pace_mru > 0 or self.demand_mru > 0
        return not busy and self.level_mru >= 0

    def add_shortage(self, mru: int) -> None:
        """Note that a request was refused because so much was missing."""
        self.unmet_mru += mru
        if mru > self.need_mru:
            self.need_mru = mru
        if self.least_mru == 0 or mru < self.least_mru:
            self.least_mru = mru

    def ladder(self, now_us: int, left_us: int, epoch_us: int, blocks: int, cap: int) -> list[int]:
        """Return the amounts to request: what is spent in a moment, or less; none if `cap` is 0.

        Never more than can be spent before the epoch ends, unless a request waits for it.
        """
        span_us = epoch_us // blocks
        if left_us < span_us:
            span_us = left_us if left_us > 0 else 0
        wish = self.pace_mru * span_us // epoch_us
        block = self.block_mru
        if block > 0 and left_us >= span_us > 0 and (now_us - self.block_us) * 2 < span_us:
            # The block was spent in half the time it was meant for.
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
            # Without demand here for a while, the share shrinks to an even part.
            if share > even:
                share *= 1.0 - memory
                self.share = share if share > even else even
            return
        current = (self.granted_mru + self.left_mru / live) / self.quota_mru
        if current > 1.0:
            current = 1.0
        self.share = current if share < 0.0 else share + (current - share) * memory
