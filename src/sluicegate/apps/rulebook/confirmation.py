"""Confirmation: a proposal whose limits change a lot is confirmed, by a flag or on a terminal."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable

from sluicegate.apps.rulebook.messages import reword
from sluicegate.command_line.text import harmless
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule_admin import Answer

_YES = ("y", "yes")


def confirmed(arguments: Namespace, propose: Callable[[bool], Answer]) -> Answer:
    """Propose; on a terminal, ask for a confirmation that is missing.

    Without a terminal, or with --json, the error that asks for `--confirm` is raised.
    """
    try:
        return propose(arguments.confirm)
    except BadValue as error:
        asks = sys.stdin.isatty() and sys.stderr.isatty() and not arguments.json
        if error.field != "confirm" or not asks:
            raise
        sys.stderr.write(f"{harmless(str(reword(error)))}\nPropose this? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in _YES:
            raise
    return propose(True)
