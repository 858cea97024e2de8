"""Topology watch: looking where things are, in the background and at a bounded pace.

Never by a caller, and never on a connection that calls travel on. Whoever has one is nudged by its
nodes; while something is amiss it looks again with backoff, from `refresh_us_min` up to half
a second, and otherwise every `refresh_us`. What a look finds is its owner's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.errors import SluicegateError
from sluicegate.kernels.backoff import reconnect_backoff
from sluicegate.stores.redis.connection import Reply, open_connection
from sluicegate.stores.redis.node import RedisNode
from sluicegate.stores.redis.settings import Endpoint, RedisSettings
from sluicegate.wire.resp import Part

_UNSETTLED_US_MAX: Final = 500_000


async def ask_once(endpoint: Endpoint, settings: RedisSettings, *parts: Part) -> Reply:
    """Ask one server one thing, on a connection of its own and in its own time."""
    connection = await open_connection(endpoint, settings, guarded=False)
    try:
        return await connection.ask(*parts)
    finally:
        await connection.close()


@final
class TopologyWatch:
    """Runs `look` in the background, when nudged and every so often, until it is closed.

    `look` answers whether all is well. It may raise a `SluicegateError`, which means that it is
    not.
    """

    def __init__(
        self, look: Callable[[], Awaitable[bool]], settings: RedisSettings, chance: Chance
    ) -> None:
        self._look = look
        self._every_s = settings.refresh_us / 1e6
        self._gap_s = settings.refresh_us_min / 1e6
        self._backoff = reconnect_backoff(
            settings.refresh_us_min, max(settings.refresh_us_min, _UNSETTLED_US_MAX)
        )
        self._draw = chance.draw
        self._nudged = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    def nudge(self) -> None:
        """Look soon."""
        self._nudged.set()

    def start(self) -> None:
        """Look now, and from now on."""
        if self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(
                self._run(), name="redis topology watch"
            )

    def retire(self, node: RedisNode, after_us: int) -> None:
        """Close the node when its last calls have had their time."""
        task = asyncio.get_running_loop().create_task(_close_later(node, after_us))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """End the background work; nodes about to be closed are closed now."""
        self._closed = True
        tasks = [*self._closing] if self._task is None else [self._task, *self._closing]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        amiss = 0  # looks in a row that found something amiss
        while not self._closed:
            self._nudged.clear()
            try:
                well = await self._look()
            except SluicegateError:
                well = False  # `look` has noted what it saw
            amiss = 0 if well else amiss + 1
            if not well:
                await asyncio.sleep(self._backoff.wait_us(amiss - 1, self._draw()) / 1e6)
                continue
            await asyncio.sleep(self._gap_s)
            try:
                async with asyncio.timeout(self._every_s):
                    await self._nudged.wait()
            except TimeoutError:
                continue


async def _close_later(node: RedisNode, after_us: int) -> None:
    try:
        await asyncio.sleep(after_us / 1e6)
    finally:
        await node.close()
