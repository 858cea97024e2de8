"""Check: explain rules files, and say what is wrong or odd with them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

from sluicegate.apps.limits.rule_text import (
    entry_json,
    key_text,
    limit_text,
    terms_text,
)
from sluicegate.command_line.text import counted, table
from sluicegate.contracts.errors import SluicegateError
from sluicegate.rules.problems import BadRules
from sluicegate.rules.web.advice import Advice, advise
from sluicegate.rules.web.rule_set import WebRuleSet

_HEAD: Final = ("rule", "matches", "counted by", "limits", "terms")


class _FileCheck(NamedTuple):
    """A file that was looked at: its book, or why there is none."""

    source: str
    book: WebRuleSet | None
    error: SluicegateError | None
    advice: Sequence[Advice] = ()


def check(files: Sequence[str], *, as_json: bool, strict: bool) -> int:
    """Print what the files say; 1 if one cannot be used, or with `strict` if there is advice."""
    looked = [_look(file) for file in files]
    if as_json:
        sys.stdout.write(json.dumps([_json(one) for one in looked], indent=2) + "\n")
    else:
        sys.stdout.write("\n\n".join("\n".join(_text(one)) for one in looked) + "\n")
    failed = any(one.book is None or (strict and one.advice) for one in looked)
    return 1 if failed else 0


def _look(file: str) -> _FileCheck:
    try:
        book = WebRuleSet.load(file)
    except SluicegateError as error:
        return _FileCheck(file, None, error)
    return _FileCheck(file, book, None, advise(book))


def _text(one: _FileCheck) -> list[str]:
    if one.error is not None:
        return str(one.error).splitlines()
    if one.book is None:
        return []
    rows = [
        (entry.name, str(entry.match), key_text(entry), limit_text(entry), terms_text(entry))
        for entry in one.book.entries
    ]
    lines = [f"{one.source}: {counted(len(rows), 'rule')}, version {one.book.version}", ""]
    lines += table(_HEAD, rows)
    if one.advice:
        lines += ["", "worth a look", *(f"  {advice}" for advice in one.advice)]
    return lines


def _json(one: _FileCheck) -> dict[str, object]:
    return {
        "file": one.source,
        "usable": one.book is not None,
        "version": None if one.book is None else one.book.version,
        "rules": [] if one.book is None else [entry_json(entry) for entry in one.book.entries],
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
