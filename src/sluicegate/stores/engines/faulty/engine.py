"""Faulty: any engine, made slow or failing by a plan. For drills and the lab, never for traffic.

    faulty+memory:?slots=8&work_ms=10            800 operations a second, not one more
    faulty+lmdb:DIR?shards=10&slots=2&slots_by=shard&work_ms=10&slow_shard=3&slow_times=50

    slots         operations at work at a time; 0 (the default) is without a bound
    slots_by      all (the default): for all shards together; shard: so many for each
    work_ms       that each operation takes a slot, once it has one; the line is first come, first
                  served
    rows_a_slot   a scan, walk or load works once for each so many rows (0: once in all)
    row_us        that each row of a scan, walk or load takes besides
    shards        by `shard_number` of the partition; `shard_of` says "shard-3" (1: as within)
    slow_shard    which of them is slow, from 0, and
    slow_times    how many times as slow
    error_share   of operations that raise `Unavailable` after their work; evenly, without dice
    stalled       on: nothing is answered until it is off; work goes on where it was
    stall_after_ms, stall_ms   a stall of that length, so long after the first operation
    line_max      operations that may wait for a slot (100,000); more are `Unavailable`
    control       a file with JSON of the names above (slots, work_ms, rows_a_slot, row_us,
                  slow_shard, slow_times, error_share, stalled), looked at every 100 ms: it changes
                  what it names, and what it names no more is again as in the URL. Write it aside
                  and rename it. `set_plan` does the same in-process.

What else the URL says is for the engine within. A read, write or swap of several shards works in
each of them where slots are by shard, and as long as the slowest where they are not. Work that was
begun is ended, also if nobody waits for it any more, as an engine behind a socket does.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from inspect import isawaitable
from typing import Final, TypeVar, cast, final
from zlib import crc32

from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.engine import (
    BackupSource,
    Change,
    Engine,
    EngineHealth,
    EnginePage,
    Entry,
    KeyRange,
    Place,
    Update,
    health_of,
)
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.stores.engines.bounds import (
    check_changes,
    check_place,
    check_rows_max,
    check_update,
)
from sluicegate.stores.engines.faulty.slots import WorkSlots
from sluicegate.stores.engines.faulty.url import SHARD, FaultPlan, FaultySettings, read_control

LOOK_US: Final = 100_000  # between looks at the control file
_CONTROL_BYTES_MAX: Final = 65_536
T = TypeVar("T")


def shard_number(partition: bytes, shards: int) -> int:
    """Which of so many shards serves a partition."""
    return crc32(partition) % shards


@final
class FaultyEngine:
    """An engine within, and a line before it. Used on one event loop."""

    def __init__(self, engine: Engine, plan: FaultPlan, settings: FaultySettings) -> None:
        self.name = f"faulty+{engine.name}"
        self.durability = engine.durability  # what was acknowledged was written there
        self.shared = False  # slots are counted in one process
        self._engine = engine
        self._base_plan = plan
        self._plan = plan
        self._settings = settings
        self._lines: dict[int, WorkSlots] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timers: list[asyncio.TimerHandle] = []  # the look at the control, the stall
        self._due_us = 0
        self._stalled_us = 0
        self._errors_owed = 0.0
        self._plan_stamp: tuple[int, int, int] | None = None
        self._started = False
        self._closed = False
        self.control_error = ""  # why the control file was not followed, if it was not

    @property
    def plan(self) -> FaultPlan:
        """What goes slowly, and what wrong, now."""
        return self._plan

    def set_plan(self, plan: FaultPlan) -> None:
        """From now on it is this one."""
        before, self._plan = self._plan, plan
        now_us = _now_us()
        if before.stalled and not plan.stalled:
            for line in self._lines.values():
                line.pause(now_us - self._stalled_us, now_us)
        elif plan.stalled and not before.stalled:
            self._turn(now_us, before)
            self._stalled_us = now_us
        if not plan.stalled:
            for line in self._lines.values():
                line.set_slots(plan.slots, now_us)
        self._set_timer()

    def read(self, space: str, places: Sequence[Place]) -> MaybeAwaitable[Sequence[bytes | None]]:
        """As within, after its work."""
        if not self._slow():
            return self._engine.read(space, places)
        return self._read(space, places)

    async def _read(self, space: str, places: Sequence[Place]) -> Sequence[bytes | None]:
        for partition, sort in places:
            check_place(partition, sort)
        await self._work({partition for partition, _ in places}, 0)
        return await _resolve(self._engine.read(space, places))

    def scan(self, space: str, partition: bytes, span: KeyRange) -> MaybeAwaitable[EnginePage]:
        """As within; how long it works depends on what there is, so it looks first."""
        check_rows_max(span.rows_max)
        page = self._engine.scan(space, partition, span)
        if not self._slow():
            return page
        return self._delay_page(page, partition)

    async def _delay_page(self, page: MaybeAwaitable[EnginePage], partition: bytes) -> EnginePage:
        result = await _resolve(page)
        await self._work({partition}, result.rows_scanned)
        return result

    async def write(self, changes: Sequence[Change]) -> None:
        """As within, after its work."""
        if self._slow():
            check_changes(changes)
            await self._work({change.partition for change in changes}, 0)
        await self._engine.write(changes)

    async def swap(self, change: Change, expected: bytes | None) -> bool:
        """As within, after its work."""
        if self._slow():
            check_changes([change])
            await self._work({change.partition}, 0)
        return await self._engine.swap(change, expected)

    async def update(self, update: Update) -> bool:
        """As within, after its work."""
        if self._slow():
            check_update(update)
            await self._work({update.partition}, 0)
        return await self._engine.update(update)

    async def load(self, space: str, entries: Sequence[Entry]) -> None:
        """As within, after its work."""
        if self._slow():
            await self._work({partition for partition, _, _ in entries}, len(entries))
        await self._engine.load(space, entries)

    async def walk(self, space: str, after: Place | None, rows_max: int) -> Sequence[Entry]:
        """As within; it works as a scan does."""
        page = await self._engine.walk(space, after, rows_max)
        if self._slow():
            await self._work({partition for partition, _, _ in page}, len(page))
        return page

    async def drop(self, space: str) -> None:
        """As within, after the work of one operation."""
        if self._slow():
            await self._work((), 0)
        await self._engine.drop(space)

    def shard_of(self, space: str, partition: bytes) -> str:
        """The shard of the plan, or of the engine within if the plan has only one."""
        shards = self._settings.shards
        if shards == 1:
            return self._engine.shard_of(space, partition)
        return f"shard-{shard_number(partition, shards)}"

    def health(self) -> EngineHealth:
        """As within."""
        return health_of(self._engine)

    async def backup(self, folder: str) -> int:
        """As within, if it can."""
        if not hasattr(self._engine, "backup"):
            raise Unavailable(f"a backup of {self._engine.name}", "this engine makes none")
        return await cast("BackupSource", self._engine).backup(folder)

    async def close(self) -> None:
        """Fail what is under way, and close the engine within."""
        self._closed = True
        for timer in [self._timer, *self._timers]:
            if timer is not None:
                timer.cancel()
        for line in self._lines.values():
            line.fail(Unavailable(self.name, "it was closed"))
        await self._engine.close()

    # Working.

    def _slow(self) -> bool:
        """Whether anything is to be done before an answer."""
        if not self._started:
            self._begin()
        plan = self._plan
        return (
            bool(plan.slots or plan.work_us or plan.row_us or plan.error_share or plan.stalled)
            and not self._closed
        )

    async def _work(self, partitions: Collection[bytes], rows: int) -> None:
        plan, settings = self._plan, self._settings
        shards = {shard_number(one, settings.shards) for one in partitions} or {0}
        waits = []
        if settings.slots_by == SHARD:
            waits = [self._wait_slot(shard, self._work_us({shard}, rows)) for shard in shards]
        else:
            waits = [self._wait_slot(0, self._work_us(shards, rows))]
        self._set_timer()
        await asyncio.gather(*waits)
        self._errors_owed += plan.error_share
        if self._errors_owed >= 1:
            self._errors_owed -= 1
            raise Unavailable(self.name, "its plan has it fail now")

    def _work_us(self, shards: Collection[int], rows: int) -> int:
        plan = self._plan
        times = -(-rows // plan.rows_a_slot) if plan.rows_a_slot and rows else 1
        work_us = plan.work_us * times + plan.row_us * rows
        return round(work_us * plan.slow_times) if plan.slow_shard in shards else work_us

    def _wait_slot(self, number: int, work_us: int) -> asyncio.Future[None]:
        line = self._lines.get(number)
        if line is None:
            line = self._lines[number] = WorkSlots(self._plan.slots)
        if line.waiting >= self._settings.line_max:
            raise Unavailable(self.name, f"{line.waiting:,} operations wait for a slot already")
        done = asyncio.get_running_loop().create_future()
        if self._plan.stalled:
            line.enqueue(work_us, done, _now_us())
        else:
            line.enter(work_us, done, _now_us())
        return done

    def _turn(self, now_us: int, plan: FaultPlan) -> None:
        if not plan.stalled:
            for line in self._lines.values():
                line.advance(now_us)

    def _tick(self) -> None:
        self._timer = None
        self._turn(_now_us(), self._plan)
        self._set_timer()

    def _set_timer(self) -> None:
        """One timer for whatever ends first."""
        due = [at_us for line in self._lines.values() if (at_us := line.next_us()) is not None]
        if self._plan.stalled or not due:
            due_us = 0
        else:
            due_us = min(due)
        if self._timer is not None:
            if due_us == self._due_us:
                return
            self._timer.cancel()
            self._timer = None
        if due_us and not self._closed:
            self._due_us = due_us
            self._timer = asyncio.get_running_loop().call_at(due_us / 1e6, self._tick)

    # The plan.

    def _begin(self) -> None:
        """With the first operation: whatever goes by time."""
        self._started = True
        loop, settings = asyncio.get_running_loop(), self._settings
        if settings.control:
            self._look()
        if settings.stall_us:
            begin_s = settings.stall_after_us / 1e6
            self._timers += [
                loop.call_later(begin_s, self._stall, True),
                loop.call_later(begin_s + settings.stall_us / 1e6, self._stall, False),
            ]

    def _stall(self, stalled: bool) -> None:
        self.set_plan(replace(self._plan, stalled=stalled))

    def _look(self) -> None:
        if self._closed:
            return
        self._timers = self._timers[:2]
        with suppress(OSError):
            self._follow(self._settings.control)
        self._timers.append(asyncio.get_running_loop().call_later(LOOK_US / 1e6, self._look))

    def _follow(self, path: str) -> None:
        """Load the control file, if it has changed."""
        stat = os.stat(path)
        stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if stamp == self._plan_stamp:
            return
        with open(path, encoding="utf-8") as file:
            text = file.read(_CONTROL_BYTES_MAX)
        try:
            self.set_plan(read_control(text, self._base_plan))
            self.control_error = ""
        except BadValue as error:
            self.control_error = str(error)  # perhaps it is not written to its end: look again
        else:
            self._plan_stamp = stamp


def _now_us() -> int:
    return int(asyncio.get_running_loop().time() * 1e6)


async def _resolve(answer: MaybeAwaitable[T]) -> T:
    if isawaitable(answer):
        return await answer
    return answer
