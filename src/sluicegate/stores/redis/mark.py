"""Mark: one word that processes leave each other in Redis, and that is gone by itself.

Whoever has something to say sets it again and again; who listens reads one key, however many there
are. The last who set it is heard.
"""

from __future__ import annotations

from typing import final

from sluicegate.stores.redis.connection import RedisClient
from sluicegate.stores.redis.errors import reply_of

WATCHED = "mark"


@final
class RedisMark:
    """One key; a node that does not answer raises `Unavailable`."""

    __slots__ = ("_client", "key")

    def __init__(self, client: RedisClient, key: str) -> None:
        self._client = client
        self.key = key

    async def set(self, text: str, ttl_ms: int) -> None:
        """Say it, for so long."""
        call = self._client.call("SET", self.key, text, "PX", str(ttl_ms), key=self.key)
        await reply_of(call, WATCHED)

    async def read(self) -> str:
        """What somebody has said; "" if nobody has lately."""
        said = await reply_of(self._client.call("GET", self.key, key=self.key), WATCHED)
        return said.decode("utf-8", "replace") if isinstance(said, bytes) else ""
