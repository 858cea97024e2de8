"""The command `sluicegate rules`: its verbs, and who does them.

Light to import: what does a verb is imported when the verb is done.
"""

from __future__ import annotations

import logging
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from importlib import import_module
from typing import cast

from sluicegate.apps.rulebook import examples
from sluicegate.apps.rulebook.messages import reword
from sluicegate.apps.rulebook.verbs import VERBS
from sluicegate.command_line.verbs import add_verb
from sluicegate.contracts.errors import SluicegateError

EXAMPLES = examples.EXAMPLES


def add_arguments(parser: ArgumentParser) -> None:
    """The verbs and their flags."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in VERBS:
        verb.add(add_verb(verbs, verb.name, verb.help, verb.examples))


def run(arguments: Namespace) -> int:
    """Do the verb."""
    verb = next(verb for verb in VERBS if verb.name == arguments.verb)
    # What a command is warned of is in what it answers; a server says how it logs.
    logging.getLogger("sluicegate").addHandler(logging.NullHandler())
    module, _, name = verb.function.partition(":")
    function = getattr(import_module(f"sluicegate.apps.rulebook.{module}"), name)
    try:
        return cast("Callable[[Namespace], int]", function)(arguments)
    except SluicegateError as error:
        raise reword(error) from None
