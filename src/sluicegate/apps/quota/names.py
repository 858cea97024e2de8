"""Names: which callers a rules file can name, and how any of them is shown.

Whoever calls may have chosen the name, so it may hold anything. One that no rules file takes must
not keep the quotas of all others from being written, and none may write a line of its own, or turn
one round, where names are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sluicegate.command_line.text import counted, printable
from sluicegate.rules.row_fields import TEXT_CHARS_MAX

LISTED_MAX: Final = 20


def is_writable(name: str) -> bool:
    """Whether a rules file takes it: as `rules/resources/parse.py` decides."""
    return 1 <= len(name) <= TEXT_CHARS_MAX and (name.isascii() or name.isprintable())


def display_name(name: str) -> str:
    """On one line, with escapes for what cannot be seen; one that is far too long is cut."""
    if len(name) > TEXT_CHARS_MAX:
        return f"{display_name(name[:TEXT_CHARS_MAX])}... ({len(name):,} characters)"
    return printable(name)


def describe_unwritable(names: Sequence[str]) -> str:
    """Who was left out of the rules file, and why; a line each."""
    lines = [f"  {display_name(name) or '(no name)'}\n" for name in names[:LISTED_MAX]]
    if len(names) > LISTED_MAX:
        lines.append(f"  and {counted(len(names) - LISTED_MAX, 'more caller')}\n")
    return (
        f"left out, for no rules file can name them: {counted(len(names), 'caller')}\n"
        + "".join(lines)
        + f"  a name there has 1 to {TEXT_CHARS_MAX} characters, and beyond ASCII none that"
        " cannot be seen:\n  no marks of direction or of joining, no control signs, no space but"
        " the plain one\n"
    )
