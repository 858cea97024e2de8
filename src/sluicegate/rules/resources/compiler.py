"""Compiler: one rule set from the rows of several files, with every problem between them noted.

This file is not for the compiler, and neither is `parser.py`: a compiled loop keeps the interpreter
to itself to its end, and compiling a million rules would hold up whoever serves beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from sluicegate.rules.parser import RULES_MAX, NativeFile
from sluicegate.rules.problems import FieldPath
from sluicegate.rules.resources.paths import ResourceIndex
from sluicegate.rules.resources.priorities import CLIENT_TYPE_HEADER_DEFAULT, Priorities
from sluicegate.rules.resources.rule import ResourceRule
from sluicegate.rules.resources.rule_set import EMPTY_RULE_SET, ResourceRuleSet

# Where something is wrong: the number of the file, the field, the value, the remedy.
Complain: TypeAlias = Callable[[int, FieldPath, object, str], None]


def compile_rules(
    files: Sequence[NativeFile], complain: Complain, *, rules_max: int = RULES_MAX
) -> ResourceRuleSet:
    """Return the rule set of several files; call `complain` for what is wrong between them."""
    total = sum(file.rules_count for file in files)
    if total > rules_max:
        remedy = f"say at most {rules_max:,} rules in all (rules_max)"
        complain(len(files) - 1, ("rules",), f"{total:,} rules", remedy)
        return EMPTY_RULE_SET
    by_id = _by_rule_id(files, complain)
    index = ResourceIndex()
    for number, file in enumerate(files):
        for match_rule in file.matching:
            by_id.pop(match_rule.rule_id, None)  # no row
        for rule in file.rules:
            by_id[rule.rule_id] = rule
            try:
                index.add(rule)
            except ValueError as error:
                complain(number, file.field_of(rule.rule_id), rule.rule_id, str(error))
    priorities, degrade = tables_of(files, complain)
    return ResourceRuleSet(index, priorities, by_id, degrade)


def _by_rule_id(files: Sequence[NativeFile], complain: Complain) -> dict[str, ResourceRule | None]:
    """A place for each rule by its name. Counts go by it, so no two rules may have one."""
    by_id: dict[str, ResourceRule | None] = {}
    for number, file in enumerate(files):
        for place, rule_id in enumerate(file.rule_ids):
            if rule_id in by_id:
                remedy = "another rule has this name; give each its own"
                at: FieldPath = ("rules", rule_id) if file.by_name else ("rules", place, "rule_id")
                complain(number, at, rule_id, remedy)
            by_id[rule_id] = None
    return by_id


def tables_of(
    files: Sequence[NativeFile], complain: Complain
) -> tuple[Priorities, Mapping[str, str]]:
    """The tables, each of which one file may have."""
    names, callers, header, degrade = None, None, None, None
    for number, file in enumerate(files):
        for field, here, before in (
            ("priorities", file.names, names),
            ("callers", file.callers, callers),
            ("client_type_header", file.client_type_header, header),
            ("degrade", file.degrade, degrade),
        ):
            if here is not None and before is not None:
                complain(number, (field,), field, "another file says it; say it in one")
        names = file.names or names
        callers = file.callers or callers
        header = file.client_type_header or header
        degrade = file.degrade if degrade is None else degrade
    return Priorities(names, callers, header or CLIENT_TYPE_HEADER_DEFAULT), degrade or {}
