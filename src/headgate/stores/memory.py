"""Memory: limits kept in this process, one table a rule, one integer a key.

A table is a row of dicts (shards) from key to state, under one lock. The state is whatever the
kernel keeps, packed into a single integer where that is possible: the garbage collector does not
look at integers, so a million keys add nothing to its pauses. Several dicts instead of one, because
a dict that grows copies itself, and a large one stalls its caller for tens of milliseconds.

Growth and forgetting are amortised: each shard is swept of idle keys when it has doubled since it
was last swept. `keys_max` bounds a table. When it is reached, room is made in this order:

1. keys at rest, whose state says no more than no state would;
2. of the rest, those with the most left; never a key that is limited at this moment;
3. if every key is limited, a new key shares one overflow limit with all other new keys, and is
   refused as KEYS_EXHAUSTED when that is spent. So no one can make the table forget a limited key,
   by whatever number of new ones.

Nothing here decides: each table packs, unpacks, and calls its kernel.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Lock
from typing import Final, Generic, TypeVar, final

from headgate.contracts.decision import Decision
from headgate.contracts.errors import BadValue, Unavailable
from headgate.contracts.reasons import COST_ABOVE_LIMIT, KEYS_EXHAUSTED, RATE_LIMITED, Reason
from headgate.contracts.rule import Algorithm, Limit
from headgate.contracts.store import Take
from headgate.kernels import (
    fixed_window,
    gcra,
    leaky_bucket,
    sliding_window,
    token_bucket,
)
from headgate.kernels.native import i64
from headgate.kernels.pace import Pace, in_us, product
from headgate.kernels.verdict import NEVER

KEYS_MAX_DEFAULT: Final = 1_000_000
RULES_MAX_DEFAULT: Final = 10_000

State = TypeVar("State")

_hash: Final = hash  # a compiled module looks a builtin up at every call, and its own name never
_SHARD_KEYS: Final = 4_096  # about as many keys a shard should hold when the table is full
_SHARDS_MAX: Final = 1 << 16
_SWEEP_MIN: Final = 64  # a shard smaller than this is not worth sweeping
_SHARDS_LOOKED_AT: Final = 4  # how many shards one new key may search for room
_SEARCH_EVERY_US: Final = 10_000  # how long a search that found nothing is believed
_EVICTED_SHARE: Final = 8  # one in so many of a shard's keys goes when none is at rest


class Keys(ABC):
    """What a limiter needs of a table, whatever its states are."""

    __slots__ = ()

    @abstractmethod
    def take(self, key: str, cost: int, now_us: int) -> Decision:
        """Take `cost` for `key` if the limit has it."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of keys tracked now, those at rest that are not swept yet included."""


