"""Segments: the files of a log's folder, by name, and what of them is whole.

A segment is named by the first offset it may hold, in twenty digits, so names sort as events do.
`lock` is held by the one who writes. Whatever else is in the folder is left alone.

A segment gets its name once its header is on disk. So one without a whole header was emptied or cut
off, and the events in it are lost: a writer does not begin there, as it would give their offsets
again.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from sluicegate.contracts.errors import DataLoss, HasWriter, Unavailable
from sluicegate.stores.files.entries import (
    ENTRY_BYTES_MIN,
    HEADER_BYTES,
    Header,
    find_entry,
    pack_header,
    parse_entry,
    parse_header,
)
from sluicegate.stores.files.settings import FileLogSettings

SUFFIX: Final = ".log"
NEW: Final = ".new"  # of a segment that is being made
DIGITS: Final = 20
LOCK: Final = "lock"
_SAFELY: Final = os.O_CLOEXEC | os.O_NOFOLLOW


class Tail(NamedTuple):
    """The end of a segment: its salt, where its last good entry ends, what the next offset is."""

    salt: int
    end: int
    next_offset: int
    at_us: int  # of the last good entry, or 0


def unavailable(folder: str, error: OSError) -> Unavailable:
    """Return the error that a failure of the disk is for whoever asked."""
    reason = error.strerror or str(error)
    return Unavailable(what(folder), f"{error.filename}: {reason}" if error.filename else reason)


def what(folder: str) -> str:
    """Return how an error names the log."""
    return f"the event log in {folder}"


def name_of(base: int) -> str:
    """Return the name of the segment that begins with this offset."""
    return f"{base:0{DIGITS}d}{SUFFIX}"


def bases(folder: str) -> list[int]:
    """Return the first offsets of all segments, in order; none if there is no folder."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(
        int(name[:DIGITS])
        for name in names
        if len(name) == DIGITS + len(SUFFIX) and name.endswith(SUFFIX) and name[:DIGITS].isdigit()
    )


def open_to_read(folder: str, base: int) -> int:
    """Return a handle of a segment."""
    return os.open(Path(folder, name_of(base)), os.O_RDONLY | _SAFELY)


def read_all(handle: int, at: int, bytes_max: int) -> bytes:
    """Return what stands from here on, so many bytes at most."""
    parts, left = [], bytes_max
    while left > 0:
        part = os.pread(handle, left, at)
        if not part:
            break
        parts.append(part)
        at += len(part)
        left -= len(part)
    return b"".join(parts)


def write_all(handle: int, data: bytes) -> None:
    """All of it, whatever a single call may take."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def sync_folder(folder: str) -> None:
    """Make new and removed names durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def take_lock(settings: FileLogSettings) -> int:
    """Make the folder if need be and become its writer; `Unavailable` if there is another."""
    folder = Path(settings.folder)
    if not folder.is_dir():
        folder.mkdir(mode=settings.folder_mode, parents=True, exist_ok=True)
        folder.chmod(settings.folder_mode)
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | _SAFELY, settings.file_mode)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        pid = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
        os.close(handle)
        raise HasWriter(
            what(settings.folder), f"process {pid} writes it already; give each a folder of its own"
        ) from None
    except BaseException:
        os.close(handle)
        raise
    return handle


def make(settings: FileLogSettings, base: int) -> tuple[int, int]:
    """Return a new segment: its handle and its salt."""
    path = Path(settings.folder, name_of(base))
    if path.exists():  # the lock keeps other writers away
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    aside = path.with_suffix(NEW)
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | _SAFELY
    handle = os.open(aside, flags, settings.file_mode)
    try:
        os.fchmod(handle, settings.file_mode)
        status = os.fstat(handle)
        # A number that nobody chooses who chooses what the events say.
        salt = (status.st_mtime_ns ^ status.st_ino * 0x9E3779B1) & 0xFFFFFFFF
        write_all(handle, pack_header(salt, base))
        os.fsync(handle)
        aside.rename(path)
        sync_folder(settings.folder)
    except BaseException:
        os.close(handle)
        for name in (aside, path):
            with suppress(OSError):  # nothing was acknowledged there
                name.unlink()
        raise
    return handle, salt


def open_to_write(folder: str, base: int) -> int:
    """Return a handle at a segment that is there already."""
    return os.open(Path(folder, name_of(base)), os.O_RDWR | _SAFELY)


def tail_of(handle: int, base: int) -> Tail | None:
    """Where to go on behind the last good entry; None if it is no segment that can be gone on.

    Damage in the middle stays as it is: what follows it was acknowledged.
    """
    data = read_all(handle, 0, os.fstat(handle).st_size)
    parsed = parse_header(data)
    if not isinstance(parsed, Header) or parsed.base != base:
        return None
    at, offset, at_us = HEADER_BYTES, base, 0
    while True:
        found = parse_entry(data, at, parsed.salt)
        if found.event is None:
            skip = find_entry(data, at, parsed.salt, offset)
            if skip < 0:
                return Tail(parsed.salt, at, offset, at_us)
            at = skip
        else:
            at, offset, at_us = found.end, found.event.offset + 1, found.event.at_us


def offset_after(folder: str, base: int, size: int) -> int:
    """Return the next offset behind a segment whose header cannot be read, which is left as it is.

    It held at most as many events as fit into its bytes, and their offsets are never given again.
    A segment that is shorter than its header may have held any number: `DataLoss`.
    """
    if size < HEADER_BYTES:
        raise DataLoss(
            f"the event log in {folder}",
            f"{name_of(base)} has {size} bytes, so it was emptied or cut off; restore it from a"
            " backup, or delete it: its events are lost then, and their positions are given again",
        )
    return base + size // ENTRY_BYTES_MIN + 1


def first_at_us(folder: str, base: int) -> int | None:
    """Return the instant of a segment's first event; None if it cannot be told."""
    handle = open_to_read(folder, base)
    try:
        data = read_all(handle, 0, HEADER_BYTES + (1 << 16))
    finally:
        os.close(handle)
    parsed = parse_header(data)
    if not isinstance(parsed, Header):
        return None
    found = parse_entry(data, HEADER_BYTES, parsed.salt)
    return None if found.event is None else found.event.at_us
