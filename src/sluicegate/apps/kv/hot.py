"""`sluicegate kv hot [URL ...]`: the keys that everybody asks for, and what becomes of their reads.

Of each the share of all point reads that is surely its own (by weight, over the last one to two
windows), how often it is read, how often that was served from the cache or from another's fetch,
how often the engine was asked, and the size of its last answer.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from functools import partial
from typing import Any, Final, TextIO

from sluicegate.apps.kv.board import KEYS_MAX
from sluicegate.apps.kv.board_source import add_source
from sluicegate.apps.kv.top.lines import hot_lines, silent_lines, spelt
from sluicegate.apps.kv.top.show import show
from sluicegate.command_line.service_client import TOKEN_VARIABLE
from sluicegate.contracts.errors import BadValue

K_DEFAULT: Final = 20
EXAMPLES: Final = f"""\
examples:
  sluicegate kv hot                           the board of the dispatcher on this machine, live
  sluicegate kv hot --once --k 5              the five hottest, as lines
  sluicegate kv hot --json | jq .hot          for programs
  {TOKEN_VARIABLE}=... sluicegate kv hot https://kv-1:7080 https://kv-2:7080 --ca ca.pem
"""


def add_arguments(parser: ArgumentParser) -> None:
    """The flags."""
    add_source(parser)
    parser.add_argument(
        "--k", default=K_DEFAULT, type=int, metavar="N", help=f"keys (default {K_DEFAULT})"
    )


def run(arguments: Namespace, out: TextIO | None = None) -> int:
    """Look, and show."""
    if not 1 <= arguments.k <= KEYS_MAX:
        raise BadValue("--k", arguments.k, f"give a number from 1 to {KEYS_MAX}")
    lines = partial(_lines, k=arguments.k)
    values = partial(_values, k=arguments.k)
    place = sys.stdout if out is None else out
    return show(arguments, lines, values, place)


def _lines(picture: dict[str, Any], *, k: int) -> list[str]:
    return silent_lines(picture) + hot_lines(picture, rows=k)


def _values(picture: dict[str, Any], *, k: int) -> Any:
    hot = [{"place": spelt(one["key"]), **one} for one in picture["hot"][:k]]
    return {"dispatchers": picture["dispatchers"], "shield": picture["shield"], "hot": hot}
