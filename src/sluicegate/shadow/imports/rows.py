"""Import rows: fields of a log to asks, and what happens to a row that cannot be read.

A reader of a format gives each row as fields by name; here is what they mean. A bad row is an error
with its line, or is counted and passed over, up to `bad_rows_max` of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, final

from sluicegate.contracts.checks import CheckRequest, Descriptor, MeshRequest
from sluicegate.contracts.criticality import parse_criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.rules.resources.paths import plain_path
from sluicegate.rules.resources.service import PATH_CHARS_MAX, USER_CHARS_MAX, WEIGHT_MAX_DEFAULT
from sluicegate.shadow.ask_keys import Pairs
from sluicegate.shadow.captured import UNKNOWN

BAD_ROWS_MAX: Final = 1_000_000_000
DESCRIPTORS_MAX: Final = 64
VALUE_CHARS_MAX: Final = 8_192


class Row(NamedTuple):
    """A request of a log."""

    ask: CheckRequest | MeshRequest
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

    __slots__ = ("_file", "_read", "_reading", "bad_rows_max", "passed_over")

    def __init__(
        self,
        file: str,
        reading: Callable[[], Iterator[Raw]],
        read: Callable[[Mapping[str, object]], Row],
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

    def __iter__(self) -> Iterator[Row]:
        self.passed_over = 0
        for line, shown, fields in self._reading():
            try:
                if isinstance(fields, ValueError):
                    raise fields
                row = self._read(fields)
            except ValueError as error:
                self.passed_over += 1
                if self.passed_over > self.bad_rows_max:
                    said = error.remedy if isinstance(error, BadValue) else str(error)
                    remedy = f"{said}; mend the row, or allow more (bad_rows_max)"
                    raise BadRow(self._file, line, shown, remedy) from error
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
    """A check, if these can be asked."""
    if not 1 <= len(user) <= USER_CHARS_MAX:
        raise ValueError(f"it does not say whose work it is, in 1 to {USER_CHARS_MAX:,} characters")
    if not path:
        raise ValueError("it has no path")
    path = plain_path(path)
    if len(path) > PATH_CHARS_MAX:
        raise ValueError(f"its path is longer than {PATH_CHARS_MAX:,} characters")
    _check_lengths(headers.values())
    claim = parse_criticality(priority) if priority else None
    units = 1 if not weight else whole(weight, "weight")
    return CheckRequest(user, path, headers=headers, cost=units, priority=claim)


def mesh_row(domain: str, descriptors: Sequence[Pairs], *, hits: str = "") -> MeshRequest:
    """A mesh's ask, if it can be asked."""
    kept = [pairs for pairs in descriptors if pairs]
    if not kept:
        raise ValueError("it has no descriptor")
    if len(kept) > DESCRIPTORS_MAX:
        raise ValueError(f"it has more than {DESCRIPTORS_MAX} descriptors")
    for pairs in kept:
        _check_lengths([domain, *[text for pair in pairs for text in pair]])
    made = [Descriptor(list(pairs)) for pairs in kept]
    return MeshRequest(domain, made, 0 if not hits else whole(hits, "hits"))


def whole(text: str, what: str) -> int:
    """A whole number, 0 or more."""
    number = int(text)
    if not 0 <= number <= WEIGHT_MAX_DEFAULT:
        raise ValueError(f"its {what} is not from 0 to {WEIGHT_MAX_DEFAULT:,}")
    return number


def _check_lengths(texts: Iterable[str]) -> None:
    for text in texts:
        if len(text) > VALUE_CHARS_MAX:
            raise ValueError(f"one of its values is longer than {VALUE_CHARS_MAX:,} characters")
