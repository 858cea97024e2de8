"""Leases: units of a hot limit that are taken from the store in blocks and spent here.

A block is debited in the store before a unit of it is spent, so all processes together never admit
more than the limit; what a killed process had not spent is lost to it, and to nobody else's harm.
How a block is spent and sized is in `kernels/leased_block.py`. How long it lives depends on how the
limit counts:

- *Windows.* A block dies with the window (or cell) it was taken in. Spent there, it counts exactly
  where it was debited.
- *Buckets* (gcra, token_bucket). A block lives for at most D, and the store counts
  with a burst that is smaller by what flows in during D. What is admitted between two instants was
  debited at most D earlier, so it is at most (burst - rate x D) + rate x (span + D): what the
  bucket itself allows. The price is that share of the burst, a twentieth at most; the rate is kept.

The clock is only asked for distances: a process whose clock is wrong by hours spends no unit too
late. What is left of a dead block is void and never given back.

With "auto" only a key that asks often is leased, and a block is what this process spends in
`SPAN_US`, at most a tenth of the limit. One request fills a key's block at a time; whoever needs
units meanwhile waits for that one and is counted into it. Blocks left idle go back while they live.

A bucket could do without the share it keeps back if each block melted at the pace at which the
store regains its units. That was tried, and is exact too; but of ten processes that share a spent
limit each loses most of its blocks to melting, and together they admit a fifth of the limit.

Cost: one dict look-up and a lock a decision. Bounds: `KEYS_MAX` keys with blocks.
"""

from __future__ import annotations

from typing import Final, NamedTuple, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import BURSTING, Algorithm, Limit
from sluicegate.contracts.store import Key, PartialTake
from sluicegate.kernels.leased_block import HotKeys, LeasedBlock, ladder
from sluicegate.limits.wait_lines import Ticket
from sluicegate.stores.memory.light_lock import FORKS, LightLock

LIFE_US_MAX: Final = 1_000_000  # of a bucket's block ...
LIFE_SHARE: Final = 20  # ... and at most this part of the time in which the bucket fills
SPAN_US: Final = 50_000  # an automatic block is meant to be spent in so long, or half its life
AUTO_SHARE: Final = 10  # and is at most this part of the limit: a tenth
HOT_REQUESTS: Final = 16  # requests to the store ...
HOT_US: Final = 1_000_000  # ... within so long make a key hot
IDLE_US: Final = 500_000  # a block that nothing was spent of for so long goes back
FILL_US_MAX: Final = 2_000_000  # whoever fills a block for so long is taken to be gone
KEYS_MAX: Final = 10_000
RUNGS_MAX: Final = 16


class EndedBlock(NamedTuple):
    """A block that is over: whose, what became of it, and when the store had given it."""

    key: Key
    taken_us: int
    spent: int
    lapsed: int
    left: int  # to be given back
    age_us: int  # how old the block was when it was last spent of


@final
class KeyBlock:
    """The block of one key, and who waits for the next."""

    __slots__ = (
        "at_us",
        "failures",
        "filling",
        "filling_us",
        "remaining",
        "reset_us",
        "units",
        "waiting",
    )

    def __init__(self) -> None:
        self.units = LeasedBlock()  # by our clock
        self.at_us = 0  # when it was given, by the store's
        self.remaining = 0  # what the store had left then
        self.reset_us = 0
        self.filling = False
        self.filling_us = 0  # since when
        self.failures = 0
        self.waiting: list[tuple[Ticket, int]] = []


