"""Files of traces: opened by what their names end with, read as a stream, however large.

zstd is read where Python brings it (3.14) or the package `zstandard` is installed.
"""

from __future__ import annotations

import gzip
import io
import lzma
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Final, cast
from zlib import error as zlib_error

from sluicegate.contracts.errors import BadValue

PACKED: Final = (".gz", ".xz", ".lzma", ".zst")


@contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """The bytes of the file, unpacked; what is wrong with it is told with its name."""
    try:
        with _open(path) as file:
            yield file
    except (OSError, lzma.LZMAError, zlib_error, EOFError) as error:
        if isinstance(error, FileNotFoundError | IsADirectoryError):
            raise BadValue("trace", path, "give the path of a file that is there") from error
        raise BadValue("trace", path, f"it cannot be read: {error}") from error


def lines(file: IO[bytes]) -> Iterator[str]:
    """Its lines as text; a byte-order mark is not part of the first."""
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
    try:
        yield from text
    finally:
        with suppress(ValueError):  # whoever opened the file has closed it already
            text.detach()


def unpacked_name(path: str) -> str:
    """The name without the ending that says how it is packed."""
    name = Path(path).name.lower()
    for ending in PACKED:
        name = name.removesuffix(ending)
    return name


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
