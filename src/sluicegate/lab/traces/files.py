"""Files of traces: unpacked by the ending of their names, read as a stream, however large.

zstd is read where Python brings it (3.14) or the package `zstandard` is installed.

A file of keys, as the simulators of cache2k and Caffeine keep them, is nothing but 32-bit whole
numbers in order, the most significant byte first. It has no times: it serves to judge caches and
counters, not queues.
"""

from __future__ import annotations

import gzip
import io
import lzma
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from sys import byteorder
from typing import IO, Any, Final, cast
from zlib import error as zlib_error

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.traces.trace import TraceRow

PACKED: Final = (".gz", ".xz", ".lzma", ".zst")
KEY_BYTES: Final = 4
CHUNK_BYTES: Final = 1 << 16


@contextmanager
def open_file(path: str) -> Iterator[IO[bytes]]:
    """Open the file for its unpacked bytes; an error names the file."""
    try:
        with _open(path) as file:
            yield file
    except (OSError, lzma.LZMAError, zlib_error, EOFError) as error:
        if isinstance(error, FileNotFoundError | IsADirectoryError):
            raise BadValue("trace", path, "give the path of a file that is there") from error
        raise BadValue("trace", path, f"it cannot be read: {error}") from error


def text_lines(file: IO[bytes]) -> Iterator[str]:
    """Its lines as text; a byte-order mark is not part of the first."""
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
    try:
        yield from text
    finally:
        with suppress(ValueError):  # closed already by whoever opened it
            text.detach()


def unpacked_name(path: str) -> str:
    """The name without the ending that says how it is packed."""
    name = Path(path).name.lower()
    for ending in PACKED:
        name = name.removesuffix(ending)
    return name


def read_keys(path: str) -> Iterator[TraceRow]:
    """The rows of a file of keys."""
    with open_file(path) as file:
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
                yield TraceRow(0, str(key))
            count += len(keys)
            left = chunk[whole:]


def _open(path: str) -> IO[bytes]:
    name = path.lower()
    if name.endswith(".gz"):
        return cast("IO[bytes]", gzip.open(path, "rb"))
    if name.endswith((".xz", ".lzma")):
        return cast("IO[bytes]", lzma.open(path, "rb"))
    if name.endswith(".zst"):
        return _open_zstd(path)
    return open(path, "rb")


def _open_zstd(path: str) -> IO[bytes]:
    for module in ("compression.zstd", "zstandard"):
        if find_spec(module.partition(".")[0]) is not None:
            zstd: Any = import_module(module)
            return cast("IO[bytes]", zstd.open(path, "rb"))
    raise BadValue("trace", path, "unpack it first, or pip install zstandard")
