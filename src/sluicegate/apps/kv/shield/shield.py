"""Shield: answers reads of hot keys before the policies and the engine.

It puts `policies/cache/hot_key.py` (which keys are worth keeping, and their answers for a moment)
and `policies/cache/coalesce.py` (one fetch for all concurrent readers) before point reads, and
before each place of a multi-get; `ranges.py` does so for ranges. Check the caller's grant before
`look`.

    state, row = shield.look(key, now_us, shard, strong=strong)
    COLD              fetch it as if there were no shield
    FRESH, NEGATIVE   the answer is `row`
    REFRESH           the answer is `row`; then `fetch_ahead(...)` for later readers
    MISS, STALE       `await read(...)`; `row` is the fallback of a STALE answer

Writes. `begin_write(key)` before the engine is called, `end_write(key)` when it has answered or
failed, or the writer was cancelled, and before anybody is told; always both. Between the two
nothing of the key is cached, and what is read is read from the engine. At the end all fetches that
began before are void, and nobody joins them any more. Hence, on the node that writes:

- No read that begins after a write was acknowledged returns what was there before it. What it
  finds was fetched after `end_write`, and so after the engine had made the write durable.
- Nothing that was read before a write became durable is served from the cache after that instant.
- Between writing and acknowledgement a read may return either, as it may without a shield.

`replace_table(table)` does the same for all keys of a table at once: a bulk upload is visible. A
write whose outcome is unknown, and which the engine makes later, is seen when the ttl is over; so
is what other nodes write.

A row is never served past its own expiry. Whoever was answered by another's fetch, or by an old
answer, finds `from_cache` in his request's `measured`, and is charged as cached; the fetch itself
is that of its leader. If the fetch fails or is refused, a STALE reader gets the old answer, at the
latest after `stale_wait_us`; others get the error, once each. Nothing is retried here.

Bounds: those of ShieldSettings. One Shield belongs to one loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, Protocol, Self, TypeVar, final

from sluicegate.apps.kv.shield.keys import place_of, without_turn
from sluicegate.apps.kv.shield.settings import HotPlace, ShieldSettings, ShieldStats
from sluicegate.contracts.chance import Chance
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Refused, SluicegateError, Unavailable
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT, QUOTA_SPENT
from sluicegate.contracts.request import Measured, Request
from sluicegate.policies.cache.coalesce import Coalesce, Flight
from sluicegate.policies.cache.hot_key import (
    COLD,
    FRESH,
    MISS,
    NEGATIVE,
    REFRESH,
    STALE,
    Fill,
    HotKey,
    OfferedLoads,
)

__all__ = ["COLD", "FRESH", "MISS", "NEGATIVE", "REFRESH", "STALE", "Shield"]


class CachedAnswer(Protocol):
    """What a fetch may bring: a row, or the rows of a range."""

    @property
    def expires_us(self) -> int:
        """When it is to be kept no longer; 0 is never."""

    @property
    def size_bytes(self) -> int:
        """What it weighs."""

    def unexpired(self, now_us: int) -> Self | None:
        """What is left of it at this instant."""


V = TypeVar("V", bound=CachedAnswer)


@final
class _Tally:
    """Counts of the reads of one key since it was hot or shown."""

    __slots__ = ("forwarded", "served", "size_bytes")

    def __init__(self) -> None:
        self.served = 0
        self.forwarded = 0
        self.size_bytes = 0


# What a caller is refused for his own sake.
_OF_HIS_OWN: Final = (QUOTA_SPENT, COST_ABOVE_LIMIT)


@final
class _SharedFetch(Generic[V]):
    """One reader's fetch, which runs only if no other does."""

    __slots__ = ("clock", "fetch", "flew", "flight_key", "key", "shield")

    def __init__(
        self,
        shield: Shield[V],
        key: str,
        clock: Clock,
        fetch: Callable[[Flight[V | None]], Awaitable[V | None]],
        flight_key: str,
    ) -> None:
        self.shield = shield
        self.key = key
        self.flight_key = flight_key or key
        self.clock = clock
        self.fetch = fetch
        self.flew = False

    async def fly(self, flight: Flight[V | None]) -> V | None:
        """Fetch, and keep what came."""
        self.flew = True
        fill = self.shield.begin(self.key, self.clock.now_us(), flight.request.shard)
        row = await self.fetch(flight)
        self.shield.land(fill, row, self.clock.now_us())
        return row


