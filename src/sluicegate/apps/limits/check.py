"""Check: explain rules files, and say what is wrong or odd with them.

A file with match rules is of an application, which alone reads them; any other is read as a service
reads it. Folders are of services, which take them as one rulebook.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

from sluicegate.apps.limits.rule_text import (
    HEAD,
    RuleLine,
    line_of,
    mesh_row,
    row_json,
    rule_json,
)
from sluicegate.command_line.text import counted, table
from sluicegate.contracts.errors import SluicegateError
from sluicegate.rules.mesh.parser import is_mesh
from sluicegate.rules.parser import is_match_rule, is_native, rules_as_list
from sluicegate.rules.plain_values import form_of, read_bytes, read_text
from sluicegate.rules.problems import BadRules
from sluicegate.rules.resources.rule import ResourceRule
from sluicegate.rules.service_rule_set import FILE_BYTES_MAX, ServiceRuleSet
from sluicegate.rules.web.advice import Advice, advise
from sluicegate.rules.web.rule import MatchRule
from sluicegate.rules.web.rule_set import WebRuleSet

WEB: Final = "web"


class _FileCheck(NamedTuple):
    """A file that was looked at: its rules, or why there are none."""

    source: str
    format: str = ""  # empty if it cannot be told
    version: str = ""
    rows: Sequence[RuleLine] = ()
    rules: Sequence[dict[str, object]] = ()
    error: SluicegateError | None = None
    advice: Sequence[Advice] = ()


def check(files: Sequence[str], *, as_json: bool, strict: bool) -> int:
    """Print what the files say; 1 if one cannot be used, or with `strict` if there is advice."""
    looked = [_look(file) for file in files]
    if as_json:
        sys.stdout.write(json.dumps([_json(one) for one in looked], indent=2) + "\n")
    else:
        sys.stdout.write("\n\n".join("\n".join(_text(one)) for one in looked) + "\n")
    failed = any(one.error is not None or (strict and one.advice) for one in looked)
    return 1 if failed else 0


def _look(file: str) -> _FileCheck:
    try:
        return _look_at_service(file) if _is_of_service(file) else _look_at_web(file)
    except SluicegateError as error:
        return _FileCheck(file, error=error)


def _is_of_service(file: str) -> bool:
    if os.path.isdir(file):
        return True
    data = read_bytes(file, FILE_BYTES_MAX)
    value = read_text(data, form=form_of(file), source=file).value
    if not is_native(value):
        return is_mesh(value)
    rules = rules_as_list(value.get("rules")) if isinstance(value, dict) else []
    return not any(isinstance(rule, dict) and is_match_rule(rule) for rule in rules)


def _look_at_web(file: str) -> _FileCheck:
    book = WebRuleSet.load(file)
    rules: list[MatchRule | ResourceRule] = [*book.entries, *book.listed_rows()]
    return _FileCheck(
        file,
        WEB,
        book.version,
        [line_of(rule) for rule in rules],
        [rule_json(rule) for rule in rules],
        advice=advise(book),
    )


def _look_at_service(file: str) -> _FileCheck:
    book = ServiceRuleSet.load([file])
    rows: list[RuleLine] = []
    for part in book.parts:
        if part.native is not None:
            rows += [line_of(rule) for rule in part.native.rules]
        if part.domain is not None:
            rows += [mesh_row(path, rule) for path, rule in part.domain.rules]
    formats = dict.fromkeys(part.format for part in book.files)
    return _FileCheck(
        file, " and ".join(formats), book.version, rows, [row_json(row) for row in rows]
    )


def _text(one: _FileCheck) -> list[str]:
    if one.error is not None:
        return str(one.error).splitlines()
    kind = "" if one.format == WEB else f" of a service ({one.format})"
    lines = [f"{one.source}: {counted(len(one.rows), 'rule')}{kind}, version {one.version}", ""]
    lines += table(HEAD, one.rows)
    if one.advice:
        lines += ["", "worth a look", *(f"  {advice}" for advice in one.advice)]
    return lines


def _json(one: _FileCheck) -> dict[str, object]:
    return {
        "file": one.source,
        "format": one.format or None,
        "usable": one.error is None,
        "version": one.version or None,
        "rules": one.rules,
        "problems": _problems(one.error),
        "problems_left_out": one.error.more if isinstance(one.error, BadRules) else 0,
        "advice": [advice._asdict() for advice in one.advice],
    }


def _problems(error: SluicegateError | None) -> list[dict[str, object]]:
    if error is None:
        return []
    if not isinstance(error, BadRules):
        return [{"field": "", "line": None, "words": str(error)}]
    return [
        {"field": problem.field, "line": problem.line or None, "words": str(problem)}
        for problem in error.problems
    ]
