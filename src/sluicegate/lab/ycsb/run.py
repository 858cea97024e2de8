"""One YCSB run: rows are loaded, many tasks send requests by a mix, and what they read is checked.

    A  half reads, half updates             D  95% reads of what was inserted last, 5% inserts
    B  95% reads, 5% updates                E  95% short ranges, 5% inserts
    C  reads only                           F  half reads, half read-modify-writes

Each task sends its next request when the last was answered, so what is measured is what so many
callers get, and not what a server does under more load than it can serve (that is for the drills).
A read-modify-write reads, and swaps for what it has read; if another was faster it reads again. At
the end each row must have been changed exactly as often as that was acknowledged.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.errors import BadValue, Conflict, Refused, SluicegateError, Unavailable
from sluicegate.kernels.windowed_quantile import Scale, Sketch
from sluicegate.lab.ycsb.keys import ROWS_MAX, RowChooser
from sluicegate.lab.ycsb.records import STALE, WriteLedger, YcsbRecord, decode, encode
from sluicegate.lab.ycsb.targets import YcsbTarget
from sluicegate.wire.resp import ErrorReply

READ: Final = "read"
UPDATE: Final = "update"
INSERT: Final = "insert"
RANGE: Final = "range"
CHANGE: Final = "change"

OPS_MAX: Final = 1_000_000_000
TASKS_MAX: Final = 10_000
LOAD_ROWS: Final = 100  # in one call
RANGE_ROWS_MAX: Final = 100
CHANGE_TRIES_MAX: Final = 1_000
SHOWN_MAX: Final = 5  # wrong values, and failures of a kind


@dataclass(frozen=True, slots=True)
class Mix:
    """Shares of operations, in percent, and which rows they ask for."""

    name: str
    shares: tuple[tuple[str, int], ...]
    latest: bool = False


MIXES: Final[dict[str, Mix]] = {
    mix.name: mix
    for mix in (
        Mix("A", ((READ, 50), (UPDATE, 50))),
        Mix("B", ((READ, 95), (UPDATE, 5))),
        Mix("C", ((READ, 100),)),
        Mix("D", ((READ, 95), (INSERT, 5)), latest=True),
        Mix("E", ((RANGE, 95), (INSERT, 5))),
        Mix("F", ((READ, 50), (CHANGE, 50))),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class YcsbSettings:
    """How much of it; checked when made."""

    rows: int = 10_000
    ops: int = 100_000
    tasks: int = 32
    value_bytes: int = 1_000
    strong: bool = True  # a read that is too old is wrong, and not only counted

    def __post_init__(self) -> None:
        for name, most in (("rows", ROWS_MAX), ("ops", OPS_MAX), ("tasks", TASKS_MAX)):
            value = getattr(self, name)
            if not 1 <= value <= most:
                raise BadValue(f"--{name}", value, f"give from 1 to {most}")
        encode(YcsbRecord(0, 0, 0), self.value_bytes)


@final
class Timings:
    """The outcomes and times of one kind of operation."""

    __slots__ = ("done", "failed", "refused", "sketch")

    def __init__(self, scale: Scale) -> None:
        self.done = 0
        self.refused = 0
        self.failed = 0
        self.sketch = Sketch(scale)


@dataclass(slots=True, kw_only=True)
class YcsbResult:
    """The result of a run."""

    mix: str
    target: str
    rows: int
    tasks: int
    load_s: float
    run_s: float
    timings: dict[str, Timings]
    conflicts: int  # read-modify-writes that had to begin again
    wrong: Counter[str]
    shown: list[str]  # some of what was wrong, and of what failed
    rows_changed: int
    changes_lost: int
    changes_extra: int

    @property
    def ops(self) -> int:
        """Operations that succeeded."""
        return sum(one.done for one in self.timings.values())

    @property
    def right(self) -> bool:
        """Whether every value was the right one, and no change was lost or made twice."""
        return not self.wrong and not self.changes_lost and not self.changes_extra


@final
class YcsbRun:
    """One mix against one target."""

    def __init__(
        self,
        target: YcsbTarget,
        mix: Mix,
        settings: YcsbSettings,
        chances: Callable[[str], Chance],
        *,
        run: int = 0,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> None:
        self._target = target
        self._mix = mix
        self._settings = settings
        self._chances = chances
        self._progress = progress
        self._ledger = WriteLedger(run)
        self._rows = RowChooser(settings.rows)
        scale = Scale()
        self._timings = {name: Timings(scale) for name, _ in mix.shares}
        self._left = settings.ops
        self._conflicts = 0
        self._wrong: Counter[str] = Counter()
        self._shown: list[str] = []

    async def run(self) -> YcsbResult:
        """Load, run, and check the rows that were changed."""
        loop = asyncio.get_running_loop()
        settings = self._settings
        began = loop.time()
        await self._load()
        loaded = loop.time()
        async with asyncio.TaskGroup() as group:
            for task in range(settings.tasks):
                group.create_task(self._run_task(self._chances(f"task {task}")))
        ended = loop.time()
        lost, extra, changed = await self._check_changes()
        return YcsbResult(
            mix=self._mix.name,
            target=self._target.name,
            rows=settings.rows,
            tasks=settings.tasks,
            load_s=loaded - began,
            run_s=ended - loaded,
            timings=self._timings,
            conflicts=self._conflicts,
            wrong=self._wrong,
            shown=self._shown,
            rows_changed=changed,
            changes_lost=lost,
            changes_extra=extra,
        )

    async def _load(self) -> None:
        rows = self._settings.rows
        starts = iter(range(0, rows, LOAD_ROWS))

        async def load_batches() -> None:
            for start in starts:
                batch = range(start, min(start + LOAD_ROWS, rows))
                await self._target.load([(row, self._value(row, 0, 0)) for row in batch])

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._settings.tasks, 8)):
                group.create_task(load_batches())

    async def _run_task(self, chance: Chance) -> None:
        """Send requests until there have been enough of all tasks."""
        draw = chance.draw
        work: dict[str, Callable[[Chance], Awaitable[None]]] = {
            READ: self._read,
            UPDATE: self._update,
            INSERT: self._insert,
            RANGE: self._range,
            CHANGE: self._change,
        }
        loop = asyncio.get_running_loop()
        while self._left > 0:
            self._left -= 1
            self._show_progress()
            point = draw() * 100
            name = self._mix.shares[-1][0]
            for one, share in self._mix.shares:
                if point < share:
                    name = one
                    break
                point -= share
            timings = self._timings[name]
            began = loop.time()
            try:
                await work[name](chance)
            except (Refused, ErrorReply) as error:
                timings.refused += 1
                self._note(f"{name} was refused: {error}")
            except (Unavailable, Conflict) as error:
                timings.failed += 1
                self._note(f"{name} failed: {error}")
            else:
                timings.done += 1
                timings.sketch.add((loop.time() - began) * 1e6)
            # An answer without a wait must still let the other tasks run.
            await asyncio.sleep(0)

    def _show_progress(self) -> None:
        ops = self._settings.ops
        if self._progress is not None and self._left % max(ops // 100, 1) == 0:
            self._progress(ops - self._left, ops, f"mix {self._mix.name}")

    # The operations.

    def _row(self, chance: Chance) -> int:
        rows = self._rows
        return rows.latest(chance.draw()) if self._mix.latest else rows.scrambled(chance.draw())

    async def _read(self, chance: Chance) -> None:
        row = self._row(chance)
        floor = self._ledger.floor(row)
        self._check(row, await self._target.read(row), floor)

    async def _update(self, chance: Chance) -> None:
        await self._write(self._row(chance))

    async def _insert(self, chance: Chance) -> None:
        row = self._rows.next_row()
        await self._write(row)
        self._rows.record_insert(row)

    async def _write(self, row: int) -> None:
        ledger = self._ledger
        version = ledger.begin(row)
        applied: bool | None = None
        try:
            await self._target.write(row, self._value(row, version, 0))
            applied = True
        except (Refused, ErrorReply):
            applied = False
            raise
        finally:
            ledger.end(row, applied=applied)

    async def _range(self, chance: Chance) -> None:
        row = self._row(chance)
        rows_max = 1 + int(chance.draw() * RANGE_ROWS_MAX)
        floors = [self._ledger.floor(one) for one in range(row, row + rows_max)]
        found = await self._target.scan(row, rows_max)
        if not found or found[0][0] != row:
            self._record_fault("missing from a range", row)
        for place, (one, value) in enumerate(found):
            if one < row + len(floors) and not self._is_of_earlier_run(one, value):
                self._check(one, value, floors[one - row])
            if place and one <= found[place - 1][0]:
                self._record_fault("out of order", one)

    async def _change(self, chance: Chance) -> None:
        """Read, and write what follows from it if it is still there."""
        row = self._row(chance)
        ledger = self._ledger
        for _ in range(CHANGE_TRIES_MAX):
            floor = ledger.floor(row)
            value = await self._target.read(row)
            self._check(row, value, floor)
            record = None if value is None else decode(value)
            if value is None or record is None:
                return
            version = ledger.begin(row)
            new = self._value(row, version, record.changes + 1)
            applied: bool | None = None
            try:
                applied = await self._target.swap(row, new, value)
            except (Refused, ErrorReply):
                applied = False
                raise
            finally:
                ledger.end(row, applied=applied, changes=1)
            if applied:
                return
            self._conflicts += 1
        raise Conflict(f"row {row}", f"{CHANGE_TRIES_MAX} times")

    # What is checked.

    async def _check_changes(self) -> tuple[int, int, int]:
        """Count changes that were lost, changes too many, and the rows that were checked."""
        lost = extra = 0
        changed = self._ledger.changed()
        for row, (certain, in_doubt) in changed.items():
            try:
                value = await self._target.read(row)
            except SluicegateError as error:
                self._record_fault("not to be read at the end", row)
                self._note(str(error))
                continue
            self._check(row, value, self._ledger.floor(row))
            record = None if value is None else decode(value)
            there = 0 if record is None else record.changes
            lost += max(certain - there, 0)
            extra += max(there - certain - in_doubt, 0)
        return lost, extra, len(changed)

    def _check(self, row: int, value: bytes | None, floor: int) -> None:
        if fault := self._ledger.find_fault(row, value, floor):
            if fault == STALE and not self._settings.strong:
                return
            self._record_fault(fault, row)

    def _record_fault(self, what: str, row: int) -> None:
        self._wrong[what] += 1
        self._note(f"row {row} is {what}")

    def _note(self, text: str) -> None:
        if len(self._shown) < SHOWN_MAX:
            self._shown.append(text)

    def _value(self, row: int, version: int, changes: int) -> bytes:
        return encode(
            YcsbRecord(row, version, changes, self._ledger.run), self._settings.value_bytes
        )

    def _is_of_earlier_run(self, row: int, value: bytes) -> bool:
        """Whether an earlier run inserted the row, and this one has not yet."""
        record = decode(value) if row >= self._settings.rows else None
        return record is not None and record.run != self._ledger.run
