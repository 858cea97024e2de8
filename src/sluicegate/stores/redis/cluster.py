"""Cluster: sixteen thousand slots over several masters, each a node that fails alone.

A call goes straight to the node of its key's slot. MOVED corrects that one slot and sends that one
call on; ASK sends it on this once; both at most `resends_max` times. The whole map is refreshed in
the background, so a dead master costs the callers of its own keys an `Unavailable` in microseconds,
and the others nothing. While the map names a master that does not answer, it is asked for again:
a replica may have taken over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.errors import SluicegateError, Unavailable
from sluicegate.policies.client.path_timeout import PathTimeout
from sluicegate.stores.redis.connection import RedisCall, RedisClient, Reply
from sluicegate.stores.redis.errors import failure_of
from sluicegate.stores.redis.node import RedisNode
from sluicegate.stores.redis.settings import Endpoint, RedisSettings
from sluicegate.stores.redis.slots import SLOTS, SlotRange, parse_ranges, slot_of_all
from sluicegate.stores.redis.topology_watch import TopologyWatch, ask_once
from sluicegate.wire.resp import MOVED, ErrorReply, Part


@final
class ClusterClient(RedisClient):
    """A `RedisClient` of a cluster; `endpoints` are where to begin."""

    def __init__(self, settings: RedisSettings, chance: Chance) -> None:
        self.what = "Redis Cluster"
        self._settings = settings
        self._chance = chance
        self._loop = asyncio.get_running_loop()
        self._slots: list[RedisNode | None] = [None] * SLOTS
        self._nodes: dict[Endpoint, RedisNode] = {}
        self._ranges: list[SlotRange] = []  # as they were last applied
        self._watch = TopologyWatch(self._look, settings, chance)
        self._waiting_calls: list[RedisCall] = []  # wait for the first look
        self._attempted = False
        self._last_failure = "it was never reached"
        self._closed = False

    def slot_of(self, keys: Sequence[bytes | str]) -> int:
        """Return the one slot that all the keys are in."""
        return slot_of_all(keys)

    def send(self, call: RedisCall) -> None:
        """Send the call to the node of its slot, or to any that is well."""
        node = self._any() if call.slot < 0 else self._slots[call.slot]
        if node is None:
            self._send_unmapped(call)
        else:
            node.send(call)

    def push(self) -> None:
        """Write what was sent in this tick now."""
        for node in self._nodes.values():
            node.push()

    def call_each(self, *parts: Part) -> Mapping[str, asyncio.Future[Reply]]:
        """Send one command to each master."""
        return {node.what: node.call(*parts) for node in [*self._nodes.values()]}

    @property
    def paths(self) -> Sequence[PathTimeout]:
        """The time-outs of the masters."""
        return [path for node in [*self._nodes.values()] for path in node.paths]

    def unavailable_reason(self, slot: int = -1) -> str:
        """Return why a call to the node of this slot would fail at once, or ""."""
        node = self._slots[slot]
        return "" if node is None else node.unavailable_reason()

    async def connect(self) -> None:
        """Return when the slots are known and the masters that answer are connected."""
        if self._closed:
            raise Unavailable(self.what, self._last_failure)
        self._watch.start()
        if not self._ranges:
            await self._look()
        await asyncio.gather(
            *(node.connect() for node in self._nodes.values()), return_exceptions=True
        )

    async def close(self) -> None:
        """Fail every call and close every node."""
        self._closed = True
        self._last_failure = "the client is closed"
        await self._watch.close()
        self._fail_waiting()
        self._slots = [None] * SLOTS
        nodes, self._nodes = self._nodes, {}
        await asyncio.gather(*(node.close() for node in nodes.values()))

    # What the nodes tell.

    def redirect(self, node: RedisNode, call: RedisCall, error: ErrorReply) -> bool:
        """Send the call where MOVED or ASK says."""
        endpoint = Endpoint(error.host or node.endpoint.host, error.port)
        if self._closed or not 0 <= error.slot < SLOTS:
            return False
        target = self._node(endpoint)
        if target is None:
            return False
        call.asking = error.kind != MOVED
        if error.kind == MOVED:
            self._slots[error.slot] = target
            # The map that was applied no longer says what is there.
            self._ranges = []
            self._watch.nudge()
        target.send(call)
        return True

    def on_failure(self, node: RedisNode) -> None:
        """A node does not answer, or says that the cluster has changed."""
        self._watch.nudge()

    # Inside.

    def _any(self) -> RedisNode | None:
        any_node = None
        for node in self._nodes.values():
            if node.connected:
                return node
            any_node = node
        return any_node

    def _send_unmapped(self, call: RedisCall) -> None:
        if self._closed or len(self._waiting_calls) >= self._settings.inflight_max:
            call.fail(Unavailable(self.what, self._last_failure))
        elif self._attempted:
            where = f"no node serves slot {call.slot}" if self._ranges else self._last_failure
            call.fail(Unavailable(self.what, where))
            self._watch.nudge()
        else:
            self._waiting_calls.append(call)
            self._watch.start()

    def _node(self, endpoint: Endpoint) -> RedisNode | None:
        node = self._nodes.get(endpoint)
        if node is None and len(self._nodes) < self._settings.nodes_max:
            node = RedisNode(endpoint, self._settings, self._chance, owner=self)
            node.start()
            self._nodes[endpoint] = node
        return node

    async def _look(self) -> bool:
        """Ask for the map, those that answered before first; whether all its masters answer."""
        well = [endpoint for endpoint, node in self._nodes.items() if node.connected]
        rest = [endpoint for endpoint in self._nodes if endpoint not in well]
        error: SluicegateError = Unavailable(self.what, "no node is known")
        for endpoint in dict.fromkeys([*well, *self._settings.endpoints, *rest]):
            try:
                reply = await ask_once(endpoint, self._settings, "CLUSTER", "SLOTS")
                ranges = parse_ranges(reply, endpoint)
            except SluicegateError as one:
                error = one
                continue
            if ranges:
                self._apply(ranges)
                return all(node.connected for node in self._nodes.values())
            error = Unavailable(f"Redis at {endpoint}", "no slot is given to any node")
        self._last_failure = str(error)
        self._attempted = True
        self._fail_waiting()
        raise Unavailable(self.what, failure_of(error))

    def _apply(self, ranges: list[SlotRange]) -> None:
        self._attempted = True
        if ranges != self._ranges and not self._closed:
            self._ranges = ranges
            slots: list[RedisNode | None] = [None] * SLOTS
            for first, last, master in ranges:
                slots[first : last + 1] = [self._node(master)] * (last + 1 - first)
            self._slots = slots
            masters = {master for _, _, master in ranges}
            for endpoint in [*self._nodes]:
                if endpoint not in masters:
                    after_us = 2 * self._settings.timeout_us_max
                    self._watch.retire(self._nodes.pop(endpoint), after_us)
        early, self._waiting_calls = self._waiting_calls, []
        for call in early:
            if not call.future.done():
                self.send(call)

    def _fail_waiting(self) -> None:
        early, self._waiting_calls = self._waiting_calls, []
        for call in early:
            call.fail(Unavailable(self.what, self._last_failure))
