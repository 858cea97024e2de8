"""Lines: what commands print for people, in columns and in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

NAME_CHARS_MAX: Final = 120

_SPANS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
_US: Final = 1_000_000
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_SHOWN_INSTEAD: Final = "\N{REPLACEMENT CHARACTER}"


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int | None = None
) -> list[str]:
    """Lines of aligned columns, two spaces in; those after the first `left` end at the right."""
    lines = [head, *rows] if head else rows
    widths = [max(map(len, column)) for column in zip_longest(*lines, fillvalue="")]
    left = len(widths) if left is None else left
    return [
        "  "
        + "  ".join(
            f"{cell:<{width}}" if at < left else f"{cell:>{width}}"
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def counted(number: int, thing: str, things: str = "") -> str:
    """`1 rule`, `2 rules`; `things` where an s is not enough."""
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"


def limit_words(limit: int, origin: str) -> str:
    """A limit with its origin, as `64 (set)`."""
    if not limit:
        return origin or "none"
    return f"{limit:,} ({origin})" if origin else f"{limit:,}"


def count(value: object) -> str:
    """A whole number, as kept JSON has it."""
    return f"{value:,}" if isinstance(value, int) else clip(str(value))


def percent(value: object) -> str:
    """A share; a dash where there is none, and never 0 for what is more."""
    if not isinstance(value, int | float):
        return "-"
    return "<0.01%" if 0 < value < 0.0001 else f"{value:.2%}"


def rate(value: float) -> str:
    """A number a second: `2.5`, `1,200`; a digit behind the point where there are few."""
    return f"{value:,.1f}" if 0 < value < 10 else f"{value:,.0f}"


def per_second(value: float) -> str:
    """The same with its unit: `2.5/s`."""
    return f"{rate(value)}/s"


def size(count: int) -> str:
    """Bytes in the unit that suits them."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1_000:
            return f"{value:.3g} {unit}"
        value /= 1_000
    return f"{value:,.3g} TB"


def duration(us: object) -> str:
    """A time in the unit that suits it: `0.5 s`, `100 s`, `2 h`."""
    if not isinstance(us, int | float):
        return "-"
    seconds = us / _US
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def ago(us: int) -> str:
    """How long ago, in the largest unit that it has one of: `3m ago`."""
    seconds = max(us, 0) // _US
    for size, unit in _SPANS:
        if seconds >= size:
            return f"{seconds // size}{unit} ago"
    return "just now"


def harmless(text: str) -> str:
    """What others have written, without what would move a terminal's cursor or change its colours.

    Whoever pushes a commit chooses its words, and whoever approves it reads them.
    """
    return text if text.isprintable() else _CONTROLS.sub(_SHOWN_INSTEAD, text)


def printable(text: str) -> str:
    """The text on one line, with escapes for what a screen would obey instead of show.

    Those are control characters, marks that turn the direction of writing, halves of characters.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def clip(text: str, chars_max: int = NAME_CHARS_MAX) -> str:
    """A name that others chose: printable, and cut where it is long."""
    return printable(text if len(text) <= chars_max else f"{text[: chars_max - 3]}...")


def clip_words(text: str) -> str:
    """A sentence of ours, each word of which may be a name."""
    return " ".join(map(clip, text.split(" ")))
