"""Limit stores: which store a limiter uses, by URL, and what tasks and threads need around it.

Each event loop has a store of its own, and threads share one: on one Redis they do its input and
output themselves, and elsewhere a loop in the background does it (`loop_stores.py`). What limits
add is here: a store that blocks a thread, and the sweeps that give idle blocks of leases back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, final
from weakref import ReferenceType, WeakKeyDictionary, ref

from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.observer import Observer
from sluicegate.contracts.rule import Limit
from sluicegate.contracts.store import Charge, PartialTake, Ruling, Store
from sluicegate.limits.loop_stores import LoopStores, check_url
from sluicegate.limits.task_ticket import TaskTicket
from sluicegate.limits.wait_lines import ThreadTicket, Ticket, finish
from sluicegate.stores.thread_bridge import ThreadBridge
from sluicegate.system import SystemChance, now_us

if TYPE_CHECKING:
    from sluicegate.stores.redis.threads import RedisThreads

T = TypeVar("T")

SWEEP_S: Final = 0.5  # between looks for idle blocks

# Gives idle blocks back to this store, and says whether there are others.
GiveBack: TypeAlias = Callable[[Store], Awaitable[bool]]
# What is done now and then, and by which task.
Sweeps: TypeAlias = "dict[GiveBack, ReferenceType[asyncio.Task[None]]]"
# Their coroutines block whoever steps them, and never suspend.
ThreadStore: TypeAlias = "RedisThreads | _BridgedStore"


@final
class LimitStores(LoopStores[Store]):
    """Where a remote store of limits is, for tasks and for threads."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        open_threads: Callable[[], ThreadStore] | None = None,
    ) -> None:
        super().__init__(open_store)
        self._open_threads = open_threads
        # By loop, and weakly: what a task holds is held by its loop, by a timer or by the store's
        # answer. Held from here, a loop that nobody ended properly would be kept for ever.
        self._swept: WeakKeyDictionary[asyncio.AbstractEventLoop, Sweeps] = WeakKeyDictionary()
        self._threads_swept: set[GiveBack] = set()  # in the background loop, without a look at it
        self._blocking: ThreadStore | None = None
        self._opening = Lock()

    @property
    def blocking(self) -> Store:
        """The store of all threads."""
        return self._blocking or self._open_blocking()

    def ticket(self, store: Store) -> Ticket:
        """Return a place in a line, for whoever asks this store."""
        return ThreadTicket() if store is self._blocking else TaskTicket()

    def sweep(self, store: Store, give_back: GiveBack) -> None:
        """Have idle blocks of leases given back, now and then, while there are any."""
        if store is not self._blocking:
            self._sweep_here(store, give_back)
        elif give_back not in self._threads_swept:
            self._threads_swept.add(give_back)
            self.bridge.run(lambda its: self._arm(its, give_back))

    async def aclose(self) -> None:
        """Close the store of the running loop, and end what looks after its blocks."""
        tasks = [sweep() for sweep in self._swept.pop(asyncio.get_running_loop(), {}).values()]
        sweeps = [task for task in tasks if task is not None]
        for task in sweeps:
            task.cancel()
        await asyncio.gather(*sweeps, return_exceptions=True)
        await super().aclose()

    def check(self) -> None:
        """Return when the threads' store answers, or raise why it does not."""
        self.bridge.run(_ready)

    async def ready(self) -> None:
        """Return when the running loop's store answers, or raise why it does not."""
        await _ready(self.here())

    def begin_anew(self) -> None:
        """In a child, after a fork."""
        super().begin_anew()
        if self._blocking is not None:
            self._blocking.abandon()
        self._blocking = None
        self._opening = Lock()
        self._swept = WeakKeyDictionary()
        self._threads_swept = set()

    def close(self) -> None:
        """Close the store of the threads."""
        finish(self.blocking.close())
        super().close()

    def _open_blocking(self) -> ThreadStore:
        with self._opening:
            if self._blocking is None:
                opened = self._open_threads
                self._blocking = _BridgedStore(self.bridge) if opened is None else opened()
            return self._blocking

    async def _arm(self, store: Store, give_back: GiveBack) -> None:
        self._sweep_here(store, give_back)

    def _sweep_here(self, store: Store, give_back: GiveBack) -> None:
        loop = asyncio.get_running_loop()
        swept = self._swept.setdefault(loop, {})
        if give_back not in swept:
            swept[give_back] = ref(loop.create_task(self._sweep(store, give_back, swept)))

    async def _sweep(self, store: Store, give_back: GiveBack, swept: Sweeps) -> None:
        """From the first block to the last: a timer would begin tasks in a loop that ends."""
        try:
            await asyncio.sleep(SWEEP_S)
            while await give_back(store):
                await asyncio.sleep(SWEEP_S)
        finally:
            swept.pop(give_back, None)
            self._threads_swept.discard(give_back)


