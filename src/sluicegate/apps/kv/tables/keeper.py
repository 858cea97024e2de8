"""Table keeper: moves tables from phase to phase, and drops what is no longer read.

Every dispatcher has one; each step is a swap of the catalogue, so it is done once whoever does it,
and another dispatcher continues for one that was killed. `catalogue.py` explains why each step is
safe; it is made once everybody knows the phase before.

A process makes one step at a time: two folds of one upload share a lease, and one would set back
the progress of the other. `advance` moves one table for a commit that waits; it never folds and
touches no other table. A failure of one table keeps no other from moving.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final, NamedTuple, final

from sluicegate.apps.kv.tables.catalogue_copies import CATALOGUE_SPACE
from sluicegate.apps.kv.tables.catalogue_state import (
    DONE,
    FOLDED,
    FOLDING,
    LAYERED,
    NORMAL,
    OPEN,
    SEALING,
    CatalogueState,
    TableState,
    UploadState,
    upload_space,
    with_table,
    with_upload,
    without_oldest,
)
from sluicegate.apps.kv.tables.failures import Failures
from sluicegate.apps.kv.tables.fold import UploadFold
from sluicegate.apps.kv.tables.jobs import JobLease, TableJobs, lease_place
from sluicegate.apps.kv.tables.sweep import TableSweep
from sluicegate.apps.kv.tables.upload_records import forget_parts, forget_totals, read_parts
from sluicegate.contracts.engine import Change
from sluicegate.contracts.errors import SluicegateError

_BATCHES_MAX: Final = 64  # of one fold before others have their turn
_RETRY_S: Final = 0.2
_ROUND_REST_S: Final = 60.0  # between two sweeps of everything


class FoldProgress(NamedTuple):
    """A fold that is under way here. `position` is the last place that is done, in hex."""

    table: str
    upload: str
    stage: str
    position: tuple[str, str] | None


class KeeperStats(NamedTuple):
    """What keeping does, and what failed: how often, and the last message (empty: nothing)."""

    folding: tuple[FoldProgress, ...]
    failed: int
    last_error: str
    sweep_failed: int
    sweep_last_error: str


@final
class TableKeeper:
    """Moves the tables of one engine on. `follow` does it until cancelled."""

    def __init__(self, jobs: TableJobs) -> None:
        self._jobs = jobs
        self._catalogue = jobs.catalogue
        self._leases: dict[str, JobLease] = {}
        self._drop_since: dict[str, int] = {}  # what is to be dropped
        self._stepping = False
        self._failures = Failures("keeping tables")
        self._sweep_failures = Failures("sweeping tables")
        self.sweep = TableSweep(jobs)

    async def step(self) -> bool:
        """Do what is due; whether anything was done. Nothing while another step is at it."""
        if self._stepping:
            return False
        self._stepping = True
        try:
            return await self._step()
        finally:
            self._stepping = False

    async def _step(self) -> bool:
        catalogue = self._catalogue.state
        taken_in = frozenset(state.upload for state in catalogue.tables.values())
        for upload in [one for one in self._leases if one not in taken_in]:
            del self._leases[upload]  # somebody else has finished it
        busy = False
        failed: Exception | None = None
        for table, state in catalogue.tables.items():
            try:
                if state.phase == FOLDING:
                    busy = await self._fold(table, state) or busy
                elif state.phase != NORMAL and self._catalogue.settled(table):
                    await self._move(table, state)
                    busy = True
            except Exception as error:
                failed = failed or error  # the other tables have their turn first
        busy = await self._drop_due() or busy
        if failed is not None:
            raise failed
        return busy

    async def advance(self, table: str) -> bool:
        """Move this table on if it is due and needs no folding; whether it was."""
        state = self._catalogue.state.tables.get(table)
        if state is None or state.phase in (NORMAL, FOLDING) or not self._catalogue.settled(table):
            return False
        await self._move(table, state)
        return True

    async def follow(self) -> None:
        """Keep tables moving until cancelled. What fails is tried again."""
        pause_s = min(self._jobs.settings.stale_us / 1e6, _RETRY_S)
        try:
            while True:
                busy = False
                try:
                    busy = await self.step()
                except Exception as error:
                    self._failures.note(error)
                    await asyncio.sleep(_RETRY_S)
                await asyncio.sleep(0 if busy else pause_s)
        finally:
            await self._leave()

    async def follow_sweep(self) -> None:
        """Sweep until cancelled, unless another does. Retry after failures."""
        pause_s = self._jobs.settings.sweep_pause_us / 1e6
        leads = False
        while True:
            try:
                leads = leads or await self.sweep.take()
                ended = await self.sweep.step() if leads else None
            except Exception as error:
                self._sweep_failures.note(error)
                ended, leads = None, False
            if ended is None:
                leads = False
                await asyncio.sleep(self._jobs.settings.lease_us / 1e6)
            elif ended:
                await asyncio.sleep(_ROUND_REST_S)
                leads = False  # the lease has ended meanwhile
            else:
                await asyncio.sleep(pause_s)

    def stats(self) -> KeeperStats:
        """What is folded here and how far it is, and what failed."""
        folding: list[FoldProgress] = []
        for table, state in self._catalogue.state.tables.items():
            lease = self._leases.get(state.upload)
            if lease is not None:
                after = lease.after
                position = None if after is None else (after[0].hex(), after[1].hex())
                folding.append(FoldProgress(table, state.upload, lease.stage, position))
        return KeeperStats(
            tuple(folding),
            self._failures.count,
            self._failures.last_error,
            self._sweep_failures.count,
            self._sweep_failures.last_error,
        )

    async def _leave(self) -> None:
        for lease in list(self._leases.values()):
            try:
                await lease.leave()
            except SluicegateError:
                continue  # it ends by itself
        self._leases.clear()

    async def _move(self, table: str, state: TableState) -> None:
        if state.phase == SEALING:
            whole = await self._whole(state.upload)
            to = partial(_to_layered if whole else _to_open, table, state)
        elif state.phase == LAYERED:
            to = partial(_to_folding, table, state)
        else:
            ended_max = self._jobs.settings.ended_uploads_max
            to = partial(_to_normal, table, state, ended_max, self._jobs.clock.now_us())
        await self._catalogue.change(to)

    async def _whole(self, upload: str) -> bool:
        """Whether the parts are those that were committed, and no other was ever begun."""
        committed = self._catalogue.state.uploads.get(upload)
        if committed is None:
            return False  # it has ended meanwhile, and the table is another
        parts = await read_parts(self._jobs.engine, upload)
        return list(parts) == list(range(committed.parts)) and all(
            one.stored for one in parts.values()
        )

    async def _fold(self, table: str, state: TableState) -> bool:
        lease = self._leases.get(state.upload)
        if lease is None:
            lease = self._jobs.lease(state.upload)
            if not await lease.take():
                return False
            self._leases[state.upload] = lease
        catalogue = self._catalogue.state
        if catalogue.tables.get(table) != state:
            return False  # it went on while other tables had their turn
        fold = UploadFold(self._jobs, lease, table, catalogue)
        try:
            for _ in range(_BATCHES_MAX):
                if await fold.step():
                    break
            else:
                return True
        except Exception:
            # Whoever takes the lease next, and that may be we, goes on where it was last said.
            self._leases.pop(state.upload, None)
            raise
        if not self._catalogue.settled(table):
            return False
        await self._catalogue.change(partial(_to_folded, table, state))
        self._leases.pop(state.upload, None)
        return True

    async def _drop_due(self) -> bool:
        due = self._catalogue.state.dropping
        now_us = self._jobs.clock.now_us()
        self._drop_since = {upload: self._drop_since.get(upload, now_us) for upload in due}
        for upload, since_us in self._drop_since.items():
            if now_us - since_us >= self._jobs.settings.settle_us:
                await self._drop(upload)
                return True
        return False

    async def _drop(self, upload: str) -> None:
        await self._jobs.engine.drop(upload_space(upload))
        await forget_parts(self._jobs.engine, upload)
        await forget_totals(self._jobs.engine, upload)
        await self._jobs.engine.write([Change(CATALOGUE_SPACE, *lease_place(upload), None)])
        await self._catalogue.change(partial(_without_drop, upload))


def _to_layered(table: str, state: TableState, catalogue: CatalogueState) -> CatalogueState:
    if catalogue.tables.get(table) != state:
        return catalogue  # somebody else was first
    return with_table(catalogue, table, state._replace(phase=LAYERED))


def _to_open(table: str, state: TableState, catalogue: CatalogueState) -> CatalogueState:
    if catalogue.tables.get(table) != state:
        return catalogue
    upload = catalogue.uploads[state.upload]._replace(
        state=OPEN, parts=0, rows=0, bytes=0, digest=""
    )
    catalogue = with_table(catalogue, table, TableState(NORMAL, state.epoch))
    return with_upload(catalogue, upload)


def _to_folding(table: str, state: TableState, catalogue: CatalogueState) -> CatalogueState:
    if catalogue.tables.get(table) != state:
        return catalogue
    upload = catalogue.uploads[state.upload]._replace(state=FOLDING)
    return with_upload(with_table(catalogue, table, state._replace(phase=FOLDING)), upload)


def _to_folded(table: str, state: TableState, catalogue: CatalogueState) -> CatalogueState:
    if catalogue.tables.get(table) != state:
        return catalogue
    return with_table(catalogue, table, state._replace(phase=FOLDED))


def _to_normal(
    table: str, state: TableState, ended_max: int, now_us: int, catalogue: CatalogueState
) -> CatalogueState:
    if catalogue.tables.get(table) != state:
        return catalogue
    upload: UploadState = catalogue.uploads[state.upload]._replace(state=DONE, ended_us=now_us)
    catalogue = with_table(catalogue, table, TableState(NORMAL, state.epoch))
    catalogue = with_upload(catalogue, upload)._replace(
        dropping=(*catalogue.dropping, state.upload)
    )
    return without_oldest(catalogue, ended_max)


def _without_drop(upload: str, catalogue: CatalogueState) -> CatalogueState:
    if upload not in catalogue.dropping:
        return catalogue
    return catalogue._replace(dropping=tuple(one for one in catalogue.dropping if one != upload))
