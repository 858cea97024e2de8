"""Lint: what is wrong with rules files, or what they say."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from typing import Any

from sluicegate.command_line.text import counted
from sluicegate.rules.problems import BadRules
from sluicegate.rules.service_book import ServiceBook


def run(arguments: Namespace) -> int:
    """Print what the files say; 1 if they cannot be used."""
    try:
        book = ServiceBook.load(
            arguments.paths,
            semantics=arguments.semantics,
            merge_domains=arguments.merge_domains,
        )
    except BadRules as error:
        _write_problems(error, as_json=arguments.json)
        return 1
    if arguments.json:
        files = [file._asdict() for file in book.files]
        _write_json({"usable": True, "rules": len(book), "files": files, "problems": []})
        return 0
    for file in book.files:
        sys.stdout.write(f"{file.name}: {counted(file.rules, 'rule')} ({file.format})\n")
    sys.stdout.write(f"{counted(len(book), 'rule')} in all; these files can be used\n")
    return 0


def problems_of(error: BadRules) -> list[dict[str, Any]]:
    """Each problem as a program would read it."""
    return [
        {
            "file": error.source,
            "line": one.line or None,
            "field": one.field,
            "value": repr(one.value)[:200],
            "remedy": one.remedy,
        }
        for one in error.problems
    ]


def _write_problems(error: BadRules, *, as_json: bool) -> None:
    if as_json:
        problems = problems_of(error)
        _write_json({"usable": False, "problems": problems, "problems_left_out": error.more})
    else:
        sys.stdout.write(f"{error}\n")


def _write_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")
