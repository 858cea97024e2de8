"""Text: numbers, times and names as the lab prints them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import floor, isfinite, log10
from typing import Final

_ZERO: Final = 1e-9  # and less is shown as 0
_US: Final = 1_000_000


def format_number(value: float) -> str:
    """Short, and never in powers of ten; what is infinite is `never`."""
    if not isfinite(value):
        return "never"
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 0.001 or size < _ZERO:
        return f"{round(value, 4):.4g}"
    return f"{value:.{1 - floor(log10(size))}f}".rstrip("0")  # two digits, wherever they begin


def format_time_left(us: int) -> str:
    """A long time: `40 s`, `3 min`, `2 h 10 min`."""
    seconds = us // _US
    if seconds < 100:
        return f"{seconds} s"
    minutes = (seconds + 30) // 60
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def join_names(names: Sequence[str]) -> str:
    """`a, b and c`."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def slug(name: str) -> str:
    """A name for a file or for an anchor of a page."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "scenario"
