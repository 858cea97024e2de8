"""Exchange: one question to a server and its answer, on a connection of its own.

It follows no redirect, for that would show our token to somebody else, and asks no proxy of the
environment. What it reads is bounded in bytes and in time.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Final, NamedTuple, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import Unavailable
from sluicegate.rules.remote.place import Place

_PIECE_BYTES: Final = 64 * 1024
_TIMEOUT_S_MIN: Final = 0.001


class Answered(NamedTuple):
    """What came back. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Broken(Unavailable):
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

    __slots__ = ("_clock", "_place", "what")

    def __init__(self, place: Place, clock: Clock) -> None:
        self._place = place
        self._clock = clock
        self.what = f"the rulebook at {place.url}"

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> Answered:
        """The answer, whatever it says; `Unavailable` if there is none, `Broken` if half."""
        place = self._place
        until_us = self._clock.now_us() + int(timeout_s * 1_000_000)
        connection = self._connection(max(timeout_s, _TIMEOUT_S_MIN))
        try:
            try:
                connection.connect()
            except (OSError, ValueError) as error:
                raise Unavailable(self.what, _why(error)) from None
            sent = {"Accept": "application/json", "Connection": "close", **headers}
            if place.token:
                sent["Authorization"] = f"Bearer {place.token}"
            try:
                connection.request(method, place.prefix + path, body, sent)
                return self._read(connection.getresponse(), until_us)
            except (OSError, HTTPException, ValueError) as error:
                raise Broken(self.what, _why(error)) from None
        finally:
            connection.close()

    def _connection(self, timeout_s: float) -> HTTPConnection:
        place = self._place
        if place.path:
            return _UnixConnection(place.path, timeout_s)
        if place.tls is not None:
            return HTTPSConnection(place.host, place.port, timeout=timeout_s, context=place.tls)
        return HTTPConnection(place.host, place.port, timeout=timeout_s)

    def _read(self, response: HTTPResponse, until_us: int) -> Answered:
        most = self._place.answer_bytes_max
        parts: list[bytes] = []
        size = 0
        while piece := response.read1(_PIECE_BYTES):
            parts.append(piece)
            size += len(piece)
            if size > most:
                raise Unavailable(self.what, f"its answer is longer than {most:,} bytes")
            if self._clock.now_us() > until_us:
                raise Broken(self.what, "its answer did not come in time")
        if response.length:
            raise Broken(self.what, "its answer ended before it was whole")
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answered(response.status, headers, b"".join(parts))


def _why(error: BaseException) -> str:
    return str(error) or type(error).__name__