async def _ready(store: Store) -> None:
    connect = getattr(store, "connect", None)
    if connect is not None:
        await connect()
    await store.take([Charge("ready", Limit(1, period_us=1_000_000), "ready", 0)], keep=False)


@final
class _BridgedStore:
    """A store in a loop in the background, for threads."""

    __slots__ = ("_bridge",)

    def __init__(self, bridge: ThreadBridge[Store]) -> None:
        self._bridge = bridge

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        """Take every charge or none."""
        self._fail_at_once(charges)
        return self._bridge.run(
            lambda store: store.take(charges, keep=keep, count_refused=count_refused)
        )

    async def take_some(self, charge: Charge, ladder: Sequence[int]) -> PartialTake:
        """Take the first cost of `ladder` that fits."""
        self._fail_at_once([charge])
        return self._bridge.run(lambda store: store.take_some(charge, ladder))

    async def settle(self, charges: Sequence[Charge], taken_us: int | None = None) -> None:
        """Correct what was taken."""
        self._bridge.run(lambda store: store.settle(charges, taken_us))

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget what was taken."""
        self._bridge.run(lambda store: store.reset(charges))

    def _fail_at_once(self, charges: Sequence[Charge]) -> None:
        """Two changes of threads are a high price for what is known already."""
        unavailable = getattr(self._bridge.store, "unavailable", None)
        error: Unavailable | None = None if unavailable is None else unavailable(charges)
        if error is not None:
            raise error

    async def close(self) -> None:
        """Close the threads' store."""
        self._bridge.close()

    def abandon(self) -> None:
        """Nothing: the bridge begins anew by itself."""


@final
class _ObservedStore:
    """A store that knows no observer: what is asked of it is counted here."""

    __slots__ = ("_clock", "_observer", "_store")

    def __init__(self, store: Store, observer: Observer, clock: Callable[[], int]) -> None:
        self._store = store
        self._observer = observer
        self._clock = clock

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        """Take every charge or none."""
        return await self._observe(
            self._store.take(charges, keep=keep, count_refused=count_refused)
        )

    async def take_some(self, charge: Charge, ladder: Sequence[int]) -> PartialTake:
        """Take the first cost of `ladder` that fits."""
        return await self._observe(self._store.take_some(charge, ladder))

    async def settle(self, charges: Sequence[Charge], taken_us: int | None = None) -> None:
        """Correct what was taken."""
        await self._observe(self._store.settle(charges, taken_us))

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget what was taken."""
        await self._observe(self._store.reset(charges))

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()

    async def _observe(self, call: Awaitable[T]) -> T:
        sent_us, failure = self._clock(), ""
        try:
            return await call
        except Unavailable as error:
            failure = str(error)
            raise
        finally:
            self._observer.record_round_trip(1, sent_us, self._clock(), failure)


def open_stores(
    url: str,
    prefix: str,
    open_store: Callable[[], Store] | None = None,
    observer: Observer | None = None,
    clock: Callable[[], int] = now_us,
) -> LimitStores:
    """Return the stores of a URL, or of one's own; they connect at the first request."""

    def observed(open_store: Callable[[], Store]) -> LimitStores:
        if observer is None:
            return LimitStores(open_store)
        return LimitStores(lambda: _ObservedStore(open_store(), observer, clock))

    if open_store is not None:
        return observed(open_store)
    check_url(url)
    # Here, because a store of one's own needs no Redis and no package for it.
    from sluicegate.stores.service.settings import is_service, parse_service_url  # noqa: PLC0415

    if is_service(url):
        from sluicegate.stores.service.store import ServiceStore  # noqa: PLC0415

        service = parse_service_url(url)
        return observed(lambda: ServiceStore(service, SystemChance(), prefix=prefix))
    from sluicegate.stores.redis.settings import SINGLE, parse_url  # noqa: PLC0415
    from sluicegate.stores.redis.store import RedisStore  # noqa: PLC0415
    from sluicegate.stores.redis.threads import RedisThreads  # noqa: PLC0415

    settings = parse_url(url)

    def open_redis() -> Store:
        return RedisStore(settings, SystemChance(), prefix=prefix, observer=observer, clock=now_us)

    def open_threads() -> ThreadStore:
        return RedisThreads(settings, SystemChance(), now_us, prefix=prefix, observer=observer)

    # Where a key has to be looked for, a loop in the background does it.
    return LimitStores(open_redis, open_threads if settings.topology == SINGLE else None)
