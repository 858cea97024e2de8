"""Lines: what commands print for people, in columns and in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_SPANS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
_US: Final = 1_000_000
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_SHOWN_INSTEAD: Final = "\N{REPLACEMENT CHARACTER}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of aligned columns, two spaces in."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [
        "  "
        + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    ]


def counted(count: int, thing: str) -> str:
    """`1 rule`, `2 rules`."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


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