class Table(Keys, Generic[State]):
    """The keys of one rule. A subclass says how a state is stepped, and a cheap test of rest."""

    __slots__ = (
        "_acquire",
        "_hand",
        "_keys",
        "_latest_us",
        "_mask",
        "_overflow",
        "_release",
        "_search_after_us",
        "_shards",
        "_sweep_at",
        "keys_max",
        "limit",
        "rule_id",
    )

    def __init__(self, rule_id: str, limit: Limit, keys_max: int) -> None:
        if keys_max < 1:
            raise BadValue("keys_max", keys_max, "give the number of keys to track, at least 1")
        shards = 1
        while shards * _SHARD_KEYS < keys_max and shards < _SHARDS_MAX:
            shards *= 2
        turn: SimpleQueue[None] = SimpleQueue()
        turn.put(None)
        self._acquire: Callable[[bool, None], None] = turn.get
        self._release: Callable[[None], None] = turn.put
        self._shards: list[dict[str, State]] = [{} for _ in range(shards)]
        self._sweep_at = [_SWEEP_MIN] * shards
        self._mask: i64 = i64(shards - 1)
        self._hand = 0
        self._keys = 0
        self._latest_us = 0
        self._overflow: State | None = None
        self._search_after_us = 0
        self.keys_max = keys_max
        self.limit = limit
        self.rule_id = rule_id

    def take(self, key: str, cost: int, now_us: int) -> Decision:
        """Take `cost` for `key` if the limit has it. A clock that goes back stands still here."""
        self._acquire(True, None)
        try:
            late_us = self._latest_us - now_us
            if late_us > 0:
                now_us = self._latest_us
            else:
                self._latest_us = now_us
                late_us = 0
            index = int(i64(_hash(key)) & self._mask)
            shard = self._shards[index]
            state = shard.get(key)
            if state is None and (
                self._keys >= self.keys_max or len(shard) >= self._sweep_at[index]
            ):
                if not self._make_room(index, now_us):
                    return self._take_overflow(cost, now_us, late_us)
                shard = self._shards[index]
            stepped, allowed, remaining, retry_us, reset_us = self._step(state, now_us, cost)
            if allowed and cost > 0:
                if state is None:
                    self._keys += 1
                shard[key] = stepped
        finally:
            self._release(None)
        if allowed:
            return Decision(True, remaining, 0, reset_us + late_us, None, self.rule_id)
        return self._decision(allowed, remaining, retry_us, reset_us, late_us, RATE_LIMITED)

    def __len__(self) -> int:
        """The number of keys tracked now, those at rest that are not swept yet included."""
        return self._keys

    @abstractmethod
    def _step(
        self, state: State | None, now_us: int, cost: int
    ) -> tuple[State, bool, int, int, int]:
        """Decide: the new state, allowed, remaining, and retry and reset in microseconds."""

    def _at_rest(self, state: State, now_us: int) -> bool:
        """Whether this state says no more than no state would."""
        return self._step(state, now_us, 0)[4] == 0

    def _take_overflow(self, cost: int, now_us: int, late_us: int) -> Decision:
        self._overflow, allowed, remaining, retry_us, reset_us = self._step(
            self._overflow, now_us, cost
        )
        return self._decision(allowed, remaining, retry_us, reset_us, late_us, KEYS_EXHAUSTED)

    def _decision(
        self,
        allowed: bool,
        remaining: int,
        retry_us: int,
        reset_us: int,
        late_us: int,
        refusal: Reason,
    ) -> Decision:
        if allowed:
            return Decision(True, remaining, 0, reset_us + late_us, None, self.rule_id)
        if retry_us == NEVER:
            refusal = COST_ABOVE_LIMIT
        else:
            retry_us += late_us
        return Decision(False, remaining, retry_us, reset_us + late_us, refusal, self.rule_id)

    def _make_room(self, index: int, now_us: int) -> bool:
        """Have room for one more key, in the shard `index` and in the table."""
        if len(self._shards[index]) >= self._sweep_at[index]:
            self._sweep(index, now_us)
        if self._keys < self.keys_max:
            return True
        if now_us < self._search_after_us:
            return False
        shards = len(self._shards)
        looks = min(_SHARDS_LOOKED_AT, shards)
        for forget in (self._sweep, self._evict):
            for ahead in range(looks):
                forget((self._hand + ahead) % shards, now_us)
                if self._keys < self.keys_max:
                    return True
        self._hand = (self._hand + looks) % shards
        self._search_after_us = now_us + _SEARCH_EVERY_US
        return False

    def _sweep(self, index: int, now_us: int) -> None:
        """Forget the keys at rest, by copying the others: a dict never shrinks in place."""
        shard = self._shards[index]
        kept = {key: state for key, state in shard.items() if not self._at_rest(state, now_us)}
        self._replace(index, kept)

    def _evict(self, index: int, now_us: int) -> None:
        """Forget an eighth of the keys that are not limited, those with the most left."""
        shard = self._shards[index]
        left = {key: self._step(state, now_us, 0)[2] for key, state in shard.items()}
        free = sorted(remaining for remaining in left.values() if remaining > 0)
        if not free:
            return
        bar = free[-1 - len(free) // _EVICTED_SHARE]
        self._replace(
            index, {key: shard[key] for key, remaining in left.items() if remaining < bar}
        )

    def _replace(self, index: int, kept: dict[str, State]) -> None:
        self._keys -= len(self._shards[index]) - len(kept)
        self._shards[index] = kept
        self._sweep_at[index] = max(_SWEEP_MIN, 2 * len(kept))


class _PacedTable(Table[int]):
    """What the kernels that keep one instant in ticks have in common: how it ages."""

    __slots__ = ("_interval", "_per_us", "_tolerance")

    def __init__(self, rule_id: str, limit: Limit, keys_max: int) -> None:
        super().__init__(rule_id, limit, keys_max)
        pace = Pace(limit.count, limit.period_us)
        self._per_us = pace.ticks_per_us
        self._interval = pace.interval
        self._tolerance = limit.burst * pace.interval

    def _at_rest(self, state: int, now_us: int) -> bool:
        return state <= product(now_us, self._per_us)


@final
class GcraTable(_PacedTable):
    """State: the theoretical arrival time."""

    __slots__ = ()

    def _step(self, state: int | None, now_us: int, cost: int) -> tuple[int, bool, int, int, int]:
        per_us = self._per_us
        tat, allowed, remaining, retry, reset = gcra.step(
            0 if state is None else state,
            now_us if per_us == 1 else product(now_us, per_us),
            cost,
            self._interval,
            self._tolerance,
        )
        if per_us != 1:
            retry, reset = in_us(retry, per_us), in_us(reset, per_us)
        return tat, allowed, remaining, retry, reset


@final
class TokenBucketTable(_PacedTable):
    """State: the instant at which the bucket is full again."""

    __slots__ = ()

    def _step(self, state: int | None, now_us: int, cost: int) -> tuple[int, bool, int, int, int]:
        per_us = self._per_us
        full_at, allowed, level, retry, reset = token_bucket.step(
            0 if state is None else state,
            now_us if per_us == 1 else product(now_us, per_us),
            cost * self._interval,
            self._tolerance,
            0,
        )
        remaining = level // self._interval if level > 0 else 0
        if per_us != 1:
            retry, reset = in_us(retry, per_us), in_us(reset, per_us)
        return full_at, allowed, remaining, retry, reset


@final
class LeakyBucketTable(_PacedTable):
    """State: the instant at which the last admitted unit has left; here it is a meter."""

    __slots__ = ()

    def _step(self, state: int | None, now_us: int, cost: int) -> tuple[int, bool, int, int, int]:
        per_us = self._per_us
        drained_at, allowed, _, remaining, retry, reset = leaky_bucket.step(
            0 if state is None else state,
            now_us if per_us == 1 else product(now_us, per_us),
            cost,
            self._interval,
            self._tolerance,
        )
        if per_us != 1:
            retry, reset = in_us(retry, per_us), in_us(reset, per_us)
        return drained_at, allowed, remaining, retry, reset


@final
class FixedWindowTable(Table[int]):
    """State: window and count in one integer, `window * (limit + 1) + used`."""

    __slots__ = ()

    def _step(self, state: int | None, now_us: int, cost: int) -> tuple[int, bool, int, int, int]:
        limit, period_us = self.limit.count, self.limit.period_us
        packed = 0 if state is None else state
        window = packed // (limit + 1)
        used = packed - product(window, limit + 1)
        window, used, allowed, retry_us = fixed_window.step(
            window, used, now_us, cost, period_us, limit
        )
        reset_us = (window + 1) * period_us - now_us if used else 0
        return product(window, limit + 1) + used, allowed, limit - used, retry_us, reset_us


@final
class SlidingWindowTable(Table[int]):
    """State: window and both counts in one integer, to the base of `limit + 1`."""

    __slots__ = ()

    def _step(self, state: int | None, now_us: int, cost: int) -> tuple[int, bool, int, int, int]:
        limit, window_us = self.limit.count, self.limit.period_us
        base = limit + 1
        packed = 0 if state is None else state
        upper = packed // base
        window = upper // base
        current, previous = upper - product(window, base), packed - product(upper, base)
        window, current, previous, allowed, remaining, retry_us = sliding_window.step(
            window, current, previous, now_us, cost, window_us, limit
        )
        reset_us = sliding_window.reset_us(window, current, previous, now_us, window_us)
        packed = product(product(window, base) + current, base) + previous
        return packed, allowed, remaining, retry_us, reset_us


@final
class SlidingLogTable(Table[tuple[int, ...]]):
    """State: the log itself, a flat tuple; time and memory grow with the limit."""

    __slots__ = ()

    def __init__(self, rule_id: str, limit: Limit, keys_max: int) -> None:
        super().__init__(rule_id, limit, keys_max)
        if limit.count > sliding_window.LOG_ENTRIES_MAX:
            raise BadValue(
                "limit.count",
                limit.count,
                f"an exact log holds at most {sliding_window.LOG_ENTRIES_MAX} entries a key; "
                "use sliding_window, whose memory does not grow with the limit",
            )

    def _step(
        self, state: tuple[int, ...] | None, now_us: int, cost: int
    ) -> tuple[tuple[int, ...], bool, int, int, int]:
        return sliding_window.log_step(
            () if state is None else state, now_us, cost, self.limit.period_us, self.limit.count
        )


def table_for(rule_id: str, limit: Limit, keys_max: int) -> Keys:
    """The table that counts by the limit's algorithm."""
    return _TABLES[limit.algorithm](rule_id, limit, keys_max)


_TABLES: Final[dict[Algorithm, Callable[[str, Limit, int], Keys]]] = {
    Algorithm.GCRA: GcraTable,
    Algorithm.TOKEN_BUCKET: TokenBucketTable,
    Algorithm.LEAKY_BUCKET: LeakyBucketTable,
    Algorithm.FIXED_WINDOW: FixedWindowTable,
    Algorithm.SLIDING_WINDOW: SlidingWindowTable,
    Algorithm.SLIDING_LOG: SlidingLogTable,
}


@final
class MemoryStore:
    """All tables of a process, as a `contracts.store.Store`; it never suspends."""

    __slots__ = ("_clock", "_closed", "_lock", "_tables", "keys_max", "rules_max")

    def __init__(
        self,
        clock: Callable[[], int],
        *,
        keys_max: int = KEYS_MAX_DEFAULT,
        rules_max: int = RULES_MAX_DEFAULT,
    ) -> None:
        self._clock = clock
        self._closed = False
        self._lock = Lock()
        self._tables: dict[str, Keys] = {}
        self.keys_max = keys_max
        self.rules_max = rules_max

    def table(self, rule_id: str, limit: Limit) -> Keys:
        """The table of a rule, made when first asked for."""
        table = self._tables.get(rule_id)
        if table is None:
            with self._lock:
                table = self._tables.get(rule_id)
                if table is None:
                    if len(self._tables) >= self.rules_max:
                        raise BadValue(
                            "rule",
                            rule_id,
                            f"{self.rules_max:,} rules are in use already; "
                            "give keys, not rules, what varies with each request",
                        )
                    table = self._tables[rule_id] = table_for(rule_id, limit, self.keys_max)
        return table

    async def take(self, takes: Sequence[Take]) -> Sequence[Decision]:
        """Decide each take on its own, in the order given, at one instant."""
        if self._closed:
            raise Unavailable("the memory store", "it is closed")
        now_us = self._clock()
        return [
            self.table(take.rule_id, take.limit).take(take.key, take.cost, now_us) for take in takes
        ]

    async def close(self) -> None:
        """Forget everything."""
        self._closed = True
        self._tables = {}
