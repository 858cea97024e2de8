"""Later: replies that are there at once where they can be, for a coroutine costs more than most."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.errors import SluicegateError
from sluicegate.doors.http.message import Reply

T = TypeVar("T")


def soon(answer: MaybeAwaitable[T], write: Callable[[T], Reply]) -> MaybeAwaitable[Reply]:
    """Write the answer now, if it is there."""
    if isinstance(answer, Awaitable):
        return _written_later(answer, write)
    return write(answer)


async def _written_later(answer: Awaitable[T], write: Callable[[T], Reply]) -> Reply:
    return write(await answer)


async def caught(answer: Awaitable[Reply], reply_of: Callable[[SluicegateError], Reply]) -> Reply:
    """An error that is raised on purpose, as a reply."""
    try:
        return await answer
    except SluicegateError as error:
        return reply_of(error)
