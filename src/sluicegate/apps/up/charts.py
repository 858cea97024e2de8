"""Charts: numbers as characters. Pure text; colours belong to the view."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

LEVELS: Final = " ▁▂▃▄▅▆▇█"
LINE: Final = "━"
HALF_LINE: Final = "╸"


def count_text(count: float) -> str:
    """A count in at most five characters: 9,999 then 24.5k, 1.21M, 3.00G."""
    if count < 10_000:
        return f"{count:,.0f}"
    for unit in ("k", "M", "G", "T"):
        count /= 1000
        if count < 999.5:
            return f"{count:.{2 if count < 9.995 else 1 if count < 99.95 else 0}f}{unit}"
    return f"{count:.0f}T"


def share_text(part: float, whole: float) -> str:
    """A share in at most four characters. 0% and 100% are said only of none and of all."""
    if whole <= 0:
        return "-"
    percent = 100 * part / whole
    if 0 < percent < 1:
        return "<1%"
    if 99 < percent < 100:
        return ">99%"
    return f"{percent:.0f}%"


def latency_text(latency_us: float | None) -> str:
    """A latency measured in whole microseconds."""
    if latency_us is None:
        return "-"
    if latency_us < 1:
        return "<1 µs"
    if latency_us < 999.5:
        return f"{latency_us:.0f} µs"
    return f"{latency_us / 1000:.1f} ms"


def uptime_text(uptime_us: int) -> str:
    """Hours, minutes and seconds."""
    minutes, seconds = divmod(uptime_us // 1_000_000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def columns(seconds: Sequence[int], end_s: int, width: int) -> list[float]:
    """Means of so many seconds each that all fit in `width` columns, oldest first.

    `end_s` is the second after the last. Columns begin at whole multiples of their length, so they
    stand still while they pass.
    """
    each = math.ceil(len(seconds) / width)
    groups: dict[int, list[int]] = {}
    for second, value in enumerate(seconds, end_s - len(seconds)):
        groups.setdefault(second // each, []).append(value)
    return [sum(group) / len(group) for group in groups.values()][-width:]


def levels(values: Sequence[float], top: float, full: int = 8) -> list[int]:
    """Heights in eighths of a row, `full` for `top`; what is not nothing is at least one."""
    return [
        0 if value <= 0 or top <= 0 else min(max(round(full * value / top), 1), full)
        for value in values
    ]


def bar(share: float, width: int) -> str:
    """A line of `share` of `width`, to half a character, without the rest."""
    halves = round(2 * width * min(max(share, 0.0), 1.0))
    if share > 0:
        halves = max(halves, 1)
    return LINE * (halves // 2) + HALF_LINE * (halves % 2)
