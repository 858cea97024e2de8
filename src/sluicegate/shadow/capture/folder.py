"""Capture folder: the segments of all workers in one folder, by name, and which of them go.

    capture-00001700000000000000-812-0.sgc      when it was begun, by which process

Who writes a segment holds its lock, so nobody takes it away under them. `lock` is held for the
moment in which room is made and a segment is begun, so the bound on all of them holds however many
workers there are. Whatever else is in the folder is left alone.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from sluicegate.shadow.capture.settings import CaptureSettings

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
SUFFIX: Final = ".sgc"
LOCK: Final = "lock"
FULL: Final = "retain_bytes is taken up by what others are writing"
_NAME: Final = re.compile(r"capture-([0-9]{20})-[0-9]+-[0-9]+\.sgc")
_SAFELY: Final = os.O_CLOEXEC | os.O_NOFOLLOW
_TRIES_MAX: Final = 1_000


class _SegmentFile(NamedTuple):
    """A segment."""

    path: Path
    began_us: int
    bytes: int


def segments(folder: str) -> list[_SegmentFile]:
    """All segments, those begun first at first; none if there is no folder."""
    found: list[_SegmentFile] = []
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    for name in names:
        matched = _NAME.fullmatch(name)
        if matched is not None:
            path = Path(folder, name)
            with suppress(FileNotFoundError):  # it may just have gone
                found.append(_SegmentFile(path, int(matched[1]), path.stat().st_size))
    found.sort(key=lambda one: (one.began_us, one.path.name))
    return found


def begin(settings: CaptureSettings, now_us: int) -> tuple[int, Path]:
    """Make room, and begin a segment: its handle, which holds its lock, and where it is.

    `OSError` if there is no room, on the disk or within the bound.
    """
    with _alone(settings.folder):
        _make_room(settings, now_us)
        for number in range(_TRIES_MAX):
            name = f"capture-{max(now_us, 0):020d}-{os.getpid()}-{number}{SUFFIX}"
            path = Path(settings.folder, name)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFELY
            try:
                handle = os.open(path, flags, FILE_MODE)
            except FileExistsError:
                continue
            try:
                os.fchmod(handle, FILE_MODE)
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BaseException:
                os.close(handle)
                path.unlink(missing_ok=True)
                raise
            return handle, path
    raise FileExistsError("every name for a segment is taken")


def prune(settings: CaptureSettings, now_us: int) -> int:
    """Take away what is too old; how many segments."""
    if not os.path.isdir(settings.folder):
        return 0
    with _alone(settings.folder):
        return _take_old(settings, segments(settings.folder), now_us)


def is_being_written(path: Path) -> bool:
    """Whether somebody writes this segment now."""
    try:
        handle = os.open(path, os.O_RDONLY | _SAFELY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def _make_room(settings: CaptureSettings, now_us: int) -> None:
    """Take away the oldest until one more segment fits below the bound."""
    _take_old(settings, segments(settings.folder), now_us)
    total, ended = 0, []
    for one in segments(settings.folder):
        if is_being_written(one.path):
            total += max(one.bytes, settings.segment_bytes_max)  # what it may come to
        else:
            total += one.bytes
            ended.append(one)
    for one in ended:
        if total + settings.segment_bytes_max <= settings.retain_bytes:
            return
        one.path.unlink(missing_ok=True)
        total -= one.bytes
    if total + settings.segment_bytes_max > settings.retain_bytes:
        raise OSError(FULL)


def _take_old(settings: CaptureSettings, found: list[_SegmentFile], now_us: int) -> int:
    removed = 0
    for one in found:
        # Nothing in it is younger than this.
        ended_us = one.began_us + settings.segment_us_max
        if ended_us < now_us - settings.retain_us and not is_being_written(one.path):
            one.path.unlink(missing_ok=True)
            removed += 1
    return removed


@contextmanager
def _alone(folder: str) -> Iterator[None]:
    """Make the folder if need be, and be the only one who adds to it or takes away."""
    place = Path(folder)
    if not place.is_dir():
        place.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        place.chmod(FOLDER_MODE)
    handle = os.open(place / LOCK, os.O_RDWR | os.O_CREAT | _SAFELY, FILE_MODE)
    try:
        with suppress(PermissionError):  # another's, who has set it
            os.fchmod(handle, FILE_MODE)
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
