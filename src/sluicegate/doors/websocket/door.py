"""Door: the handshake of a WebSocket, and what the connections of a door share.

Another site's page may open a WebSocket to any address that its browser can reach, and reads what
comes back; so the Origin is checked here, though a handshake is a GET. A browser cannot send an
Authorization header with it: it says its token as a subprotocol, `bearer.TOKEN`, beside the one
that it speaks, and the token is not said back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final, final

from websockets.datastructures import Headers
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from sluicegate.contracts.access import Identity
from sluicegate.contracts.clock import Clock
from sluicegate.doors.http.cors import Cors
from sluicegate.doors.http.message import HttpReply, HttpRequest, problem
from sluicegate.doors.http.site import other_site
from sluicegate.doors.turns import Turns
from sluicegate.doors.websocket.codec import QUIET
from sluicegate.doors.websocket.protocol import WebSocketCounts, WebSocketProtocol
from sluicegate.doors.websocket.session import OpenSession, Socket
from sluicegate.doors.websocket.settings import WebSocketSettings

_BODY: Final = problem(400, "Bad Request", "a WebSocket handshake has no body", close=True)
_VERSION: Final = b"13"
_OURS: Final = (b"sec-websocket-accept", b"sec-websocket-protocol", b"upgrade")


@final
class WebSocketDoor:
    """Opens sessions; `protocols` are the subprotocols that they speak, the best first."""

    def __init__(
        self,
        clock: Clock,
        settings: WebSocketSettings | None = None,
        protocols: tuple[str, ...] = (),
        cors: Cors | None = None,
    ) -> None:
        self.clock = clock
        self._cors = cors
        self.settings = WebSocketSettings() if settings is None else settings
        self.counts = WebSocketCounts()
        self.turns = Turns(clock, self.settings.turn_portions_max, self.settings.turn_us_max)
        self._protocols = [Subprotocol(name) for name in protocols]

    def accept(self, request: HttpRequest, open_session: OpenSession) -> HttpReply:
        """Answer a handshake: the connection is the session's from then on, or told why not."""
        allowed = self._cors is not None and self._cors.allows(request)
        refusal = None if allowed else other_site(request)
        if refusal is not None:
            return refusal
        if request.header(b"content-length") or request.header(b"transfer-encoding"):
            return _BODY
        version = request.header(b"sec-websocket-version")
        if version and version != _VERSION:
            detail = "speak version 13 of WebSocket"
            offer = ((b"upgrade", b"websocket"), (b"sec-websocket-version", _VERSION))
            return problem(426, "Upgrade Required", detail, headers=offer)
        headers = Headers()
        for name, value in request.headers:
            headers[name.decode("latin-1")] = value.decode("latin-1")
        handshake = ServerProtocol(
            subprotocols=self._protocols or None,
            select_subprotocol=_select_subprotocol,
            logger=QUIET,
        )
        answer = handshake.accept(Request(request.path, headers))
        sent = [
            (name.lower().encode(), value.encode()) for name, value in answer.headers.raw_items()
        ]
        ours = tuple((name, value) for name, value in sent if name in _OURS)
        if answer.status_code != 101:
            detail = bytes(answer.body or b"").decode().partition("\n")[0]
            if answer.status_code == 426:
                ours += ((b"sec-websocket-version", _VERSION),)
            return problem(answer.status_code, answer.reason_phrase, detail, headers=ours)
        switch = partial(WebSocketProtocol, self, request.identity, open_session)
        return HttpReply(101, headers=(*ours, (b"connection", b"Upgrade")), switch=switch)

    def reject(self, request: HttpRequest, code: int, reason: str) -> HttpReply:
        """Answer a handshake and close with a code: browsers show pages no status of a refusal."""
        return self.accept(request, partial(_Rejected, code, reason))


@final
class _Rejected:
    """The session of a connection that is closed right after its handshake."""

    identity: Identity | None = None

    def __init__(self, code: int, reason: str, socket: Socket) -> None:
        asyncio.get_running_loop().call_soon(socket.fail, code, reason)

    def receive(self, _text: str) -> None:
        """Ignore a message: the connection is closing."""

    def reject(self, _head: bytes, _size: int, _bytes_max: int) -> None:
        """Ignore a message that is too long: the connection is closing."""

    def resume(self) -> None:
        """Do nothing: there is nothing to send."""

    def under_way(self) -> int:
        """Return 0."""
        return 0

    def close(self) -> None:
        """Do nothing."""


def _select_subprotocol(
    handshake: ServerProtocol, offered: Sequence[Subprotocol]
) -> Subprotocol | None:
    """The best that both speak; a client that names none of ours gets what it did not ask for."""
    for name in handshake.available_subprotocols or ():
        if name in offered:
            return name
    return None
