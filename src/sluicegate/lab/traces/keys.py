"""Keys: traces of nothing but keys in order, as the simulators of cache2k and Caffeine keep them.

32-bit whole numbers, the most significant byte first. There are no times: such a trace tells which
key follows which, and serves to judge caches and counters, not queues.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from sys import byteorder
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.traces.access import Access
from sluicegate.lab.traces.files import opened

KEY_BYTES: Final = 4
CHUNK_BYTES: Final = 1 << 16


def read_keys(path: str) -> Iterator[Access]:
    """The keys of a file, in order."""
    with opened(path) as file:
        left = b""
        count = 0
        while chunk := left + file.read(CHUNK_BYTES - len(left)):
            whole = len(chunk) // KEY_BYTES * KEY_BYTES
            if whole == 0:
                raise BadValue(
                    path, f"{len(chunk)} bytes after {count:,} keys", "give keys of 4 bytes each"
                )
            keys = array("I" if array("I").itemsize == KEY_BYTES else "L", chunk[:whole])
            if byteorder == "little":
                keys.byteswap()
            for key in keys:
                yield Access(0, str(key))
            count += len(keys)
            left = chunk[whole:]
