"""Handler: channels in HTTP. Each route is a few lines: read, ask, write.

    POST /v1/channels/{channel}/messages    publish; the reply comes when the message is durable
    GET  /v1/channels/{channel}/events      subscribe: server-sent events
    GET  /v1/channels/{channel}/messages    history
    GET  /v1/channels/{channel}/presence    who is there; PUT and DELETE of a member below it
    GET  /v1/usage                          what the account has used up, and may
    GET  /v1/socket                         all of it on one connection: WebSocket (session.py)
    GET  /                                  the page

An event is a `message`, with its position as its id, so a browser that connects again says by
itself where it was; or a `gap`, where continuity was lost.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any, Final, final

from sluicegate.apps.pubsub.channel import NOW, ChannelKey, ChannelReading, Gap, Piece
from sluicegate.apps.pubsub.page import render_channels
from sluicegate.apps.pubsub.presence import PAGE_BYTES, PAGE_BYTES_MAX, Owner, Place
from sluicegate.apps.pubsub.send_pace import TAKEN_BYTES, TAKEN_MAX
from sluicegate.apps.pubsub.service import READ_BYTES, PubSub
from sluicegate.apps.pubsub.session import (
    POSITION_MAX,
    READ_MAX,
    members_text,
    require_member,
)
from sluicegate.contracts.access import Access, Grant, Identity
from sluicegate.contracts.channel_scope import ChannelRight
from sluicegate.doors.http.fields import query_of, whole_of
from sluicegate.doors.http.handler import HttpHandler
from sluicegate.doors.http.identity import offered_token
from sluicegate.doors.http.message import EVENTS, JSON, HttpReply, HttpRequest, json_reply
from sluicegate.doors.http.routes import Parameter, Route, RouteResponse
from sluicegate.doors.http.schemas import FREE, TEXT, fields, whole
from sluicegate.wire.json_objects import encode_json, fields_of, parse_json
from sluicegate.wire.json_objects import whole_of as number_of

FOR_S: Final = 30  # that a member is there which entered over HTTP
FOR_S_MAX: Final = 86_400
HTML: Final = b"text/html; charset=utf-8"
_HEARTBEAT: Final = b":\n\n"
_CHANNEL: Final = Parameter("channel", "Its name.", TEXT, "path", required=True)
_MEMBER: Final = Parameter("member", "Its name.", TEXT, "path", required=True)
_AFTER: Final = Parameter("after", "The last position that is known already.", whole(0))
_TOKEN: Final = Parameter("access_token", "A token, where no header can have it.", TEXT)
_FRAMELESS: Final = ((b"content-security-policy", b"frame-ancestors 'none'"),)
_REFUSED: Final = RouteResponse("Over a limit; `reason` says which.", "Problem")

SCHEMAS: Final = {
    "Publish": fields({"data": {"description": "Any JSON."}}, ("data",)),
    "Accepted": fields(
        {
            "position": whole(1, "Where it is in the order of all messages."),
            "warnings": {"type": "array", "items": FREE},
        },
        ("position",),
    ),
    "Enter": fields(
        {
            "data": {"description": "Any JSON."},
            "for_s": whole(1, "Seconds that it is there; 30 if not said."),
        }
    ),
    "Members": fields(
        {
            "members": {"type": "array", "items": FREE},
            "next": {"description": "`after` of the next page; null on the last one."},
        }
    ),
    "Usage": {**FREE, "description": "By limit: hour, month, connections, channels."},
    "History": fields(
        {
            "messages": {"type": "array", "items": FREE},
            "cut": whole(0, "The last position that may be missing before them; 0 is none."),
            "newest": whole(0, "The last position of any channel."),
        }
    ),
}


@final
class PubSubHandler(HttpHandler):
    """The routes of the service."""

    reply_bytes_max = 8 << 20  # a page, and one more message, in JSON up to six times as long

    def __init__(
        self,
        service: PubSub,
        access: Access,
        hosts: frozenset[str] | None,
        heartbeat_s: float,
        open_socket: Callable[[HttpRequest, Identity | str, Access], HttpReply],
    ) -> None:
        super().__init__(access, hosts)
        self._open_socket = open_socket
        self._page = HttpReply(200, render_channels(), HTML, _FRAMELESS)
        self._service = service
        self._heartbeat_s = heartbeat_s

    def routes(self) -> tuple[Route, ...]:
        """The rows."""
        return (
            Route(
                "POST",
                "/v1/channels/{channel}/messages",
                self._publish,
                "Publish a message.",
                {200: RouteResponse("It is durable.", "Accepted"), 429: _REFUSED},
                request_schema="Publish",
                grant=Grant.PUBLISH,
                parameters=(_CHANNEL,),
            ),
            Route(
                "GET",
                "/v1/channels/{channel}/messages",
                self._history,
                "Read messages again.",
                {200: RouteResponse("Messages, oldest first.", "History")},
                grant=Grant.SUBSCRIBE,
                parameters=(
                    _CHANNEL,
                    _AFTER,
                    Parameter("count", "How many at most.", whole(1)),
                ),
            ),
            Route(
                "GET",
                "/v1/channels/{channel}/events",
                self._subscribe,
                "Subscribe: messages as server-sent events.",
                {200: RouteResponse("Events.", "", "text/event-stream")},
                grant=Grant.SUBSCRIBE,
                parameters=(
                    _CHANNEL,
                    _AFTER,
                    Parameter("Last-Event-ID", "The same, as browsers say it.", TEXT, "header"),
                    _TOKEN,
                ),
                query_token=True,
            ),
            Route(
                "GET",
                "/v1/channels/{channel}/presence",
                self._show_members,
                "Who is in a channel.",
                {200: RouteResponse("A page of its members, by name.", "Members")},
                grant=Grant.SUBSCRIBE,
                parameters=(
                    _CHANNEL,
                    Parameter("after", "`next` of the page before.", TEXT),
                    Parameter("bytes", "Of the page at most; one member always fits.", whole(1)),
                ),
            ),
            Route(
                "PUT",
                "/v1/channels/{channel}/presence/{member}",
                self._enter,
                "Have a member enter for a while, or update it; the same again prolongs it.",
                {200: RouteResponse("It is there.", "Accepted"), 429: _REFUSED},
                request_schema="Enter",
                grant=Grant.PUBLISH,
                parameters=(_CHANNEL, _MEMBER),
            ),
            Route(
                "DELETE",
                "/v1/channels/{channel}/presence/{member}",
                self._leave,
                "Have a member leave.",
                {204: RouteResponse("It is not there.", empty=True)},
                grant=Grant.PUBLISH,
                parameters=(_CHANNEL, _MEMBER),
            ),
            Route(
                "GET",
                "/v1/usage",
                self._usage,
                "What the account has used in this hour and month, and may.",
                {200: RouteResponse("Used, nominal and where it is restricted.", "Usage")},
            ),
            Route(
                "GET",
                "/v1/socket",
                self._socket,
                "Publish and subscribe on one connection: WebSocket.",
                {
                    101: RouteResponse("It is a WebSocket.", empty=True),
                    426: RouteResponse("It asks for none.", "Problem"),
                },
                parameters=(_TOKEN,),
                query_token=True,
            ),
            Route(
                "GET",
                "/",
                self._show_page,
                "A page that publishes and subscribes.",
                {200: RouteResponse("The page.", "", "text/html")},
                open=True,
            ),
        )

    def identify(self, request: HttpRequest) -> Identity | HttpReply:
        """Return the caller; a page with an invalid token gets a close code instead of a status."""
        found = super().identify(request)
        if isinstance(found, HttpReply) and found.status == 401 and offered_token(request):
            return self._open_socket(request, json.loads(found.body)["detail"], self.access)
        return found

    def _socket(self, request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        return self._open_socket(request, by, self.access)

    def _show_page(self, _request: HttpRequest, _by: Identity, _body: bytes) -> HttpReply:
        return self._page

    def _publish(
        self, request: HttpRequest, by: Identity, body: bytes
    ) -> Coroutine[Any, Any, HttpReply]:
        sent = fields_of(parse_json(body), "", {"data": "data"})
        channel = self._channel(request, by, Grant.PUBLISH, ChannelRight.PUBLISH)
        kept = self._service.publish(by.name, channel, sent.get("data"))
        return self._reply_accepted(by.name, kept)

    async def _reply_accepted(self, account: str, kept: Coroutine[Any, Any, int]) -> HttpReply:
        return self._accepted(account, await kept)

    def _accepted(self, account: str, position: int) -> HttpReply:
        warnings = [one._asdict() for one in self._service.warnings(account)]
        if warnings:
            return json_reply({"position": position, "warnings": warnings})
        return json_reply({"position": position})

    async def _enter(self, request: HttpRequest, by: Identity, body: bytes) -> HttpReply:
        sent = fields_of(parse_json(body), "", {"data": "data", "for_s": "for_s"})
        for_s = number_of(sent.get("for_s", FOR_S), "for_s", 1, FOR_S_MAX)
        place = self._member_place(request, by)
        owner = Owner()
        # One timer a member, or those of members that are prolonged would add up for a day.
        end = asyncio.get_running_loop().call_later(for_s, self._service.end_owner, owner)
        owner.drop = end.cancel
        try:
            position = await self._service.enter(place, sent.get("data"), owner)
        except BaseException:
            end.cancel()
            raise
        return self._accepted(by.name, position)

    async def _leave(self, request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        await self._service.leave(self._member_place(request, by), None)
        return HttpReply(204, b"")

    async def _show_members(self, request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        query = query_of(request, ("after", "bytes"))
        size = whole_of("bytes", query.get("bytes", str(PAGE_BYTES)), 1, PAGE_BYTES_MAX)
        channel = self._channel(request, by, Grant.SUBSCRIBE, ChannelRight.PRESENCE)
        page = await self._service.members(by.name, channel, query.get("after", ""), size)
        return HttpReply(200, b"{%b}\n" % members_text(page), JSON)

    def _member_place(self, request: HttpRequest, by: Identity) -> Place:
        channel = self._channel(request, by, Grant.PUBLISH, ChannelRight.PRESENCE)
        member = self.table.values_in(request.path)["member"]
        require_member(by, member)
        return Place(ChannelKey(by.name, channel), member)

    async def _usage(self, _request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        return json_reply(await self._service.usage_everywhere(by.name))

    async def _history(self, request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        query = query_of(request, ("after", "count"))
        after = _position("after", query.get("after", "0"))
        count = whole_of("count", query.get("count", "100"), 1, READ_MAX)
        channel = self._channel(request, by, Grant.SUBSCRIBE, ChannelRight.HISTORY)
        page = await self._service.read(by.name, channel, after, count, bytes_max=READ_BYTES)
        messages = b",".join(one.text for one in page.messages)
        body = b'{"messages":[%b],"cut":%d,"newest":%d}\n' % (messages, page.cut, page.newest)
        return HttpReply(200, body, JSON)

    async def _subscribe(self, request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        name, text = "last-event-id", request.header(b"last-event-id").decode("latin-1")
        if not text:
            name, text = "after", query_of(request, ("after",)).get("after", "")
        after = _position(name, text) if text else NOW
        channel = self._channel(request, by, Grant.SUBSCRIBE, ChannelRight.SUBSCRIBE)
        if after != NOW:
            self._channel(request, by, Grant.SUBSCRIBE, ChannelRight.HISTORY)
        # A wrong name, a channel that cannot be had, and a connection too many are refused with
        # a status.
        self._service.check_connection(by.name)
        tried = self._service.subscribe(by.name, channel, after)
        try:
            await _begun(tried)
        finally:
            self._service.unsubscribe(tried)
        return HttpReply(200, b"", EVENTS, pieces=self._events(by.name, channel, after))

    async def _events(self, account: str, name: str, after: int) -> AsyncGenerator[bytes, None]:
        self._service.connect(account)
        try:
            async for piece in self._read_along(account, name, after):
                yield piece
        finally:
            self._service.disconnect(account)

    async def _read_along(self, account: str, name: str, after: int) -> AsyncGenerator[bytes, None]:
        subscription = self._service.subscribe(account, name, after)
        subscription.wake = wake = _StreamWake()
        try:
            await _begun(subscription)
            yield _HEARTBEAT
            while True:
                if wake.moved:
                    new = await self._service.follow(subscription)
                    self._service.unsubscribe(subscription)
                    subscription = new
                    subscription.wake = wake = _StreamWake()
                wake.clear()
                pieces = subscription.take(TAKEN_MAX, TAKEN_BYTES)
                if pieces:
                    yield _render(pieces)
                    continue
                try:  # `wait_for` would not end if the client goes just as a message comes
                    async with asyncio.timeout(self._heartbeat_s):
                        await wake.wait()
                except TimeoutError:
                    yield _HEARTBEAT
        finally:
            self._service.unsubscribe(subscription)

    def _channel(
        self, request: HttpRequest, by: Identity, grant: Grant, right: ChannelRight
    ) -> str:
        """The channel of a request, in which this must be granted."""
        channel = self.table.values_in(request.path)["channel"]
        by.require_in(channel, grant, right)
        return channel


@final
class _StreamWake(asyncio.Event):
    """Wakes a stream."""

    def __init__(self) -> None:
        super().__init__()
        self.moved = False

    def move(self) -> None:
        """Have it read on elsewhere."""
        self.moved = True
        self.set()


async def _begun(reading: ChannelReading) -> None:
    while (begun := reading.begun) is not None:
        await begun


def _position(name: str, text: str) -> int:
    return whole_of(name, text, 0, POSITION_MAX)


def _render(pieces: Sequence[Piece]) -> bytes:
    out: list[bytes] = []
    for piece in pieces:
        if isinstance(piece, Gap):
            data = encode_json(piece._asdict())
            out.append(b"event: gap\nid: %d\ndata: %b\n\n" % (piece.before - 1, data))
        else:
            kind = b"presence" if piece.presence else b"message"
            out.append(b"event: %b\nid: %d\ndata: %b\n\n" % (kind, piece.position, piece.text))
    return b"".join(out)
