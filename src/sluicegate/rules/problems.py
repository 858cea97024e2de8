"""Problems: everything that is wrong with a rules file, told at once.

Whoever mends a file wants the whole list, so readers add to it and go on; the file is refused at
the end. A problem names the field by its path, the value, what to do, and the line where known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final, TypeAlias, final

from sluicegate.contracts.errors import BadValue

PROBLEMS_MAX: Final = 50

# Where a value stands in the file: names of fields and places in lists.
FieldPath: TypeAlias = tuple[str | int, ...]


@final
class Problem(BadValue):
    """One thing that is wrong. `line` is 0 where it is not known.

    Without a field it is about the text as a whole, and the remedy says it all.
    """

    def __init__(self, field: str, value: object, remedy: str, line: int = 0) -> None:
        super().__init__(field, value, remedy)
        self.line = line

    def __str__(self) -> str:
        path_text = super().__str__() if self.field else self.remedy
        return f"line {self.line}: {path_text}" if self.line else path_text

    def __reduce__(self) -> tuple[type[Problem], tuple[str, object, str, int]]:  # type: ignore[override]
        return Problem, (self.field, self.value, self.remedy, self.line)


@final
class BadRules(BadValue):
    """Rules that cannot be used; `problems` has every reason, `more` how many were left out."""

    def __init__(self, source: str, problems: Sequence[Problem], more: int = 0) -> None:
        first = problems[0]
        super().__init__(first.field, first.value, first.remedy)
        self.source = source
        self.problems = tuple(problems)
        self.more = more

    def __str__(self) -> str:
        count = len(self.problems) + self.more
        if count == 1:
            return f"{self.source}: {self.problems[0]}"
        lines = [f"{self.source} has {count} problems", *map(str, self.problems)]
        if self.more:
            lines.append(f"and {self.more} more")
        return "\n  ".join(lines)

    def __reduce__(self) -> tuple[type[BadRules], tuple[str, Sequence[Problem], int]]:  # type: ignore[override]
        return BadRules, (self.source, self.problems, self.more)


@final
class Problems:
    """The list while a file is read; it keeps the first `PROBLEMS_MAX` and counts the rest."""

    def __init__(self, source: str, lines: Mapping[FieldPath, int]) -> None:
        self._source = source
        self._lines = lines
        self._problems: list[Problem] = []
        self._more = 0

    def __len__(self) -> int:
        return len(self._problems) + self._more

    def add(self, at: FieldPath, value: object, remedy: str) -> None:
        """Note a problem and go on."""
        if len(self._problems) >= PROBLEMS_MAX:
            self._more += 1
            return
        self._problems.append(Problem(path_text(at), value, remedy, self._line(at)))

    def add_unknown(self, at: FieldPath, value: object, allowed: Iterable[str]) -> None:
        """Note a field that there is not, with the nearest that there is."""
        names = list(allowed)
        near = get_close_matches(str(at[-1])[:64].lower(), names, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
        self.add(at, value, f"there is no such field; {hint}")

    def raise_if_any(self) -> None:
        """Refuse the file if anything was found."""
        if self._problems:
            raise BadRules(self._source, self._problems, self._more)

    def _line(self, at: FieldPath) -> int:
        """The line of the field, or of the nearest thing around it that has one."""
        while at:
            if at in self._lines:
                return self._lines[at]
            at = at[:-1]
        return 0


def with_item_lines(lines: Mapping[FieldPath, int]) -> dict[FieldPath, int]:
    """The lines of fields, and where each item of a list begins: what it lacks has no line."""
    items: dict[FieldPath, int] = {}
    for at, line in lines.items():
        item = at[:-1]
        if item and isinstance(item[-1], int) and items.get(item, line) >= line:
            items[item] = line
    return {**items, **lines}


def path_text(at: FieldPath) -> str:
    """A field's path as people write it: `limits.login.limit[1]`."""
    words = ""
    for step in at:
        if isinstance(step, int):
            words += f"[{step}]"
        else:
            words += f".{step[:64]}" if words else step[:64]
    return words or "the rules"
