"""Verbs: how a command adds one of its own, so that all of them describe themselves alike."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple


class VerbEntry(NamedTuple):
    """One row of a service's verbs: a module of its package, with `EXAMPLES`, `add_arguments` and
    `run`."""

    name: str
    help: str
    module: str


def add_verb(verbs: Any, name: str, purpose: str, examples: str) -> ArgumentParser:
    """Add a verb to the subparsers of a command, and return its parser."""
    parser: ArgumentParser = verbs.add_parser(
        name,
        help=purpose,
        description=f"{purpose[0].upper()}{purpose[1:]}.",
        epilog=examples,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    return parser


def add_verbs(parser: ArgumentParser, package: str, entries: Sequence[VerbEntry]) -> None:
    """Add the verbs of a service, which serves if none is given."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs; without one it serves")
    for entry in entries:
        module = import_module(f"{package}.{entry.module}")
        module.add_arguments(add_verb(verbs, entry.name, entry.help, module.EXAMPLES))


def run_verb(arguments: Namespace, package: str, entries: Sequence[VerbEntry]) -> int | None:
    """Run the verb that was given, and return its exit code; None if none was."""
    for entry in entries:
        if arguments.verb == entry.name:
            code: int = import_module(f"{package}.{entry.module}").run(arguments)
            return code
    return None
