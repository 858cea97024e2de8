"""`sluicegate kv top [URL ...]`: what dispatchers are doing now, in a terminal.

It reads `/v1/state` of each, and decides and counts nothing.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from functools import partial
from typing import Any, Final, TextIO

from sluicegate.apps.kv.board_source import add_source
from sluicegate.apps.kv.top.lines import ROWS_MAX, top_lines
from sluicegate.apps.kv.top.show import show
from sluicegate.command_line.service_client import TOKEN_VARIABLE
from sluicegate.contracts.errors import BadValue

ROWS_SHOWN_MAX: Final = 1_000
EXAMPLES: Final = f"""\
examples:
  sluicegate kv top                                     the dispatcher on this machine
  sluicegate kv top --once                              one picture, as lines
  sluicegate kv top http://kv-1:7080 http://kv-2:7080   both, added up
  sluicegate kv top --json | jq .callers                for programs
  {TOKEN_VARIABLE}=... sluicegate kv top https://kv.internal:7080 --ca ca.pem
"""


def add_arguments(parser: ArgumentParser) -> None:
    """The flags."""
    add_source(parser)
    parser.add_argument(
        "--rows", default=ROWS_MAX, type=int, metavar="N", help=f"of each (default {ROWS_MAX})"
    )


def run(arguments: Namespace, out: TextIO | None = None) -> int:
    """Look, and show."""
    if not 1 <= arguments.rows <= ROWS_SHOWN_MAX:
        raise BadValue("--rows", arguments.rows, f"give a number from 1 to {ROWS_SHOWN_MAX:,}")
    lines = partial(top_lines, rows=arguments.rows)
    place = sys.stdout if out is None else out
    return show(arguments, lines, _all, place)


def _all(picture: dict[str, Any]) -> Any:
    return picture
