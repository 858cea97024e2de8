"""Leases: units of a hot limit that are taken from the store in blocks and spent here.

A block is debited in the store before a unit of it is spent, so all processes together never admit
more than the limit; what a killed process had not spent is lost to it, and to nobody else's harm.
What keeps a block honest depends on how the limit counts:

- *Windows.* A block dies with the window (or cell) it was taken in. Spent there, it counts exactly
  where it was debited.
- *Buckets* (gcra, token_bucket, leaky_bucket). A block lives for at most D, and the store counts
  with a burst that is smaller by what flows in during D. What is admitted between two instants was
  debited at most D earlier, so it is at most (burst - rate x D) + rate x (span + D): what the
  bucket itself allows. The price is that share of the burst, a twentieth at most; the rate is kept.

Lives are measured from before the request was sent, by a clock that is only asked for distances: a
process whose clock is wrong by hours spends no unit too late. What is left of a dead block is void
and never given back.

With "auto" only a key that asks often is leased, and a block is what this process spends in
`SPAN_US`, at most a tenth of the limit. One request fills a key's block at a time; who needs units
meanwhile waits for that one and is counted into it. Blocks left idle go back while they live.

A bucket could do without the share it keeps back if each block melted at the pace at which the
store regains its units. That was tried, and is exact too; but of ten processes that share a spent
limit each loses most of its blocks to melting, and together they admit a fifth of the limit.

Cost: one dict look-up and a turn a decision. Bounds: `KEYS_MAX` keys with blocks.
"""

from __future__ import annotations

from typing import Final, NamedTuple, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import BURSTING, Algorithm, Limit
from sluicegate.contracts.store import PartialTake
from sluicegate.limits.wait_lines import Ticket
from sluicegate.stores.memory.light_lock import FORKS, LightLock

LIFE_US_MAX: Final = 1_000_000  # of a bucket's block ...
LIFE_SHARE: Final = 20  # ... and at most this part of the time in which the bucket fills
SPAN_US: Final = 50_000  # an automatic block is meant to be spent in so long, or half its life
AUTO_SHARE: Final = 10  # and is at most this part of the limit: a tenth
HOT_ASKS: Final = 16  # asks of the store ...
HOT_US: Final = 1_000_000  # ... within so long make a key hot
IDLE_US: Final = 500_000  # a block that nothing was spent of for so long goes back
FILL_US_MAX: Final = 2_000_000  # whoever fills a block for so long is taken to be gone
KEYS_MAX: Final = 10_000
RUNGS_MAX: Final = 16


class Ended(NamedTuple):
    """A block that is over: whose, what became of it, and when the store had given it."""

    key: str
    taken_us: int
    spent: int
    lapsed: int
    left: int  # to be given back
    age_us: int  # how old the block was when it was last spent of


@final
class Hand:
    """What one key has here: its block, and who waits for the next."""

    __slots__ = (
        "at_us",
        "deadline_us",
        "failures",
        "filled_us",
        "filling",
        "filling_us",
        "lapsed",
        "left",
        "remaining",
        "reset_us",
        "sent_us",
        "size",
        "spent",
        "spent_us",
        "used",
        "waiting",
        "wanted",
    )

    def __init__(self) -> None:
        self.left = 0
        self.size = 0  # of the block when it came
        self.sent_us = 0  # before it was asked for, by our clock
        self.at_us = 0  # when it was given, by the store's
        self.deadline_us = 0  # by our clock
        self.remaining = 0  # what the store had left then
        self.reset_us = 0
        self.spent_us = 0  # when something was last spent
        self.filled_us = 0
        self.lapsed = 0  # of this block: it died with so much
        self.used = 0  # since the last fill
        self.wanted = 0  # the size that was last wanted
        self.filling = False
        self.filling_us = 0  # since when
        self.failures = 0
        self.waiting: list[tuple[Ticket, int]] = []


