"""The command `headgate rules`: its verbs, and who does them.

Light to import: what does a verb is imported when the verb is done.
"""

from __future__ import annotations

import logging
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from importlib import import_module
from typing import Protocol, cast

from headgate.apps.rulebook import examples
from headgate.apps.rulebook.verbs import VERBS
from headgate.apps.rulebook.wording import reworded
from headgate.contracts.errors import HeadgateError

EXAMPLES = examples.EXAMPLES


class VerbModule(Protocol):
    """What the module of a verb offers."""

    def run(self, arguments: Namespace) -> int:
        """Do it, and return the exit code."""


def add_arguments(parser: ArgumentParser) -> None:
    """The verbs and their flags."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in VERBS:
        added = verbs.add_parser(
            verb.name,
            help=verb.help,
            description=f"{verb.help[0].upper()}{verb.help[1:]}.",
            epilog=verb.examples,
            formatter_class=RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        verb.add(added)


def run(arguments: Namespace) -> int:
    """Do the verb."""
    verb = next(verb for verb in VERBS if verb.name == arguments.verb)
    # What a command is warned of is in what it answers; a server says how it logs.
    logging.getLogger("headgate").addHandler(logging.NullHandler())
    module = cast("VerbModule", import_module(f"headgate.apps.rulebook.{verb.module}"))
    try:
        return module.run(arguments)
    except HeadgateError as error:
        raise reworded(error) from None
