"""Rules files on disk, as the changes of a proposal.

Lint: what is wrong with rules files, or what they say.

Convert: a rules file of the old format, with `limits:`, in the present one.

Import: rules of Envoy's rate-limit service become a proposal, once it is told what they say.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from sluicegate.apps.rulebook.confirmation import confirmed
from sluicegate.apps.rulebook.location import the_rulebook
from sluicegate.apps.rulebook.output import show, show_proposal, write_json
from sluicegate.command_line.text import counted, table
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.rules.mesh.rule import Semantics
from sluicegate.rules.old_format import convert as convert_text
from sluicegate.rules.plain_values import read_bytes
from sluicegate.rules.problems import BadRules
from sluicegate.rules.service_rule_set import ENVOY, FILE_BYTES_MAX, ServiceRuleSet, find_files


def texts_of(paths: Sequence[str], *, under: str) -> dict[str, str | None]:
    """The texts of files, and of all that folders hold, by their names in the rulebook."""
    prefix = f"{under.strip('/')}/" if under.strip("/") else ""
    found: dict[str, str | None] = {}
    for path, name in find_files(paths):
        if f"{prefix}{name}" in found:
            raise BadValue("PATH", path, f"another file is called {name} too; give them apart")
        try:
            found[f"{prefix}{name}"] = read_bytes(path, FILE_BYTES_MAX).decode("utf-8")
        except UnicodeDecodeError:
            raise BadValue("PATH", path, "it is not text in UTF-8") from None
    return found


def lint(arguments: Namespace) -> int:
    """Print what the files say; 1 if they cannot be used."""
    try:
        book = ServiceRuleSet.load(
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


def convert(arguments: Namespace) -> int:
    """Write a file of the old format in the present one."""
    old, new = arguments.old, arguments.output
    data = read_bytes(old, FILE_BYTES_MAX)
    try:
        text = convert_text(data.decode("utf-8-sig"), old, new or old)
    except UnicodeDecodeError:
        raise BadValue("OLD", old, "it is not text in UTF-8") from None
    if not new:
        sys.stdout.write(text)
        return 0
    try:
        with open(new, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise BadValue("-o", new, "there is such a file; name another") from None
    except OSError as error:
        raise Unavailable(f"the file {new}", error.strerror or str(error)) from None
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


_NATIVE = """
with the semantics of sluicegate a request counts in all of its limits or in none, and windows
slide; --semantics envoy reads them as Envoy's own service does, as nodes do with --rls-semantics
envoy
"""


def propose(arguments: Namespace) -> int:
    """Propose the files that were given, and the removals."""
    changes: dict[str, str | None] = dict.fromkeys(arguments.remove)
    if arguments.paths:
        changes.update(texts_of(arguments.paths, under=arguments.under))
    if not changes:
        raise BadValue("PATH", [], "give files or folders, or --remove NAME")
    with the_rulebook(arguments) as (admin, by):
        proposal = confirmed(
            arguments,
            lambda confirm: admin.propose(
                changes,
                base=arguments.base,
                message=arguments.message,
                reason=arguments.reason,
                confirm=confirm,
                by=by,
            ),
        )
    return show(arguments, proposal, show_proposal)


def import_envoy(arguments: Namespace) -> int:
    """Say what the files hold, and propose them."""
    book = ServiceRuleSet.load(
        arguments.paths, semantics=arguments.semantics, merge_domains=arguments.merge_domains
    )
    others = [file.name for file in book.files if file.format != ENVOY]
    if others:
        remedy = "that is no rules file of Envoy's; propose it by sluicegate rules propose"
        raise BadValue("PATH", others[0], remedy)
    changes = texts_of(arguments.paths, under=arguments.under)
    if not arguments.json:
        _tell(book, [*changes], native=arguments.semantics == Semantics.SLUICEGATE.value)
    if arguments.dry_run:
        if arguments.json:
            write_json({"files": [file._asdict() for file in book.files], "proposed": False})
        return 0
    message = arguments.message or f"Take over {counted(len(changes), 'file')} of Envoy's"
    with the_rulebook(arguments) as (admin, by):
        proposal = confirmed(
            arguments,
            lambda confirm: admin.propose(
                changes, base="live", message=message, confirm=confirm, by=by
            ),
        )
    return show(arguments, proposal, show_proposal)


def _tell(book: ServiceRuleSet, names: list[str], *, native: bool) -> None:
    rows = [
        (name, counted(file.rules, "rule"), file.sha)
        for name, file in zip(names, book.files, strict=True)
    ]
    domains = [*book.mesh.domains]
    of = "domain" if len(domains) == 1 else "domains"
    lines = [f"{counted(len(book), 'rule')} of the {of} {', '.join(domains)}", ""]
    lines += table(("file", "rules", "digest"), rows)
    sys.stdout.write("\n".join(lines) + "\n" + (_NATIVE if native else "") + "\n")
