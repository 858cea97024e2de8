"""Board source: reads the boards of running dispatchers from `GET /v1/state`.

A dispatcher that does not answer, or whose board cannot be read (no grant, another version), is
shown as such beside the others, with the remedy.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, Final

from sluicegate.apps.kv.address import AT_DEFAULT
from sluicegate.command_line.boards import BoardSample, board_in
from sluicegate.command_line.live_view import add_view_flags, check_view_flags
from sluicegate.command_line.service_client import (
    ServiceAddress,
    ServiceClient,
    add_token_flags,
    address_from,
    check_grant,
)
from sluicegate.contracts.errors import BadValue, Unavailable

TIMEOUT_S: Final = 5.0
SOURCES_MAX: Final = 100


def add_source(parser: ArgumentParser) -> None:
    """The flags of whatever looks at running dispatchers."""
    parser.add_argument(
        "at", metavar="URL", nargs="*", help=f"dispatchers to look at (default {AT_DEFAULT})"
    )
    parser.add_argument(
        "--url", action="append", default=[], metavar="URL", help="another address; may be repeated"
    )
    add_token_flags(parser, "with the grant audit")
    add_view_flags(parser)


def board_sources(arguments: Namespace) -> list[ServiceAddress]:
    """The dispatchers that the flags name, each once."""
    check_view_flags(arguments)
    urls = list(dict.fromkeys([*arguments.at, *arguments.url])) or [AT_DEFAULT]
    if len(urls) > SOURCES_MAX:
        raise BadValue("--url", len(urls), f"give at most {SOURCES_MAX}")
    return [address_from(url, arguments, flag="--url", example=AT_DEFAULT) for url in urls]


def read_boards(sources: Sequence[ServiceAddress]) -> list[BoardSample]:
    """Return the boards of all, fetched at the same time."""
    if len(sources) == 1:
        return [sample_of(sources[0])]
    with ThreadPoolExecutor(max_workers=min(len(sources), 16)) as pool:
        return list(pool.map(sample_of, sources))


def sample_of(source: ServiceAddress) -> BoardSample:
    """One board, or why there is none."""
    try:
        return BoardSample(source.url, board_in(_fetch(source), source.url))
    except Unavailable as error:
        return BoardSample(source.url, None, error.detail)


def _fetch(source: ServiceAddress) -> Any:
    with closing(ServiceClient(source, source.url, timeout_s=TIMEOUT_S)) as line:
        answer = line.call("GET", "/v1/state", None, {})
    check_grant(source.url, answer, "audit")
    if answer.status != 200:
        raise Unavailable(source.url, f"it answers {answer.status} {answer.reason}")
    if answer.body is None:
        raise Unavailable(source.url, "what it answers is no JSON")
    return answer.body
