"""Topology: which node has a key. One server, a cluster, or the master that sentinels name.

All three are a `RedisClient`, and this is all that a store knows of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from sluicegate.contracts.chance import Chance
from sluicegate.stores.redis.cluster import ClusterClient
from sluicegate.stores.redis.connection import Reply, ReplyReceiver
from sluicegate.stores.redis.node import RedisNode
from sluicegate.stores.redis.script import Script
from sluicegate.stores.redis.sentinel import SentinelClient
from sluicegate.stores.redis.settings import CLUSTER, SENTINEL, RedisSettings, parse_url
from sluicegate.wire.resp import Part


class RedisClient(Protocol):
    """What decisions are run on. Bound to the event loop it was opened in."""

    def run_script(
        self, script: Script, keys: Sequence[bytes | str], args: Sequence[Part] = ()
    ) -> asyncio.Future[Reply]:
        """Run the script where its keys are; all of them must be in one place."""

    def send_script(
        self,
        receiver: ReplyReceiver,
        script: Script,
        keys: Sequence[bytes | str],
        args: Sequence[Part],
        slot: int,
    ) -> None:
        """Likewise, for who knows the slot of the keys and needs no future; tell `receiver`."""

    def call(self, *parts: Part, key: bytes | str | None = None) -> asyncio.Future[Reply]:
        """Send one command to where `key` is, or anywhere."""

    def push(self) -> None:
        """Write what was sent in this turn of the loop now, and not at its end."""

    def unavailable_reason(self, slot: int) -> str:
        """Why a call to the node of this slot would fail at once, or ""; any thread may ask."""

    async def connect(self) -> None:
        """Return when connected, or raise what prevents it. The first call does it too."""

    async def close(self) -> None:
        """Fail what is under way with `Unavailable`, and give back what is held."""


def open_client(where: str | RedisSettings, chance: Chance) -> RedisClient:
    """A client for a URL or settings, within a running loop; it connects at `connect` or first use.

    Awaiting a call gives the reply. It raises `Unavailable` when no answer can be had in time, and
    `ErrorReply` when the server answered that the command or the script is wrong.
    """
    settings = parse_url(where) if isinstance(where, str) else where
    if settings.topology == CLUSTER:
        return ClusterClient(settings, chance)
    if settings.topology == SENTINEL:
        return SentinelClient(settings, chance)
    return RedisNode(settings.endpoints[0], settings, chance)
