"""Redis store: limits kept by a Redis or Valkey, behind the contract of a store.

It finds a limit's counter, hands its keys to the batch, and knows what a cluster cannot do in one
script: charges on keys of different slots. How a limit is counted is in `counters.py` and the
scripts, what travels together in `batch.py`, how it travels in the client.

Keys are `{prefix}:{entity}:{rule}:{window}`, the braces around the entity literal: they make all
limits of one entity share a slot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, SluicegateError, Unavailable
from sluicegate.contracts.observer import Observer
from sluicegate.contracts.rule import Limit
from sluicegate.contracts.store import Charge, PartialTake, Ruling
from sluicegate.policies.client.path_timeout import PathTimeout
from sluicegate.stores.redis.batch import BatchStats, ChargeGroup, ScriptBatches
from sluicegate.stores.redis.client import RedisClient, open_client
from sluicegate.stores.redis.counters import (
    KEY_BYTES_MAX_DEFAULT,
    RedisCounter,
    counter_for,
)
from sluicegate.stores.redis.errors import as_unavailable
from sluicegate.stores.redis.eviction import Eviction, read_evictions
from sluicegate.stores.redis.mark import RedisMark
from sluicegate.stores.redis.script import load_scripts
from sluicegate.stores.redis.settings import CLUSTER, WINDOWS, RedisSettings, parse_url
from sluicegate.stores.redis.slots import slot_of
from sluicegate.stores.redis.thread_client import ThreadClient
from sluicegate.wire.resp import Part

PREFIX_DEFAULT: Final = "rate_limit"
# More calls than one for a crowd, so that the server works on one while we read another: with 64 at
# once 32 was quicker than 64 or 22 (benchmarks/redis_store.py).
BATCH_MAX_DEFAULT: Final = 32
BATCH_US_MAX_DEFAULT: Final = 200
BATCH_MAX_MAX: Final = 4_096  # a Lua function takes fewer than 8,000 arguments
BATCH_MAX_WINDOWS: Final = 2_048  # likewise, where each request reads three keys
BATCH_US_MAX_MAX: Final = 100_000
RULES_MAX_DEFAULT: Final = 10_000

KeyedCharge = tuple[RedisCounter, bytes, int]


@final
class RedisStore:
    """A `contracts.store.Store`; make it within the loop that uses it.

    With a blocking `client` there is no loop, and its threads `run` what is asked here.
    """

    __slots__ = (
        "_client",
        "_closed",
        "_counters",
        "_key_bytes_max",
        "_layout",
        "_rules_max",
        "_spread",
        "batches",
        "prefix",
        "scripts",
        "what",
    )

    def __init__(
        self,
        where: str | RedisSettings,
        chance: Chance,
        *,
        prefix: str = PREFIX_DEFAULT,
        batch_max: int = BATCH_MAX_DEFAULT,
        batch_us_max: int = BATCH_US_MAX_DEFAULT,
        key_bytes_max: int = KEY_BYTES_MAX_DEFAULT,
        rules_max: int = RULES_MAX_DEFAULT,
        observer: Observer | None = None,
        clock: Callable[[], int] | None = None,
        client: ThreadClient | None = None,
    ) -> None:
        if "{" in prefix:
            raise BadValue("prefix", prefix, "leave out the {: it marks the entity in a key")
        if not 1 <= batch_max <= BATCH_MAX_MAX:
            raise BadValue("batch_max", batch_max, f"give a number from 1 to {BATCH_MAX_MAX}")
        if not 0 <= batch_us_max <= BATCH_US_MAX_MAX:
            raise BadValue(
                "batch_us_max", batch_us_max, f"give a wait from 0 to {BATCH_US_MAX_MAX} us"
            )
        settings = parse_url(where) if isinstance(where, str) else where
        if settings.layout == WINDOWS and batch_max > BATCH_MAX_WINDOWS:
            raise BadValue(
                "batch_max", batch_max, f"give {BATCH_MAX_WINDOWS} at most with layout=windows"
            )
        self.prefix = prefix
        self.what = f"Redis at {settings.endpoints[0]}"
        self._spread = settings.topology == CLUSTER
        self._client: RedisClient | ThreadClient = client or open_client(settings, chance)
        self.scripts = load_scripts()
        self.batches = ScriptBatches(
            self._client,
            self.scripts,
            asyncio.get_running_loop() if client is None else client,
            spread=self._spread,
            asks_max=batch_max,
            hold_us=batch_us_max if client is None else 0,
            observer=observer,
            clock=clock,
        )
        self._counters: dict[str, RedisCounter] = {}
        self._key_bytes_max = key_bytes_max
        self._layout = settings.layout
        self._rules_max = rules_max
        self._closed = False

    async def connect(self) -> None:
        """Return when connected, or raise what prevents it. The first request does it too."""
        await self._client.connect()

    @property
    def paths(self) -> Sequence[PathTimeout]:
        """The time-outs of the servers in use."""
        return self._client.paths

    async def evictions(self) -> Mapping[str, Eviction]:
        """Whether its servers evict keys, by their names."""
        assert not isinstance(self._client, ThreadClient)
        return await read_evictions(self._client)

    def mark(self, name: str) -> RedisMark:
        """A word that all who share this store leave each other under that name."""
        assert not isinstance(self._client, ThreadClient)  # marks are for loops
        return RedisMark(self._client, f"{self.prefix}:{name}")

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        """Take every charge or none.

        On a cluster, charges on different entities are taken one slot after the other; what was
        taken before the first refusal is given back, so others may see it spent for a moment.
        """
        self._check_open()
        if not self._spread and (reason := self._client.unavailable_reason(-1)):
            self.batches.record_skip(f"{reason}; calls are held back")
            raise Unavailable(self.what, f"{reason}; calls are held back")
        if len(charges) == 1 and not count_refused:
            rule_id, limit, key, cost = charges[0]
            counter = self._counters.get(rule_id)
            if counter is None or counter.limit is not limit:
                counter = self.counter(rule_id, limit)
            if cost < 0:
                raise _negative(cost)
            return await self.batches.ask(counter, key, cost, keep)
        keyed = self._keyed_charges(charges)
        for _, _, cost in keyed:
            if cost < 0:
                raise _negative(cost)
        if self._spread:
            parts = self._by_slot(keyed)
            if len(parts) > 1:
                return await self._take_apart(keyed, parts, keep, count_refused)
        if not keyed:
            return Ruling(0, [])
        return await self.batches.submit_group(ChargeGroup(keyed, keep, count_refused))

    async def take_some(self, charge: Charge, ladder: Sequence[int]) -> PartialTake:
        """Take the first cost of `ladder` that fits."""
        if not ladder:
            raise BadValue("ladder", ladder, "give at least one cost")
        counter = self.counter(charge.rule_id, charge.limit)
        args: list[Part] = [self.batches.now, 1, *counter.declared]
        for cost in ladder:
            if cost < 0:
                raise _negative(cost)
            args += counter.charge(cost)
        self._check_open()
        key = counter.key(charge.key)
        trip = self._client.run_script(self.scripts["take_some"], [key], args)
        (reply,) = await self.batches.observe_call(_all([trip]))
        now_us, rung = reply[0], reply[1]
        units = ladder[rung - 1] if rung else 0
        decision = counter.decide(reply, 2, now_us, units if rung else ladder[-1])
        return PartialTake(now_us, units, decision)

    async def settle(self, charges: Sequence[Charge], taken_us: int | None = None) -> None:
        """Correct what was taken at `taken_us`, by the server's clock; None is now."""
        keyed = self._keyed_charges(charges)
        parts = self._by_slot(keyed) if self._spread else [range(len(keyed))]
        self._check_open()
        await _all([self._settle([keyed[i] for i in part], taken_us) for part in parts if part])

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget what each charge's key has taken."""
        keyed = self._keyed_charges(charges)
        parts = self._by_slot(keyed) if self._spread else [range(len(keyed))]
        self._check_open()
        await _all([self._reset([keyed[i] for i in part]) for part in parts if part])

    def unavailable(self, charges: Sequence[Charge]) -> Unavailable | None:
        """What asking for these would raise at once; any thread may ask, without the loop."""
        slots = [-1]
        if self._spread:
            slots = [slot_of(key) for _, key, _ in self._keyed_charges(charges)]
        for slot in slots:
            reason = self._client.unavailable_reason(slot)
            if reason:
                return Unavailable(self.what, f"{reason}; calls are held back")
        return None

    async def close(self) -> None:
        """Fail what is under way with `Unavailable`, and give back what is held."""
        self._closed = True
        self.batches.flush()
        await self._client.close()

    def stats(self) -> BatchStats:
        """Return what has travelled so far, and how well it was filled."""
        return self.batches.stats()

    # Inside.

    def counter(self, rule_id: str, limit: Limit) -> RedisCounter:
        """Return the counter of a limit."""
        counter = self._counters.get(rule_id)
        if counter is None or (counter.limit is not limit and counter.limit != limit):
            counter = counter_for(self.prefix, rule_id, limit, self._key_bytes_max, self._layout)
            if rule_id not in self._counters and len(self._counters) >= self._rules_max:
                self._counters.pop(next(iter(self._counters)))  # it is only a way to say things
            self._counters[rule_id] = counter
        return counter

    def _keyed_charges(self, charges: Sequence[Charge]) -> list[KeyedCharge]:
        keyed = []
        for rule_id, limit, key, cost in charges:
            counter = self.counter(rule_id, limit)
            keyed.append((counter, counter.key(key), cost))
        return keyed

    def _by_slot(self, keyed: Sequence[KeyedCharge]) -> list[Sequence[int]]:
        """Return which charges share a slot, in the order of their first."""
        slots: dict[int, list[int]] = {}
        for place, (_, key, _) in enumerate(keyed):
            slots.setdefault(slot_of(key), []).append(place)
        return list(slots.values())

    async def _take_apart(
        self, keyed: list[KeyedCharge], parts: list[Sequence[int]], keep: bool, count_refused: bool
    ) -> Ruling:
        """Reserve slot by slot, and give back if one refuses."""
        decisions: list[Decision | None] = [None] * len(keyed)
        at_us, refused = 0, False
        taken: list[tuple[list[KeyedCharge], int]] = []
        try:
            for part in parts:
                subset = [keyed[place] for place in part]
                # After a refusal the others are only asked what they would have said.
                now_keep = keep and not refused
                ruling = await self.batches.submit_group(ChargeGroup(subset, now_keep, False))
                at_us = max(at_us, ruling.at_us)
                for place, decision in zip(part, ruling.decisions, strict=True):
                    decisions[place] = decision
                if now_keep and ruling.allowed:
                    taken.append((subset, ruling.at_us))
                elif keep and count_refused:
                    self._send_settle(subset, None, 1)
                refused = refused or not ruling.allowed
        except BaseException:
            refused, count_refused = True, False
            raise
        finally:
            if refused and keep and not count_refused:
                for subset, then_us in taken:
                    self._send_settle(subset, then_us, -1)
        return Ruling(at_us, [decision for decision in decisions if decision is not None])

    def _send_settle(self, keyed: list[KeyedCharge], taken_us: int | None, sign: int) -> None:
        """Settle without waiting to hear of it: what cannot be said now is not said."""
        corrections = [(counter, key, sign * cost) for counter, key, cost in keyed]
        self._settle(corrections, taken_us).add_done_callback(_ignore_result)

    def _settle(self, keyed: Sequence[KeyedCharge], taken_us: int | None) -> asyncio.Future[Any]:
        limits: dict[RedisCounter, int] = {}
        words: list[Part] = []
        for counter, _, cost in keyed:
            words += (limits.setdefault(counter, len(limits) + 1), *counter.charge(cost))
        args: list[Part] = [self.batches.now, b"" if taken_us is None else taken_us, len(limits)]
        for counter in limits:
            args += counter.declared
        return self._client.run_script(
            self.scripts["settle"], [key for _, key, _ in keyed], args + words
        )

    def _reset(self, keyed: Sequence[KeyedCharge]) -> asyncio.Future[Any]:
        args: list[Part] = [self.batches.now]
        args += [counter.times_key for counter, _, _ in keyed]
        return self._client.run_script(self.scripts["reset"], [key for _, key, _ in keyed], args)

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable(self.what, "the store is closed")


async def _all(calls: Sequence[asyncio.Future[Any]]) -> list[Any]:
    """Every answer, or the first failure when all have ended."""
    if len(calls) == 1:  # there may be no loop to gather in
        try:
            return [await calls[0]]
        except SluicegateError as error:
            raise as_unavailable(error) from None
    replies = await asyncio.gather(*calls, return_exceptions=True)
    for answer in replies:
        if isinstance(answer, SluicegateError):
            raise as_unavailable(answer)
        if isinstance(answer, BaseException):
            raise answer
    return replies


def _negative(cost: int) -> BadValue:
    return BadValue("cost", cost, "give 0 or more; what is given back goes through settle")


def _ignore_result(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
