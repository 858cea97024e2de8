"""Blocks: units of hot pairs that the service has leased to this client, and that are spent here.

The service debits a block before a unit of it is spent, and says for how long it is good, counted
from its own answer; here that is counted from before the question was sent, so a unit is never
spent too late, whatever the network does. A block that has ended is void. What is left of a live
one goes back when its pair has been idle, or when the client ends. So all clients together admit
what the limit allows, and a client that is killed costs what it had not spent, to nobody's harm.

By itself only a pair that asks often is leased: `hot_asks` questions within `HOT_US`. A block is
what this client spends in `SPAN_US`, or in half the block's life; more by a factor of four at most
from one to the next, less by a half, never above `units_max`, and at most a tenth of the limit, so
that others find something. A pair for which that is less than two units is asked for each time. A
fixed size leases every pair from its first ask.

A block is spent in any thread, under a turn; everything else belongs to the client's loop. Bounds:
`pairs_max` pairs with blocks, as many counted for heat.
"""

from __future__ import annotations

from typing import Final, NamedTuple, final

from sluicegate.client.answer import LEASE, Answer
from sluicegate.client.pair import Pair
from sluicegate.contracts.decision import Decision
from sluicegate.stores.memory.light_lock import FORKS, LightLock

HOT_ASKS: Final = 16
HOT_US: Final = 1_000_000
SPAN_US: Final = 250_000
AUTO_SHARE: Final = 10  # an automatic block is at most this part of the limit: a tenth
WORTH_MIN: Final = 2  # units of a block that is worth a question
IDLE_US: Final = 500_000
BARRED_US: Final = 1_000_000  # a pair that gets no lease is not asked about again for so long
UNITS_MAX: Final = 10_000
PAIRS_MAX: Final = 10_000


class Left(NamedTuple):
    """What is to be given back, and to which worker."""

    lease_id: str
    units: int
    via: object


@final
class Block:
    """What one pair has here, and how it is spent."""

    __slots__ = (
        "answer",
        "barred_until_us",
        "deadline_us",
        "filled_us",
        "filling",
        "lease_id",
        "left",
        "most",
        "sent_us",
        "span_us",
        "spent_us",
        "used",
        "via",
        "wanted",
    )

    def __init__(self, now_us: int, most: int) -> None:
        self.lease_id = ""
        self.most = most  # units that it may have
        self.span_us = SPAN_US
        self.via: object = None
        self.left = 0
        self.sent_us = 0  # before it was asked for
        self.deadline_us = 0
        self.answer: Answer | None = None  # what the service said with it
        self.spent_us = now_us
        self.filled_us = 0
        self.used = 0  # since it was last filled
        self.wanted = 0
        self.filling = False
        self.barred_until_us = 0


