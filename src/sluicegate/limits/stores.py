"""Limit stores: which store a limiter uses, by URL, and what tasks and threads need around it.

Each event loop has a store of its own, and threads share one (`loop_stores.py`). What limits add is
here: a store that blocks a thread, and the sweeps that give idle blocks of leases back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias, final
from weakref import ReferenceType, WeakKeyDictionary, ref

from sluicegate.contracts.observer import Observer
from sluicegate.contracts.rule import Limit
from sluicegate.contracts.store import Charge, PartialTake, Ruling, Store
from sluicegate.limits.loop_stores import LoopStores, check_url
from sluicegate.limits.task_ticket import TaskTicket
from sluicegate.limits.wait_lines import ThreadTicket, Ticket
from sluicegate.stores.thread_bridge import ThreadBridge
from sluicegate.system import SystemChance, now_us

SWEEP_S: Final = 0.5  # between looks for idle blocks

# Gives idle blocks back to this store, and says whether there are others.
GiveBack: TypeAlias = Callable[[Store], Awaitable[bool]]
# What is done now and then, and by which task.
Sweeps: TypeAlias = "dict[GiveBack, ReferenceType[asyncio.Task[None]]]"


@final
class LimitStores(LoopStores[Store]):
    """Where a remote store of limits is, for tasks and for threads."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        super().__init__(open_store)
        # By loop, and weakly: what a task holds is held by its loop, by a timer or by the store's
        # answer. Held from here, a loop that nobody ended properly would be kept for ever.
        self._swept: WeakKeyDictionary[asyncio.AbstractEventLoop, Sweeps] = WeakKeyDictionary()
        self._threads_swept: set[GiveBack] = set()  # in the background loop, without a look at it
        self.blocking: Store = _BlockingStore(self.bridge)

    def ticket(self, store: Store) -> Ticket:
        """Return a place in a line, for whoever asks this store."""
        return ThreadTicket() if store is self.blocking else TaskTicket()

    def sweep(self, store: Store, give_back: GiveBack) -> None:
        """Have idle blocks of leases given back, now and then, while there are any."""
        if store is not self.blocking:
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
        self._swept = WeakKeyDictionary()
        self._threads_swept = set()

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
class _BlockingStore:
    """The threads' store: its coroutines block the thread that steps them, and never suspend."""

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
        unavailable = getattr(self._bridge.store, "gone", None)
        error = None if unavailable is None else unavailable(charges)
        if error is not None:
            raise error

    async def close(self) -> None:
        """Close the threads' store."""
        self._bridge.close()


def open_stores(
    url: str,
    prefix: str,
    open_store: Callable[[], Store] | None = None,
    observer: Observer | None = None,
) -> LimitStores:
    """Return the stores of a URL, or of one's own; they connect at the first request."""
    if open_store is not None:
        return LimitStores(open_store)
    check_url(url)
    # Here, because a store of one's own needs no Redis and no package for it.
    from sluicegate.stores.service.settings import is_service, parse_service_url  # noqa: PLC0415

    if is_service(url):
        from sluicegate.stores.service.store import ServiceStore  # noqa: PLC0415

        service = parse_service_url(url)
        return LimitStores(lambda: ServiceStore(service, SystemChance(), prefix=prefix))
    from sluicegate.stores.redis.settings import parse_url  # noqa: PLC0415
    from sluicegate.stores.redis.store import RedisStore  # noqa: PLC0415

    settings = parse_url(url)
    return LimitStores(
        lambda: RedisStore(settings, SystemChance(), prefix=prefix, observer=observer, clock=now_us)
    )
