"""Reader: follows a log in files, from segment to segment, while another process writes it.

It holds no lock and never sees half an entry: what does not end well at the end of the newest
segment is being written, and is looked at again. What does not end well anywhere else is damage:
it is reported with its file and place, and reading goes on behind it or stops, by setting.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from threading import Event as Flag
from typing import Final, final

from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.event_log import Damage, Event
from sluicegate.stores.files import segments
from sluicegate.stores.files.entries import (
    BODY_BYTES_MAX,
    HEADER_BYTES,
    find_entry,
    parse_entry,
    parse_header,
)
from sluicegate.stores.files.settings import STOP, FileLogSettings

CHUNK_BYTES: Final = 1 << 18
_WHOLE_BYTES: Final = BODY_BYTES_MAX + (1 << 12)  # room for the largest entry
DAMAGE_MAX: Final = 1_000  # reports kept


@final
class FileReader:
    """A `contracts.event_log.Reader`, of one thread at a time."""

    def __init__(self, settings: FileLogSettings, offset: int) -> None:
        self._settings = settings
        self._next_offset = offset
        self._handle = -1
        self._base = -1  # of the segment that is open, or was last
        self._salt = 0
        self._at = 0
        self._started = False
        self._end = False
        self._damage: list[Damage] = []
        self._pause = Flag()
        self._closed = False

    def read(self, events_max: int, wait_us: int) -> Sequence[Event]:
        """Return the next events, oldest first. With none there yet, one is waited for so long."""
        while True:
            if self._closed:
                raise Unavailable(segments.what(self._settings.folder), "its reader is closed")
            try:
                events = self._read_available(events_max)
            except OSError as error:
                raise segments.unavailable(self._settings.folder, error) from None
            if events or wait_us <= 0:
                return events
            step_us = min(wait_us, self._settings.poll_us)
            self._pause.wait(step_us / 1e6)
            wait_us -= step_us

    @property
    def at_end(self) -> bool:
        """Whether everything that was there at the last look has been read."""
        return self._end

    @property
    def damage(self) -> Sequence[Damage]:
        """What was passed over so far because it could not be read."""
        return self._damage

    def close(self) -> None:
        """Give the file back; whoever waits in `read` is woken."""
        self._closed = True
        self._pause.set()
        self._close_segment()

    # Inside.

    def _read_available(self, events_max: int) -> list[Event]:
        events: list[Event] = []
        self._end = False
        while len(events) < events_max and not self._end:
            # Listed before it is read: what the older of two segments lacks then will never come.
            bases = segments.bases(self._settings.folder)
            next_base = next((base for base in bases if base > self._base), -1)
            if self._handle < 0:
                self._end = not self._open(bases, next_base)
            elif not self._read_entries(events, events_max):
                self._handle_stop(next_base)
        return events

    def _open(self, bases: Sequence[int], next_base: int) -> bool:
        if self._base < 0:
            next_base = next(
                (base for base in reversed(bases) if base <= self._next_offset), next_base
            )
        if next_base < 0:
            return False
        try:
            handle = segments.open_to_read(self._settings.folder, next_base)
        except FileNotFoundError:
            self._base = next_base  # let go between the listing and the opening
            return True
        size = os.fstat(handle).st_size  # before its bytes, for it may grow between the two
        parsed = parse_header(segments.read_all(handle, 0, HEADER_BYTES))
        if isinstance(parsed, str):
            os.close(handle)
            if next_base == bases[-1] and size < HEADER_BYTES:
                return False  # it is being made
            self._report(next_base, 0, self._next_offset, parsed)
            self._base = next_base
            return True
        before, self._base = self._base, next_base
        self._handle, self._salt, self._at = handle, parsed.salt, HEADER_BYTES
        if self._started and next_base > self._next_offset and before not in bases:
            self._report(next_base, 0, self._next_offset, "the segments before this one are gone")
        return True

    def _read_entries(self, events: list[Event], events_max: int) -> bool:
        """Read on; False if there is no whole entry here."""
        data = segments.read_all(self._handle, self._at, CHUNK_BYTES)
        found = parse_entry(data, 0, self._salt)
        if found.event is None and len(data) == CHUNK_BYTES:
            data = segments.read_all(self._handle, self._at, _WHOLE_BYTES)
            found = parse_entry(data, 0, self._salt)
        at = 0
        while found.event is not None and len(events) < events_max:
            at = found.end
            if found.event.offset >= self._next_offset:
                events.append(found.event)
                self._next_offset = found.event.offset + 1
                self._started = True
            found = parse_entry(data, at, self._salt)
        self._at += at
        return at > 0

    def _handle_stop(self, next_base: int) -> None:
        """Nothing can be read here: the end, an entry that is not whole yet, or damage."""
        size = os.fstat(self._handle).st_size
        rest = segments.read_all(self._handle, self._at, size - self._at)
        if not rest:
            if next_base < 0:
                self._end = True
            else:
                self._close_segment()
            return
        found = parse_entry(rest, 0, self._salt)
        if found.event is not None:
            return  # it has just become whole
        skip = find_entry(rest, 1, self._salt, self._next_offset)
        if skip >= 0:
            self._report(
                self._base,
                self._at,
                self._next_offset,
                "what stands here is no entry, or a damaged one",
            )
            self._at += skip
        elif next_base < 0:
            self._end = True
        else:
            self._report(
                self._base,
                self._at,
                self._next_offset,
                "the file ends in an entry that is not whole",
            )
            self._close_segment()

    def _report(self, base: int, at: int, offset: int, why: str) -> None:
        path = str(Path(self._settings.folder, segments.name_of(base)))
        damage = Damage(path, at, offset, why)
        if self._settings.damage == STOP:
            raise Unavailable(
                segments.what(self._settings.folder), f"{damage} (damage=skip reads on)"
            )
        if len(self._damage) < DAMAGE_MAX:
            self._damage.append(damage)

    def _close_segment(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)
