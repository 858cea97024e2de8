"""`sluicegate pubsub top`: accounts over the nodes of a cluster, live in a terminal.

It reads `/v1/state` of each node, and decides and counts nothing.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TextIO

from sluicegate.apps.pubsub.accounts_view import ROWS_MAX, lines_of
from sluicegate.command_line.account_rates import NodeSample, picture_of
from sluicegate.command_line.live_view import add_view_flags, check_view_flags, watch
from sluicegate.command_line.service_client import (
    TOKEN_VARIABLE,
    ServiceAddress,
    add_token_flags,
    address_from,
    ask,
)
from sluicegate.contracts.errors import BadValue, SluicegateError, Unavailable

AT_DEFAULT: Final = "http://127.0.0.1:7090"
TIMEOUT_S: Final = 5.0
SOURCES_MAX: Final = 100
ROWS_SHOWN_MAX: Final = 1_000
EXAMPLES: Final = f"""\
examples:
  sluicegate pubsub top                                     the node on this machine
  sluicegate pubsub top --at http://n1:7090,http://n2:7090  several, added up
  sluicegate pubsub top --once                              one picture, as lines
  sluicegate pubsub top --json | jq .accounts               for programs
  {TOKEN_VARIABLE}=... sluicegate pubsub top --at https://n1:7090 --ca ca.pem

An account's factor is the fraction of its publishes that is refused; its age, how long ago a node
that it publishes at has heard of its master. Hour and month are the messages that it has used of
what it nominally may; who is near that, or over it, is named below.
"""


def add_arguments(parser: ArgumentParser) -> None:
    """The flags."""
    parser.add_argument(
        "--at",
        action="append",
        default=[],
        metavar="URL[,URL...]",
        help=f"nodes to look at; may be repeated (default {AT_DEFAULT})",
    )
    add_token_flags(parser, "with the grant audit")
    add_view_flags(parser)
    parser.add_argument(
        "--rows", default=ROWS_MAX, type=int, metavar="N", help=f"accounts (default {ROWS_MAX})"
    )


def run(
    arguments: Namespace,
    out: TextIO | None = None,
    pause: Callable[[float], object] | None = None,
) -> int:
    """Look, and show, until it is interrupted, or once."""
    if not 1 <= arguments.rows <= ROWS_SHOWN_MAX:
        raise BadValue("--rows", arguments.rows, f"give a number from 1 to {ROWS_SHOWN_MAX:,}")
    check_view_flags(arguments)
    sources = _sources(arguments)

    def pictures() -> Generator[dict[str, Any] | None]:
        before = read_nodes(sources)
        yield None
        while True:
            after = read_nodes(sources)
            if arguments.once and all(sample.state is None for sample in after):
                raise Unavailable(f"the node at {after[0].url}", after[0].error)
            yield picture_of(before, after)
            before = after

    place = sys.stdout if out is None else out
    lines = partial(lines_of, rows=arguments.rows)
    return watch(
        arguments, place, pictures(), lines, json.dumps if arguments.json else None, pause=pause
    )


def _sources(arguments: Namespace) -> list[ServiceAddress]:
    urls = [url.strip() for given in arguments.at for url in given.split(",")]
    urls = list(dict.fromkeys(url for url in urls if url)) or [AT_DEFAULT]
    if len(urls) > SOURCES_MAX:
        raise BadValue("--at", len(urls), f"give at most {SOURCES_MAX}")
    return [address_from(url, arguments, flag="--at", example=AT_DEFAULT) for url in urls]


def read_nodes(sources: Sequence[ServiceAddress]) -> list[NodeSample]:
    """Ask all of them at the same time."""
    if len(sources) == 1:
        return [_sample_of(sources[0])]
    with ThreadPoolExecutor(max_workers=min(len(sources), 16)) as pool:
        return list(pool.map(_sample_of, sources))


def _sample_of(source: ServiceAddress) -> NodeSample:
    try:
        state = ask(source, source.url, "/v1/state", timeout_s=TIMEOUT_S, grant="audit")
        cluster = state["cluster"]
        picture_of([NodeSample(source.url, cluster)], [NodeSample(source.url, cluster)])
    except Unavailable as error:
        return NodeSample(source.url, None, error.detail)
    except SluicegateError as error:
        return NodeSample(source.url, None, str(error))
    except (LookupError, TypeError, ValueError, AttributeError):
        return NodeSample(source.url, None, "it is no pub/sub node, or of another version")
    return NodeSample(source.url, cluster)
