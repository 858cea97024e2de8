"""Fold: the rows of an upload are copied into its table, beside live traffic.

A row is swapped in only where the live one is still of an older epoch, and as it was read; so a
live write is never undone, and folding twice changes nothing. An expired row goes in too, since it
hides what was there before it. In mode replace, live rows of an older epoch are removed afterwards.

**Why a swap for each row.** Live writes go on meanwhile, from other dispatchers too. Between the
read of a row and the write of the upload's, one may be acknowledged: a plain write, of however many
rows at once, would undo it. Nor can the place be claimed first, since live writes ask nobody. So
the comparison has to happen where the write happens, row by row. The rest is batched: a batch is
read with one call, and its swaps are made together (`jobs.py`); an engine that commits in groups
takes them in one commit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Final, final

from sluicegate.apps.kv.tables.catalogue_state import (
    FOLDING,
    REPLACE,
    CatalogueState,
    live_space,
    upload_space,
)
from sluicegate.apps.kv.tables.jobs import JobLease, Swap, TableJobs
from sluicegate.contracts.engine import Change, Entry
from sluicegate.contracts.errors import Conflict
from sluicegate.wire.row_envelope import open_row, seal_row

COPYING: Final = "copying"
PURGING: Final = "purging"
FINISHED: Final = "finished"


@final
class UploadFold:
    """One table's upload, taken in. `step` does a batch under a lease that was taken."""

    __slots__ = ("_epoch", "_jobs", "_lease", "_live", "_replaces", "_table", "_upload")

    def __init__(
        self, jobs: TableJobs, lease: JobLease, table: str, catalogue_state: CatalogueState
    ) -> None:
        state = catalogue_state.tables[table]
        self._jobs = jobs
        self._lease = lease
        self._table = table
        self._live = live_space(table)
        self._upload = state.upload
        self._epoch = state.epoch
        self._replaces = catalogue_state.uploads[state.upload].mode == REPLACE

    async def step(self) -> bool:
        """One batch; whether everything is in the table."""
        lease = self._lease
        if not lease.stage:
            lease.stage = COPYING
        if lease.stage == FINISHED:
            return True
        copying = lease.stage == COPYING
        space = upload_space(self._upload) if copying else self._live
        entries = await self._jobs.engine.walk(space, lease.after, self._jobs.settings.fold_rows)
        if not entries:
            lease.after = None
            lease.stage = PURGING if copying and self._replaces else FINISHED
            await self._save(now=True)
            return lease.stage == FINISHED
        await self._jobs.run_in_background(entries, self._copy if copying else self._purge)
        lease.after = (entries[-1][0], entries[-1][1])
        await self._save(now=False)
        return False

    async def _save(self, *, now: bool) -> None:
        if not await self._lease.save(now=now):
            raise Conflict(f"the folding of {self._table}", "another dispatcher goes on with it")

    async def _copy(self, entries: Sequence[Entry]) -> None:
        remaining = entries
        while remaining:
            await self._check_phase()
            places = [(entry[0], entry[1]) for entry in remaining]
            result = self._jobs.engine.read(self._live, places)
            live = await result if isinstance(result, Awaitable) else result
            swaps: list[Swap] = []
            due: list[Entry] = []
            for entry, stored in zip(remaining, live, strict=True):
                if stored is None or open_row(stored).epoch < self._epoch:
                    swaps.append((self._change(entry), stored))
                    due.append(entry)
            done = await self._swap(swaps)
            remaining = [entry for entry, was in zip(due, done, strict=True) if not was]

    def _change(self, entry: Entry) -> Change:
        value, expires_us, _ = open_row(entry[2])
        stored = seal_row(value, expires_us=expires_us, epoch=self._epoch)
        purge_us = expires_us + self._jobs.settings.purge_after_us if expires_us else 0
        return Change(self._live, entry[0], entry[1], stored, purge_us)

    async def _purge(self, entries: Sequence[Entry]) -> None:
        await self._check_phase()
        # One that was written meanwhile has the new epoch, and the swap fails: it stays.
        await self._swap(
            [
                (Change(self._live, entry[0], entry[1], None), entry[2])
                for entry in entries
                if open_row(entry[2]).epoch < self._epoch
            ]
        )

    async def _swap(self, swaps: Sequence[Swap]) -> list[bool]:
        return await self._jobs.swap(swaps, self._jobs.settings.fold_at_once)

    async def _check_phase(self) -> None:
        """Nothing is swapped on an old view of the table."""
        view = await self._jobs.catalogue.current(self._table)
        if view.epoch != self._epoch or view.phase != FOLDING:
            raise Conflict(f"the folding of {self._table}", "it is done")
