"""Batch: decisions that travel together, as far as keys may share a script.

Requests of one tick of the event loop leave together: on one server all in one script call, up to
`asks_max` of them; on a cluster one call for each slot, which the client writes together. While a
call is in flight, new requests wait for it to return, at most `hold_us` (the loop's own timers are
coarser, about a millisecond, if nothing else happens in the meantime): they would only queue up
behind it, and so they share the next one. With nothing in flight nobody waits.

A *lane* is a limit, a cost and a mode: its requests differ in nothing but the key, and a key that
is requested often is sent once, with how often. Groups of several limits, and kinds without a
script for many, travel beside each other in a script that takes any mix.

A request whose waiter was cancelled before it left is not sent; afterwards it is decided with the
others, and its decision is dropped. A call that fails fails all that travelled in it, with
`Unavailable`: it may have been carried out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar, final

from sluicegate.contracts.errors import SluicegateError, Unavailable
from sluicegate.contracts.observer import Observer
from sluicegate.contracts.store import Key, Ruling
from sluicegate.stores.redis.client import RedisClient
from sluicegate.stores.redis.counters import RedisCounter, Reply
from sluicegate.stores.redis.errors import as_unavailable
from sluicegate.stores.redis.script import Script
from sluicegate.stores.redis.slots import slot_of
from sluicegate.stores.redis.thread_client import ThreadClient

T = TypeVar("T")

LANES_MAX: Final = 4_096

Waiter = asyncio.Future[Ruling]


class BatchStats(NamedTuple):
    """What has travelled so far."""

    asks: int  # rulings asked for and sent
    calls: int  # script calls that they travelled in
    asks_in_call_max: int
    asks_waiting: int  # not sent yet
    calls_in_flight: int
    holds: int  # times that asks have waited for a call under way
    hold_us_max: int  # and how long they may


class TickLoop(Protocol):
    """What is used of an event loop."""

    def create_future(self) -> asyncio.Future[Any]:
        """Return a new answer to wait for."""

    def call_soon(self, callback: Callable[[], object], /) -> object:
        """Call it at the end of this tick."""

    def call_at(self, when: float, callback: Callable[[], object], /) -> asyncio.TimerHandle:
        """Call it at this instant."""

    def time(self) -> float:
        """Return the instant in seconds."""


@final
class _Lane:
    """Requests of one limit at one cost, until they leave."""

    __slots__ = ("asks", "cost", "counter", "due", "keep", "words")

    def __init__(self, counter: RedisCounter, cost: int, keep: bool) -> None:
        self.counter = counter
        self.cost = cost
        self.keep = keep
        self.words = counter.lane(cost)
        self.due = False
        self.asks: dict[bytes, list[Waiter]] = {}


@final
class ChargeGroup:
    """Charges that are taken together or not at all; no key stands in it twice."""

    __slots__ = ("costs", "count_refused", "counters", "keep", "keys", "places", "waiter")

    def __init__(
        self, keyed: Sequence[tuple[RedisCounter, bytes, int]], keep: bool, count_refused: bool
    ) -> None:
        self.counters: list[RedisCounter] = []
        self.keys: list[bytes] = []
        self.costs: list[int] = []
        # Of each charge as it was asked: where it stands in here.
        self.places: list[int] = []
        self.keep = keep
        self.count_refused = count_refused
        self.waiter: Waiter | None = None
        place_of: dict[bytes, int] = {}
        for counter, key, cost in keyed:
            place = place_of.get(key)
            if place is None:
                place = place_of[key] = len(self.keys)
                self.counters.append(counter)
                self.keys.append(key)
                self.costs.append(cost)
            else:
                self.costs[place] += cost
            self.places.append(place)

    def read_ruling(self, reply: Reply, at: int, now_us: int) -> tuple[Ruling, int]:
        """Return the ruling that stands at `reply[at]`, and where the next one does."""
        admitted = reply[at] == 1
        at += 1
        decisions = []
        for place, counter in enumerate(self.counters):
            decisions.append(counter.decide(reply, at, now_us, self.costs[place]))
            at += counter.width
        if len(self.places) > 1:
            decisions = [decisions[place] for place in self.places]
        ruling = Ruling(now_us, decisions)
        if ruling.allowed is not admitted:
            raise Disagreement
        return ruling, at


Disagreement: Final = Unavailable("Redis", "its script and the kernel do not agree on a decision")


@final
class _ScriptCall:
    """One script call, and who waits for what of its answer."""

    __slots__ = (
        "_callbacks",
        "_done",
        "_error",
        "args",
        "asks",
        "batches",
        "groups",
        "keys",
        "lanes",
        "limits",
        "script",
        "sent_us",
    )

    def __init__(self, batches: ScriptBatches, script: Script, args: list[bytes]) -> None:
        self.sent_us = 0
        self.batches = batches
        self.script = script
        self.keys: list[bytes] = []
        self.args = args
        self.asks = 0
        self.lanes: list[tuple[_Lane, list[list[Waiter]]]] = []
        self.groups: list[ChargeGroup] = []
        self.limits: dict[RedisCounter, int] = {}
        self._done = False
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Any], object]] = []

    def add_lane(self, lane: _Lane, keys: list[bytes], waiters: list[list[Waiter]]) -> None:
        """These keys, and who waits for each."""
        asks = 0
        for those in waiters:
            asks += len(those)
        times = b""
        if asks > len(keys):
            times = b",".join([b"%d" % len(those) for those in waiters])
        self.keys += keys
        self.args += (b"%d" % len(keys), times, *lane.words)
        self.lanes.append((lane, waiters))
        self.asks += asks

    def add_group(self, group: ChargeGroup) -> None:
        """This group; its limits are told once."""
        args = self.args
        args.append(b"%d" % len(group.keys))
        limits = self.limits
        for place, counter in enumerate(group.counters):
            number = limits.get(counter)
            if number is None:
                number = limits[counter] = len(limits) + 1
            whole, part = counter.charge(group.costs[place])
            args += (b"%d" % number, b"%d" % whole, b"%d" % part)
        self.keys += group.keys
        self.groups.append(group)
        self.asks += 1

    def words(self, head: list[bytes]) -> list[bytes]:
        """Return the arguments, the limits of groups in front of them."""
        if not self.groups:
            return head + self.args
        replies = [b"%d" % len(self.limits)]
        for counter in self.limits:
            replies += counter.declared
        return head + replies + self.args

    # As a client's receiver: told amid a read of the socket, so that no tick of the loop is lost.

    def done(self) -> bool:
        """Return whether the answer has come."""
        return self._done

    def cancelled(self) -> bool:
        """Never: some of the waiters may have gone, but the answer is counted."""
        return False

    def exception(self) -> BaseException | None:
        """Return the failure of the call."""
        return self._error

    def add_done_callback(self, replies: Callable[[Any], object]) -> None:
        """Call it when all have been told."""
        self._callbacks.append(replies)

    def set_result(self, reply: Any) -> None:
        """Give everyone their ruling."""
        try:
            self._resolve(reply)
        except Exception as error:
            # Whatever it is: nobody may wait for ever.
            self._fail(error)
        self._land()

    def set_exception(self, error: BaseException) -> None:
        """Give everyone their share of the failure."""
        self._error = error
        self._fail(error)
        self._land()

    def _land(self) -> None:
        self._done = True
        try:
            self.batches.finish_call(self)
        finally:
            for replies in self._callbacks:
                replies(self)

    def _resolve(self, reply: Reply) -> None:
        now_us: int = reply[0]
        at = 1
        for lane, waiters in self.lanes:
            counter, cost, width = lane.counter, lane.cost, lane.counter.width
            for those in waiters:
                for waiter in those:
                    decision = counter.decide(reply, at, now_us, cost)
                    if decision.allowed is not (reply[at] >= 0):
                        raise Disagreement
                    if not waiter.done():
                        waiter.set_result(Ruling(now_us, [decision]))
                    at += width
        for group in self.groups:
            ruling, at = group.read_ruling(reply, at, now_us)
            if group.waiter is not None and not group.waiter.done():
                group.waiter.set_result(ruling)

    def _fail(self, error: BaseException) -> None:
        for _, waiters in self.lanes:
            for those in waiters:
                for waiter in those:
                    if not waiter.done():
                        waiter.set_exception(as_unavailable(error))
        for group in self.groups:
            if group.waiter is not None and not group.waiter.done():
                group.waiter.set_exception(as_unavailable(error))


@final
class ScriptBatches:
    """All requests of a loop on their way to a client."""

    __slots__ = (
        "_asks",
        "_asks_in_call_max",
        "_calls",
        "_client",
        "_clock",
        "_due",
        "_flush_due",
        "_groups",
        "_held_at",
        "_hold_s",
        "_holds",
        "_inflight",
        "_lane_count",
        "_lanes",
        "_loop",
        "_observer",
        "_scripts",
        "_spread",
        "_timer",
        "_waiting",
        "asks_max",
        "now",
    )

    def __init__(
        self,
        client: RedisClient | ThreadClient,
        scripts: dict[str, Script],
        loop: TickLoop,
        *,
        spread: bool,
        asks_max: int,
        hold_us: int,
        observer: Observer | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self._observer = observer
        self._clock = clock if clock is not None else lambda: int(loop.time() * 1e6)
        self._client = client
        self._scripts = scripts
        self._loop = loop
        self._spread = spread  # over the slots of a cluster
        self.asks_max = asks_max
        # Asks wait so long for a call that is under way. A cluster's calls do not share much.
        self._hold_s = 0.0 if spread else hold_us / 1e6
        self._held_at = 0.0
        self._holds = 0
        self._timer: asyncio.TimerHandle | None = None
        self.now = b""  # only tests say what time it is
        # Of a counter: its lanes by their cost, and by -1 - cost where nothing is kept.
        self._lanes: dict[RedisCounter, dict[int, _Lane]] = {}
        self._lane_count = 0
        self._due: list[_Lane] = []
        self._groups: list[ChargeGroup] = []
        self._flush_due = False
        self._waiting = 0
        self._inflight = 0
        self._asks = 0
        self._calls = 0
        self._asks_in_call_max = 0

    def record_skip(self, reason: str) -> None:
        """A call was not made, because it would fail."""
        if self._observer is not None:
            now_us = self._clock()
            self._observer.record_round_trip(1, now_us, now_us, reason)

    async def observe_call(self, answer: Awaitable[T]) -> T:
        """The answer of a call beside the batches; whoever observes round trips is told of it."""
        observer = self._observer
        if observer is None:
            return await answer
        sent_us, failure = self._clock(), ""
        try:
            return await answer
        except SluicegateError as error:
            failure = str(error)
            raise
        finally:
            observer.record_round_trip(1, sent_us, self._clock(), failure)

    def ask(self, counter: RedisCounter, limit_key: Key, cost: int, keep: bool) -> Waiter:
        """One charge of one limit."""
        if not counter.script:
            return self.submit_group(
                ChargeGroup([(counter, counter.key(limit_key), cost)], keep, False)
            )
        lanes = self._lanes.get(counter)
        lane = None if lanes is None else lanes.get(cost if keep else -1 - cost)
        if lane is None:
            lane = self._new_lane(counter, cost, keep)
        key = counter.key(limit_key)
        waiter: Waiter = self._loop.create_future()
        waiters = lane.asks.get(key)
        if waiters is None:
            lane.asks[key] = [waiter]
            if not lane.due:
                lane.due = True
                self._due.append(lane)
        else:
            waiters.append(waiter)
        self._waiting += 1
        if not self._flush_due:
            self._loop.call_soon(self._end_tick)
            self._flush_due = True
        return waiter

    def _end_tick(self) -> None:
        """At the end of a tick: leave, or wait for the call that is under way."""
        self._flush_due = False
        if not self._waiting:
            return
        if self._inflight == 0 or self._hold_s <= 0:
            self.flush()
            return
        now = self._loop.time()
        if self._timer is None:
            self._held_at = now
            self._holds += 1
            self._timer = self._loop.call_at(now + self._hold_s, self._end_hold)
        elif now - self._held_at >= self._hold_s:
            self.flush()

    def _end_hold(self) -> None:
        self._timer = None
        if self._waiting:
            self.flush()

    def submit_group(self, group: ChargeGroup) -> Waiter:
        """Return all charges of a group or none."""
        waiter: Waiter = self._loop.create_future()
        group.waiter = waiter
        self._groups.append(group)
        self._waiting += 1
        if not self._flush_due:
            self._loop.call_soon(self._end_tick)
            self._flush_due = True
        return waiter

    def stats(self) -> BatchStats:
        """Return what has travelled so far."""
        return BatchStats(
            self._asks,
            self._calls,
            self._asks_in_call_max,
            self._waiting,
            self._inflight,
            self._holds,
            round(self._hold_s * 1e6),
        )

    def finish_call(self, load: _ScriptCall) -> None:
        """A call was answered, or has failed, and its waiters have been told."""
        self._inflight -= 1
        if self._waiting and not self._flush_due:
            # After those who were just told: what they ask next leaves with the others.
            self._loop.call_soon(self._end_tick)
            self._flush_due = True
        if self._observer is not None:  # last: it is the user's, and may raise
            error = load.exception()
            failure = "" if error is None else str(error)
            self._observer.record_round_trip(load.asks, load.sent_us, self._clock(), failure)

    def flush(self) -> None:
        """Send all that wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due, self._due = self._due, []
        groups, self._groups = self._groups, []
        self._waiting = 0
        taken = [(lane, lane.asks) for lane in due]
        for lane in due:
            lane.due = False
            lane.asks = {}
        try:
            self._leave(taken, groups)
        except BaseException as error:
            # They have left the queue, so no later flush would end their wait.
            for _, asks in taken:
                for waiters in asks.values():
                    _fail_each(waiters, error)
            _fail_each([group.waiter for group in groups if group.waiter is not None], error)
            raise

    def _leave(
        self, taken: list[tuple[_Lane, dict[bytes, list[Waiter]]]], groups: list[ChargeGroup]
    ) -> None:
        open_loads: dict[tuple[int, str, bool, bool], _ScriptCall] = {}
        for lane, asks in taken:
            if self._spread:
                self._spread_lane(lane, asks, open_loads)
            else:
                self._add_lane(lane, asks, 0, open_loads)
        for group in groups:
            if group.waiter is not None and not group.waiter.cancelled():
                slot = slot_of(group.keys[0]) if self._spread else 0
                where = (slot, "take", group.keep, group.count_refused)
                load = self._room(where, open_loads)
                load.add_group(group)
        for (slot, _, keep, count_refused), load in open_loads.items():
            self._send(load, slot, keep, count_refused)
        self._client.push()

    def _new_lane(self, counter: RedisCounter, cost: int, keep: bool) -> _Lane:
        lane = _Lane(counter, cost, keep)
        if self._lane_count >= LANES_MAX:
            self._lanes, self._lane_count = {}, 0  # those that are due are known by `_due`
        self._lanes.setdefault(counter, {})[cost if keep else -1 - cost] = lane
        self._lane_count += 1
        return lane

    def _spread_lane(
        self,
        lane: _Lane,
        asks: dict[bytes, list[Waiter]],
        open_loads: dict[tuple[int, str, bool, bool], _ScriptCall],
    ) -> None:
        by_slot: dict[int, dict[bytes, list[Waiter]]] = {}
        for key, waiters in asks.items():
            slot = slot_of(key)
            those = by_slot.get(slot)
            if those is None:
                by_slot[slot] = {key: waiters}
            else:
                those[key] = waiters
        for slot, those in by_slot.items():
            self._add_lane(lane, those, slot, open_loads)

    def _add_lane(
        self,
        lane: _Lane,
        asks: dict[bytes, list[Waiter]],
        slot: int,
        open_loads: dict[tuple[int, str, bool, bool], _ScriptCall],
    ) -> None:
        where = (slot, lane.counter.script, lane.keep, False)
        load = self._room(where, open_loads)
        room = self.asks_max - load.asks
        keys: list[bytes] = []
        waiter_lists: list[list[Waiter]] = []
        for key, waiters in asks.items():
            rest = [waiter for waiter in waiters if not waiter.cancelled()]
            while rest:
                if room <= 0:
                    if keys:
                        load.add_lane(lane, keys, waiter_lists)
                    keys, waiter_lists = [], []
                    load = self._room(where, open_loads)
                    room = self.asks_max
                those, rest = rest[:room], rest[room:]
                keys.append(key)
                waiter_lists.append(those)
                room -= len(those)
        if keys:
            load.add_lane(lane, keys, waiter_lists)

    def _room(
        self,
        where: tuple[int, str, bool, bool],
        open_loads: dict[tuple[int, str, bool, bool], _ScriptCall],
    ) -> _ScriptCall:
        """Return a load for there that is not full; a full one leaves."""
        load = open_loads.get(where)
        if load is None or load.asks >= self.asks_max:
            if load is not None:
                self._send(load, where[0], where[2], where[3])
            load = open_loads[where] = _ScriptCall(self, self._scripts[where[1]], [])
        return load

    def _send(self, load: _ScriptCall, slot: int, keep: bool, count_refused: bool) -> None:
        if load.asks == 0:
            return
        head = [self.now, b"1" if keep else b""]
        if load.groups:
            head.append(b"1" if count_refused else b"")
        self._inflight += 1
        if self._observer is not None:
            load.sent_us = self._clock()
        self._calls += 1
        self._asks += load.asks
        if load.asks > self._asks_in_call_max:
            self._asks_in_call_max = load.asks
        try:
            self._client.send_script(load, load.script, load.keys, load.words(head), slot)
        except Exception as error:
            load.set_exception(error)


def _fail_each(waiters: Sequence[Waiter], error: BaseException) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(as_unavailable(error))
