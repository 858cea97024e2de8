"""The command `sluicegate rules`: its verbs, and who does them.

Light to import: what does a verb is imported when the verb is done.
"""

from __future__ import annotations

import logging
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from importlib import import_module
from typing import Protocol, cast

from sluicegate.apps.rulebook import examples
from sluicegate.apps.rulebook.verbs import VERBS
from sluicegate.apps.rulebook.wording import reworded
from sluicegate.contracts.errors import SluicegateError

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
    logging.getLogger("sluicegate").addHandler(logging.NullHandler())
    module = cast("VerbModule", import_module(f"sluicegate.apps.rulebook.{verb.module}"))
    try:
        return module.run(arguments)
    except SluicegateError as error:
        raise reworded(error) from None
