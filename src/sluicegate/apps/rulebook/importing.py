"""Import: rules of Envoy's rate-limit service become a proposal, once it is told what they say."""

from __future__ import annotations

import sys
from argparse import Namespace

from sluicegate.apps.rulebook.showing import show_proposal, write_json
from sluicegate.apps.rulebook.texts import texts_of
from sluicegate.apps.rulebook.where import the_rulebook
from sluicegate.command_line.text import counted, table
from sluicegate.contracts.errors import BadValue
from sluicegate.rules.mesh.rule import Semantics
from sluicegate.rules.service_book import ENVOY, ServiceBook

_OURS = """
with the semantics of sluicegate a request counts in all of its limits or in none, and windows
slide; --semantics envoy reads them as Envoy's own service does, as nodes do with --rls-semantics
envoy
"""


def run(arguments: Namespace) -> int:
    """Say what the files hold, and propose them."""
    book = ServiceBook.load(
        arguments.paths, semantics=arguments.semantics, merge_domains=arguments.merge_domains
    )
    others = [file.name for file in book.files if file.format != ENVOY]
    if others:
        remedy = "that is no rules file of Envoy's; propose it by sluicegate rules propose"
        raise BadValue("PATH", others[0], remedy)
    changes = texts_of(arguments.paths, under=arguments.under)
    if not arguments.json:
        _tell(book, [*changes], ours=arguments.semantics == Semantics.SLUICEGATE.value)
    if arguments.dry_run:
        if arguments.json:
            write_json({"files": [file._asdict() for file in book.files], "proposed": False})
        return 0
    message = arguments.message or f"Take over {counted(len(changes), 'file')} of Envoy's"
    with the_rulebook(arguments) as place:
        said = place.desk.propose(changes, base="live", message=message, by=place.by)
    if arguments.json:
        write_json(said)
    else:
        show_proposal(said)
    return 0


def _tell(book: ServiceBook, names: list[str], *, ours: bool) -> None:
    rows = [
        (name, counted(file.rules, "rule"), file.sha)
        for name, file in zip(names, book.files, strict=True)
    ]
    domains = [*book.mesh.domains]
    of = "domain" if len(domains) == 1 else "domains"
    lines = [f"{counted(len(book), 'rule')} of the {of} {', '.join(domains)}", ""]
    lines += table(("file", "rules", "digest"), rows)
    sys.stdout.write("\n".join(lines) + "\n" + (_OURS if ours else "") + "\n")
