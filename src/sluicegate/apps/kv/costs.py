"""`sluicegate kv costs [URL]`: what a dispatcher has learned of costs, and what callers owe by it.

Of each operation its weights, of tables, operations and callers what a request usually is, and of
callers what they owe beyond the debt of their budgets.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Mapping
from typing import Any, Final, TextIO

from sluicegate.apps.kv.address import AT_DEFAULT
from sluicegate.apps.kv.weights import FIELDS
from sluicegate.command_line import service_client
from sluicegate.contracts.errors import SluicegateError

TIMEOUT_S: Final = 5.0
EXAMPLES: Final = f"""\
examples:
  sluicegate kv costs                         of the dispatcher on this machine
  sluicegate kv costs --json | jq .estimates  for programs
  {service_client.TOKEN_VARIABLE}=... sluicegate kv costs https://kv-1:7080 --ca ca.pem
"""


def add_arguments(parser: ArgumentParser) -> None:
    """The flags."""
    parser.add_argument(
        "at", metavar="URL", nargs="?", default=AT_DEFAULT, help=f"which (default {AT_DEFAULT})"
    )
    service_client.add_token_flags(parser, "with the grant audit")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: Namespace, out: TextIO | None = None) -> int:
    """Ask, and show."""
    place = sys.stdout if out is None else out
    where = service_client.address_from(arguments.at, arguments, flag="URL", example=AT_DEFAULT)
    state: Any = service_client.ask(where, where.url, "/v1/state", timeout_s=TIMEOUT_S)
    costs = state.get("costs") if isinstance(state, dict) else None
    if not isinstance(costs, dict):
        raise SluicegateError(
            f"{where.url} shows no costs: ask a dispatcher that is as new as this, with --policy "
            "layers"
        )
    text = json.dumps(costs) if arguments.json else "\n".join(cost_lines(costs))
    place.write(text + "\n")
    return 0


def cost_lines(costs: Mapping[str, Any]) -> Iterable[str]:
    """The lines for people."""
    yield f"{'OPERATION':<12}" + "".join(f"{field:>12}" for field in FIELDS)
    for name, weights in costs["operations"].items():
        yield f"{name:<12}" + "".join(f"{value:>12.4g}" for value in weights)
    yield ""
    yield f"{'TABLE':<20}{'OPERATION':<12}{'CALLER':<20}{'rows':>8}{'bytes':>12}{'usual ms':>12}"
    for one in costs["estimates"]:
        yield (
            f"{one['table']:<20}{one['operation']:<12}{one['caller'] or 'all':<20}"
            f"{one['rows']:>8.1f}{one['size_bytes']:>12.0f}{one['usual_us'] / 1e3:>12.2f}"
        )
    shown = len(costs["estimates"])
    if shown < costs["estimated"]:
        yield f"and {costs['estimated'] - shown:,} more"
    yield ""
    yield f"{costs['partitions']:,} partitions with known key spans"
    for caller, mru in costs["owed_mru"].items():
        yield f"{caller:<32}owes {mru / 1e3:,.1f} RU"
