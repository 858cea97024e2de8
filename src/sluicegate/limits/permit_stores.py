"""Permit stores: which store holds the places, by URL, and how tasks and threads come to it.

Each event loop has one of its own (`loop_stores.py`), and threads share one in a background loop,
where their heartbeats run too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, final

from sluicegate.contracts.decision import Decision
from sluicegate.limits.loop_stores import LoopStores, check_url
from sluicegate.limits.permit import KeyPermit, PermitStore
from sluicegate.stores.thread_bridge import ThreadBridge
from sluicegate.system import SystemChance

# After a renewal that was not answered, the next try comes sooner than the next beat.
_AGAIN_S_MAX: Final = 1.0


@final
class PermitStores(LoopStores[PermitStore]):
    """Where the places are, for tasks and for threads."""

    def __init__(self, open_store: Callable[[], PermitStore]) -> None:
        super().__init__(open_store)
        self.blocking: PermitStore = _BlockingPermits(self.bridge)

    def beat(self, permit: KeyPermit, every_s: float) -> Heartbeat:
        """Renew a thread's permit until it ends; the background loop does it."""

        async def begin(store: PermitStore) -> Heartbeat:
            return Heartbeat(permit, permit.held_in(store), every_s)

        return self.bridge.run(begin)


@final
class _BlockingPermits:
    """The threads' store: its coroutines block the thread that steps them, and never suspend."""

    __slots__ = ("_bridge",)

    def __init__(self, bridge: ThreadBridge[PermitStore]) -> None:
        self._bridge = bridge

    async def acquire(self, key: str, permit_id: str, count: int) -> Decision:
        """Hold `count` places of `key` under this name."""
        return self._bridge.run(lambda store: store.acquire(key, permit_id, count))

    async def renew(self, key: str, permit_id: str, count: int) -> bool:
        """Hold them for the whole time from now."""
        return self._bridge.run(lambda store: store.renew(key, permit_id, count))

    async def release(self, key: str, permit_id: str, count: int) -> bool:
        """Give them back."""
        return self._bridge.run(lambda store: store.release(key, permit_id, count))

    async def look(self, key: str, count: int) -> Decision:
        """Return what `acquire` would decide."""
        return self._bridge.run(lambda store: store.look(key, count))

    async def close(self) -> None:
        """Close the threads' store."""
        self._bridge.close()


@final
class Heartbeat:
    """Renews a permit now and then, as a task of the loop it was made in, until either ends."""

    __slots__ = ("_loop", "_task")

    def __init__(self, permit: KeyPermit, store: PermitStore, every_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(_beat(permit, store, every_s))

    def stop(self) -> None:
        """End it; any thread may say so."""
        try:
            self._loop.call_soon_threadsafe(self._task.cancel)
        except RuntimeError:
            return  # the loop has ended, and the task with it


async def _beat(permit: KeyPermit, store: PermitStore, every_s: float) -> None:
    pause_s = every_s
    while permit.active:
        await asyncio.sleep(pause_s)
        pause_s = every_s if await permit.renew_in(store) else min(every_s, _AGAIN_S_MAX)


def open_permit_stores(
    url: str, prefix: str, name: str, limit: int, expires_after_us: int
) -> PermitStores:
    """Return the stores of a URL; nothing is connected before the first request."""
    check_url(url)
    from sluicegate.stores.redis.permits import RedisPermits  # noqa: PLC0415
    from sluicegate.stores.redis.settings import parse_url  # noqa: PLC0415

    settings = parse_url(url)
    return PermitStores(
        lambda: RedisPermits(settings, SystemChance(), name, limit, expires_after_us, prefix=prefix)
    )
