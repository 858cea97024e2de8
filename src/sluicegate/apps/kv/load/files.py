"""Input files of an upload. It is named by their digest, so the same files and flags resume it."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from sluicegate.apps.kv.load.formats import form_of
from sluicegate.contracts.errors import BadValue

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
    """What tells, nearly always, that a file was written meanwhile."""
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
