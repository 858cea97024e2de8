"""Leases: names that processes hold in Redis, each for a time of its own, and see of each other.

One script renews a lease and returns all that have not run out, by the server's clock, so nobody's
clock matters and a look costs one round trip. A name that another holds is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, final

from sluicegate.stores.redis.connection import RedisClient
from sluicegate.stores.redis.errors import reply_of
from sluicegate.stores.redis.script import join_scripts

_WHAT: Final = "leases in Redis"


class LeaseAnswer(NamedTuple):
    """All that are held, by name; or what another holds the name with."""

    held: Mapping[str, str]
    taken_with: str = ""


@final
class RedisLeases:
    """One hash; a server that does not answer raises `Unavailable`."""

    def __init__(self, client: RedisClient, key: str) -> None:
        self._client = client
        self._key = key
        self._script = join_scripts(__package__, {"leases": ("clock", "leases")})["leases"]

    async def hold(self, name: str, with_: str, span_us: int) -> LeaseAnswer:
        """Hold a name from now on for so long, with what others are to see; 0 lets go of it."""
        call = self._client.run_script(self._script, (self._key,), (b"", name, with_, span_us))
        reply = await reply_of(call, _WHAT)
        assert isinstance(reply, list)
        words = [str(one, "utf-8", "replace") for one in reply[1:] if isinstance(one, bytes)]
        if reply[0] != 1:
            return LeaseAnswer({}, words[0])
        return LeaseAnswer(dict(zip(words[::2], words[1::2], strict=True)))

    async def let_go(self, name: str, with_: str) -> None:
        """Hold it no more."""
        await self.hold(name, with_, 0)
