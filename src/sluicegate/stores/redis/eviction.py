"""Eviction: whether a server may drop keys on its own, and how many it has dropped.

INFO says both, also where a provider forbids CONFIG. A dropped counter begins at zero, so a limit
admits its count once more, and no reply shows that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

from sluicegate.contracts.errors import Unavailable
from sluicegate.stores.redis.connection import RedisClient, Reply
from sluicegate.wire.resp import DENIED, ErrorReply

POLICY: Final = "maxmemory_policy"  # as INFO names it
EVICTED: Final = "evicted_keys"


class Eviction(NamedTuple):
    """The eviction state of one server."""

    policy: str  # "": the server does not report it
    evicted: int  # keys, since it started
    problem: str = ""  # why it is unknown


async def read_evictions(client: RedisClient) -> Mapping[str, Eviction]:
    """Return the state of each node in use, by its name; `Unavailable` if none answers."""
    memory, stats = client.call_each("INFO", "memory"), client.call_each("INFO", "stats")
    replies = await asyncio.gather(*memory.values(), *stats.values(), return_exceptions=True)
    found: dict[str, Eviction] = {}
    failure: Unavailable | None = None
    for place, name in enumerate(memory):
        texts = replies[place], replies[place + len(memory)]
        error = next((text for text in texts if isinstance(text, BaseException)), None)
        if error is None:
            policy, evicted = (_fields(text) for text in texts)
            found[name] = Eviction(policy.get(POLICY, ""), int(evicted.get(EVICTED, "0")))
        elif isinstance(error, ErrorReply) or _is_denied(error):
            found[name] = Eviction("", 0, str(error))
        elif isinstance(error, Unavailable):
            failure = error
        else:
            raise error
    if failure is not None and not found:
        raise failure
    return found


def _is_denied(error: BaseException) -> bool:
    """Return whether an ACL forbids INFO."""
    cause = error.__cause__
    return isinstance(cause, ErrorReply) and cause.kind == DENIED


def _fields(reply: Reply) -> Mapping[str, str]:
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else str(reply)
    pairs = (line.partition(":") for line in text.splitlines() if not line.startswith("#"))
    return {name: value for name, colon, value in pairs if colon}
