"""Errors: what a server's error replies are to those above, in the words of `contracts/errors`.

A client's calls raise `ErrorReply`, because whoever knows the command may know what to do about it.
Nothing above the stores does: there an answer that is an error is a store that is unavailable.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from sluicegate.contracts.errors import Unavailable
from sluicegate.wire.resp import ErrorReply

if TYPE_CHECKING:
    from sluicegate.stores.redis.connection import Reply


def as_unavailable(error: BaseException, what: str = "Redis") -> Unavailable:
    """Return a new error for one of those that wait for the same answer."""
    if isinstance(error, Unavailable):
        return Unavailable(error.what, error.detail)
    return Unavailable(what, str(error) or type(error).__name__)


def failure_of(error: BaseException) -> str:
    """Return what was seen, without the name of what it was seen of."""
    return error.detail if isinstance(error, Unavailable) else str(error)


async def reply_of(call: Awaitable[Reply], what: str) -> Reply:
    """Await a call; raise an error reply as `Unavailable`."""
    try:
        return await call
    except ErrorReply as error:
        raise Unavailable(what, str(error)) from None


def is_wrong_type(error: BaseException) -> bool:
    """Return whether a command was refused because the key holds a value of another type."""
    return isinstance(error, ErrorReply) and error.code == "WRONGTYPE"
