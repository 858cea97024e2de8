"""Board source: reads the boards of running dispatchers from `GET /v1/state`.

One that does not answer is told as such, beside the others: a view of a fleet must not end because
one of it did. What it cannot read (no grant, another version) it says, with what to do.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from headgate.apps.kv.board import VERSION
from headgate.contracts.errors import BadValue, HeadgateError, Unavailable

AT_DEFAULT: Final = "http://127.0.0.1:7080"
TOKEN_VARIABLE: Final = "HEADGATE_TOKEN"
TIMEOUT_S: Final = 5.0
ANSWER_BYTES_MAX: Final = 16 << 20
SOURCES_MAX: Final = 100
EVERY_S_MIN: Final = 0.1
EVERY_S_MAX: Final = 3_600.0


class Source(NamedTuple):
    """Where to ask, and as whom."""

    url: str
    token: str = ""
    ca: str = ""


class Sample(NamedTuple):
    """One dispatcher's board; or why there is none."""

    url: str
    board: dict[str, Any] | None
    error: str = ""


def add_source(parser: ArgumentParser) -> None:
    """The flags of whatever looks at running dispatchers."""
    parser.add_argument(
        "at", metavar="URL", nargs="*", help=f"dispatchers to look at (default {AT_DEFAULT})"
    )
    parser.add_argument(
        "--url", action="append", default=[], metavar="URL", help="one more; may be repeated"
    )
    parser.add_argument("--ca", default="", metavar="FILE", help="authorities to trust, PEM")
    parser.add_argument(
        "--token", default="", help=f"with the grant audit; better in {TOKEN_VARIABLE}"
    )
    parser.add_argument(
        "--every", default=1.0, type=float, metavar="S", help="seconds between looks (default 1)"
    )
    parser.add_argument("--once", action="store_true", help="show one picture, and end")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each picture")
    parser.add_argument("--plain", action="store_true", help="lines, also on a terminal")


def sources_of(arguments: Namespace) -> list[Source]:
    """The dispatchers that the flags name, each once."""
    if not EVERY_S_MIN <= arguments.every <= EVERY_S_MAX:
        raise BadValue("--every", arguments.every, "give seconds from 0.1 to 3600")
    urls = list(dict.fromkeys([*arguments.at, *arguments.url])) or [AT_DEFAULT]
    if len(urls) > SOURCES_MAX:
        raise BadValue("--url", len(urls), f"give at most {SOURCES_MAX}")
    token = arguments.token or os.environ.get(TOKEN_VARIABLE, "")
    for url in urls:
        where = urlsplit(url)
        if where.scheme not in {"http", "https"} or not where.hostname:
            raise BadValue("--url", url, f"write it as {AT_DEFAULT}")
    return [Source(url, token, arguments.ca) for url in urls]


def samples_of(sources: Sequence[Source]) -> list[Sample]:
    """The boards of all, asked at the same time."""
    if len(sources) == 1:
        return [sample_of(sources[0])]
    with ThreadPoolExecutor(max_workers=min(len(sources), 16)) as pool:
        return list(pool.map(sample_of, sources))


def sample_of(source: Source) -> Sample:
    """One board, or why there is none."""
    try:
        return Sample(source.url, _board(source, _asked(source)))
    except Unavailable as error:
        return Sample(source.url, None, error.seen)


def _board(source: Source, state: Any) -> dict[str, Any]:
    board = state.get("board") if isinstance(state, dict) else None
    if not isinstance(board, dict):
        raise HeadgateError(f"{source.url} is no dispatcher: its state has no board")
    version = board.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise HeadgateError(
            f"{source.url} shows a board of version {version!r}, and this knows up to {VERSION}: "
            "look with a headgate as new as the dispatcher's"
        )
    return board


def _asked(source: Source) -> Any:
    connection = _connection(source)
    headers = {"Authorization": f"Bearer {source.token}"} if source.token else {}
    try:
        connection.request(
            "GET", f"{urlsplit(source.url).path.rstrip('/')}/v1/state", None, headers
        )
        answer = connection.getresponse()
        body = answer.read(ANSWER_BYTES_MAX)
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(source.url, str(error) or type(error).__name__) from None
    finally:
        connection.close()
    if answer.status in {401, 403}:
        raise HeadgateError(
            f"{source.url} answers {answer.status}: this takes a token with the grant audit; "
            f"give it in {TOKEN_VARIABLE}"
        )
    if answer.status != 200:
        raise Unavailable(source.url, f"it answers {answer.status} {answer.reason}")
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise Unavailable(source.url, "what it answers is no JSON") from None


def _connection(source: Source) -> http.client.HTTPConnection | http.client.HTTPSConnection:
    where = urlsplit(source.url)
    host = where.hostname or ""
    if where.scheme == "http":
        return http.client.HTTPConnection(host, where.port, timeout=TIMEOUT_S)
    try:
        context = ssl.create_default_context(cafile=source.ca or None)
    except (OSError, ssl.SSLError) as error:
        raise BadValue("--ca", source.ca, f"it cannot be read: {error}") from None
    return http.client.HTTPSConnection(host, where.port, timeout=TIMEOUT_S, context=context)
