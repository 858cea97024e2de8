"""Draft check: what is wrong with a rules file that somebody is writing. Pure.

It is what the rulebook's own reader says of this file alone; the rulebook looks at all files
together when it is proposed. Bound: `TEXT_BYTES_MAX`, beyond which only the rulebook looks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rulebook import FileChange
from sluicegate.rules.publishing.differences import line_changes, rule_changes
from sluicegate.rules.snapshot.snapshot import compile_snapshot

TEXT_BYTES_MAX: Final = 256 * 1024


class DraftFinding(NamedTuple):
    """What is wrong, if anything, and what changes by lines and by rules."""

    error: BadValue | None
    lines: Sequence[str]
    rules: Mapping[str, Sequence[str]]


def check_draft(name: str, before: str, text: str) -> DraftFinding:
    """Read the text as the rulebook would."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > TEXT_BYTES_MAX:
        remedy = f"over {TEXT_BYTES_MAX:,} bytes are checked when you propose them, not before"
        return DraftFinding(BadValue("text", f"{len(data):,} bytes", remedy), (), {})
    change = FileChange(name, before.encode("utf-8", "surrogatepass"), data)
    error = None
    try:
        compile_snapshot({name.rpartition("/")[2]: data})
    except BadValue as found:
        error = found
    rules = rule_changes([change])
    named = {"added": rules.added, "removed": rules.removed, "changed": rules.changed}
    return DraftFinding(error, line_changes(change), named)