@final
class Shield(Generic[V]):
    """The hot keys of one dispatcher, their answers, and the fetches under way."""

    __slots__ = (
        "_ahead",
        "_ahead_failed",
        "_ahead_skipped",
        "_barred",
        "_chance",
        "_expired",
        "_flights",
        "_hot",
        "_led_astray",
        "_loads",
        "_refused",
        "_stale_served",
        "_tallies",
        "_turns",
        "_writing",
        "settings",
    )

    def __init__(
        self,
        settings: ShieldSettings,
        chance: Chance,
        raised: Callable[[Request, int], object] | None = None,
        refused: Callable[[Request, Decision, int], object] | None = None,
        loads: OfferedLoads | None = None,
    ) -> None:
        """`raised` is called when a waiter of a higher class joins a fetch, as in `Coalesce`.

        `refused` is called for who joined a fetch and is refused with its leader, for the quota of
        both. Without `loads` reads are saved as if every shard were full.
        """
        self.settings = settings
        self._chance = chance
        self._refused = refused
        self._hot: HotKey[V] = HotKey(settings.hot_key())
        self._flights: Coalesce[V | None] = Coalesce(settings.coalesce(), raised)
        self._writing: dict[str, int] = {}  # as many as there are writes under way
        self._loads = loads
        self._tallies: dict[str, _Tally] = {}
        self._turns: dict[str, int] = {}  # as many as there are tables
        self._ahead: dict[str, asyncio.Task[None]] = {}
        self._ahead_skipped = self._ahead_failed = 0
        self._barred = self._expired = self._stale_served = self._led_astray = 0

    def replace(self, settings: ShieldSettings) -> None:
        """Go by these from now on; counters, windows and flights stay as they are."""
        self.settings = settings
        self._hot.replace(settings.hot_key())

    @property
    def staleness_us_max(self) -> int:
        """How much older than its fetch an answer can be: fresh, and after an error."""
        return self._hot.staleness_us_max

    def key(self, table: str, partition: bytes, sort: bytes) -> str:
        """Return the current key of a place; `key_of` is written out here to save a call a read."""
        if self._turns:
            turn = self._turns.get(table, 0)
            if turn:
                table = f"{table}@{turn}"
        return f"{table}:{len(partition)}:{(partition + sort).decode('latin-1')}"

    def look(
        self, key: str, now_us: int, shard: str = "", *, strong: bool = False
    ) -> tuple[int, V | None]:
        """Count this read, and return what to do."""
        load = None if self._loads is None else self._loads.see(shard)
        if not self._hot.is_hot(key, now_us, load, strong):
            tally = self._tallies.get(key)
            if tally is not None:
                tally.forwarded += 1
            return COLD, None
        state, row = self._hot.find(key, now_us, self._chance.draw())
        if row is not None and 0 < row.expires_us <= now_us:
            self._expired += 1
            return MISS, None
        if state != MISS and state != STALE:  # noqa: PLR1714 - as mypyc likes it
            self._tally(key).served += 1
        return state, row

    def refuse(self, key: str) -> None:
        """Who has just found its answer here was refused it, so it was not served."""
        self._hot.refuse()
        self._tally(key).served -= 1

    async def read(
        self,
        key: str,
        stale: V | None,
        request: Request,
        clock: Clock,
        fetch: Callable[[Flight[V | None]], Awaitable[V | None]],
        flight_key: str = "",
    ) -> V | None:
        """The row of a key that is MISS or STALE, by this fetch or one that is in the air.

        `fetch` is handed the flight, and does its work as `flight.request`. Raises what it raised,
        or `Refused`, unless `stale` may be served instead. Only those with the same `flight_key`
        fetch together; without one, all who ask for the key.
        """
        shared_fetch = _SharedFetch(self, key, clock, fetch, flight_key)
        request_now = request
        if stale is not None:
            request_now = self._hurry(key, request, clock, shared_fetch)
        try:
            row = await self._share_fetch(request_now, shared_fetch)
        except (Refused, Unavailable):
            if stale is None or not self.stand_in(key, stale, clock.now_us()):
                raise
            # The fetch may have been charged for, but the answer is the cached one.
            request.measured = Measured(0, 0, stale.size_bytes, True)
            return stale
        if row is not None and 0 < row.expires_us <= clock.now_us():
            self._expired += 1
            row = row.unexpired(clock.now_us())
        if shared_fetch.flew:
            self._tally(key).forwarded += 1
        else:
            self._tally(key).served += 1
            request.measured = Measured(0, 0, 0 if row is None else row.size_bytes, True)
        return row

    def stand_in(self, key: str, stale: V, now_us: int) -> bool:
        """Return whether an old answer may be served because its fetch failed, and count it."""
        if 0 < stale.expires_us <= now_us:
            return False
        self._stale_served += 1
        self._tally(key).served += 1
        return True

    async def _share_fetch(self, request: Request, shared_fetch: _SharedFetch[V]) -> V | None:
        """By a flight; but what its leader was refused for himself is no refusal of another.

        Of the same caller it is: to ask anew for each would cost as much as to serve it, and be
        refused.
        """
        leader = self._flights.leader(shared_fetch.flight_key)
        try:
            return await self._flights.share(
                shared_fetch.flight_key, request, shared_fetch.clock, shared_fetch.fly
            )
        except Refused as error:
            if shared_fetch.flew or error.decision.reason not in _OF_HIS_OWN:
                raise
            if leader is not None and leader.caller == request.caller:
                if self._refused is not None:
                    self._refused(request, error.decision, shared_fetch.clock.now_us())
                raise
        self._led_astray += 1
        flight: Flight[V | None] = Flight(shared_fetch.key, request, shared_fetch.clock.now_us())
        return await shared_fetch.fly(flight)

    def fetch_ahead(
        self,
        key: str,
        request: Request,
        clock: Clock,
        fetch: Callable[[Flight[V | None]], Awaitable[V | None]],
        flight_key: str = "",
    ) -> bool:
        """Fetch a key that is REFRESH, for those to come; False if it need not, or must not be.

        It runs by itself, as the same caller, and has `ahead_us` of its own.
        """
        shared_fetch = _SharedFetch(self, key, clock, fetch, flight_key)
        return self._fetch_ahead(key, request, clock, shared_fetch)

    def begin(self, key: str, now_us: int, shard: str = "") -> Fill[V]:
        """Begin a fetch of a key that is MISS, STALE or REFRESH, before the engine reads."""
        load = None if self._loads is None else self._loads.of(shard)
        return self._hot.begin(key, now_us, load)

    def land(self, fill: Fill[V], row: V | None, now_us: int) -> bool:
        """Keep what a fetch has brought; False if the key was written meanwhile, or has no room."""
        key = fill.key
        size_bytes = 0 if row is None else row.size_bytes
        self._tally(key).size_bytes = size_bytes
        if self._writing and self._plain(key) in self._writing:
            self._barred += 1
            return False
        if row is None:
            return fill.put_missing(now_us=now_us, draw=self._chance.draw())
        if 0 < row.expires_us <= now_us:
            return False
        return fill.put(row, size_bytes, now_us=now_us, draw=self._chance.draw())

    def land_at_once(self, fill: Fill[V], row: V | None, now_us: int) -> None:
        """Keep what a reader has fetched by itself, of an engine that answers at once."""
        self.land(fill, row, now_us)
        self._tally(fill.key).forwarded += 1

    def begin_write(self, key: str) -> None:
        """Cache nothing of this key until `end_write`: it is about to be written."""
        plain = self._plain(key)
        self._writing[plain] = self._writing.get(plain, 0) + 1
        self._hot.invalidate(self._now(key))

    def end_write(self, key: str) -> None:
        """Record that the engine has answered or failed, once for each `begin_write`."""
        plain = self._plain(key)
        writers = self._writing.get(plain, 0)
        if writers > 1:
            self._writing[plain] = writers - 1
        elif writers:
            del self._writing[plain]
        now = self._now(key)  # the table may have turned while the engine wrote
        self._hot.invalidate(now)
        self._flights.invalidate(now)

    def replace_table(self, table: str) -> None:
        """Drop what is cached of a replaced table, before the commit is acknowledged."""
        self._turns[table] = self._turns.get(table, 0) + 1

    def board(self, k: int) -> list[HotPlace]:
        """The keys that are read most, and what became of their reads."""
        board = []
        for key, guaranteed in self._hot.top(k):
            tally = self._tallies.get(key) or _Tally()
            if len(self._tallies) < self.settings.tallies_max:
                self._tallies[key] = tally  # from now on its reads are counted, hot or not
            board.append(
                HotPlace(
                    without_turn(key), guaranteed, tally.served, tally.forwarded, tally.size_bytes
                )
            )
        return board

    @property
    def remembered(self) -> int:
        """The reads of the last one to two windows, of which each key's are guaranteed."""
        return self._hot.reads

    def stats(self) -> ShieldStats:
        """What it looks like now."""
        return ShieldStats(
            self._hot.stats(),
            self._flights.stats(),
            len(self._writing),
            len(self._ahead),
            self._ahead_skipped,
            self._ahead_failed,
            self._barred,
            self._expired,
            self._stale_served,
            self._led_astray,
        )

    async def close(self) -> None:
        """End what is fetched ahead."""
        tasks = list(self._ahead.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _hurry(
        self, key: str, request: Request, clock: Clock, shared_fetch: _SharedFetch[V]
    ) -> Request:
        """As which to ask while an old answer is at hand: for a moment only.

        Who waits for the moment must not take the fetch with him when he leaves, so it is also
        fetched ahead; where that cannot be, he waits as long as others.
        """
        if not self._fetch_ahead(key, request, clock, shared_fetch) and key not in self._ahead:
            return request
        until_us = clock.now_us() + self.settings.stale_wait_us
        if request.deadline_us is not None and request.deadline_us <= until_us:
            return request
        hurried = request.copy()
        hurried.cost_ru = request.cost_ru
        hurried.deadline_us = until_us
        return hurried

    def _fetch_ahead(
        self, key: str, request: Request, clock: Clock, shared_fetch: _SharedFetch[V]
    ) -> bool:
        if key in self._ahead:
            return False
        if len(self._ahead) >= self.settings.ahead_max:
            self._ahead_skipped += 1
            return False
        detached = request.copy()
        detached.cost_ru = request.cost_ru
        detached.deadline_us = clock.now_us() + self.settings.ahead_us
        task = asyncio.get_running_loop().create_task(self._go_ahead(detached, shared_fetch))
        self._ahead[key] = task
        task.add_done_callback(lambda _task: self._ahead.pop(key, None))
        return True

    async def _go_ahead(self, request: Request, shared_fetch: _SharedFetch[V]) -> None:
        try:
            await self._flights.share(
                shared_fetch.flight_key, request, shared_fetch.clock, shared_fetch.fly
            )
        except SluicegateError:
            self._ahead_failed += 1  # those who wait for it are told; the next reader tries again
        except Exception as error:
            self._ahead_failed += 1
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a key could not be fetched ahead", "exception": error}
            )

    def _plain(self, key: str) -> str:
        return without_turn(key) if self._turns else key

    def _now(self, key: str) -> str:
        """The same place, by the turn that its table has now."""
        if not self._turns:
            return key
        table, partition, sort = place_of(key)
        return self.key(table, partition, sort)

    def _tally(self, key: str) -> _Tally:
        tally = self._tallies.get(key)
        if tally is None:
            if len(self._tallies) >= self.settings.tallies_max:
                del self._tallies[next(iter(self._tallies))]
            tally = _Tally()
            self._tallies[key] = tally
        return tally