@final
class Leases:
    """The blocks of one limit's keys."""

    __slots__ = (
        "_asked",
        "_asked_since_us",
        "_forks",
        "_hands",
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
                    limit.period_us,
                    burst=limit.burst - reserve,
                    algorithm=limit.algorithm,
                )
        self._span_us = min(SPAN_US, (self._life_us or limit.period_us // limit.cells) // 2)
        self.limit = limit  # as the store is to count it
        self._lock = LightLock()
        self._hands: dict[str, Hand] = {}
        self._asked: dict[str, int] = {}
        self._asked_since_us = 0
        self._forks = FORKS.count

    def spend(self, key: str, cost: int, now_us: int) -> Decision | None:
        """Spend `cost` of the key's block; None if it does not hold that much."""
        hand = self._hands.get(key)
        if hand is None or self._forks != FORKS.count:
            return None
        self._lock.acquire()
        try:
            self._age(hand, now_us)
            if hand.left < cost:
                return None
            hand.left -= cost
            hand.used += cost
            hand.spent_us = now_us
            reset_us = hand.reset_us - (now_us - hand.sent_us)
            return Decision(
                True, hand.remaining + hand.left, 0, max(reset_us, 0), None, self.rule_id
            )
        finally:
            self._lock.release()

    def left(self, key: str, now_us: int) -> int:
        """What the key's block holds."""
        hand = self._hands.get(key)
        if hand is None or self._forks != FORKS.count:
            return 0
        self._lock.acquire()
        try:
            self._age(hand, now_us)
            return hand.left
        finally:
            self._lock.release()

    def hand_for(self, key: str, now_us: int) -> Hand | None:
        """The hand of a key that is to be leased; None if it is not worth it, or not yet."""
        if self._forks != FORKS.count:
            self._begin_anew()
        hand = self._hands.get(key)
        if hand is not None or not self.block_max:
            return hand
        if self.auto:
            if now_us - self._asked_since_us >= HOT_US or len(self._asked) >= KEYS_MAX:
                self._asked = {}
                self._asked_since_us = now_us
            asked = self._asked[key] = self._asked.get(key, 0) + 1
            if asked < HOT_ASKS:
                return None
        if len(self._hands) >= KEYS_MAX:
            return None
        return self._hands.setdefault(key, Hand())

    def begin(self, hand: Hand, ticket: Ticket, cost: int, now_us: int) -> bool:
        """True: fill the block now. False: somebody does, and wakes `ticket`."""
        self._lock.acquire()
        try:
            if not hand.filling or now_us - hand.filling_us >= FILL_US_MAX:
                hand.filling = True
                hand.filling_us = now_us
                return True
            hand.waiting.append((ticket, cost))
            return False
        finally:
            self._lock.release()

    def ladder(self, hand: Hand, cost: int, now_us: int) -> list[int]:
        """What to ask the store for: the whole wish, then less and less, then the bare cost."""
        wanted = self.block_max
        if self.auto:
            elapsed_us = max(now_us - hand.filled_us, 1)
            pace = hand.used * self._span_us // elapsed_us if hand.filled_us else HOT_ASKS
            # By steps: a pause says as little of the next moment as a burst does.
            wanted = min(max(pace, hand.wanted // 2, 1), max(hand.wanted * 4, HOT_ASKS))
            wanted = min(wanted, self.block_max)
        hand.wanted = wanted
        waiting = sum(units for _, units in hand.waiting)
        extra = min(max(wanted, min(waiting, self.block_max)), self.limit.burst - cost)
        rungs: list[int] = []
        while extra > 0 and len(rungs) < RUNGS_MAX - 1:
            rungs.append(cost + extra)
            extra //= 2
        rungs.append(cost)
        return rungs

    def filled(self, key: str, hand: Hand, cost: int, sent_us: int, grant: PartialTake) -> Ended:
        """Take a grant in; how the block before it ended."""
        self._lock.acquire()
        try:
            before = self._end(key, hand)
            hand.left = hand.size = grant.units - cost
            hand.lapsed = 0
            hand.sent_us = sent_us
            hand.at_us = grant.at_us
            hand.remaining = grant.decision.remaining
            hand.reset_us = grant.decision.reset_after_us
            hand.spent_us = hand.filled_us = sent_us
            hand.used = cost
            lives_us = self._life_us
            if not lives_us:
                edge_us = self.limit.period_us // self.limit.cells
                lives_us = edge_us - grant.at_us % edge_us
            hand.deadline_us = sent_us + lives_us
            return before
        finally:
            self._lock.release()

    def done(self, hand: Hand, *, failed: bool) -> None:
        """The filling is over, however it went: wake who has waited for it."""
        self._lock.acquire()
        waiting, hand.waiting = hand.waiting, []
        hand.filling = False
        if failed:
            hand.failures += 1
        self._lock.release()
        for ticket, _ in waiting:
            ticket.wake()

    def idle(self, now_us: int, *, every: bool = False) -> list[Ended]:
        """Blocks that nothing was spent of lately (or all), taken out to be given back."""
        if self._forks != FORKS.count:
            self._begin_anew()
        ended: list[Ended] = []
        for key, hand in [*self._hands.items()]:
            self._lock.acquire()
            try:
                self._age(hand, now_us)
                if not hand.filling and (every or now_us - hand.spent_us >= IDLE_US):
                    ended.append(self._end(key, hand))
                    self._hands.pop(key, None)
            finally:
                self._lock.release()
        return ended

    def forget(self, key: str) -> None:
        """The key was reset: what is here of it counts no more."""
        hand = self._hands.get(key)
        if hand is not None:
            hand.left = 0

    def __len__(self) -> int:
        return len(self._hands)

    def _begin_anew(self) -> None:
        """In a child, after a fork: a block that both processes spent would count twice."""
        self._forks = FORKS.count
        self._lock = LightLock()  # its holder, if it had one, is a thread that is not here
        self._hands = {}

    def _end(self, key: str, hand: Hand) -> Ended:
        left, hand.left = hand.left, 0
        spent = hand.size - hand.lapsed - left
        age_us = hand.spent_us - hand.sent_us
        return Ended(key, hand.at_us, spent, hand.lapsed, left, age_us if age_us > 0 else 0)

    def _age(self, hand: Hand, now_us: int) -> None:
        if hand.left > 0 and (now_us >= hand.deadline_us or now_us < hand.sent_us):
            hand.lapsed += hand.left
            hand.left = 0


def life_us(limit: Limit) -> int:
    """How long a block of a bucket may be spent."""
    return min(LIFE_US_MAX, limit.burst * limit.period_us // limit.count // LIFE_SHARE)


def block_max(limit: Limit, lease: str | int) -> int:
    """The most units of a block."""
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
