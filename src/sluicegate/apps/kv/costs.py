"""`sluicegate kv costs [URL]`: what a dispatcher has learned of costs, and what callers owe by it.

Of each operation the weights as learned and as they were given, of tables, operations and callers
what a request usually weighs, and of callers what their estimates have charged too little or too
much, which their next ones settle.
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
  sluicegate kv costs --json | jq .sketches   for programs
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
    heads = "".join(f"{field:>12}" for field in FIELDS)
    yield f"{'OPERATION':<12}{heads}{'margin':>9}   as given"
    for name, one in costs["operations"].items():
        learned = "".join(f"{value:>12.4g}" for value in one["weights"])
        given = " ".join(f"{value:.4g}" for value in one["from"])
        yield f"{name:<12}{learned}{one['margin']:>9.2f}   {given}"
    yield ""
    yield f"{'TABLE':<20}{'OPERATION':<12}{'CALLER':<20}{'rows':>8}{'bytes':>12}{'heaviest':>12}"
    for one in costs["sketches"]:
        yield (
            f"{one['table']:<20}{one['operation'] or 'all':<12}{one['caller'] or 'all':<20}"
            f"{one['rows']:>8.1f}{one['size_bytes']:>12.0f}{one['heaviest']:>12}"
        )
    shown = len(costs["sketches"])
    if shown < costs["sketched"]:
        yield f"and {costs['sketched'] - shown:,} more"
    yield ""
    yield f"{costs['partitions']:,} partitions with known key spans"
    for caller, mru in costs["owed_mru"].items():
        yield f"{caller:<32}{'owes' if mru > 0 else 'gets back'} {abs(mru) / 1e3:,.1f} RU"
