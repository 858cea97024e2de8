"""Client: which node has a key. One server, a cluster, or the master that sentinels name.

All three are a `RedisClient`, and this is all that a store knows of them.
"""

from __future__ import annotations

from sluicegate.contracts.chance import Chance
from sluicegate.stores.redis.cluster import ClusterClient
from sluicegate.stores.redis.connection import RedisClient
from sluicegate.stores.redis.node import RedisNode
from sluicegate.stores.redis.sentinel import SentinelClient
from sluicegate.stores.redis.settings import CLUSTER, SENTINEL, RedisSettings, parse_url

__all__ = ["RedisClient", "open_client"]


def open_client(where: str | RedisSettings, chance: Chance) -> RedisClient:
    """Return a client, within a running loop; it connects at `connect` or first use.

    Awaiting a call gives the reply. It raises `Unavailable` when no answer can be had in time, and
    `ErrorReply` when the server answered that the command or the script is wrong.
    """
    settings = parse_url(where) if isinstance(where, str) else where
    if settings.topology == CLUSTER:
        return ClusterClient(settings, chance)
    if settings.topology == SENTINEL:
        return SentinelClient(settings, chance)
    return RedisNode(settings.endpoints[0], settings, chance)
