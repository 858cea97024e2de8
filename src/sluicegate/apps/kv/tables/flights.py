"""Flights: many swaps on their way at once, each of them still judged by itself.

It takes no promise away: a flight is nothing but its swaps. What it saves is waiting. An engine
that commits in groups makes a whole flight durable at once, and one across a network answers all
of it in the time of the slowest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeAlias

from sluicegate.contracts.engine import Change, Engine

# What is to be there, and what must be there for it.
Swap: TypeAlias = "tuple[Change, bytes | None]"


async def swap_all(engine: Engine, swaps: Sequence[Swap]) -> list[bool]:
    """Make them all; whether each was made. Raises what the first that failed raised."""
    # All are waited for, also when one fails: none may land after we have gone.
    results = await asyncio.gather(
        *[engine.swap(change, expected) for change, expected in swaps], return_exceptions=True
    )
    done: list[bool] = []
    for one in results:
        if isinstance(one, BaseException):
            raise one
        done.append(one)
    return done
