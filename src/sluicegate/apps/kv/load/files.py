"""Input of an upload: its files, and the parts that their rows are cut into.

An upload is named by a digest of its files, so the same files and flags resume it. Parts are cut by
a function of the input alone, so they are the same again after a kill or on another machine.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from hashlib import blake2b, sha256
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, TypeAlias

from sluicegate.apps.kv.load.formats import form_of
from sluicegate.contracts.errors import BadValue
from sluicegate.wire.row_stream import HEADER

STDIN: Final = "-"
_DIGEST_PIECE_BYTES: Final = 1 << 20
Stamp: TypeAlias = tuple[int, int, int]  # of a file: its inode, size and last write


def name_of(arguments: Namespace) -> str:
    """A name that the same command makes again: of what is in the files, and of how it is cut."""
    if STDIN in arguments.files:
        raise BadValue("--name", "", "a stream has no name of its own; say one, to go on by it")
    digest = blake2b(digest_size=16)
    for argument in (
        arguments.table,
        arguments.mode,
        str(arguments.base64),
        str(arguments.part_rows),
        str(arguments.part_bytes),
    ):
        digest.update(f"{argument}|".encode())
    for path in arguments.files:
        if not Path(path).is_file():
            raise BadValue("--name", path, "it can be read once only; say a name, to go on by it")
        size = size_of(path)
        digest.update(f"{form_of(path, arguments.format)}:{size}|".encode())
        with open_input(path) as file:
            while piece := file.read(_DIGEST_PIECE_BYTES):
                digest.update(piece)
    return f"load-{digest.hexdigest()}"


def open_input(path: str) -> BinaryIO:
    """The file, or stdin."""
    if path == STDIN:
        return sys.stdin.buffer
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise BadValue("FILE", path, f"it cannot be read: {error.strerror}") from None


def size_of(path: str) -> int:
    """Its bytes; 0 where they cannot be known."""
    return 0 if path == STDIN else Path(path).stat().st_size


def stamp_of(path: str) -> Stamp:
    """Return values that change, nearly always, when a file is written."""
    if path == STDIN:
        return (0, 0, 0)
    stat = Path(path).stat()
    return (stat.st_ino, stat.st_size, stat.st_mtime_ns)


def total_of(paths: list[str]) -> int:
    """The bytes of all; 0 if they cannot be known."""
    return 0 if STDIN in paths else sum(map(size_of, paths))


def position_of(file: BinaryIO, path: str) -> int:
    """How many bytes were read of it; 0 where that cannot be known."""
    if path == STDIN or file.closed:
        return 0
    try:
        return os.lseek(file.fileno(), 0, os.SEEK_CUR)
    except OSError:
        return 0  # a pipe by a name


class LoadPart(NamedTuple):
    """One part to send."""

    number: int
    rows: int
    data: bytes
    sha256: bytes


def cut_parts(rows: Iterable[bytes], *, rows_max: int, bytes_max: int) -> Iterator[LoadPart]:
    """The parts of these rows; each has at least one, and no more than fit."""
    number, pieces, size = 0, [HEADER], len(HEADER)
    for row in rows:
        if len(HEADER) + len(row) > bytes_max:
            raise BadValue("--part-bytes", bytes_max, f"a row has {len(row):,} bytes; allow more")
        if len(pieces) > rows_max or size + len(row) > bytes_max:
            yield _part(number, pieces)
            number, pieces, size = number + 1, [HEADER], len(HEADER)
        pieces.append(row)
        size += len(row)
    if len(pieces) > 1:
        yield _part(number, pieces)


def _part(number: int, pieces: list[bytes]) -> LoadPart:
    data = b"".join(pieces)
    return LoadPart(number, len(pieces) - 1, data, sha256(data).digest())
