"""Import rows: fields of a log to queries, and what happens to a row that cannot be read.

A reader of a format gives each row as fields by name; here is what they mean. A bad row is an error
with its line, or is counted and passed over, up to `bad_rows_max` of them.
"""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Final, NamedTuple, TypeAlias, cast, final
from zlib import error as ZlibError  # noqa: N812 - it is a class

from sluicegate.contracts.checks import CheckRequest, Descriptor, MeshRequest
from sluicegate.contracts.criticality import parse_criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.path_index import plain_path
from sluicegate.rules.resources.service import PATH_CHARS_MAX, USER_CHARS_MAX, WEIGHT_MAX_DEFAULT
from sluicegate.shadow.query_keys import Pairs
from sluicegate.shadow.traffic import UNKNOWN

LINE_CHARS_MAX: Final = 1 << 20
LINES_A_STEP: Final = 10_000
_GZIP: Final = b"\x1f\x8b"


def lines(path: str, progress: Callable[[int, int], None] | None = None) -> Iterator[str]:
    """The lines of a file, each with its end; gzip is known by its first bytes.

    `progress` gets how many of the file's bytes were read, and how many there are.
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


BAD_ROWS_MAX: Final = 1_000_000_000
DESCRIPTORS_MAX: Final = 64
VALUE_CHARS_MAX: Final = 8_192


class ImportRow(NamedTuple):
    """A request of a log."""

    query: CheckRequest | MeshRequest
    at_us: int
    outcome: int = UNKNOWN


class BadRow(BadValue):
    """A row that cannot be read; the field names the file and the line."""

    def __init__(self, file: str, line: int, value: object, remedy: str) -> None:
        super().__init__(f"{file}, line {line:,}", value, remedy)
        self.file = file
        self.line = line

    def __reduce__(self) -> tuple[type[BadRow], tuple[str, int, object, str]]:  # type: ignore[override]
        return BadRow, (self.file, self.line, self.value, self.remedy)


# The line of a row, what to show of it, and its fields or why there are none.
Raw: TypeAlias = "tuple[int, object, Mapping[str, object] | ValueError]"


@final
class Rows:
    """The rows of one file, as a stream. `passed_over` are the bad ones so far."""

    def __init__(
        self,
        file: str,
        reading: Callable[[], Iterator[Raw]],
        read: Callable[[Mapping[str, object]], ImportRow],
        *,
        bad_rows_max: int = 0,
    ) -> None:
        if not 0 <= bad_rows_max <= BAD_ROWS_MAX:
            raise BadValue("bad_rows_max", bad_rows_max, f"give 0 to {BAD_ROWS_MAX:,}")
        self._file = file
        self._reading = reading
        self._read = read
        self.bad_rows_max = bad_rows_max
        self.passed_over = 0

    def __iter__(self) -> Iterator[ImportRow]:
        self.passed_over = 0
        for line, text, fields in self._reading():
            try:
                if isinstance(fields, ValueError):
                    raise fields
                row = self._read(fields)
            except ValueError as error:
                self.passed_over += 1
                if self.passed_over > self.bad_rows_max:
                    cause = error.remedy if isinstance(error, BadValue) else str(error)
                    remedy = f"{cause}; mend the row, or allow more (bad_rows_max)"
                    raise BadRow(self._file, line, text, remedy) from error
            else:
                yield row


def text_of(value: object) -> str:
    """A field as text; empty for what logs write where there is nothing."""
    if value is None:
        return ""
    if isinstance(value, str):
        return "" if value == "-" else value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise ValueError(f"a text or a number is wanted, not {type(value).__name__}")


def check_row(
    user: str,
    path: str,
    *,
    weight: str = "",
    priority: str = "",
    headers: Mapping[str, str],
) -> CheckRequest:
    """Return a check; `ValueError` if it is invalid."""
    if not 1 <= len(user) <= USER_CHARS_MAX:
        raise ValueError(f"it does not say whose work it is, in 1 to {USER_CHARS_MAX:,} characters")
    if not path:
        raise ValueError("it has no path")
    path = plain_path(path)
    if len(path) > PATH_CHARS_MAX:
        raise ValueError(f"its path is longer than {PATH_CHARS_MAX:,} characters")
    _check_lengths(headers.values())
    claim = parse_criticality(priority) if priority else None
    units = 1 if not weight else parse_whole(weight, "weight")
    return CheckRequest(user, path, headers=headers, cost=units, priority=claim)


def mesh_row(domain: str, descriptors: Sequence[Pairs], *, hits: str = "") -> MeshRequest:
    """Return a mesh's request; `ValueError` if it is invalid."""
    present = [pairs for pairs in descriptors if pairs]
    if not present:
        raise ValueError("it has no descriptor")
    if len(present) > DESCRIPTORS_MAX:
        raise ValueError(f"it has more than {DESCRIPTORS_MAX} descriptors")
    for pairs in present:
        _check_lengths([domain, *[text for pair in pairs for text in pair]])
    parsed = [Descriptor(list(pairs)) for pairs in present]
    return MeshRequest(domain, parsed, 0 if not hits else parse_whole(hits, "hits"))


def parse_whole(text: str, what: str) -> int:
    """A whole number, 0 or more."""
    number = int(text)
    if not 0 <= number <= WEIGHT_MAX_DEFAULT:
        raise ValueError(f"its {what} is not from 0 to {WEIGHT_MAX_DEFAULT:,}")
    return number


def _check_lengths(texts: Iterable[str]) -> None:
    for text in texts:
        if len(text) > VALUE_CHARS_MAX:
            raise ValueError(f"one of its values is longer than {VALUE_CHARS_MAX:,} characters")
