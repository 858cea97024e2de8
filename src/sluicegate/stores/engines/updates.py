"""Updates by swaps: how an engine that compares and writes as one reads, decides and writes as one.

It reads, has it decided, and swaps on condition that nothing else was written; another process may
have come between, and then it begins again. Within one process whoever calls this lets updates of a
partition pass one at a time (`partition_locks.py`), so they never disturb each other, and a counter
with many writers is limited by the engine's round trips alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from sluicegate.contracts.engine import Change, Place, Update
from sluicegate.contracts.errors import Conflict
from sluicegate.stores.engines.bounds import decide_changes

TRIES_MAX: Final = 32

# A sort key, the value that must be there, and its change; None leaves it as it is.
Swap: TypeAlias = "tuple[bytes, bytes | None, Change | None]"
Read: TypeAlias = "Callable[[str, Sequence[Place]], Awaitable[Sequence[bytes | None]]]"
SwapAll: TypeAlias = "Callable[[str, bytes, Sequence[Swap]], Awaitable[bool]]"


async def update_by_swaps(what: str, update: Update, read: Read, swap_all: SwapAll) -> bool:
    """Make an update; return whether there was anything to change."""
    space, partition = update.space, update.partition
    places = [(partition, sort) for sort in update.sorts]
    for _ in range(TRIES_MAX):
        values = await read(space, places)
        changes = {change.sort: change for change in decide_changes(update, values)}
        if not changes:
            return False
        expected = dict(zip(update.sorts, values, strict=True))
        swaps = [(sort, value, changes.get(sort)) for sort, value in expected.items()]
        if await swap_all(space, partition, swaps):
            return True
    raise Conflict(f"a row of {what}", "too many processes write it at once")
