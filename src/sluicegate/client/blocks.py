"""Blocks: units of hot pairs that the service has leased to this client, and that are spent here.

The service debits a block before a unit of it is spent, and says for how long it is good; here that
is counted from before the request was sent (`kernels/leased_block.py`). A block that has ended is
void. What is left of a live one goes back when its pair has been idle, or when the client ends. So
all clients together admit what the limit allows, and a client that is killed costs what it had not
spent, to nobody's harm.

By itself only a pair that asks often is leased: `hot_asks` requests within `HOT_US`. A block is
what this client spends in `SPAN_US`, or in half the block's life; never above `units_max`, and at
most a tenth of the limit, so that others find something. A pair for which that is less than two
units is asked for each time. A fixed size leases every pair from its first request.

A block is spent in any thread, under a lock; everything else belongs to the client's loop. Bounds:
`pairs_max` pairs with blocks, as many counted for heat.
"""

from __future__ import annotations

from typing import Final, NamedTuple, final

from sluicegate.client.answer import LEASE, Answer
from sluicegate.client.pair import Pair
from sluicegate.contracts.decision import Decision
from sluicegate.kernels.leased_block import HotKeys, LeasedBlock
from sluicegate.stores.memory.light_lock import FORKS, LightLock

HOT_ASKS: Final = 16
HOT_US: Final = 1_000_000
SPAN_US: Final = 250_000
AUTO_SHARE: Final = 10  # an automatic block is at most this part of the limit: a tenth
WORTH_MIN: Final = 2  # units of a block that is worth a request
IDLE_US: Final = 500_000
BARRED_US: Final = 1_000_000  # a pair that gets no lease is not tried again for so long
UNITS_MAX: Final = 10_000
PAIRS_MAX: Final = 10_000


class BlockRest(NamedTuple):
    """What is to be given back, and to which worker."""

    lease_id: str
    units: int
    via: object


@final
class PairBlock:
    """The block of one pair."""

    __slots__ = (
        "answer",
        "barred_until_us",
        "filling",
        "lease_id",
        "most",
        "span_us",
        "units",
        "via",
    )

    def __init__(self, now_us: int, most: int) -> None:
        self.units = LeasedBlock(now_us)
        self.lease_id = ""
        self.most = most  # units that it may have
        self.span_us = SPAN_US
        self.via: object = None
        self.answer: Answer | None = None  # the service's, with the lease
        self.filling = False
        self.barred_until_us = 0