@final
class Blocks:
    """The blocks of one client."""

    __slots__ = (
        "_asked",
        "_asked_since_us",
        "_blocks",
        "_forks",
        "_limits",
        "_lock",
        "fixed",
        "hot_asks",
        "lapsed",
        "pairs_max",
        "spent",
        "units_max",
    )

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
        self._lock = LightLock()
        self._blocks: dict[Pair, Block] = {}
        self._asked: dict[Pair, int] = {}
        self._limits: dict[Pair, int] = {}  # of those, as far as answers have told them
        self._asked_since_us = 0
        self._forks = FORKS.count

    def spend(self, pair: Pair, weight: int, now_us: int) -> Answer | None:
        """Spend `weight` of the pair's block; None if it does not hold that much."""
        block = self._blocks.get(pair)
        if block is None or self._forks != FORKS.count:
            return None
        self._lock.acquire()
        try:
            self._age(block, now_us)
            answer = block.answer
            if block.left < weight or answer is None:
                return None
            block.left -= weight
            block.used += weight
            block.spent_us = now_us
            self.spent += 1
            was = answer.decision
            reset_us = max(was.reset_after_us - (now_us - block.sent_us), 0)
            decision = Decision(True, was.remaining + block.left, 0, reset_us, None, was.rule_id)
            return Answer(decision, answer.limit, answer.status, LEASE)
        finally:
            self._lock.release()

    def block_for(self, pair: Pair, now_us: int) -> Block | None:
        """The block of a pair that is to be leased; None if it is not worth it, or not now."""
        if self._forks != FORKS.count:
            self._begin_anew()
        block = self._blocks.get(pair)
        if block is not None:
            if self.fixed or block.filling or block.left or not 0 < block.wanted < WORTH_MIN:
                return block if now_us >= block.barred_until_us else None
            del self._blocks[pair]  # it has cooled down
        if not self.fixed and not self._is_hot(pair, now_us):
            return None
        most = self._most(self._limits.get(pair, 0))
        if len(self._blocks) >= self.pairs_max or (most < WORTH_MIN and not self.fixed):
            return None
        block = self._blocks[pair] = Block(now_us, most)
        return block

    def heard(self, pair: Pair, limit: int) -> None:
        """The limit under which a pair falls; -1 for none."""
        if pair in self._asked:
            self._limits[pair] = limit

    def wish(self, block: Block, weight: int, now_us: int) -> int:
        """How many units to ask for; `weight` of them are spent at once."""
        wanted = self.fixed
        if not wanted:
            elapsed_us = max(now_us - block.filled_us, 1)
            pace = block.used * block.span_us // elapsed_us if block.filled_us else self.hot_asks
            # By steps: a pause says as little of the next moment as a burst does.
            wanted = min(max(pace, block.wanted // 2, 1), max(block.wanted * 4, self.hot_asks))
        wanted = min(wanted, block.most)
        block.wanted = wanted
        return max(wanted, weight)

    def filled(
        self,
        block: Block,
        lease_id: str,
        units: int,
        valid_us: int,
        answer: Answer,
        sent_us: int,
        via: object,
    ) -> Left | None:
        """Take a lease in; what is left of the one before it."""
        self._lock.acquire()
        try:
            self._age(block, sent_us)
            before = self._end(block)
            block.lease_id = lease_id
            block.via = via
            block.left = units
            block.answer = answer
            block.sent_us = block.filled_us = block.spent_us = sent_us
            block.deadline_us = sent_us + valid_us
            block.span_us = min(SPAN_US, max(valid_us // 2, 1))
            block.most = self._most(answer.limit)
            block.used = 0
            return before
        finally:
            self._lock.release()

    def bar(self, block: Block, retry_us: int, now_us: int) -> None:
        """There was no lease: do not ask for one again for a while."""
        block.barred_until_us = now_us + min(max(retry_us, 1), BARRED_US)

    def idle(self, now_us: int, *, every: bool = False) -> list[Left]:
        """What is left of blocks that were not used lately (or of all), taken out of here."""
        if self._forks != FORKS.count:
            self._begin_anew()
        found: list[Left] = []
        for pair, block in [*self._blocks.items()]:
            self._lock.acquire()
            try:
                self._age(block, now_us)
                idle = now_us - block.spent_us >= IDLE_US and now_us >= block.barred_until_us
                if every or (idle and not block.filling):
                    left = self._end(block)
                    del self._blocks[pair]
                    if left is not None:
                        found.append(left)
            finally:
                self._lock.release()
        return found

    def forget(self, pair: Pair) -> None:
        """The pair was reset: what is here of it counts no more."""
        self._lock.acquire()
        try:
            block = self._blocks.pop(pair, None)
            if block is not None:
                block.left = 0
        finally:
            self._lock.release()

    def __len__(self) -> int:
        return len(self._blocks)

    def _is_hot(self, pair: Pair, now_us: int) -> bool:
        if now_us - self._asked_since_us >= HOT_US or len(self._asked) >= self.pairs_max:
            self._asked = {}
            self._limits = {}
            self._asked_since_us = now_us
        asked = self._asked[pair] = self._asked.get(pair, 0) + 1
        return asked >= self.hot_asks

    def _most(self, limit: int) -> int:
        """The units of a block under this limit; 0 and less say nothing."""
        if self.fixed or limit <= 0:
            return self.units_max
        return min(self.units_max, limit // AUTO_SHARE)

    def _begin_anew(self) -> None:
        """In a child, after a fork: a block that both processes spent would count twice."""
        self._forks = FORKS.count
        self._lock = LightLock()
        self._blocks = {}
        self._asked = {}
        self._limits = {}

    def _end(self, block: Block) -> Left | None:
        left, block.left = block.left, 0
        # One without a name cannot be given back.
        return Left(block.lease_id, left, block.via) if left and block.lease_id else None

    def _age(self, block: Block, now_us: int) -> None:
        if block.left > 0 and not block.sent_us <= now_us < block.deadline_us:
            self.lapsed += block.left
            block.left = 0
