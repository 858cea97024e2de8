"""Import lines: the lines of a log as a stream, packed or not, however large.

What is wrong with a file is told with its name. Nothing is kept but the line at hand, up to
`LINE_CHARS_MAX` characters of it.
"""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Callable, Iterator
from typing import IO, Final, cast
from zlib import error as ZlibError  # noqa: N812 - it is a class

from sluicegate.contracts.errors import BadValue

LINE_CHARS_MAX: Final = 1 << 20
LINES_A_STEP: Final = 10_000
_GZIP: Final = b"\x1f\x8b"


def lines(path: str, progress: Callable[[int, int], None] | None = None) -> Iterator[str]:
    """The lines of a file, each with its end; gzip is known by its first bytes.

    `progress` is told how many of the file's bytes were read, and how many there are.
    """
    try:
        with open(path, "rb") as raw:
            size = os.fstat(raw.fileno()).st_size
            for number, line in enumerate(_text(raw), 1):
                if len(line) > LINE_CHARS_MAX:
                    remedy = f"a line has at most {LINE_CHARS_MAX:,} characters"
                    raise BadValue(f"{path}, line {number:,}", line, remedy)
                yield line
                if progress is not None and number % LINES_A_STEP == 0:
                    progress(raw.tell(), size)
            if progress is not None:
                progress(size, size)
    except (OSError, EOFError, ZlibError) as error:
        if isinstance(error, FileNotFoundError | IsADirectoryError):
            raise BadValue("import", path, "give the path of a file that is there") from error
        raise BadValue("import", path, f"it cannot be read: {error}") from error


def _text(raw: IO[bytes]) -> Iterator[str]:
    packed = raw.read(2) == _GZIP
    raw.seek(0)
    file = cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if packed else raw
    text = io.TextIOWrapper(
        cast("io.BufferedReader", file), encoding="utf-8-sig", errors="replace", newline=""
    )
    try:
        while line := text.readline(LINE_CHARS_MAX + 1):
            yield line
    finally:
        text.detach()