@final
class Blocks:
    """The blocks of one client."""

    def __init__(
        self,
        *,
        fixed: int = 0,
        hot_asks: int = HOT_ASKS,
        units_max: int = UNITS_MAX,
        pairs_max: int = PAIRS_MAX,
    ) -> None:
        self.fixed = fixed
        self.hot_asks = hot_asks
        self.units_max = units_max
        self.pairs_max = pairs_max
        self.spent = 0  # answers given from blocks
        self.lapsed = 0  # units that died unspent
        self._blocks: dict[Pair, PairBlock] = {}
        self._limits: dict[Pair, int] = {}  # of the pairs counted now, as answers have told them
        self._windows = 0
        self._reset_after_fork()

    def spend(self, pair: Pair, cost: int, now_us: int) -> Answer | None:
        """Spend `cost` of the pair's block; None if it does not hold that much."""
        block = self._blocks.get(pair)
        if block is None or self._forks != FORKS.count:
            return None
        self._lock.acquire()
        try:
            units, answer = block.units, block.answer
            if answer is None or not units.spend(cost, now_us):
                self._count_lapsed(units)
                return None
            self.spent += 1
            was = answer.decision
            remaining = was.remaining + units.left
            reset_us = units.distance_us(was.reset_after_us, now_us)
            decision = Decision(True, remaining, 0, reset_us, None, was.rule_id)
            return Answer(decision, answer.limit, answer.status, LEASE)
        finally:
            self._lock.release()

    def block_for(self, pair: Pair, now_us: int) -> PairBlock | None:
        """Return the block of a pair to be leased; None if it is not worth it, or not now."""
        if self._forks != FORKS.count:
            self._reset_after_fork()
        block = self._blocks.get(pair)
        if block is not None:
            units = block.units
            if self.fixed or block.filling or units.left or not 0 < units.wanted < WORTH_MIN:
                return block if now_us >= block.barred_until_us else None
            del self._blocks[pair]  # it has cooled down
        if not self.fixed and not self._is_hot(pair, now_us):
            return None
        most = self._most(self._limits.get(pair, 0))
        if len(self._blocks) >= self.pairs_max or (most < WORTH_MIN and not self.fixed):
            return None
        block = self._blocks[pair] = PairBlock(now_us, most)
        return block

    def note_limit(self, pair: Pair, limit: int) -> None:
        """Remember the limit under which a pair falls; -1 for none."""
        if pair in self._hot.counts:
            self._limits[pair] = limit

    def size(self, block: PairBlock, cost: int, now_us: int) -> int:
        """Return how many units to request; `cost` of them are spent at once."""
        size = min(self.fixed, block.most)
        if not size:
            size = block.units.next_size(now_us, block.span_us, self.hot_asks, block.most)
        return max(size, cost)

    def fill(
        self,
        block: PairBlock,
        lease_id: str,
        units: int,
        valid_us: int,
        answer: Answer,
        sent_us: int,
        via: object,
    ) -> BlockRest | None:
        """Take a lease in; return what is left of the one before it."""
        self._lock.acquire()
        try:
            block.units.expire(sent_us)
            before = self._end(block)
            block.units.fill(units, 0, sent_us, valid_us)
            block.lease_id = lease_id
            block.via = via
            block.answer = answer
            block.span_us = min(SPAN_US, max(valid_us // 2, 1))
            block.most = self._most(answer.limit)
            return before
        finally:
            self._lock.release()

    def bar(self, block: PairBlock, retry_us: int, now_us: int) -> None:
        """Do not request a lease again for a while: there was none."""
        block.barred_until_us = now_us + min(max(retry_us, 1), BARRED_US)

    def take_idle(self, now_us: int, *, every: bool = False) -> list[BlockRest]:
        """Take out blocks that were not used lately (or all); return what is left of them."""
        if self._forks != FORKS.count:
            self._reset_after_fork()
        found: list[BlockRest] = []
        for pair, block in [*self._blocks.items()]:
            self._lock.acquire()
            try:
                block.units.expire(now_us)
                self._count_lapsed(block.units)
                idle = now_us - block.units.spent_us >= IDLE_US and now_us >= block.barred_until_us
                if every or (idle and not block.filling):
                    rest = self._end(block)
                    del self._blocks[pair]
                    if rest is not None:
                        found.append(rest)
            finally:
                self._lock.release()
        return found

    def forget(self, pair: Pair) -> None:
        """Void what is here of a pair that was reset."""
        self._lock.acquire()
        try:
            block = self._blocks.pop(pair, None)
            if block is not None:
                block.units.left = 0
        finally:
            self._lock.release()

    def __len__(self) -> int:
        return len(self._blocks)

    def _is_hot(self, pair: Pair, now_us: int) -> bool:
        hot = self._hot.add(pair, now_us)
        if self._hot.windows != self._windows:
            self._windows = self._hot.windows
            self._limits = {}
        return hot

    def _most(self, limit: int) -> int:
        """Return the most units of a block under this limit; 0 and less say nothing."""
        if self.fixed or limit <= 0:
            return self.units_max
        return min(self.units_max, limit // AUTO_SHARE)

    def _reset_after_fork(self) -> None:
        """Start anew in a child: a block that both processes spent would count twice."""
        self._forks = FORKS.count
        self._lock = LightLock()
        self._blocks = {}
        self._hot = HotKeys(self.hot_asks, HOT_US, self.pairs_max)
        self._windows = 0
        self._limits = {}

    def _end(self, block: PairBlock) -> BlockRest | None:
        self._count_lapsed(block.units)
        left = block.units.take_rest()
        # One without a name cannot be given back.
        return BlockRest(block.lease_id, left, block.via) if left and block.lease_id else None

    def _count_lapsed(self, units: LeasedBlock) -> None:
        self.lapsed += units.lapsed
        units.lapsed = 0
