"""Exchange: one question to a server and its answer, on a connection of its own.

It follows no redirect, for that would show our token to somebody else, and asks no proxy of the
environment. What it reads is bounded in bytes and in time.

Told: what a server refuses, as the errors it was made from, in the server's words. Pure.

A problem that names a field is a `BadValue`, one with a list of problems `BadRules`, one that says
what was seen a `Conflict` or `Unavailable`. What no rulebook's door says is `Unavailable`.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Final, NamedTuple, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import (
    BadValue,
    Conflict,
    Forbidden,
    SluicegateError,
    Unauthenticated,
    Unavailable,
)
from sluicegate.rules.problems import PROBLEMS_MAX, BadRules, Problem
from sluicegate.rules.remote.server import RulebookServer
from sluicegate.wire.json_objects import parse_object

_PIECE_BYTES: Final = 64 * 1024
_TIMEOUT_S_MIN: Final = 0.001


class ServerResponse(NamedTuple):
    """What came back. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class BrokenExchange(Unavailable):
    """The connection ended before the answer was whole: it may have been done, or not."""


@final
class _UnixConnection(HTTPConnection):
    """HTTP on a Unix socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@final
class Exchange:
    """Asks one server; from any thread."""

    __slots__ = ("_clock", "_server", "what")

    def __init__(self, server: RulebookServer, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self.what = f"the rulebook at {server.url}"

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> ServerResponse:
        """The answer, whatever it says; `Unavailable` if there is none, `Broken` if half."""
        server = self._server
        until_us = self._clock.now_us() + int(timeout_s * 1_000_000)
        connection = self._connection(max(timeout_s, _TIMEOUT_S_MIN))
        try:
            try:
                connection.connect()
            except (OSError, ValueError) as error:
                raise Unavailable(self.what, _why(error)) from None
            fields = {"Accept": "application/json", "Connection": "close", **headers}
            if server.token:
                fields["Authorization"] = f"Bearer {server.token}"
            try:
                connection.request(method, server.prefix + path, body, fields)
                return self._read(connection.getresponse(), until_us)
            except (OSError, HTTPException, ValueError) as error:
                raise BrokenExchange(self.what, _why(error)) from None
        finally:
            connection.close()

    def _connection(self, timeout_s: float) -> HTTPConnection:
        server = self._server
        if server.path:
            return _UnixConnection(server.path, timeout_s)
        if server.tls is not None:
            return HTTPSConnection(server.host, server.port, timeout=timeout_s, context=server.tls)
        return HTTPConnection(server.host, server.port, timeout=timeout_s)

    def _read(self, response: HTTPResponse, until_us: int) -> ServerResponse:
        most = self._server.answer_bytes_max
        parts: list[bytes] = []
        size = 0
        while piece := response.read1(_PIECE_BYTES):
            parts.append(piece)
            size += len(piece)
            if size > most:
                raise Unavailable(self.what, f"its answer is longer than {most:,} bytes")
            if self._clock.now_us() > until_us:
                raise BrokenExchange(self.what, "its answer did not come in time")
        if response.length:
            raise BrokenExchange(self.what, "its answer ended before it was whole")
        headers = {name.lower(): value for name, value in response.getheaders()}
        return ServerResponse(response.status, headers, b"".join(parts))


def _why(error: BaseException) -> str:
    return str(error) or type(error).__name__


WORDS_CHARS_MAX: Final = 2_000

# Where the call itself is wrong, and no field of it alone.
_TOO_MUCH: Final = (408, 411, 413, 414, 415, 417, 421, 431)


def answer_of(response: ServerResponse, what: str) -> Mapping[str, Any]:
    """The object that was answered; otherwise it raises what was refused."""
    if 200 <= response.status < 300:
        answer = _object_in(response.body)
        if answer is None:
            raise Unavailable(what, "what answers there is no rulebook's door: it is not JSON")
        return answer
    raise error_of(response, what)


def error_of(response: ServerResponse, what: str) -> SluicegateError:
    """What was refused."""
    status = response.status
    problem = _object_in(response.body) or {}
    words = _text(problem, "detail") or _text(problem, "title") or f"it answers {status}"
    if status == 401:
        return Unauthenticated(_text(problem, "remedy") or "send a valid token", words)
    if status == 403 and "grant" in problem:
        return Forbidden(_text(problem, "who"), _text(problem, "grant"))
    if status in (409, 412) and "what" in problem:
        return Conflict(_text(problem, "what"), _text(problem, "seen"))
    if status == 409:
        return SluicegateError(words)
    problems = problem.get("problems")
    if status == 422 and isinstance(problems, list) and problems:
        return _bad_rules(problem, problems)
    if status in (400, 404, 422) and "field" in problem:
        return BadValue(_text(problem, "field"), _text(problem, "value"), _text(problem, "remedy"))
    if status in _TOO_MUCH:
        return BadValue("call", _text(problem, "title") or str(status), words)
    if status == 503 and "what" in problem:
        return Unavailable(_text(problem, "what"), _text(problem, "seen"))
    if 300 <= status < 400:
        where = response.headers.get("location", "")[:WORDS_CHARS_MAX]
        return Unavailable(what, f"it sends us to {where!r}; if that is right, give it as the url")
    return Unavailable(what, f"{status}: {words}")


def _bad_rules(problem: Mapping[str, Any], problems: list[Any]) -> BadRules:
    listed = [
        Problem(
            _text(one, "field"), one.get("value"), _text(one, "remedy"), _whole(one.get("line"))
        )
        for one in problems[:PROBLEMS_MAX]
        if isinstance(one, dict)
    ] or [Problem("", "", _text(problem, "detail"))]
    return BadRules(_text(problem, "file"), listed, _whole(problem.get("more")))


def _object_in(body: bytes) -> dict[str, Any] | None:
    try:
        return parse_object(body)
    except BadValue:
        return None


def _text(problem: Mapping[str, Any], name: str) -> str:
    value = problem.get(name)
    return value[:WORDS_CHARS_MAX] if isinstance(value, str) else ""


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
