"""Batches: a load of many entries, cut into the calls in which an engine writes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Final

from sluicegate.contracts.engine import Change, Entry
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
