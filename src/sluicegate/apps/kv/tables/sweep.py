"""Sweep: expired rows and tombstones are removed in the background.

Only in a table that is normal: else they still hide older rows. A row is removed by a swap with
what was read, so one that was written meanwhile stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, final

from sluicegate.apps.kv.tables.catalogue_state import NORMAL, live_space
from sluicegate.apps.kv.tables.jobs import Swap, TableJobs, swap_all
from sluicegate.contracts.engine import Change, Entry
from sluicegate.wire.row_envelope import open_row

SWEEP_JOB: Final = "sweep"


@final
class TableSweep:
    """Walks table after table, a batch at a time. `removed` counts what went."""

    __slots__ = ("_jobs", "_lease", "removed")

    def __init__(self, jobs: TableJobs) -> None:
        self._jobs = jobs
        self._lease = jobs.lease(SWEEP_JOB)
        self.removed = 0

    async def take(self) -> bool:
        """Take the lease, unless another holds it."""
        return await self._lease.take()

    async def leave(self) -> None:
        """Release the lease, with the progress."""
        await self._lease.leave()

    async def step(self) -> bool | None:
        """Sweep one batch: True at the end of a round; None if another has the lease."""
        lease = self._lease
        tables = sorted(self._jobs.catalogue.state.tables)
        table = next((name for name in tables if name >= lease.stage), None)
        if table is None:
            lease.stage, lease.after = "", None
            return True if await lease.save() else None
        if table != lease.stage:
            lease.stage, lease.after = table, None
        entries: Sequence[Entry] = ()
        if (await self._jobs.catalogue.current(table)).phase == NORMAL:
            rows_max = self._jobs.settings.sweep_rows
            entries = await self._jobs.engine.walk(live_space(table), lease.after, rows_max)
        if entries:
            await self._jobs.run_in_background(entries, partial(self._remove, table))
            lease.after = (entries[-1][0], entries[-1][1])
        else:
            lease.stage, lease.after = table + "\x00", None  # the first name behind it
        return False if await lease.save() else None

    async def _remove(self, table: str, entries: Sequence[Entry]) -> None:
        now_us = self._jobs.clock.now_us()
        live = live_space(table)
        dead: list[Swap] = []
        for partition, sort, stored in entries:
            row = open_row(stored)
            if row.value is None or 0 < row.expires_us <= now_us:
                dead.append((Change(live, partition, sort, None), stored))
        most = self._jobs.settings.sweep_at_once
        for at in range(0, len(dead), most):
            if (await self._jobs.catalogue.current(table)).phase != NORMAL:
                return
            self.removed += sum(await swap_all(self._jobs.engine, dead[at : at + most]))
