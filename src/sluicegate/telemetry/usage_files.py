"""Usage files: what callers asked for, minute by minute, kept for a month, to tune quotas by.

A folder holds a file a day for each node, `usage-NODE-20413.jsonl`, named by the number of the day
since the epoch, with a line for each minute:

    {"v": 1, "minute": 29871360, "callers": {"shop": [5400, 120]}}

The minute counts from the epoch; the two numbers are the request units that were asked for and
those of them that were refused. Who asked for nothing has no entry, a minute without any no line.
A minute that is too long for one line has several, each with callers of its own; readers add up all
lines of a minute. A line that was cut by a crash is passed over, and so is a newer version. Nodes
write files of their own, so a folder may be shared.

Bounds: `callers_max` callers and `minute_bytes_max` bytes a minute, those who asked for most; 1 MiB
a line; files older than `days` are deleted.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, final

from sluicegate.contracts.errors import BadValue, Unavailable

VERSION: Final = 1
MINUTE_US: Final = 60_000_000
DAY_MINUTES: Final = 1_440
CALLERS_MAX: Final = 10_000
LINE_BYTES_MAX: Final = 1 << 20
MINUTE_BYTES_MAX: Final = 16 << 20
_FILE: Final = re.compile(r"usage-(.+)-(\d{1,7})\.jsonl")
_NODE: Final = re.compile(r"[^A-Za-z0-9._]")


class UsageMinute(NamedTuple):
    """What one caller asked for in a minute, in request units, and what of it was refused."""

    asked_ru: int
    refused_ru: int


@final
class UsageWriter:
    """Appends to a folder's files of one node."""

    __slots__ = ("_folder", "_node", "_swept", "callers_max", "days", "minute_bytes_max")

    def __init__(
        self,
        folder: str,
        node: str,
        *,
        days: int,
        callers_max: int = CALLERS_MAX,
        minute_bytes_max: int = MINUTE_BYTES_MAX,
    ) -> None:
        self._folder = Path(folder)
        self._node = _NODE.sub("_", node)
        self.days = days
        self.callers_max = callers_max
        self.minute_bytes_max = minute_bytes_max
        self._swept = -1
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadValue("usage", folder, f"it cannot be made: {error.strerror}") from None

    def write(self, minute: int, callers: Mapping[str, UsageMinute]) -> None:
        """Keep one minute; `Unavailable` if the disk does not."""
        if not callers:
            return
        rows = sorted(callers.items(), key=lambda one: -one[1].asked_ru)[: self.callers_max]
        lines = _lines_of(minute, rows, self.minute_bytes_max)
        day = minute // DAY_MINUTES
        path = self._folder / f"usage-{self._node}-{day}.jsonl"
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.writelines(lines)
            if day != self._swept:
                self._swept = day
                self._sweep(day - self.days)
        except OSError as error:
            raise Unavailable(f"the usage folder {self._folder}", str(error.strerror)) from None

    def _sweep(self, oldest: int) -> None:
        for path in self._folder.iterdir():
            match = _FILE.fullmatch(path.name)
            if match is not None and int(match[2]) < oldest:
                path.unlink(missing_ok=True)


def read_usage(
    folders: Sequence[str], from_minute: int, to_minute: int
) -> dict[str, dict[int, UsageMinute]]:
    """By caller and minute, from one minute up to another, over all nodes of all folders."""
    usage: dict[str, dict[int, UsageMinute]] = {}
    for folder in folders:
        if not os.path.isdir(folder):
            raise BadValue("usage", folder, "give a folder that sluicegate kv --usage has written")
        for path in sorted(Path(folder).iterdir()):
            if _FILE.fullmatch(path.name) is not None:
                for minute, caller, one in _lines(path):
                    if from_minute <= minute < to_minute:
                        minutes = usage.setdefault(caller, {})
                        before = minutes.get(minute, UsageMinute(0, 0))
                        minutes[minute] = UsageMinute(
                            before.asked_ru + one.asked_ru, before.refused_ru + one.refused_ru
                        )
    return usage


def _lines_of(
    minute: int, rows: Sequence[tuple[str, UsageMinute]], minute_bytes_max: int
) -> Iterator[str]:
    """Lines that a reader takes whole. JSON is ASCII here, so characters are bytes."""
    begin = f'{{"v":{VERSION},"minute":{minute},"callers":{{'
    end = "}}\n"
    bare = len(begin) + len(end)
    entries: list[str] = []
    size, bytes_left = bare, minute_bytes_max
    for name, one in rows:
        entry = f"{json.dumps(name)}:[{one.asked_ru},{one.refused_ru}]"
        entry_size = len(entry) + 1  # and a comma
        if bare + entry_size > LINE_BYTES_MAX:
            continue  # no reader would take it
        if size + entry_size > min(LINE_BYTES_MAX, bytes_left):
            if entries:
                yield begin + ",".join(entries) + end
            bytes_left -= size
            entries, size = [], bare
            if size + entry_size > bytes_left:
                return
        entries.append(entry)
        size += entry_size
    if entries:
        yield begin + ",".join(entries) + end


def _lines(path: Path) -> Iterator[tuple[int, str, UsageMinute]]:
    try:
        with open(path, encoding="utf-8") as file:
            while line := file.readline(LINE_BYTES_MAX):
                yield from _entries(line)
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(f"the usage file {path}", str(error)) from None


def _entries(line: str) -> Iterator[tuple[int, str, UsageMinute]]:
    try:
        record: Any = json.loads(line)
        if record["v"] != VERSION:
            return
        minute = int(record["minute"])
        entries = [
            (minute, str(name), UsageMinute(*one)) for name, one in record["callers"].items()
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        return  # cut by a crash
    for entry in entries:
        one = entry[2]
        if type(one.asked_ru) is int and type(one.refused_ru) is int and one.asked_ru >= 0:
            yield entry
