"""Shield: stands between who may read and the stack, and answers what everybody asks for.

It puts `policies/hot_key.py` (which keys are hot, and their answers for a moment) and
`policies/coalesce.py` (one fetch for all who ask at once) before point reads, and before each place
of a multi-get; `ranges.py` has one for what is read of a partition as a whole. It is asked only
after it was settled that this caller may read this table.

    state, row = shield.look(key, now_us, strong=strong)
    COLD              fetch it as if there were no shield, then `record_read` its size
    FRESH, NEGATIVE   the answer is `row`
    REFRESH           the answer is `row`; then `fetch_ahead(...)`, which fetches for those to come
    MISS, STALE       `await read(...)`; `row` is what a STALE answer falls back on

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

Cost: of a cold key, that of `HotKey.look` and two comparisons. Bounds: those of ShieldSettings.
One Shield belongs to one loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Generic, Protocol, Self, TypeVar, final

from sluicegate.apps.kv.shield.keys import key_of, place_of, without_turn
from sluicegate.apps.kv.shield.settings import HotPlace, ShieldSettings, ShieldStats
from sluicegate.contracts.chance import Chance
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, Refused, SluicegateError, Unavailable
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT, QUOTA_SPENT
from sluicegate.contracts.request import Measured, Request
from sluicegate.policies.coalesce import Coalesce, Flight
from sluicegate.policies.hot_key import COLD, FRESH, MISS, NEGATIVE, REFRESH, STALE, Fill, HotKey

__all__ = ["COLD", "FRESH", "MISS", "NEGATIVE", "REFRESH", "STALE", "Shield"]

_HALVED_MAX: Final = 58  # after so many halvings nothing is left


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
    """What became of the reads of one hot key."""

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
        fill = self.shield.begin(self.key, self.clock.now_us())
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
        "_large",
        "_led_astray",
        "_refused",
        "_remembered",
        "_stale_served",
        "_tallies",
        "_turns",
        "_window_ends_us",
        "_writing",
        "settings",
    )

    def __init__(
        self,
        settings: ShieldSettings,
        chance: Chance,
        raised: Callable[[Request, int], object] | None = None,
        refused: Callable[[Request, Decision, int], object] | None = None,
    ) -> None:
        """`raised` is called when a waiter of a higher class joins a fetch, as in `Coalesce`.

        `refused` is called for who joined a fetch and is refused with its leader, for the quota of
        both.
        """
        self.settings = settings
        self._chance = chance
        self._refused = refused
        self._hot: HotKey[V] = HotKey(settings.hot_key())
        self._flights: Coalesce[V | None] = Coalesce(settings.coalesce(), raised)
        self._writing: dict[str, int] = {}  # as many as there are writes under way
        self._large: dict[str, int] = {}  # what they weigh, in the order they were seen
        self._tallies: dict[str, _Tally] = {}
        self._turns: dict[str, int] = {}  # as many as there are tables
        self._ahead: dict[str, asyncio.Task[None]] = {}
        self._remembered = 0  # the weight that the counters remember
        self._window_ends_us = 0
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
        """The key of a place, as it is now."""
        return key_of(table, partition, sort, self._turns.get(table, 0) if self._turns else 0)

    def look(self, key: str, now_us: int, *, strong: bool = False) -> tuple[int, V | None]:
        """Count this key, and return what to do."""
        weight = 1
        if self._large:
            weight = self._large.pop(key, 1)
            if weight > 1:  # those that are asked for stay, others make room
                self._large[key] = weight
        if now_us >= self._window_ends_us:
            self._age(now_us)
        self._remembered += weight
        place = self._hot.look(key, now_us, self._chance.draw(), weight, strong)
        if place[0] == COLD:
            return place
        row = place[1]
        if row is not None and 0 < row.expires_us <= now_us:
            self._expired += 1
            return MISS, None
        if place[0] != MISS and place[0] != STALE:
            self._tally(key).served += 1
        return place

    def refuse(self, key: str) -> None:
        """Who has just found its answer here was refused it, so it was not served."""
        self._hot.refuse()
        self._tally(key).served -= 1

    def record_read(self, key: str, row: V | None) -> None:
        """What the read of a COLD key has brought; those that are large weigh more from now on."""
        if row is not None and row.size_bytes >= self.settings.large_bytes:
            self._weigh(key, row.size_bytes)
        elif self._large:
            self._large.pop(key, None)

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
            if stale is None or 0 < stale.expires_us <= clock.now_us():
                raise
            self._stale_served += 1
            row = stale
            # It may have flown, and have been charged for; what it got is the cached one.
            shared_fetch.flew = False
        if row is not None and 0 < row.expires_us <= clock.now_us():
            self._expired += 1
            row = row.unexpired(clock.now_us())
        tally = self._tally(key)
        if shared_fetch.flew:
            tally.forwarded += 1
        else:
            tally.served += 1
            request.measured = Measured(0, 0, 0 if row is None else row.size_bytes, True)
        return row

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

    def begin(self, key: str, now_us: int) -> Fill[V]:
        """A fetch begins, for who reads several places at once and does not `read` each.

        Only for keys that are MISS, STALE or REFRESH, and before the engine is asked.
        """
        return self._hot.begin(key, now_us)

    def land(self, fill: Fill[V], row: V | None, now_us: int) -> bool:
        """Keep what a fetch has brought; False if the key was written meanwhile, or has no room."""
        key = fill.key
        size_bytes = 0 if row is None else row.size_bytes
        self._tally(key).size_bytes = size_bytes
        self.record_read(key, row)
        if self._writing and self._plain(key) in self._writing:
            self._barred += 1
            return False
        if row is None:
            return fill.put_missing(now_us=now_us, draw=self._chance.draw())
        if 0 < row.expires_us <= now_us:
            return False
        return fill.put(row, size_bytes, now_us=now_us, draw=self._chance.draw())

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

    def top(self, k: int) -> list[tuple[str, int]]:
        """The hottest keys here and what is guaranteed of each, for other dispatchers to heed."""
        return [(without_turn(key), weight) for key, weight in self._hot.top(k)]

    def near(self, k: int, nodes: int) -> list[tuple[str, int]]:
        """Those that are hot only together with what other dispatchers may see of them."""
        return [(without_turn(key), weight) for key, weight in self._hot.near(k, nodes)]

    def heed(self, keys: Iterable[str], now_us: int) -> int:
        """These are hot at another dispatcher; how many there was room for. Bad ones are passed."""
        return self._hot.heed([key for key in map(self._here, keys) if key], now_us)

    def heed_sums(self, elsewhere: Mapping[str, int], now_us: int) -> int:
        """So much they weigh at the others together: heed those that are hot with what is here."""
        here = {self._here(key): weight for key, weight in elsewhere.items()}
        here.pop("", None)
        return self._hot.heed_sums(here, now_us)

    def board(self, k: int) -> list[HotPlace]:
        """The hottest keys, and what became of their reads."""
        board = []
        for key, guaranteed in self._hot.served(k):
            tally = self._tallies.get(key)
            if tally is None:
                board.append(HotPlace(without_turn(key), guaranteed, 0, 0, 0))
            else:
                board.append(
                    HotPlace(
                        without_turn(key),
                        guaranteed,
                        tally.served,
                        tally.forwarded,
                        tally.size_bytes,
                    )
                )
        return board

    @property
    def remembered(self) -> int:
        """The weight of the last one to two windows, of which each key's is guaranteed."""
        return self._remembered

    def stats(self) -> ShieldStats:
        """What it looks like now."""
        return ShieldStats(
            self._hot.stats(),
            self._flights.stats(),
            len(self._writing),
            len(self._large),
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

    def _here(self, key: str) -> str:
        """The key of another dispatcher as it is here; empty if it is none."""
        try:
            table, partition, sort = place_of(key)
        except BadValue:
            return ""
        return self.key(table, partition, sort)

    def _tally(self, key: str) -> _Tally:
        tally = self._tallies.get(key)
        if tally is None:
            if len(self._tallies) >= self.settings.tallies_max:
                del self._tallies[next(iter(self._tallies))]
            tally = _Tally()
            self._tallies[key] = tally
        return tally

    def _weigh(self, key: str, size_bytes: int) -> None:
        self._large.pop(key, None)
        if len(self._large) >= self.settings.large_keys_max:
            if not self._large:
                return
            del self._large[next(iter(self._large))]
        self._large[key] = 1 + size_bytes // self.settings.large_bytes

    def _age(self, now_us: int) -> None:
        """Keep step with the counters: what they remember is halved with each window."""
        window_us = self.settings.window_us
        ends_us = (now_us // window_us + 1) * window_us
        if self._window_ends_us:
            passed = (ends_us - self._window_ends_us) // window_us
            self._remembered >>= min(passed, _HALVED_MAX)
        self._window_ends_us = ends_us
