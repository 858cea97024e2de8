"""Files of traces: unpacked by the ending of their names, read as a stream, however large.

zstd is read where Python brings it (3.14) or the package `zstandard` is installed.

Four kinds of files serve to judge caches:

- of keys, as the simulators of cache2k and Caffeine keep them: nothing but 32-bit whole numbers in
  order, the most significant byte first, without times;
- of lines, as that of LIRS: the key is the first word of each line, and `*` is a comment;
- of AdaptSize: time in seconds, key and size, as whole numbers between blanks;
- of libCacheSim (oracleGeneral): records of 24 bytes, the least significant first: time in seconds
  (4), key (8), size (4), and when the key comes next (8), which nobody needs here.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from struct import Struct
from sys import byteorder
from typing import IO, Any, Final, cast
from zlib import error as zlib_error

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.traces.trace import (
    AT_US_MAX,
    SIZE_MAX,
    BadTraceRow,
    TraceRow,
    from_zero,
    spread,
)

PACKED: Final = (".gz", ".bz2", ".xz", ".lzma", ".zst")
KEY_BYTES: Final = 4
_ORACLE: Final = Struct("<IQIq")
_NO_NEXT: Final = (-1, (1 << 63) - 1)  # the key does not come again
_NEXT_MAX: Final = 1 << 40  # as numbers of 32 bits, weightiest byte first, it is more or negative
SECOND_US: Final = 1_000_000
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
    for chunk in _whole_records(path, KEY_BYTES, "keys"):
        keys = array("I" if array("I").itemsize == KEY_BYTES else "L", chunk)
        if byteorder == "little":
            keys.byteswap()
        for key in keys:
            yield TraceRow(0, str(key))


def read_lines(path: str) -> Iterator[TraceRow]:
    """The rows of a file of lines."""
    for _, words in _words(path):
        yield TraceRow(0, words[0])


def read_oracle(path: str) -> Iterator[TraceRow]:
    """The rows of a file of libCacheSim, the first at 0."""
    yield from spread(from_zero(_oracle_rows(path), path), SECOND_US)


def is_oracle(begin: bytes) -> bool:
    """Whether a file that begins so is of libCacheSim: time goes on, and what is next is near."""
    records = [*_ORACLE.iter_unpack(begin[: len(begin) // _ORACLE.size * _ORACLE.size])]
    times = [at_s for at_s, _, _, _ in records]
    return (
        bool(records)
        and times == sorted(times)
        and all(after in _NO_NEXT or 0 < after < _NEXT_MAX for _, _, _, after in records)
    )


def _oracle_rows(path: str) -> Iterator[TraceRow]:
    for chunk in _whole_records(path, _ORACLE.size, "records"):
        for at_s, key, size, _ in _ORACLE.iter_unpack(chunk):
            yield TraceRow(at_s * SECOND_US, str(key), size)


def _whole_records(path: str, size: int, name: str) -> Iterator[bytes]:
    """A file's records, as many at once as a chunk holds; part of one is an error."""
    with open_file(path) as file:
        left = b""
        count = 0
        while chunk := left + file.read(CHUNK_BYTES - len(left)):
            whole = len(chunk) // size * size
            if whole == 0:
                after = f"{len(chunk)} bytes after {count:,} {name}"
                raise BadValue(path, after, f"give {name} of {size} bytes each")
            yield chunk[:whole]
            count += whole // size
            left = chunk[whole:]


def read_adaptsize(path: str) -> Iterator[TraceRow]:
    """The rows of a file of AdaptSize, the first at 0."""
    yield from spread(from_zero(_adaptsize_rows(path), path), SECOND_US)


def _adaptsize_rows(path: str) -> Iterator[TraceRow]:
    for line, words in _words(path):
        try:
            at_s, key, size = words
            row = TraceRow(int(at_s) * SECOND_US, key, int(size))
        except ValueError as error:
            remedy = "mend this row: give a time, a key and a size, whole numbers between blanks"
            raise BadTraceRow(path, line, " ".join(words), remedy) from error
        if not (0 <= row.at_us <= AT_US_MAX and 0 <= row.size <= SIZE_MAX):
            raise BadTraceRow(path, line, " ".join(words), "mend its time or size: out of range")
        yield row


def _words(path: str) -> Iterator[tuple[int, list[str]]]:
    with open_file(path) as file:
        for number, line in enumerate(text_lines(file), 1):
            words = line.split()
            if words and not words[0].startswith("*"):
                yield number, words


def _open(path: str) -> IO[bytes]:
    name = path.lower()
    if name.endswith(".gz"):
        return cast("IO[bytes]", gzip.open(path, "rb"))
    if name.endswith(".bz2"):
        return cast("IO[bytes]", bz2.open(path, "rb"))
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
