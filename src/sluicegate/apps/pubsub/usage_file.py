"""Usage file: what accounts have used at this node, on its disk.

One SQLite file beside the history. What has changed is written every `SAVE_S`, in one transaction
with the position of the last message that is counted; what was accepted after that is counted again
from the history at the start, so a kill loses and doubles nothing. Months that are over are
removed. A damaged file is moved aside, and a new one begins: it must not stop the messages.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, final

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.usage import PeriodCount
from sluicegate.policies.quota.periods import month_of
from sluicegate.policies.quota.usage import SavedUsage, UsageMeter
from sluicegate.system import now_us

SAVE_S: Final = 0.5
USAGE_NAME: Final = "usage.sqlite"
_VERSION: Final = 1
_log: Final = logging.getLogger("sluicegate.pubsub")
_COLUMNS: Final = ", ".join(
    (
        "account",
        *("hour", "hour_used", "hour_included", "hour_heard"),
        *("month", "month_used", "month_included", "month_heard"),
    )
)
_TABLES: Final = f"""
create table if not exists usage ({_COLUMNS.replace("account,", "account text primary key,")})
    without rowid;
create table if not exists counted (part integer primary key, position);
"""


@final
class UsageFile:
    """One writer, in one thread at a time."""

    def __init__(self, folder: str) -> None:
        self._path = Path(folder) / USAGE_NAME
        self._file: sqlite3.Connection | None = None

    def begin(self, month: int) -> tuple[Mapping[int, int], list[SavedUsage]]:
        """Open it; return the last position of each part that is counted, and what accounts have
        used."""
        if self._path.exists() and not self._path.stat().st_size:
            self._move_aside(sqlite3.DatabaseError("it is empty"))
        try:
            return self._open(month)
        except sqlite3.OperationalError as error:  # it is locked, or the disk fails: no damage
            raise self._invalid(error) from None
        except sqlite3.DatabaseError as error:
            self.close()
            self._move_aside(error)
        try:
            return self._open(month)
        except sqlite3.Error as error:
            raise self._invalid(error) from None

    def _open(self, month: int) -> tuple[Mapping[int, int], list[SavedUsage]]:
        file = self._file = sqlite3.connect(self._path, check_same_thread=False)
        version = file.execute("pragma user_version").fetchone()[0]
        if version not in (0, _VERSION):
            remedy = "it is of another version: give another folder, or that version"
            raise BadValue("--history", f"{self._path} of version {version}", remedy)
        (state,) = file.execute("pragma quick_check(1)").fetchone()
        if state != "ok":
            raise sqlite3.DatabaseError(state)
        file.execute("pragma journal_mode = wal")
        file.execute("pragma synchronous = full")
        with file:
            file.executescript(_TABLES)
            file.execute(f"pragma user_version = {_VERSION}")
            file.execute("delete from usage where month < ?", (month,))
        counted = dict(file.execute("select part, position from counted"))
        rows = file.execute(f"select {_COLUMNS} from usage").fetchall()
        saved = [SavedUsage(one[0], PeriodCount(*one[1:5]), PeriodCount(*one[5:9])) for one in rows]
        return counted, saved

    def _invalid(self, error: sqlite3.Error) -> BadValue:
        return BadValue("--history", str(self._path), f"check the disk and its rights: {error}")

    def _move_aside(self, error: sqlite3.Error) -> None:
        """Keep a damaged file under another name, with what SQLite has beside it."""
        aside = self._path.with_name(f"{USAGE_NAME}.damaged-{now_us()}")
        try:
            for suffix in ("-wal", "-shm", ""):  # the file last: until then it is tried again
                path = self._path.with_name(USAGE_NAME + suffix)
                if path.exists():
                    path.rename(aside.with_name(aside.name + suffix))
        except OSError as failure:
            remedy = f"it is damaged ({error}), and cannot be moved aside: {failure}"
            raise BadValue("--history", str(self._path), remedy) from None
        _log.error(
            "what accounts have used is lost: %s is damaged (%s); it is kept as %s, and counting"
            " begins again from the history",
            self._path,
            error,
            aside.name,
        )

    def save(self, positions: Mapping[int, int], changed: Sequence[SavedUsage]) -> None:
        """Keep what has changed, up to a position of each part; `sqlite3.Error` if it cannot be."""
        assert self._file is not None
        rows = [(one.account, *one.hour, *one.month) for one in changed]
        with self._file as file:
            marks = ", ".join("?" * 9)
            file.executemany(f"insert or replace into usage ({_COLUMNS}) values ({marks})", rows)
            file.executemany("insert or replace into counted values (?, ?)", positions.items())

    def close(self) -> None:
        """Give the file back."""
        if self._file is not None:
            self._file.close()
            self._file = None


@final
class UsageSaver:
    """Keeps what a meter has counted. `positions` are those up to which that is, by part."""

    def __init__(
        self, folder: str, meter: UsageMeter, positions: Callable[[], Mapping[int, int]]
    ) -> None:
        self._file = UsageFile(folder)
        self._meter = meter
        self._positions = positions
        self._failing = False  # and that was logged

    async def begin(self, now_us: int) -> Mapping[int, int]:
        """Have the meter go on from what was kept; return the positions of then."""
        counted, saved = await asyncio.to_thread(self._file.begin, month_of(now_us))
        self._meter.load(saved, now_us)
        return counted

    async def keep(self) -> None:
        """Keep it again and again."""
        while True:
            await asyncio.sleep(SAVE_S)
            await self.save()

    async def save(self, *, positions: bool = False) -> None:
        """Keep what has changed, or the positions alone; what cannot be kept is, with the next."""
        changed = self._meter.unsaved()
        if not (changed or positions):
            return
        try:
            await asyncio.to_thread(self._file.save, self._positions(), changed)
        except sqlite3.Error as error:
            self._meter.keep_unsaved(changed)
            if not self._failing:
                _log.error("what accounts have used is not kept: %s", error)
            self._failing = True
        else:
            self._failing = False

    async def close(self) -> None:
        """Keep the last, and give the file back."""
        await self.save()
        await asyncio.to_thread(self._file.close)
