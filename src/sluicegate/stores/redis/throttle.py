"""Throttle in Redis: CL.THROTTLE for all processes, by the server's clock, without the module.

One key each, `{prefix}:throttle:{key}` with the braces literal, holding the schedule's instant in
nanoseconds as digits, as redis-cell holds it; it expires when the schedule has caught up. The
script only moves that instant and answers with what it was before; the kernel makes the five
numbers of it, here, and if the two do not agree on who is limited nothing is believed.

Requests of one tick of the event loop leave in one call, up to `asks_max` of them, one for each
slot of a cluster. A request whose waiter is gone before it leaves is not sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.checks import ThrottleRequest, ThrottleResponse
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.observer import Observer
from sluicegate.kernels import cell_throttle
from sluicegate.policies.client.path_timeout import PathTimeout
from sluicegate.stores.redis.batch import Disagreement
from sluicegate.stores.redis.client import open_client
from sluicegate.stores.redis.counters import KEY_BYTES_MAX_DEFAULT, Reply, key_of
from sluicegate.stores.redis.errors import as_unavailable
from sluicegate.stores.redis.script import load_scripts
from sluicegate.stores.redis.settings import CLUSTER, RedisSettings, parse_url
from sluicegate.stores.redis.slots import slot_of
from sluicegate.wire.resp import Part

PREFIX_DEFAULT: Final = "rate_limit"
ASKS_MAX_DEFAULT: Final = 64
ASKS_MAX_MAX: Final = 1_024  # a Lua function takes fewer than 8,000 arguments

_SECOND_NS: Final = 1_000_000_000


@final
class _ThrottleCall:
    """One request on its way, in nanoseconds, and who waits for it."""

    __slots__ = ("ask", "charge", "future", "interval", "key", "tolerance")

    def __init__(
        self, key: bytes, ask: ThrottleRequest, future: asyncio.Future[ThrottleResponse]
    ) -> None:
        try:
            self.interval, self.tolerance, self.charge = cell_throttle.quota(
                ask.max_burst, ask.count, ask.period_s, ask.cost
            )
        except ValueError as error:
            rate = f"{ask.count} every {ask.period_s} s, burst {ask.max_burst}, {ask.cost} now"
            raise BadValue("throttle", rate, f"ask for a rate that counts: {error}") from None
        self.key = key
        self.ask = ask
        self.future = future

    def words(self) -> tuple[int, int, int, int]:
        """Tolerance and charge, in two numbers each."""
        return (*divmod(self.tolerance, _SECOND_NS), *divmod(self.charge, _SECOND_NS))

    def resolve(self, now_us: int, before_s: int, before_ns: int) -> None:
        """The answer, from the instant before."""
        was_limited = before_s < 0
        if was_limited:
            before_s = -1 - before_s
        _, limited, remaining, retry_ns, reset_ns = cell_throttle.step(
            before_s * _SECOND_NS + before_ns,
            now_us * 1_000,
            self.interval,
            self.tolerance,
            self.charge,
        )
        if self.future.done():
            return
        if limited is not was_limited:
            self.future.set_exception(as_unavailable(Disagreement))
            return
        seconds = cell_throttle.seconds
        self.future.set_result(
            ThrottleResponse(
                limited, self.ask.max_burst + 1, remaining, seconds(retry_ns), seconds(reset_ns)
            )
        )

    def fail(self, error: BaseException) -> None:
        """There is no answer."""
        if not self.future.done():
            self.future.set_exception(as_unavailable(error))


@final
class RedisThrottle:
    """All keys of CL.THROTTLE in a Redis; make it within the loop that uses it."""

    __slots__ = (
        "_asks_max",
        "_client",
        "_clock",
        "_closed",
        "_flush_due",
        "_head",
        "_in_flight",
        "_key_bytes_max",
        "_loop",
        "_observer",
        "_queue",
        "_script",
        "_spread",
        "now",
        "prefix",
        "what",
    )

    def __init__(
        self,
        where: str | RedisSettings,
        chance: Chance,
        *,
        prefix: str = PREFIX_DEFAULT,
        asks_max: int = ASKS_MAX_DEFAULT,
        key_bytes_max: int = KEY_BYTES_MAX_DEFAULT,
        observer: Observer | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        if "{" in prefix:
            raise BadValue("prefix", prefix, "leave out the {: it marks the key in a key")
        if not 1 <= asks_max <= ASKS_MAX_MAX:
            raise BadValue("asks_max", asks_max, f"give a number from 1 to {ASKS_MAX_MAX}")
        settings = parse_url(where) if isinstance(where, str) else where
        loop = asyncio.get_running_loop()
        self.prefix = prefix
        self.what = f"Redis at {settings.endpoints[0]}"
        self.now: Part = b""  # only tests say what time it is
        self._head = f"{prefix}:throttle:{{"
        self._key_bytes_max = key_bytes_max
        self._asks_max = asks_max
        self._spread = settings.topology == CLUSTER
        self._client = open_client(settings, chance)
        self._script = load_scripts()["throttle"]
        self._loop = loop
        self._observer = observer
        self._clock = clock if clock is not None else lambda: int(loop.time() * 1e6)
        self._queue: list[_ThrottleCall] = []
        self._in_flight: set[asyncio.Future[Any]] = set()
        self._flush_due = False
        self._closed = False

    async def connect(self) -> None:
        """Return when connected, or raise what prevents it. The first request does it too."""
        await self._client.connect()

    @property
    def paths(self) -> Sequence[PathTimeout]:
        """The time-outs of the servers in use."""
        return self._client.paths

    def throttle(self, ask: ThrottleRequest) -> asyncio.Future[ThrottleResponse]:
        """Decide and count; await the answer, or `Unavailable`. BadValue at once for no rate."""
        if self._closed:
            raise Unavailable(self.what, "the store is closed")
        key = key_of(self._head, ask.key, "}", self._key_bytes_max)
        if not self._spread and (reason := self._client.unavailable_reason(-1)):
            if self._observer is not None:
                now_us = self._clock()
                self._observer.record_round_trip(1, now_us, now_us, reason)
            raise Unavailable(self.what, f"{reason}; calls are held back")
        call = _ThrottleCall(key, ask, self._loop.create_future())
        self._queue.append(call)
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)
        return call.future

    async def reset(self, key: str) -> None:
        """Forget what `key` has taken."""
        if self._closed:
            raise Unavailable(self.what, "the store is closed")
        where = key_of(self._head, key, "}", self._key_bytes_max)
        try:
            await self._client.call("DEL", where, key=where)
        except Exception as error:
            raise as_unavailable(error) from None

    async def close(self) -> None:
        """Fail what is under way with `Unavailable`, and give back what is held."""
        self._closed = True
        self._flush()
        await self._client.close()

    # Inside.

    def _flush(self) -> None:
        """Send all that wait."""
        self._flush_due = False
        call, self._queue = self._queue, []
        by_slot: dict[int, list[_ThrottleCall]] = {}
        for one in call:
            if not one.future.cancelled():
                slot = slot_of(one.key) if self._spread else -1
                by_slot.setdefault(slot, []).append(one)
        for calls in by_slot.values():
            for first in range(0, len(calls), self._asks_max):
                self._send(calls[first : first + self._asks_max])
        self._client.push()

    def _send(self, asks: list[_ThrottleCall]) -> None:
        places: dict[bytes, int] = {}
        args: list[Part] = [self.now]
        for one in asks:
            args += (places.setdefault(one.key, len(places) + 1), *one.words())
        sent_us = self._clock()
        call = self._client.run_script(self._script, [*places], args)
        self._in_flight.add(call)
        call.add_done_callback(lambda done: self._finish(asks, sent_us, done))

    def _finish(self, asks: list[_ThrottleCall], sent_us: int, call: asyncio.Future[Reply]) -> None:
        self._in_flight.discard(call)
        error: BaseException | None = None
        if call.cancelled():
            error = Unavailable(self.what, "the call was cancelled")
        else:
            error = call.exception()
        if error is None:
            reply = call.result()
            for place, one in enumerate(asks):
                one.resolve(reply[0], reply[1 + 2 * place], reply[2 + 2 * place])
        else:
            for one in asks:
                one.fail(error)
        if self._observer is not None:
            failure = "" if error is None else str(error)
            self._observer.record_round_trip(len(asks), sent_us, self._clock(), failure)
