"""`sluicegate top`: the console's overview in a terminal.

It asks the same services in the same way, says the same sentence, and decides and counts nothing.
"""

from __future__ import annotations

import asyncio
import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Generator
from typing import Any, Final, TextIO

from sluicegate.apps.console.fleet import GONE_S, Fleet
from sluicegate.apps.console.picture import FleetPicture, picture_of
from sluicegate.apps.console.sentence import sentence_of
from sluicegate.apps.console.settings import NODES_MAX, parse_services_url
from sluicegate.command_line.live_view import add_view_flags, check_view_flags, watch
from sluicegate.command_line.service_client import (
    TOKEN_VARIABLE,
    ServiceAddress,
    add_token_flags,
    token_from,
)
from sluicegate.command_line.text import clip, duration, limit_words, per_second, percent, table
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.system import SystemClock

# Where services listen by themselves.
AT_DEFAULT: Final = tuple(f"http://127.0.0.1:{port}" for port in (7070, 7080, 7090, 7060))
TIMEOUT_S: Final = 2.0
REASONS_SHOWN: Final = 5
SLOW_SHOWN: Final = 5
NODES_SHOWN: Final = 12
EXAMPLES: Final = f"""\
examples:
  sluicegate top                                     the services of this machine
  sluicegate top --at http://kv-1:7080 --at dns+https://limiter.internal:7070 --ca ca.pem
  sluicegate top --once                              one picture, as lines
  sluicegate top --brief                             the sentence alone, each second
  sluicegate top --json | jq .classes                for programs

The token, with the grant audit, is in {TOKEN_VARIABLE}. `sluicegate console` is the same in a
browser, with more pages; `kv top` and `pubsub top` show one kind of service closer.
"""


def add_arguments(parser: ArgumentParser) -> None:
    """The flags."""
    parser.add_argument(
        "--at",
        action="append",
        default=[],
        metavar="URL",
        help="a service to look at; dns+http://NAME:PORT is one at each address that the name has; "
        "may be repeated (default those of this machine)",
    )
    add_token_flags(parser, "with the grant audit")
    add_view_flags(parser)
    parser.add_argument("--brief", action="store_true", help="of each picture the first line")


def run(arguments: Namespace, out: TextIO | None = None) -> int:
    """Look, and show, until it is interrupted, or once."""
    check_view_flags(arguments)
    token = token_from(arguments)
    urls = list(dict.fromkeys(parse_services_url(url, "--at") for url in arguments.at))
    if len(urls) > NODES_MAX:
        raise BadValue("--at", len(urls), f"give at most {NODES_MAX:,}")
    addresses = [ServiceAddress(url, token, arguments.ca) for url in urls or AT_DEFAULT]
    arguments.plain = arguments.plain or arguments.brief
    line: Callable[[FleetPicture], str] | None = headline if arguments.brief else None
    if arguments.json:
        line = _json_line
    place = sys.stdout if out is None else out
    pictures = _pictures(arguments, addresses, chosen=bool(urls))
    return watch(arguments, place, pictures, lines_of, line)


def _pictures(
    arguments: Namespace, addresses: list[ServiceAddress], *, chosen: bool
) -> Generator[FleetPicture | None]:
    fleet = Fleet(addresses, SystemClock(), every_s=TIMEOUT_S, timeout_s=TIMEOUT_S, gone_s=GONE_S)
    with asyncio.Runner() as runner:
        try:
            runner.run(fleet.look())
            yield None
            while True:
                runner.run(fleet.look())
                # A default address where no service runs is not shown as a failure.
                nodes = [one for one in fleet.nodes if chosen or one.now is not None] or fleet.nodes
                picture = picture_of(nodes, fleet.clock.now_us())
                if arguments.once and len(picture.silent) == len(picture.nodes):
                    dead = picture.nodes[0]
                    raise Unavailable(f"the service at {dead.url}", dead.error)
                yield picture
        finally:
            runner.run(fleet.close())


