"""Differences: what changes from one state of the files to another, by lines and by rules.

Lines are what the author wrote; rules are what it means. A rule is known by its name, so one that
only moved is no difference. Files are read here as plain values and no more: what is compared may
be older than what this program would accept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from itertools import islice
from typing import Any, Final, NamedTuple

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rulebook import FileChange
from sluicegate.rules.mesh.identity import named_descriptors
from sluicegate.rules.parser import rules_as_list
from sluicegate.rules.plain_values import form_of, read_text

LINES_MAX: Final = 5_000  # of a file that is compared line by line
DIFF_LINES_MAX: Final = 2_000  # that are shown of it
RULES_MAX: Final = 1_000  # that are named of each kind


class RuleChanges(NamedTuple):
    """The rules that differ, by name; `more` were left out."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    more: int


def line_changes(change: FileChange) -> list[str]:
    """A file's change as a unified diff."""
    before, after = _lines(change.before), _lines(change.after)
    if before is None or after is None:
        return [f"@@ {change.name} is no text, or has over {LINES_MAX:,} lines @@"]
    diff = unified_diff(before, after, f"a/{change.name}", f"b/{change.name}", lineterm="")
    lines = [*islice(diff, DIFF_LINES_MAX + 1)]
    if len(lines) > DIFF_LINES_MAX:
        lines[DIFF_LINES_MAX:] = ["@@ and more @@"]
    return lines


def rule_changes(changes: Sequence[FileChange]) -> RuleChanges:
    """What the changes of files mean: rules that came, that went, and that say something else."""
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    for change in changes:
        before.update(named_rules(change.name, change.before))
        after.update(named_rules(change.name, change.after))
    added = [name for name in after if name not in before]
    removed = [name for name in before if name not in after]
    changed = [name for name, value in after.items() if name in before and before[name] != value]
    listed = [tuple(sorted(names)[:RULES_MAX]) for names in (added, removed, changed)]
    more = sum(max(0, len(names) - RULES_MAX) for names in (added, removed, changed))
    return RuleChanges(listed[0], listed[1], listed[2], more)


def named_rules(name: str, data: bytes | None) -> dict[str, Any]:
    """The rules of a file by their names, as plain values; none where it cannot be read."""
    if data is None:
        return {}
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        try:
            value = read_text(data, form=form_of(name), source=name).value
        except BadValue:
            return {}
    if not isinstance(value, Mapping):
        return {}
    if "domain" in value:
        return {
            name: {field: said for field, said in node.items() if field != "descriptors"}
            for name, _, node in named_descriptors(value, str(value["domain"]))
        }
    return dict(_of_native(name, value))


def _of_native(file: str, top: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for field, value in top.items():
        if field != "rules":
            yield f"{file}: {field}", value  # what it says for all its rules
    for place, rule in enumerate(rules_as_list(top.get("rules"))):
        rule_id = rule.get("rule_id") if isinstance(rule, Mapping) else None
        yield (str(rule_id) if rule_id else f"{file}: rule {place + 1}"), rule


def _lines(data: bytes | None) -> list[str] | None:
    if data is None:
        return []
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        return None
    return lines if len(lines) <= LINES_MAX else None
