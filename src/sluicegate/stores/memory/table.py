"""Table: the keys of one rule, whatever their states are.

A row of dicts (shards) from key to state, under one turn. Several dicts instead of one, because a
dict that grows copies itself, and a large one stalls its caller for tens of milliseconds.

Growth and forgetting are amortised: each shard is swept of keys at rest when it has doubled since
it was last swept. `keys_max` bounds a table, and `KEY_CHARS_MAX` each key, so their bytes are
bounded too: of a longer key its beginning and a digest are kept, which are as good as the key. When
`keys_max` is reached, room is made in this order:

1. keys at rest, whose state says no more than no state would;
2. of the others, those with the most left; never a key that is limited at this moment;
3. if every key is limited, a new key shares one overflow limit with all other new keys, and is
   refused as KEYS_EXHAUSTED when that is spent. So no one can make the table forget a limited key,
   by whatever number of new ones.

Nothing here decides: a subclass in `tables.py` packs, unpacks, and calls its kernel.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine
from hashlib import blake2b
from typing import Any, Final, Generic, TypeAlias, TypeVar, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT, KEYS_EXHAUSTED, RATE_LIMITED
from sluicegate.contracts.rule import Limit
from sluicegate.contracts.store import Key
from sluicegate.kernels.native import i64
from sluicegate.kernels.verdict import NEVER
from sluicegate.stores.memory.light_lock import LightLock

State = TypeVar("State")

KEY_CHARS_MAX: Final = 256
_KEPT_CHARS: Final = (
    KEY_CHARS_MAX - 39
)  # with a digest of 40 digits it is longer than any short key
_DIGEST_BYTES: Final = 20
_hash: Final = hash  # a compiled module looks a builtin up at every call, and its own name never
_SHARD_KEYS: Final = 4_096  # about as many keys a shard should hold when the table is full
_SHARDS_MAX: Final = 1 << 16
_SWEEP_MIN: Final = 64  # a shard smaller than this is not worth sweeping
_SHARDS_LOOKED_AT: Final = 2  # how many shards one new key may search for room
# How long a search that found nothing is remembered: well above what it costs, some milliseconds.
_SEARCH_EVERY_US: Final = 100_000
_EVICTED_SHARE: Final = 8  # one in so many of a shard's keys goes when none is at rest

# What was taken, and the instant to settle it against; None is that of the correction.
Estimate: TypeAlias = "tuple[Decision, int | None]"


def bounded_key(key: str) -> str:
    """Return what stands for this key in a table: the key, unless it is long."""
    if len(key) <= KEY_CHARS_MAX:
        return key
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES)
    return key[:_KEPT_CHARS] + digest.hexdigest()


class LimitKeys(ABC):
    """What a limiter needs of the keys of a rule, wherever they are: for threads and for tasks."""

    __slots__ = ()

    @abstractmethod
    def take(self, key: Key, cost: int, now_us: int) -> Decision:
        """Take `cost` for `key` if the limit has it."""

    @abstractmethod
    def take_here(self, key: Key, cost: int, now_us: int) -> Decision | None:
        """Take `cost` without waiting for anybody; None if a store must be asked."""

    @abstractmethod
    def atake(self, key: Key, cost: int, now_us: int) -> Coroutine[Any, Any, Decision]:
        """`take`, after `take_here` has returned None."""

    @abstractmethod
    def estimate(self, key: Key, cost: int, now_us: int) -> Estimate:
        """`take` what will be settled; and the instant to settle it against."""

    @abstractmethod
    def aestimate(self, key: Key, cost: int, now_us: int) -> Coroutine[Any, Any, Estimate]:
        """`estimate`, for asyncio."""

    @abstractmethod
    def peek(self, key: Key, cost: int, now_us: int) -> Decision:
        """Return what `take` would answer; nothing is taken."""

    @abstractmethod
    def apeek(self, key: Key, cost: int, now_us: int) -> Coroutine[Any, Any, Decision]:
        """`peek`, for asyncio."""

    @abstractmethod
    def settle(self, key: Key, correction: int, now_us: int, taken_us: int | None) -> None:
        """Charge `correction` more than was taken at `taken_us`, or give back if negative.

        None is now, as whoever counts has it.
        """

    @abstractmethod
    def asettle(
        self, key: Key, correction: int, now_us: int, taken_us: int | None
    ) -> Coroutine[Any, Any, None]:
        """`settle`, for asyncio."""

    @abstractmethod
    def reset(self, key: Key) -> None:
        """Forget what `key` has taken."""

    @abstractmethod
    def areset(self, key: Key) -> Coroutine[Any, Any, None]:
        """`reset`, for asyncio."""

    @abstractmethod
    def limits(self) -> list[Limit]:
        """Return the limits of the rule."""


class LocalKeys(LimitKeys):
    """Keys in a table of this process, or in several: nobody waits for them."""

    __slots__ = ()

    def take_here(self, key: Key, cost: int, now_us: int) -> Decision | None:
        """Take `cost`."""
        return self.take(key, cost, now_us)

    async def atake(self, key: Key, cost: int, now_us: int) -> Decision:
        """Take `cost`."""
        return self.take(key, cost, now_us)

    def estimate(self, key: Key, cost: int, now_us: int) -> Estimate:
        """Take `cost`."""
        return self.take(key, cost, now_us), now_us

    async def aestimate(self, key: Key, cost: int, now_us: int) -> Estimate:
        """Take `cost`."""
        return self.take(key, cost, now_us), now_us

    async def apeek(self, key: Key, cost: int, now_us: int) -> Decision:
        """Return what `take` would answer."""
        return self.peek(key, cost, now_us)

    async def asettle(self, key: Key, correction: int, now_us: int, taken_us: int | None) -> None:
        """Charge more after the fact, or give back."""
        self.settle(key, correction, now_us, taken_us)

    async def areset(self, key: Key) -> None:
        """Forget what `key` has taken."""
        self.reset(key)

    def limits(self) -> list[Limit]:
        """Return the limits of the rule."""
        return [charge.table.limit for charge in self.charges("", 0)]

    @abstractmethod
    def charges(self, key: Key, cost: int) -> list[TableCharge]:
        """Return this key in each of the tables that are asked."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of keys tracked now, those at rest that are not swept yet included."""


