"""Sentinel: one master at a time, and sentinels that know which.

Calls go to the node that is master now. When it loses its connection, opens its breaker or says
that it takes no writes, the sentinels are asked again in the background until one names a server
that calls itself master and answers; then calls go there, and the old node is retired. A decision
that the old master acknowledged and had not copied is lost with it: that is how Redis replicates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.errors import SluicegateError, Unavailable
from sluicegate.policies.client.path_timeout import PathTimeout
from sluicegate.stores.redis.connection import RedisCall, RedisClient, Reply
from sluicegate.stores.redis.errors import failure_of
from sluicegate.stores.redis.node import RedisNode
from sluicegate.stores.redis.settings import Endpoint, RedisSettings
from sluicegate.stores.redis.topology_watch import TopologyWatch, ask_once
from sluicegate.wire.resp import DENIED, ErrorReply, Part

_MASTER: Final = b"master"


@final
class SentinelClient(RedisClient):
    """A `RedisClient` of whatever server is master; `endpoints` are the sentinels."""

    def __init__(self, settings: RedisSettings, chance: Chance) -> None:
        self.what = f"Redis master {settings.service}"
        self._settings = settings
        user, password = settings.sentinel_user, settings.sentinel_password
        self._sentinel_settings = replace(
            settings,
            db=0,
            user=settings.user if user is None and password is None else user or "",
            password=settings.password if password is None else password,
        )
        self._chance = chance
        self._loop = asyncio.get_running_loop()
        self._node: RedisNode | None = None
        self._watch = TopologyWatch(self._look, settings, chance)
        self._waiting_calls: list[RedisCall] = []  # wait for the first look
        self._attempted = False
        self._last_failure = "it was never reached"
        self._closed = False

    def push(self) -> None:
        """Write what was sent in this tick now."""
        if self._node is not None:
            self._node.push()

    def call_each(self, *parts: Part) -> Mapping[str, asyncio.Future[Reply]]:
        """Send one command to the master."""
        return {} if self._node is None else self._node.call_each(*parts)

    @property
    def paths(self) -> Sequence[PathTimeout]:
        """The time-out of the master."""
        return () if self._node is None else self._node.paths

    def unavailable_reason(self, slot: int = -1) -> str:
        """Return why a call to the master would fail at once, or ""."""
        if self._node is None:
            return self._last_failure if self._attempted or self._closed else ""
        return self._node.unavailable_reason()

    async def connect(self) -> None:
        """Return when the master is found and connected."""
        if self._closed:
            raise Unavailable(self.what, self._last_failure)
        self._watch.start()
        if self._node is None:
            await self._look()
        if self._node is not None:
            await self._node.connect()

    async def close(self) -> None:
        """Fail every call and close what is open."""
        self._closed = True
        self._last_failure = "the client is closed"
        await self._watch.close()
        self._fail_waiting()
        node, self._node = self._node, None
        if node is not None:
            await node.close()

    # What the node tells.

    def redirect(self, node: RedisNode, call: RedisCall, error: ErrorReply) -> bool:
        """Return a master behind sentinels is no cluster's."""
        return False

    def on_failure(self, node: RedisNode) -> None:
        """The master does not answer, or is none any more."""
        self._watch.nudge()

    # Inside.

    def send(self, call: RedisCall) -> None:
        """Send the call to the master, or keep it until one is found."""
        if self._node is not None:
            self._node.send(call)
        elif (
            self._attempted
            or self._closed
            or len(self._waiting_calls) >= self._settings.inflight_max
        ):
            call.fail(Unavailable(self.what, self._last_failure))
        else:
            self._waiting_calls.append(call)
            self._watch.start()

    async def _look(self) -> bool:
        """Find the master; whether it answers and calls itself so."""
        error: SluicegateError = Unavailable(self.what, "no sentinel is known")
        for sentinel in self._settings.endpoints:
            try:
                master = await self._ask(sentinel)
                await self._check_role(master)
            except SluicegateError as one:
                error = one
                continue
            self._follow(master)
            return self._node is not None and self._node.connected
        self._last_failure = failure_of(error)
        self._attempted = True
        self._fail_waiting()
        raise Unavailable(self.what, failure_of(error))

    async def _ask(self, sentinel: Endpoint) -> Endpoint:
        reply = await ask_once(
            sentinel,
            self._sentinel_settings,
            "SENTINEL",
            "GET-MASTER-ADDR-BY-NAME",
            self._settings.service,
        )
        if reply is None:
            raise Unavailable(
                f"Sentinel at {sentinel}", f"it knows no master {self._settings.service!r}"
            )
        try:
            host, port = reply
            return Endpoint(host.decode(), int(port))
        except (AttributeError, TypeError, ValueError):
            raise Unavailable(f"Sentinel at {sentinel}", "it answered no address") from None

    async def _check_role(self, master: Endpoint) -> None:
        """A sentinel may name the old master for a while, and that one may be a replica by now."""
        try:
            role = await ask_once(master, self._settings, "ROLE")
        except ErrorReply as error:
            if error.kind == DENIED:
                return  # this user may not ask; a write will tell
            raise
        if role[0] != _MASTER:
            raise Unavailable(f"Redis at {master}", f"it is a {role[0].decode()} now")

    def _follow(self, master: Endpoint) -> None:
        self._attempted = True
        if self._closed:
            return
        old = self._node
        if old is None or old.endpoint != master:
            self._node = RedisNode(master, self._settings, self._chance, owner=self)
            self._node.start()
            if old is not None:
                self._watch.retire(old, 2 * self._settings.timeout_us_max)
        early, self._waiting_calls = self._waiting_calls, []
        for call in early:
            if not call.future.done():
                self.send(call)

    def _fail_waiting(self) -> None:
        early, self._waiting_calls = self._waiting_calls, []
        for call in early:
            call.fail(Unavailable(self.what, self._last_failure))
