"""Together: many asks of one engine at a time, and what becomes of them when one fails.

Whoever asks is told of a failure only when all that was begun has ended: nothing of it goes on
behind his back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


async def all_of(works: Sequence[Awaitable[T]]) -> list[T]:
    """Every result, or the first failure when all have ended."""
    if len(works) == 1:
        return [await works[0]]
    outcomes = await asyncio.gather(*works, return_exceptions=True)
    results = []
    for one in outcomes:
        if isinstance(one, BaseException):
            raise one
        results.append(one)
    return results


async def some_at_once(works: Sequence[Callable[[], Awaitable[Any]]], at_once: int) -> None:
    """Do all of these, so many at a time; when one has failed, no other is begun."""
    pending = deque(works)

    async def work_on() -> None:
        while pending:
            try:
                await pending.popleft()()
            except BaseException:
                pending.clear()
                raise

    await all_of([work_on() for _ in range(min(at_once, len(works)))])
