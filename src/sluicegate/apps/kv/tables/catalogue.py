"""Catalogue: this process's copy of the state of all tables, and how old it is.

The catalogue is in the engine, in a reserved space, and only `swap` changes it. An engine of
several shards has copies of it (`catalogue_copies.py`). Each dispatcher reads it again every half
of `stale_us` in the background, so a request finds it fresh.
A copy older than twice `stale_us` is not used for writes: the catalogue is read first, for as long
as `look_wait_us`, and then the request fails. Nor for reads, but for one case, described below.

**The law.** A request acts on a view that was read at most `2 * stale_us` before, and what took
longer than `write_timeout_us` is acknowledged only if the table is still as it was (`Tables`). So
`settle_us` after a change of the catalogue, whatever is acknowledged was done by a process that had
read the change. Whoever makes the next change waits so long by its own clock from when it first
read the last; clocks need not agree.

**Reads while the catalogue is unavailable.** The part of the engine that holds it may be slow or
down while the rows are not. Then a plain read of a table that was last `normal` goes on by that
view, up to `read_stale_us` after it was read. Nothing acknowledged is lost by it: only reads do so,
never what a write is judged by, and every live write is in the one space that such a read asks. It
may show the rows from before an upload for so long, also after its commit was answered, and miss
some that a replacing upload takes away. It never shows a row with a newer epoch than its view: when
it finds one, it knows that there was an upload, and needs a fresh view as everybody else.

**How an upload becomes visible.** Its rows lie in a space of their own, `beside`, which nobody
reads yet and nobody changes once it is sealed. All live writes go to the table's one space, `live`,
at all times, each with the table's epoch in its envelope. The phases, each `settle_us` long at
least:

    normal    read live                                      deletes leave nothing
    sealing   read live;             epoch e = e + 1         deletes leave tombstones, until normal
    layered   read live if it has epoch e, else beside, else (merge) live
    folding   the same; what is beside is copied into live with epoch e, unless epoch e is there
    folded    read live; it has everything
    normal    beside is dropped `settle_us` later

Two dispatchers are at most one phase apart, so it is enough that neighbours agree:

- *Nothing acknowledged is lost.* There is one place for a row's live writes whatever the phase, so
  later writes replace earlier ones, and a conditional write is one swap there. A dispatcher that
  has not seen `sealing` writes an older epoch: its write came before the upload. When `layered`
  begins, nobody writes an older epoch, so a write that was acknowledged after the upload could be
  seen is never hidden by it. A conditional write judges what can be seen, and swaps the live row
  that it has read: if anybody wrote meanwhile, the fold included, it judges again.
- *The fold takes nothing away.* It swaps a row in only where the live row is still the one of an
  older epoch that it has read. No write brings such a row back, and no delete makes the place empty
  again while it works, since tombstones stay. So it may be killed, run twice, or run beside
  another; a lease only saves work.
- *Nothing half visible.* In `layered` all of the upload can be seen by those who know the phase,
  and none of it by those who do not; `folding` begins when everybody knows. So another dispatcher
  may show the older rows for `2 * stale_us`, but none shows a mix, and a live write is seen by all
  at once.
- *A row that expired hides the older one.* An envelope's instant is checked here. An engine is told
  that it may forget an expired row only if it was written in `normal`: then an upload that comes
  later hides it anyhow. The sweep too rests unless the table is normal.
- *Abandoned while sealing*: the table is normal again, with the new epoch; the upload was never
  read. Once `layered`, it cannot be abandoned. Two who commit, or one who commits while another
  abandons, swap the same catalogue: one wins, and the other reads again.

Reads of a table that is not in the catalogue go to its live space: a table that another dispatcher
has just created is visible at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, final

from sluicegate.apps.kv.tables.catalogue_copies import CatalogueCopies
from sluicegate.apps.kv.tables.catalogue_state import (
    EMPTY_CATALOGUE,
    NORMAL,
    OVERLAID_PHASES,
    REPLACE,
    CatalogueState,
    TableState,
    encode_catalogue,
    live_space,
    parse_catalogue,
    upload_space,
    with_table,
)
from sluicegate.apps.kv.tables.failures import Failures
from sluicegate.apps.kv.tables.settings import TableSettings
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.engine import Engine
from sluicegate.contracts.errors import BadValue, SluicegateError, Unavailable
from sluicegate.contracts.key_values import check_table

_CHANGE_TRIES_MAX: Final = 64
_LOOKS_MAX: Final = 16
_RETRY_S: Final = 0.05


@final
class TableView:
    """How one table is read and written, as of the last look; it never changes.

    `beside` is the upload that lies under what has `epoch`; empty unless it is read. `hides` says
    that it also hides live rows of an older epoch that it has no row for. While `buries`, deletes
    leave tombstones. `exists` is whether it is in the catalogue.
    """

    __slots__ = ("buries", "epoch", "exists", "hides", "live", "overlay", "phase", "plain")

    def __init__(
        self, live: str, phase: str, epoch: int, *, overlay: str, hides: bool, exists: bool
    ) -> None:
        self.live = live
        self.phase = phase
        self.epoch = epoch
        self.overlay = overlay
        self.hides = hides
        self.exists = exists
        self.buries = phase != NORMAL
        self.plain = not overlay

    def same(self, other: TableView) -> bool:
        """Whether what was done by one may be acknowledged by the other."""
        return self.epoch == other.epoch and self.phase == other.phase


@final
class Catalogue:
    """The catalogue as this process knows it.

    `fresh_until_us` is when the views may no longer be used. `on_change` is called after each look
    that saw a change. `failures` are of the looks in the background.
    """

    __slots__ = (
        "_changing",
        "_clock",
        "_copies",
        "_creating",
        "_look_task",
        "_looks",
        "_newest_look",
        "_noted",
        "_read_us",
        "_reading_look",
        "_reading_us",
        "_revision",
        "_settings",
        "_slow",
        "_text",
        "failures",
        "fresh_until_us",
        "on_change",
        "phase_since",
        "state",
        "views",
    )

    def __init__(self, engine: Engine, clock: Clock, settings: TableSettings) -> None:
        self._copies = CatalogueCopies(engine)
        self._clock = clock
        self._settings = settings
        self._text: bytes | None = None
        self._revision = 0  # the highest that was seen
        self._noted = False  # whether the phases of this text were seen settled
        self._look_task: asyncio.Future[None] | None = None
        self._reading_look = 0  # its number, and when it began
        self._reading_us = 0
        self._read_us = 0  # when the look began that the views are of
        self._slow = False  # whether the last look was of no use to who waits
        self._looks = 0
        self._newest_look = 0
        self._changing = asyncio.Lock()
        self._creating = asyncio.Lock()
        self.failures = Failures("reading the catalogue of tables")
        self.state = EMPTY_CATALOGUE
        self.views: dict[str, TableView] = {}
        self.fresh_until_us = -1
        self.on_change: Callable[[], None] | None = None
        # When each table was first seen in its phase, by our clock.
        self.phase_since: dict[str, tuple[TableState, int]] = {}

    def most_shards_answer(self) -> bool:
        """Whether two of the three shards that have the catalogue answered just now.

        False for an engine of one shard, and for one that keeps no copies.
        """
        return not self._copies.alone and self._clock.now_us() <= self.fresh_until_us

    def view(self, table: str) -> TableView:
        """How this table is read and written; only while it is fresh."""
        view = self.views.get(table)
        if view is None:
            check_table(table)
            return TableView(live_space(table), NORMAL, 0, overlay="", hides=False, exists=False)
        return view

    async def current(self, table: str) -> TableView:
        """The view of this table, fresh; unavailable if that takes longer than `look_wait_us`."""
        until_us = self._clock.now_us() + self._settings.look_wait_us
        for _ in range(_LOOKS_MAX):
            now_us = self._clock.now_us()
            if now_us <= self.fresh_until_us:
                return self.view(table)
            if now_us >= until_us or not await self._await_look(until_us - now_us):
                break
        if self._clock.now_us() <= self.fresh_until_us:
            return self.view(table)
        raise Unavailable("the catalogue of tables", "the engine answers too slowly to be of use")

    async def readable(self, table: str) -> TableView | None:
        """The view to read this table by, maybe an old one; None if that must be a fresh one.

        A look that is as quick as usual is waited for.
        """
        if self._clock.now_us() <= self.fresh_until_us:
            return None
        view = self.view(table)
        if view.phase != NORMAL or not self._old_will_do():
            return None
        stale_us = self._settings.stale_us
        waited_us = self._clock.now_us() - self._reading_us if self._look_task is not None else 0
        if not self._slow and waited_us < stale_us:
            try:
                await self._await_look(stale_us - waited_us)
            except SluicegateError:
                self._slow = True  # until one goes well
            if self._clock.now_us() <= self.fresh_until_us:
                return None
            view = self.view(table)
        return view if view.phase == NORMAL and self._old_will_do() else None

    def _old_will_do(self) -> bool:
        if self.fresh_until_us < 0:
            return False  # there was none yet
        return self._clock.now_us() - self._read_us <= self._settings.read_stale_us

    async def refresh(self) -> None:
        """Read the catalogue as of now or later; concurrent callers share the next read."""
        looks = self._looks
        while self._newest_look <= looks:
            task = self._look_task
            if task is None:
                task = self._begin()
            elif self._reading_look <= looks:
                await asyncio.wait((task,))  # it began before, and may not know
                continue
            await asyncio.shield(task)

    async def _await_look(self, wait_us: int) -> bool:
        """Whether a look, maybe one that is under way, ended in time; raises what it raised."""
        task = self._look_task
        if task is None:
            task = self._begin()
        done, _ = await asyncio.wait((task,), timeout=wait_us / 1e6)
        if not done:
            self._slow = True
            return False
        task.result()
        return True

    def _begin(self) -> asyncio.Future[None]:
        self._reading_look, self._reading_us = self._looks + 1, self._clock.now_us()
        task = asyncio.ensure_future(self._look())
        self._look_task = task
        task.add_done_callback(self._look_ended)
        return task

    def _look_ended(self, task: asyncio.Future[None]) -> None:
        self._look_task = None
        if not task.cancelled():
            task.exception()  # told to who waits, and to nobody else

    async def _look(self) -> None:
        self._looks += 1
        look, began_us = self._looks, self._clock.now_us()
        self._reading_look = look
        reading = await self._copies.read()
        self._slow = self._clock.now_us() - began_us > self._settings.stale_us
        self._take(reading.text, look, began_us, settled=reading.settled)

    def _take(self, text: bytes | None, look: int, began_us: int, *, settled: bool) -> None:
        if look < self._newest_look:
            return  # one that began later has come before
        self._newest_look = look
        changed = text != self._text or self.fresh_until_us < 0
        if changed:
            state = parse_catalogue(text)
            self._text = text
            self._revision = max(self._revision, state.revision)
            self._noted = False
            self.state = state
            self.views = {name: _view(state, name, table) for name, table in state.tables.items()}
        if settled and not self._noted:
            self._note_phases(self.state.tables)
            self._noted = True
        if changed and self.on_change is not None:
            self.on_change()
        self._read_us = began_us
        self.fresh_until_us = began_us + 2 * self._settings.stale_us

    def _note_phases(self, tables: Mapping[str, TableState]) -> None:
        now_us = self._clock.now_us()
        before = self.phase_since
        self.phase_since = {
            name: before[name] if name in before and before[name][0] == state else (state, now_us)
            for name, state in tables.items()
            if state.phase != NORMAL
        }

    async def change(self, update: Callable[[CatalogueState], CatalogueState]) -> CatalogueState:
        """Change the book to what `make` makes of it, as one; the same book changes nothing.

        `make` may be called again on a newer book, and may raise.
        """
        async with self._changing:
            for _ in range(_CHANGE_TRIES_MAX):
                self._looks += 1
                look, began_us = self._looks, self._clock.now_us()
                reading = await self._copies.read(with_book=True)
                state = parse_catalogue(reading.text)
                new_state = update(state)
                if new_state is state:
                    self._take(reading.text, look, began_us, settled=reading.settled)
                    return state
                revision = max(state.revision, self._revision) + 1
                new_state = new_state._replace(revision=revision)
                new = encode_catalogue(new_state)
                self._looks += 1
                look, began_us = self._looks, self._clock.now_us()
                if await self._copies.swap(new, reading):
                    self._take(new, look, began_us, settled=True)
                    return new_state
        raise Unavailable("the catalogue of tables", "too many change it at once; try again")

    async def create_table(self, table: str) -> TableView:
        """The view of a table that is to be written to; it appears if there is room for it."""
        view = self.views.get(table)
        if view is not None:
            return view
        check_table(table)
        most = self._settings.tables_max

        def with_it(state: CatalogueState) -> CatalogueState:
            if table in state.tables:
                return state
            if len(state.tables) >= most:
                remedy = f"there are {most} tables, as many as may be; use one of them"
                raise BadValue("table", table, remedy)
            return with_table(state, table, TableState())

        # Those who come while it is made find it made, and read no book of their own.
        async with self._creating:
            if table not in self.views:
                await self.change(with_it)
        return self.view(table)

    def settled(self, table: str) -> bool:
        """Whether everybody knows the phase that this table is in."""
        phase = self.phase_since.get(table)
        if phase is None or phase[0] != self.state.tables.get(table):
            return False
        return self._clock.now_us() - phase[1] >= self._settings.settle_us

    async def follow(self) -> None:
        """Keep it fresh until cancelled. Whatever fails is tried again."""
        pause_s = self._settings.stale_us / 2e6
        while True:
            failed = False
            try:
                await self.refresh()
            except Exception as error:
                self.failures.note(error)
                failed = True
            await asyncio.sleep(min(_RETRY_S, pause_s) if failed else pause_s)


def _view(catalogue: CatalogueState, table: str, state: TableState) -> TableView:
    overlay, hides = "", False
    if state.phase in OVERLAID_PHASES:
        overlay = upload_space(state.upload)
        hides = catalogue.uploads[state.upload].mode == REPLACE
    live = live_space(table)
    return TableView(live, state.phase, state.epoch, overlay=overlay, hides=hides, exists=True)
