"""Fleet: the workers of one service, any of which may be asked.

Of two drawn the one with fewer calls under way is asked. One that is gone, or whose breaker holds
calls back, fails a call before anything was sent, and the next is asked at once; what was sent and
not answered may have been counted, and is never sent twice. A worker that has gone is reached again
in the background, by its node. Nothing is kept here that a worker would have to know, except by
whoever asks for a lease: it goes back to the worker that gave it.

Before the first connection stands, a call would wait for one worker that may be the dead one; so
whoever asks first waits until the first of all has answered (`await_first`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, cast, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.errors import SluicegateError, Unavailable
from sluicegate.kernels.two_choices import pick_two
from sluicegate.stores.redis.connection import RedisCall, Reply
from sluicegate.stores.redis.node import RedisNode
from sluicegate.stores.redis.settings import SINGLE, RedisSettings
from sluicegate.stores.service.commands import error_of
from sluicegate.wire.resp import ErrorReply

_GONE: Final = "calls are held back"


@final
class WorkerFleet:
    """Make it within the loop that uses it; `close` ends what it has started."""

    def __init__(self, settings: RedisSettings, chance: Chance) -> None:
        alone = replace(settings, topology=SINGLE, shared=False, endpoints=settings.endpoints[:1])
        self.nodes: Sequence[RedisNode] = [
            RedisNode(endpoint, replace(alone, endpoints=(endpoint,)), chance)
            for endpoint in settings.endpoints
        ]
        self.what = f"{settings.kind} at {', '.join(map(str, settings.endpoints))}"
        self._draw = chance.draw
        self._loop = asyncio.get_running_loop()
        self._first_answer: asyncio.Task[None] | None = None
        self._connecting: list[asyncio.Task[None]] = []
        self._closed = False
        self.ready = False  # a worker has answered, or none has

    def send(self, payload: bytes) -> asyncio.Future[Reply]:
        """Ask a worker; the first that takes the call."""
        first = self.pick()
        future = self.send_to(first, payload)
        if future.done() and len(self.nodes) > 1:
            for node in self.nodes:
                if node is first or not isinstance(future.exception(), Unavailable):
                    continue
                future = self.send_to(node, payload)
                if not future.done():
                    break
        return future

    def send_to(self, node: RedisNode, payload: bytes) -> asyncio.Future[Reply]:
        """Ask this worker and no other."""
        future: asyncio.Future[Reply] = self._loop.create_future()
        node.send(RedisCall(future, payload))
        return future

    def pick(self) -> RedisNode:
        """Return the less busy of two that are there; any, if none is."""
        nodes = self.nodes
        if len(nodes) == 1:
            return nodes[0]
        there = [node for node in nodes if node.connected] or nodes
        if len(there) == 1:
            return there[0]
        one, other = pick_two(len(there), self._draw(), self._draw())
        return there[one] if there[one].pending <= there[other].pending else there[other]

    async def ask(self, payload: bytes, via: object = None) -> Reply:
        """Send to the worker `via`, or any, once one has answered; raise what an error means."""
        if not self.ready:
            await self.await_first()
        try:
            if via is None:
                return await self.send(payload)
            return await self.send_to(cast("RedisNode", via), payload)
        except ErrorReply as error:
            raise error_of(self.what, error) from None

    async def ask_one(self, payload: bytes) -> tuple[Reply, object]:
        """Ask one worker and no other; return the reply, and the worker."""
        if not self.ready:
            await self.await_first()
        via = self.pick()
        return await self.ask(payload, via), via

    async def await_first(self) -> None:
        """Return when the first worker has answered, or none has; later calls return at once."""
        if self._closed:
            raise Unavailable(self.what, "the client is closed")
        if not self.ready:
            if self._first_answer is None:
                self._first_answer = self._loop.create_task(self._await_first())
            await asyncio.shield(self._first_answer)

    async def connect(self) -> None:
        """Return when a worker has answered, or raise what prevents it."""
        await self.await_first()
        if any(node.connected for node in self.nodes):
            return
        errors = await asyncio.gather(
            *(node.connect() for node in self.nodes), return_exceptions=True
        )
        for error in errors:
            if error is None:
                return
        if isinstance(errors[0], BaseException):
            raise errors[0]

    def unavailable_reason(self) -> str:
        """Return why a call would fail at once, or ""; any thread may ask."""
        why = ""
        for node in self.nodes:
            why = node.unavailable_reason()
            if not why:
                return ""
        return f"{why}; {_GONE}"

    async def close(self) -> None:
        """Fail what is under way with `Unavailable`, and return when all sockets are closed."""
        self._closed = True
        tasks = [*self._connecting]
        if self._first_answer is not None:
            tasks.append(self._first_answer)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *(node.close() for node in self.nodes), return_exceptions=True)

    async def _await_first(self) -> None:
        self._connecting = [self._loop.create_task(_connect_node(node)) for node in self.nodes]
        pending = set(self._connecting)
        while pending and not any(node.connected for node in self.nodes):
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        self.ready = True


async def _connect_node(node: RedisNode) -> None:
    try:
        await node.connect()
    except SluicegateError:
        return  # the node remembers why, tells whoever asks it, and tries again
