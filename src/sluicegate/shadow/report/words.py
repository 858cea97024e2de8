"""Report words: how figures and names are written, in the text and on the page alike.

Names come from whoever sent the traffic. What a screen would obey instead of show (control
characters, marks that turn the direction of writing, halves of characters) is written as an escape.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NAME_CHARS_MAX: Final = 120
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))


def shown(text: object) -> str:
    """A text that a screen shows as it is, of bounded length."""
    whole = str(text)
    if len(whole) > NAME_CHARS_MAX:
        whole = whole[: NAME_CHARS_MAX - 3] + "..."
    if whole.isprintable():
        return whole
    return "".join([one if one.isprintable() else _escape(one) for one in whole])


def _escape(one: str) -> str:
    code = ord(one)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def is_whole(report: Mapping[str, object]) -> bool:
    """Whether there are figures in it: a verdict may come without, or its report was cut."""
    return "capture" in report


def why_none(report: Mapping[str, object]) -> str:
    """Why there are no figures."""
    return str(report.get("cut") or "There are no figures, for nothing was replayed.")


def count(value: object) -> str:
    """A whole number."""
    return f"{value:,}" if isinstance(value, int) else shown(value)


def things(value: object, one: str, several: str) -> str:
    """So many of something."""
    return f"{count(value)} {one if value == 1 else several}"


def percent(value: object) -> str:
    """A share; a dash where there is none, and never 0 for what is more."""
    if not isinstance(value, int | float):
        return "-"
    if 0 < value < 0.0001:
        return "<0.01%"
    return f"{value:.2%}"


def duration(us: object) -> str:
    """A time in the unit that suits it."""
    if not isinstance(us, int | float):
        return "-"
    seconds = us / 1_000_000
    for unit_s, unit in _UNITS:
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.3g} {unit}"
    return f"{seconds:.3g} s"
