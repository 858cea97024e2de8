"""Data file: `data.mdb` seen as a file, before LMDB opens it."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from typing import Final

NAME: Final = "data.mdb"
# A meta page: its header, magic, version, address, size of the map, two databases (the first begins
# with the size of a page), the number of the last page, the number of the transaction.
_META: Final = struct.Struct("=16xII8xQI92xQQ")
_MAGIC: Final = 0xBEEFC0DE
_PAGE_BYTES: Final = range(512, 65_537)


def size_of(folder: str) -> int:
    """Return the size of the file, 0 without a file. A smaller map is invalid."""
    try:
        return os.stat(os.path.join(folder, NAME)).st_size
    except OSError:
        return 0


def extend(folder: str) -> None:
    """Extend a file that was cut off: what LMDB reads of it is damage then, which is reported.

    A read of a map beyond the end of its file would end this process by a signal.
    """
    try:
        handle = os.open(os.path.join(folder, NAME), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        size = _size_named(handle)
        if size > os.fstat(handle).st_size:
            with suppress(OSError):  # on a full disk it stays as it was
                # Never cuts off what another process writes meanwhile.
                os.posix_fallocate(handle, size - 1, 1)
    finally:
        os.close(handle)


def _size_named(handle: int) -> int:
    """Return the bytes of all pages that the newest whole meta page names, 0 without one."""
    newest, size, at = -1, 0, 0
    for _ in range(2):
        data = os.pread(handle, _META.size, at)
        if len(data) < _META.size:
            break
        magic, _version, map_bytes, page_bytes, last_page, number = _META.unpack(data)
        if magic != _MAGIC or page_bytes not in _PAGE_BYTES:
            break
        named = (last_page + 1) * page_bytes
        if number > newest and named <= map_bytes:
            newest, size = number, named
        at = page_bytes
    return size
