"""Message: a request as a handler sees it, and a reply as it gives it. Plain values."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Final, NamedTuple, TypeAlias, TypeVar, final

from sluicegate.contracts.access import Identity
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.errors import SluicegateError
from sluicegate.doors.connection import PeerInfo

JSON: Final = b"application/json"
EVENTS: Final = b"text/event-stream"
PROBLEM: Final = b"application/problem+json"
TEXT: Final = b"text/plain; charset=utf-8"

Headers: TypeAlias = "tuple[tuple[bytes, bytes], ...]"


@final
class HttpRequest:
    """The head of a request. Header names are in lower case, in the order in which they came.

    `first` has the first value of each by its name. `raw_path` is the path as it was sent: what
    stands in it may be any bytes, slashes too. It had waited for `lag_us`, in its socket and in
    line, when its head was read. A handler that counts time from there writes down when that was,
    in `arrived_us`, and who asks, in `identity`.
    """

    __slots__ = (
        "arrived_us", "first", "headers", "identity", "lag_us", "method", "path", "peer", "query",
        "raw_path",
    )  # fmt: skip

    def __init__(
        self,
        method: str,
        path: str,
        query: bytes,
        headers: list[tuple[bytes, bytes]],
        peer: PeerInfo,
        raw_path: str = "",
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.first = dict(reversed(headers))
        self.peer = peer
        self.raw_path = raw_path or path
        self.arrived_us = 0
        self.lag_us = 0
        self.identity: Identity | None = None

    def header(self, name: bytes) -> bytes:
        """The value of a header; empty if it is not there, the first if it is there twice."""
        return self.first.get(name, b"")

    def count(self, name: bytes) -> int:
        """How often a header is there."""
        if name not in self.first:
            return 0
        if len(self.first) == len(self.headers):
            return 1
        return sum(one == name for one, _ in self.headers)


class HttpReply(NamedTuple):
    """What goes back: a body, then `pieces` as they come, if any. `close` ends the connection.

    Pieces are asked for while the client reads; their end, or the client's, ends the connection,
    and the generator is closed. They are for `Finish`: a reply to the head alone has none.

    With 101, `switch` makes what speaks on the connection from then on, in another protocol;
    it is for a request that offers one (`HttpSettings.switch_offer`).

    `over_quota` is the refusal of a caller whose quota is spent, or could never pay for this.

    `head` is status line and headers as they go out, but for the date and the end of the head: made
    before (`replies.prepared`), for a reply that is sent again and again.
    """

    status: int
    body: bytes = b""
    content_type: bytes = JSON
    headers: Headers = ()
    close: bool = False
    pieces: AsyncGenerator[bytes, None] | None = None
    over_quota: bool = False
    switch: Callable[[], asyncio.Protocol] | None = None
    head: bytes = b""


# A handler is shown the head. It replies at once, and the body is not even read; or it says who is
# to be given the body.
Finish: TypeAlias = "Callable[[bytes], MaybeAwaitable[HttpReply]]"
Handler: TypeAlias = "Callable[[HttpRequest], HttpReply | Finish]"
# Makes a page of problem details where a person asks, and leaves them as they are elsewhere.
ErrorPage: TypeAlias = "Callable[[HttpRequest, HttpReply], HttpReply]"


def json_reply(value: object, status: int = 200, headers: Headers = ()) -> HttpReply:
    """A value as JSON."""
    return HttpReply(status, json_bytes(value), JSON, headers)


def json_bytes(value: object) -> bytes:
    """A value as JSON; what UTF-8 cannot hold becomes question marks."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"


def problem(
    status: int,
    title: str,
    detail: str,
    *,
    headers: Headers = (),
    close: bool = False,
    kind: str = "about:blank",
    more: Mapping[str, object] | None = None,
) -> HttpReply:
    """Problem details after RFC 9457."""
    members: dict[str, object] = {"type": kind, "title": title, "status": status, "detail": detail}
    members.update(more or {})
    return HttpReply(status, json_bytes(members), PROBLEM, headers, close)


T = TypeVar("T")


def render_reply(
    answer: MaybeAwaitable[T], write: Callable[[T], HttpReply]
) -> MaybeAwaitable[HttpReply]:
    """Write the answer now, if it is there."""
    if isinstance(answer, Awaitable):
        return _render_later(answer, write)
    return write(answer)


async def _render_later(answer: Awaitable[T], write: Callable[[T], HttpReply]) -> HttpReply:
    return write(await answer)


async def catch_errors(
    answer: Awaitable[HttpReply],
    reply_of: Callable[[SluicegateError], HttpReply],
    bound: Callable[[HttpReply], HttpReply],
) -> HttpReply:
    """An error that is raised on purpose, as a reply; any other reply within its bound."""
    try:
        reply = await answer
    except SluicegateError as error:
        return reply_of(error)
    return bound(reply)
