"""Batches: a load of many entries, cut into calls, and many calls of one engine at a time.

A caller is told of a failure only when every call that was begun has ended: nothing goes on behind
its back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final, TypeVar

from sluicegate.contracts.engine import Change, Entry
from sluicegate.contracts.errors import OutcomeUnknown, Unavailable
from sluicegate.stores.engines.bounds import check_changes

RUN_ROWS_MAX: Final = 2_000  # of a load that are one transaction


def runs_of(space: str, entries: Sequence[Entry]) -> Iterator[list[Change]]:
    """Runs of so many rows, each in the order of its keys; for an engine that writes all in one."""
    for begin in range(0, len(entries), RUN_ROWS_MAX):
        some = sorted(entries[begin : begin + RUN_ROWS_MAX], key=itemgetter(0, 1))
        yield [Change(space, *entry) for entry in some]


def batches_of(
    space: str, entries: Sequence[Entry], *, bytes_max: int, change_bytes: int = 0
) -> list[tuple[bytes, list[Change]]]:
    """Batches of one partition each, up to so many bytes; they may be written in any order.

    Of a place that is named twice the last entry counts, and is the only one. `change_bytes` is
    what a change weighs in such a batch besides its keys and its value.
    """
    batches: list[tuple[bytes, list[Change]]] = []
    open_batches: dict[bytes, tuple[list[Change], int]] = {}
    for partition, sort, value in {(one[0], one[1]): one for one in entries}.values():
        batch, size = open_batches.get(partition, ([], 0))
        change = Change(space, partition, sort, value)
        weight = check_changes([change])
        if batch and size + weight > bytes_max:
            batch, size = [], 0
        if not batch:
            batches.append((partition, batch))
        batch.append(change)
        open_batches[partition] = (batch, size + weight + change_bytes)
    return batches


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


async def all_changes(works: Sequence[Awaitable[None]]) -> None:
    """Make every change. Raises `OutcomeUnknown` where some were made and another was not."""
    if len(works) == 1:
        await works[0]
        return
    outcomes = await asyncio.gather(*works, return_exceptions=True)
    raise_change_error(outcomes, some_made=any(one is None for one in outcomes))


def raise_change_error(outcomes: Sequence[BaseException | None], *, some_made: bool) -> None:
    """Raise the error of several changes, if there is one: unknown if some were made."""
    failed = [one for one in outcomes if one is not None]
    if not failed:
        return
    unknown = next((one for one in failed if isinstance(one, OutcomeUnknown)), None)
    if unknown is None and some_made and isinstance(failed[0], Unavailable):
        unknown = OutcomeUnknown(failed[0].what, f"only a part was made ({failed[0].detail})")
    raise failed[0] if unknown is None else unknown


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