class KeyTable(LocalKeys, Generic[State]):
    """The keys of one rule. A subclass says how a state is stepped, and a cheap test of rest."""

    __slots__ = (
        "_hand",
        "_keys",
        "_latest_us",
        "_mask",
        "_overflow",
        "_search_after_us",
        "_shards",
        "_sweep_at",
        "keys_max",
        "limit",
        "lock",
        "rule_id",
    )

    def __init__(self, rule_id: str, limit: Limit, keys_max: int) -> None:
        if keys_max < 1:
            raise BadValue("keys_max", keys_max, "give the number of keys to track, at least 1")
        shards = 1
        while shards * _SHARD_KEYS < keys_max and shards < _SHARDS_MAX:
            shards *= 2
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
        self.lock = LightLock()

    def take(self, key: Key, cost: int, now_us: int) -> Decision:
        """Take `cost` for `key` if the limit has it. A clock that goes back stands still here."""
        self.lock.acquire()
        try:
            return self.decide(str(key), cost, now_us, True)
        finally:
            self.lock.release()

    def peek(self, key: Key, cost: int, now_us: int) -> Decision:
        """Return what `take` would answer; nothing is taken."""
        self.lock.acquire()
        try:
            return self.decide(str(key), cost, now_us, False)
        finally:
            self.lock.release()

    def settle(self, key: Key, correction: int, now_us: int, taken_us: int | None) -> None:
        """Charge `correction` more than was taken at `taken_us`, or give back if negative."""
        self.lock.acquire()
        try:
            then_us = now_us if taken_us is None else taken_us
            self.settle_locked(str(key), correction, now_us, then_us)
        finally:
            self.lock.release()

    def reset(self, key: Key) -> None:
        """Forget what `key` has taken."""
        text = bounded_key(str(key))
        self.lock.acquire()
        try:
            if self._shards[self._index(text)].pop(text, None) is not None:
                self._keys -= 1
        finally:
            self.lock.release()

    def charges(self, key: Key, cost: int) -> list[TableCharge]:
        """Return this key in this table."""
        return [TableCharge(self, key, cost)]

    def decide(self, key: str, cost: int, now_us: int, keep: bool) -> Decision:
        """Decide under the lock that the caller holds; only with `keep` is anything taken."""
        late_us = self._latest_us - now_us
        if late_us > 0:
            now_us = self._latest_us
        else:
            self._latest_us = now_us
            late_us = 0
        key = bounded_key(key)
        index = self._index(key)
        shard = self._shards[index]
        state = shard.get(key)
        tracked = True
        if state is None and (self._keys >= self.keys_max or len(shard) >= self._sweep_at[index]):
            tracked = not keep or self._make_room(index, now_us)
            if not tracked:
                state = self._overflow
        stepped, allowed, remaining, retry_us, reset_us = self._step(state, now_us, cost)
        if allowed:
            if keep and cost > 0:
                self._keep(index, key, stepped, state is None, tracked)
            return Decision(
                True, remaining, 0, reset_us + late_us, None, self.rule_id, limit=self.limit.burst
            )
        reason = RATE_LIMITED if tracked else KEYS_EXHAUSTED
        if retry_us == NEVER:
            reason = COST_ABOVE_LIMIT
        else:
            retry_us += late_us
        return Decision(
            False,
            remaining,
            retry_us,
            reset_us + late_us,
            reason,
            self.rule_id,
            limit=self.limit.burst,
        )

    def __len__(self) -> int:
        """Return the number of keys tracked now, those at rest that are not swept yet included."""
        return self._keys

    @abstractmethod
    def _step(
        self, state: State | None, now_us: int, cost: int
    ) -> tuple[State, bool, int, int, int]:
        """Decide: the new state, allowed, remaining, and retry and reset in microseconds."""

    @abstractmethod
    def _settle(self, state: State | None, now_us: int, correction: int, taken_us: int) -> State:
        """The state after `correction` more than was taken at `taken_us`, or less if negative."""

    def _at_rest(self, state: State, now_us: int) -> bool:
        """Return whether this state says no more than no state would."""
        return self._step(state, now_us, 0)[4] == 0

    def _index(self, key: str) -> int:
        return int(i64(_hash(key)) & self._mask)

    def _keep(self, index: int, key: str, state: State, new: bool, tracked: bool) -> None:
        if not tracked:
            self._overflow = state
            return
        if new:
            self._keys += 1
        self._shards[index][key] = state

    def settle_locked(self, key: str, correction: int, now_us: int, taken_us: int) -> None:
        """Settle under the lock that the caller holds."""
        if now_us < self._latest_us:
            if taken_us >= now_us:
                taken_us = self._latest_us
            now_us = self._latest_us
        key = bounded_key(key)
        index = self._index(key)
        state = self._shards[index].get(key)
        if state is None and correction <= 0:
            # At rest, or forgotten: there is nothing to give back to.
            return
        tracked = state is not None or self._make_room(index, now_us)
        rest = state if tracked else self._overflow
        settled = self._settle(rest, now_us, correction, taken_us)
        self._keep(index, key, settled, state is None, tracked)

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
        rest = {key: state for key, state in shard.items() if not self._at_rest(state, now_us)}
        self._replace(index, rest)

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

    def _replace(self, index: int, rest: dict[str, State]) -> None:
        self._keys -= len(self._shards[index]) - len(rest)
        self._shards[index] = rest
        self._sweep_at[index] = max(_SWEEP_MIN, 2 * len(rest))


@final
class TableCharge:
    """One of several limits: the table, the key as it stands there, and what it is charged."""

    __slots__ = ("cost", "key", "table")

    def __init__(self, table: KeyTable[Any], key: Key, cost: int) -> None:
        self.table = table
        self.key = str(key)
        self.cost = cost