@final
class Leases:
    """The blocks of one limit's keys."""

    __slots__ = (
        "_blocks",
        "_forks",
        "_hot",
        "_life_us",
        "_lock",
        "_span_us",
        "auto",
        "block_max",
        "limit",
        "rule_id",
    )

    def __init__(self, rule_id: str, limit: Limit, lease: str | int) -> None:
        self.rule_id = rule_id
        self.auto = lease == "auto"
        self.block_max = block_max(limit, lease)
        self._life_us = 0
        if limit.algorithm in BURSTING:
            self._life_us = life_us(limit)
            reserve = -(-self._life_us * limit.count // limit.period_us)
            if limit.burst - reserve < 1:
                self.block_max = 0  # too small to be shared out
            else:
                limit = Limit(
                    limit.count,
                    period_us=limit.period_us,
                    burst=limit.burst - reserve,
                    algorithm=limit.algorithm,
                )
        self._span_us = min(SPAN_US, (self._life_us or limit.period_us // limit.cells) // 2)
        self.limit = limit  # as the store is to count it
        self._lock = LightLock()
        self._blocks: dict[Key, KeyBlock] = {}
        self._hot = HotKeys(HOT_REQUESTS, HOT_US, KEYS_MAX)
        self._forks = FORKS.count

    def spend(self, key: Key, cost: int, now_us: int) -> Decision | None:
        """Spend `cost` of the key's block; None if it does not hold that much."""
        block = self._blocks.get(key)
        if block is None or self._forks != FORKS.count:
            return None
        self._lock.acquire()
        try:
            units = block.units
            if not units.spend(cost, now_us):
                return None
            remaining = block.remaining + units.left
            reset_us = units.distance_us(block.reset_us, now_us)
            return Decision(
                True, remaining, 0, reset_us, None, self.rule_id, limit=self.limit.burst
            )
        finally:
            self._lock.release()

    def left(self, key: Key, now_us: int) -> int:
        """Return what the key's block holds."""
        block = self._blocks.get(key)
        if block is None or self._forks != FORKS.count:
            return 0
        self._lock.acquire()
        try:
            return block.units.expire(now_us)
        finally:
            self._lock.release()

    def block_for(self, key: Key, now_us: int) -> KeyBlock | None:
        """Return the block of a key to be leased; None if it is not worth it, or not yet."""
        if self._forks != FORKS.count:
            self._reset_after_fork()
        block = self._blocks.get(key)
        if block is not None or not self.block_max:
            return block
        if self.auto and not self._hot.add(key, now_us):
            return None
        if len(self._blocks) >= KEYS_MAX:
            return None
        return self._blocks.setdefault(key, KeyBlock())

    def start_fill(self, block: KeyBlock, ticket: Ticket, cost: int, now_us: int) -> bool:
        """Return True to fill the block now; False if another does, and will wake `ticket`."""
        self._lock.acquire()
        try:
            if not block.filling or now_us - block.filling_us >= FILL_US_MAX:
                block.filling = True
                block.filling_us = now_us
                return True
            block.waiting.append((ticket, cost))
            return False
        finally:
            self._lock.release()

    def ladder(self, block: KeyBlock, cost: int, now_us: int) -> list[int]:
        """Return what to request of the store: all that is wanted, less and less, the bare cost."""
        most = wanted = self.block_max
        if self.auto:
            wanted = block.units.next_size(now_us, self._span_us, HOT_REQUESTS, most)
        waiting = sum(units for _, units in block.waiting)
        extra = min(max(wanted, min(waiting, most)), self.limit.burst - cost)
        return ladder(cost, extra, RUNGS_MAX)

    def fill(
        self, key: Key, block: KeyBlock, cost: int, sent_us: int, grant: PartialTake
    ) -> EndedBlock:
        """Take a grant in, `cost` of it spent; return how the block before it ended."""
        self._lock.acquire()
        try:
            before = _end(key, block)
            lives_us = self._life_us
            if not lives_us:
                edge_us = self.limit.period_us // self.limit.cells
                lives_us = edge_us - grant.at_us % edge_us
            block.units.fill(grant.units - cost, cost, sent_us, lives_us)
            block.at_us = grant.at_us
            block.remaining = grant.decision.remaining
            block.reset_us = grant.decision.reset_after_us
            return before
        finally:
            self._lock.release()

    def end_fill(self, block: KeyBlock, *, failed: bool) -> None:
        """Wake whoever has waited for the filling, however it went."""
        self._lock.acquire()
        waiting, block.waiting = block.waiting, []
        block.filling = False
        if failed:
            block.failures += 1
        self._lock.release()
        for ticket, _ in waiting:
            ticket.wake()

    def take_idle(self, now_us: int, *, every: bool = False) -> list[EndedBlock]:
        """Take out the blocks that nothing was spent of lately (or all), to be given back."""
        if self._forks != FORKS.count:
            self._reset_after_fork()
        ended: list[EndedBlock] = []
        for key, block in [*self._blocks.items()]:
            self._lock.acquire()
            try:
                block.units.expire(now_us)
                idle = every or now_us - block.units.spent_us >= IDLE_US
                if idle and not block.filling:
                    ended.append(_end(key, block))
                    self._blocks.pop(key, None)
            finally:
                self._lock.release()
        return ended

    def forget(self, key: Key) -> None:
        """Void what is here of a key that was reset."""
        block = self._blocks.get(key)
        if block is not None:
            block.units.left = 0

    def __len__(self) -> int:
        return len(self._blocks)

    def _reset_after_fork(self) -> None:
        """Start anew in a child: a block that both processes spent would count twice."""
        self._forks = FORKS.count
        self._lock = LightLock()  # its holder, if it had one, is a thread that is not here
        self._blocks = {}


def _end(key: Key, block: KeyBlock) -> EndedBlock:
    units = block.units
    left = units.take_rest()
    age_us = units.spent_us - units.sent_us
    spent = units.size - units.lapsed - left
    return EndedBlock(key, block.at_us, spent, units.lapsed, left, age_us if age_us > 0 else 0)


def life_us(limit: Limit) -> int:
    """Return how long a block of a bucket may be spent."""
    return min(LIFE_US_MAX, limit.burst * limit.period_us // limit.count // LIFE_SHARE)


def block_max(limit: Limit, lease: str | int) -> int:
    """Return the most units of a block."""
    if limit.algorithm is Algorithm.SLIDING_LOG:
        raise BadValue("lease", lease, "leave it out: a sliding_log counts each unit in the store")
    if isinstance(lease, int):
        if not 1 <= lease <= limit.burst:
            raise BadValue("lease", lease, f"give from 1 to the limit's {limit.burst:,} units")
        return lease
    if lease == "auto":
        return limit.burst // AUTO_SHARE
    percent = lease.removesuffix("%")
    if percent == lease or not percent.isdecimal() or not 1 <= int(percent) <= 100:
        raise BadValue("lease", lease, 'give "auto", a share like "10%", or a number of units')
    return max(1, limit.burst * int(percent) // 100)