def _json_line(picture: FleetPicture) -> str:
    return json.dumps(as_json(picture))


def as_json(picture: FleetPicture) -> dict[str, Any]:
    """The same for programs; rates are a second."""
    said = sentence_of(picture)
    return {
        "at_us": picture.at_us,
        "urgency": said.urgency.value,
        "sentence": said.words,
        "nodes": [node._asdict() for node in picture.nodes],
        "classes": [flow._asdict() for flow in picture.classes],
        "reasons": dict(picture.reasons),
        "slow": [shard._asdict() for shard in picture.slow],
        "p99_us": picture.p99_us,
        "from_memory": picture.from_memory,
        "queue_us": picture.queue_us,
        "queues": [queue._asdict() for queue in picture.queues],
        "latency_ratio": picture.ratio,
        "utilization": picture.utilization,
        "degraded": picture.degraded,
        "accounts": [one._asdict() for one in picture.accounts],
        "factors": list(picture.factors),
    }


def headline(picture: FleetPicture) -> str:
    """What is going on, in a line."""
    said = sentence_of(picture)
    return f"{said.urgency.value.upper()}: {clip(said.words)}"


def lines_of(picture: FleetPicture) -> list[str]:
    """The picture, as lines."""
    lines = [headline(picture), ""]
    lines.append(
        f"  {per_second(picture.admitted)} admitted, {per_second(picture.refused)} refused, "
        f"{per_second(picture.from_memory)} answered from memory"
    )
    lines.append(
        f"  p99 {_span(picture.p99_us)}, queue {_span(picture.queue_us)}, "
        f"latency ratio {_number(picture.ratio)}, fullest limiter {_share(picture.utilization)}, "
        f"{per_second(picture.degraded)} decided without store"
    )
    latency = picture.dispatchers.get("latency", {})
    priced = any(flow.price is not None for flow in picture.classes)
    rows = []
    for flow in picture.classes:
        took = latency.get(flow.name, {})
        rows.append(
            [
                flow.name, per_second(flow.admitted), per_second(flow.refused),
                per_second(flow.shed), percent(flow.shed_share),
                *([f"{flow.price or 1.0:.2f}"] if priced else []),
                _span(took.get("p50_us")), _span(took.get("p99_us")),
            ]
        )  # fmt: skip
    heads = [
        "class",
        "admitted",
        "refused",
        "for the service",
        "share",
        *(["price"] if priced else []),
        "p50",
        "p99",
    ]
    lines += ["", *table(heads, rows, left=1)]
    if picture.reasons:
        found = [[name, per_second(rate)] for name, rate in picture.reasons[:REASONS_SHOWN]]
        lines += ["", *table(["refused, by reason", ""], found, left=1)]
    if picture.slow:
        slow = [
            [
                clip(one.shard or "all"), clip(one.operation), f"{one.ratio:.2f}",
                f"{one.waiting:,}", limit_words(one.limit, one.origin),
            ]
            for one in picture.slow[:SLOW_SHOWN]
        ]  # fmt: skip
        heads = ["slow shard", "operation", "latency ratio", "waiting", "limit"]
        lines += ["", *table(heads, slow, left=2)]
    return [*lines, "", *_nodes(picture)]


def _nodes(picture: FleetPicture) -> list[str]:
    shown = sorted(picture.nodes, key=lambda node: not node.error)[:NODES_SHOWN]
    rows = [
        [
            node.url, node.app or "-", per_second(node.admitted), per_second(node.refused),
            duration(node.up_us) if not node.error else "-", clip(node.error or node.not_ready),
        ]
        for node in shown
    ]  # fmt: skip
    more = len(picture.nodes) - len(shown)
    lines = table(["service", "what", "admitted", "refused", "up", ""], rows, left=2)
    return [*lines, f"  and {more:,} more"] if more else lines


def _span(us: float | None) -> str:
    return "-" if us is None else f"{us / 1_000:,.1f} ms"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
