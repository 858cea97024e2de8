"""Asking: how commands speak to a service of ours that is running, over HTTP.

Where it is comes from flags, and the token from a flag or the environment. An answer is handed on
whatever it says; none at all is `Unavailable`. What is read is bounded in bytes and in time.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final, NamedTuple, final
from urllib.parse import SplitResult, urlsplit

from sluicegate.contracts.errors import BadValue, SluicegateError, Unavailable

TOKEN_VARIABLE: Final = "SLUICEGATE_TOKEN"
ANSWER_BYTES_MAX: Final = 64 << 20
_SCHEMES: Final = frozenset({"http", "https"})
_NO_TOKEN: Final = frozenset({401, 403})


class Where(NamedTuple):
    """A service, and as whom it is asked; as `where_said` has checked it."""

    url: str
    token: str = ""
    ca: str = ""


class Answer(NamedTuple):
    """What came back. `said` is read as JSON, and None where that is none."""

    status: int
    reason: str
    said: Any
    retry_after: str

    @property
    def taken(self) -> bool:
        """Whether it did what it was asked."""
        return 200 <= self.status < 300

    @property
    def seen(self) -> str:
        """What went wrong, in its own words if it has any."""
        said = self.said if isinstance(self.said, dict) else {}
        return str(said.get("detail") or said.get("title") or self.reason)


def add_where(parser: ArgumentParser, default: str, grant: str, *names: str) -> None:
    """The flags that say which service, and who asks; `names` are those of its URL."""
    parser.add_argument(*names, default=default, metavar="URL", help=f"(default {default})")
    add_who(parser, grant)


def add_who(parser: ArgumentParser, grant: str) -> None:
    """The flags that say who asks, and whom it trusts."""
    parser.add_argument("--ca", default="", metavar="FILE", help="authorities to trust, PEM")
    parser.add_argument("--token", default="", help=f"{grant}; better in {TOKEN_VARIABLE}")


def where_said(url: str, arguments: Namespace, *, flag: str, example: str) -> Where:
    """The service at a URL, asked as the flags of `add_who` say; `flag` is where the URL stood."""
    _split(url, flag, example)
    token = arguments.token or os.environ.get(TOKEN_VARIABLE, "")
    if not (token.isascii() and token.isprintable()):
        remedy = f"give letters, digits and signs of ASCII, or set {TOKEN_VARIABLE}"
        raise BadValue("--token", "(not shown)", remedy)
    return Where(url, token, arguments.ca)


def ask(
    where: Where,
    what: str,
    path: str,
    *,
    method: str = "GET",
    body: bytes | None = None,
    timeout_s: float,
    grant: str = "",
) -> Any:
    """What it answers to one question; `what` is what errors call it, and `grant` what it takes."""
    with closing(Line(where, what, timeout_s=timeout_s)) as line:
        headers = {} if body is None else {"Content-Type": "application/json"}
        answer = line.ask(method, path, body, headers)
    check_granted(what, answer, grant)
    if not answer.taken or answer.said is None:
        raise SluicegateError(f"{what} answers {answer.status}: {answer.seen}")
    return answer.said


def check_granted(what: str, answer: Answer, grant: str) -> None:
    """Raise what to do about it, if it does not know who asks, or does not let them."""
    if grant and answer.status in _NO_TOKEN:
        raise SluicegateError(
            f"{what} answers {answer.status}: this takes a token with the grant {grant}; "
            f"give it in {TOKEN_VARIABLE}"
        )


@final
class Line:
    """A connection to one service, for one thread; opened when it is used, and again if it broke.

    What the URL has behind the host stands before every path.
    """

    def __init__(self, where: Where, what: str, *, timeout_s: float) -> None:
        at = urlsplit(where.url)
        self.what = what
        self._prefix = at.path.rstrip("/")
        self._headers = {"Authorization": f"Bearer {where.token}"} if where.token else {}
        self._connection = _connection(at, where.ca, timeout_s)

    def ask(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        """The answer, whatever it says; `Unavailable` if there is none."""
        try:
            self._connection.request(
                method, self._prefix + path, body, {**headers, **self._headers}
            )
            answer = self._connection.getresponse()
            data = answer.read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            self.close()
            raise Unavailable(self.what, str(error) or type(error).__name__) from None
        return Answer(
            answer.status, answer.reason, _said(data), answer.headers.get("Retry-After", "")
        )

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


def _connection(
    at: SplitResult, ca: str, timeout_s: float
) -> http.client.HTTPConnection | http.client.HTTPSConnection:
    host = at.hostname or ""
    if at.scheme == "http":
        return http.client.HTTPConnection(host, at.port, timeout=timeout_s)
    try:
        context = ssl.create_default_context(cafile=ca or None)
    except (OSError, ssl.SSLError) as error:
        raise BadValue("--ca", ca, f"it cannot be read: {error}") from None
    return http.client.HTTPSConnection(host, at.port, timeout=timeout_s, context=context)


def _split(url: str, flag: str, example: str) -> None:
    try:
        at = urlsplit(url)
        right = at.scheme in _SCHEMES and bool(at.hostname) and at.port != 0
    except ValueError:
        right = False
    if not right:
        raise BadValue(flag, url, f"write it as {example}")


def _said(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
