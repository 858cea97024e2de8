"""Session: one WebSocket connection of an account. Short JSON objects, one a message.

    asks    publish, subscribe, unsubscribe, read, enter, update, leave, members, auth, each with an
            `id` that its reply repeats
    told    accepted, subscribed, unsubscribed, history, entered, left, members, authenticated,
            error; and by itself: welcome, before all else; message, presence, gap, unsubscribed

Another node of the cluster (a member with the grant `report`) speaks for accounts: it calls a
channel `account/channel`, gets only what has its home here, and says for how many it reads
(`readers`).

A subscription is a place in its channel, so there is nothing to bound for it but how many there
are. What is sent is taken from the channels when the connection has room and pace for it: who reads
too slowly, or may not have more a second, gets it later; and a `gap` in place of what the history
has let go meanwhile.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, final

from sluicegate.apps.pubsub.channel import (
    NOBODY,
    NOW,
    ChannelKey,
    ChannelReading,
    Gap,
    Subscription,
)
from sluicegate.apps.pubsub.fan_out import FanOut
from sluicegate.apps.pubsub.presence import (
    GRACE_S,
    PAGE_BYTES,
    PAGE_BYTES_MAX,
    MembersPage,
    Owner,
    Place,
)
from sluicegate.apps.pubsub.send_pace import TAKEN_MAX, SendPace, SessionBounds
from sluicegate.apps.pubsub.service import READ_BYTES, PubSub
from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.channel_scope import ChannelRight
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import (
    BadValue,
    Forbidden,
    Refused,
    SluicegateError,
    Unauthenticated,
)
from sluicegate.contracts.reasons import SUBSCRIPTIONS_FULL
from sluicegate.doors.http.identity import reply_to
from sluicegate.doors.http.message import problem
from sluicegate.doors.websocket.protocol import text_frame
from sluicegate.doors.websocket.session import Socket
from sluicegate.wire.json_objects import encode_json, fields_of, parse_json, whole_of

SUBPROTOCOL: Final = "sluicegate.pubsub.v1"
POSITION_MAX: Final = (1 << 53) - 1
READERS_MAX: Final = 1 << 32
ID_MAX: Final = 1 << 53
READ_MAX: Final = 1_000  # messages of history in a reply
AUTH: Final = "auth"  # the only one without a channel
_US: Final = 1_000_000
_FIELDS: Final[Mapping[str, Mapping[str, str]]] = {
    kind: {name: name for name in ("type", "id", "channel", *more)}
    for kind, more in (
        ("publish", ("data", "passed")),
        ("subscribe", ("after", "readers")),
        ("unsubscribe", ()),
        ("readers", ("readers",)),
        ("read", ("after", "count")),
        ("enter", ("member", "data", "held")),
        ("update", ("member", "data")),
        ("leave", ("member",)),
        ("members", ("after", "bytes")),
    )
}
HEAD_CHARS: Final = 256  # in which the id of a message is looked for that cannot be read
# The id, preceded only by short strings. A string cannot imitate it: it has no quotes here.
_BEGINNING: Final = re.compile(
    rb'\s*\{\s*(?:"(?:type|channel)"\s*:\s*"[^"\\]*"\s*,\s*)*"id"\s*:\s*(?P<id>[0-9]{1,16})\b'
)
_FAULT: Final = problem(500, "Internal Server Error", "the service's log says why")


class _Place(NamedTuple):
    """A channel of an account; `here` if only this node may have it."""

    account: str
    name: str
    here: bool


@final
class _Wake:
    """Stands in a subscription, and wakes its session."""

    __slots__ = ("_session", "_subscription")

    def __init__(self, session: PubSubSession, subscription: ChannelReading) -> None:
        self._session = session
        self._subscription = subscription

    def set(self) -> None:
        # Once for each message and reader, so it calls little: one that is blocked is
        # woken too, and sends nothing.
        session = self._session
        session._waiting[self._subscription] = None
        if not (session._awake or session._asleep_until):
            session._awake = True
            session._fan_out.wake(session)

    def move(self) -> None:
        self._session.move(self._subscription)


@final
class PubSubSession:
    """What an account says and hears on one connection."""

    __slots__ = (
        "_asleep_until", "_awake", "_clock", "_closed", "_fan_out", "_identify", "_max", "_moves",
        "_names", "_of_node", "_owner", "_pace", "_page", "_pages", "_service", "_socket",
        "_subscriptions", "_tasks", "_waiting", "identity",
    )  # fmt: skip

    def __init__(
        self,
        socket: Socket,
        identity: Identity,
        service: PubSub,
        fan_out: FanOut,
        bounds: SessionBounds,
        clock: Clock,
        identify: Callable[[str], Identity | None],
    ) -> None:
        self._socket = socket
        self._identify = identify
        self.identity = identity
        self._of_node = service.is_node(identity)
        # Who comes again enters its members again.
        self._owner = Owner(GRACE_S) if self._of_node else Owner(move=socket.drain)
        if not self._of_node:
            service.connect(identity.name)
        self._service = service
        self._fan_out = fan_out
        self._clock = clock
        self._max = bounds.subscriptions_max
        self._pace = SendPace(bounds)
        self._subscriptions: dict[str, ChannelReading] = {}
        self._names: dict[ChannelReading, str] = {}  # what the client calls their channels
        self._waiting: dict[ChannelReading, None] = {}  # those that have something, in their order
        self._tasks: set[asyncio.Task[None]] = set()
        self._moves: set[asyncio.Task[None]] = set()
        self._pages: deque[tuple[int, Callable[[], Coroutine[Any, Any, None]]]] = deque()
        self._page: asyncio.Task[None] | None = None  # that is being made; then it is sent at once
        self._awake = False
        self._asleep_until: asyncio.TimerHandle | None = None  # for it was sent what it may be
        self._closed = False
        hello = {"type": "welcome", "message_bytes_max": socket.message_bytes_max}
        socket.send(text_frame(encode_json(hello)))

    # What the socket calls.

    def receive(self, text: str) -> None:
        """Do what is asked."""
        request_id: int | None = None
        try:
            try:
                sent = parse_json(text, "message")
            except BadValue:
                request_id = _id_at(text[:HEAD_CHARS].encode("utf-8", "replace"))
                raise
            if not isinstance(sent, dict):
                raise BadValue("message", sent, "send an object")
            request_id = whole_of(sent.get("id"), "id", 0, ID_MAX)
            kind = sent.get("type")
            if kind == AUTH:  # an unknown field would be shown, and may be a token
                self._renew(request_id, sent.get("token"))
                return
            work = _WORK.get(kind) if isinstance(kind, str) else None
            if work is None:
                raise BadValue("type", kind, f"send {', '.join((*_WORK, AUTH))}")
            assert isinstance(kind, str)
            fields = fields_of(sent, "", _FIELDS[kind])
            channel = fields.get("channel")
            if not isinstance(channel, str):
                raise BadValue("channel", channel, "send a channel's name")
            work(self, request_id, channel, fields)
        except SluicegateError as error:
            self._send_error(request_id, error)

    def reject(self, head: bytes, size: int, bytes_max: int) -> None:
        """Reply that a message is too long, with its id if the message begins with the id."""
        request_id = _id_at(head)
        value, remedy = f"{size:,} bytes", f"send at most {bytes_max:,} (--message-bytes-max)"
        more = {"field": "message", "value": value, "remedy": remedy}
        detail = f"message: {value} cannot be used; {remedy}"
        self._send_problem(request_id, problem(413, "Content Too Large", detail, more=more).body)

    def resume(self) -> None:
        """Send more: the client has read."""
        self._make_page()
        if self._waiting:
            self._wake()

    def under_way(self) -> int:
        """Messages that are being made durable, and pages that were asked for."""
        return len(self._tasks) + len(self._pages)

    def close(self) -> None:
        """Read no more. What is being published still is."""
        self._closed = True
        if not self._of_node:
            self._service.disconnect(self.identity.name)
        self._service.end_owner(self._owner)
        if self._asleep_until is not None:
            self._asleep_until.cancel()
        self._pages.clear()
        for move in self._moves:
            move.cancel()
        for subscription in self._subscriptions.values():
            self._service.unsubscribe(subscription)
        self._subscriptions.clear()
        self._names.clear()
        self._waiting.clear()

    # What is asked.

    def _renew(self, request_id: int, token: object) -> None:
        """Replace the token by another one of the same client."""
        old = self.identity
        new = self._identify(token) if isinstance(token, str) else None
        if new is None:
            raise Unauthenticated("send a valid token")
        if (new.name, new.client) != (old.name, old.client):
            remedy = "send a token for the same account and client, or open another connection"
            raise BadValue("token", "(not shown)", remedy)
        self.identity = new
        self._end_denied()
        left_us = max(0, new.until_us - self._clock.now_us())
        left_s = None if new.until_us < 0 else left_us // _US
        self._reply("authenticated", request_id, client=new.client, expires_in=left_s)

    def _end_denied(self) -> None:
        """End subscriptions and members that the new token does not allow."""
        for channel, subscription in list(self._subscriptions.items()):
            try:
                self._place(channel, Grant.SUBSCRIBE, ChannelRight.SUBSCRIBE)
            except Forbidden as error:
                del self._subscriptions[channel]
                self._forget(subscription)
                problem = parse_json(reply_to(error).body)
                self._reply("unsubscribed", None, channel=channel, problem=problem)
        for place in list(self._owner.places):
            try:
                self._place(place.key.name, Grant.PUBLISH, ChannelRight.PRESENCE)
            except Forbidden:
                self._start(None, self._service.leave(place, self._owner))

    def _place(self, channel: str, grant: Grant, right: ChannelRight) -> _Place:
        """Whose channel this is, and what it is called there; what is wanted must be granted."""
        identity = self.identity
        account, slash, name = channel.rpartition("/")
        if slash and self._service.is_node(identity):
            return _Place(account, name, here=True)
        identity.require_in(channel, grant, right)
        return _Place(identity.name, channel, here=False)

    def _publish(self, request_id: int, channel: str, fields: Mapping[str, object]) -> None:
        account, name, here = self._place(channel, Grant.PUBLISH, ChannelRight.PUBLISH)
        passed = "passed" in fields
        if passed and not here:
            raise BadValue("passed", fields["passed"], "leave it out: it is for nodes of a cluster")
        kept = self._service.publish(account, name, fields.get("data"), here=here, passed=passed)
        self._start(request_id, self._send_accepted(request_id, account, name, kept))

    def _read(self, request_id: int, channel: str, fields: Mapping[str, object]) -> None:
        place = self._place(channel, Grant.SUBSCRIBE, ChannelRight.HISTORY)
        after = whole_of(fields.get("after", 0), "after", 0, POSITION_MAX)
        count = whole_of(fields.get("count", TAKEN_MAX), "count", 1, READ_MAX)
        self._page_later(
            request_id, partial(self._send_history, request_id, channel, place, after, count)
        )

    def _enter(self, request_id: int, channel: str, fields: Mapping[str, object]) -> None:
        account, name, here = self._place(channel, Grant.PUBLISH, ChannelRight.PRESENCE)
        place = Place(ChannelKey(account, name), self._member_of(fields))
        held = whole_of(fields.get("held", 0), "held", 0, POSITION_MAX)
        owned = self._owner.places
        if not self._of_node and place not in owned and len(owned) >= self._max:
            raise Refused(Decision(False, 0, -1, -1, SUBSCRIPTIONS_FULL, "connection"))
        work = self._send_entered(request_id, place, fields.get("data"), held, here=here)
        self._start(request_id, work)

    async def _send_entered(
        self, request_id: int, place: Place, data: object, held: int, *, here: bool
    ) -> None:
        position = await self._service.enter(place, data, self._owner, held, here=here)
        self._reply_accepted("entered", request_id, place.key.account, position)

    def _leave(self, request_id: int, channel: str, fields: Mapping[str, object]) -> None:
        account, name, here = self._place(channel, Grant.PUBLISH, ChannelRight.PRESENCE)
        place = Place(ChannelKey(account, name), self._member_of(fields))
        self._start(request_id, self._send_left(request_id, place, here=here))

    async def _send_left(self, request_id: int, place: Place, *, here: bool) -> None:
        await self._service.leave(place, self._owner, here=here)
        self._reply("left", request_id)

    def _show_members(self, request_id: int, channel: str, fields: Mapping[str, object]) -> None:
        place = self._place(channel, Grant.SUBSCRIBE, ChannelRight.PRESENCE)
        after = fields.get("after", "")
        if not isinstance(after, str):
            raise BadValue("after", after, "send a member's name, as `next` of the last page")
        size = whole_of(fields.get("bytes", PAGE_BYTES), "bytes", 1, PAGE_BYTES_MAX)
        self._page_later(
            request_id, partial(self._send_members, request_id, channel, place, after, size)
        )

    async def _send_members(
        self, request_id: int, channel: str, place: _Place, after: str, size: int
    ) -> None:
        page = await self._service.members(place.account, place.name, after, size, here=place.here)
        head = encode_json({"type": "members", "id": request_id, "channel": channel})
        self._socket.send_now(text_frame(b"%b,%b}" % (head[:-1], members_text(page))))

    def _member_of(self, fields: Mapping[str, object]) -> str:
        member = fields.get("member")
        if not isinstance(member, str):
            raise BadValue("member", member, "send a member's name")
        require_member(self.identity, member)
        return member

    def _page_later(self, request_id: int, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Make a page when the client has room for it, and those before it are sent.

        A page may be a hundred thousand times what asks for it: one at a time, a connection owes no
        more than one beyond what it may leave unread.
        """
        self._pages.append((request_id, make))
        self._make_page()

    def _make_page(self) -> None:
        if self._pages and self._page is None and not (self._socket.blocked or self._closed):
            request_id, make = self._pages.popleft()
            self._page = self._start(request_id, make())

    def _start(self, request_id: int | None, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._end_in_reply(request_id, work))
        self._tasks.add(task)
        task.add_done_callback(self._end_task)
        return task

    async def _end_in_reply(self, request_id: int | None, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except SluicegateError as error:
            self._send_error(request_id, error)
        except Exception:
            self._send_problem(request_id, _FAULT.body)
            raise

    async def _send_accepted(
        self, request_id: int, account: str, name: str, kept: Coroutine[Any, Any, int]
    ) -> None:
        position = await kept
        if self._of_node:
            cost = self._service.cost_of(account, name)
            self._reply_accepted("accepted", request_id, account, position, cost=cost)
        else:
            self._reply_accepted("accepted", request_id, account, position)

    async def _send_history(
        self, request_id: int, channel: str, place: _Place, after: int, count: int
    ) -> None:
        page = await self._service.read(
            place.account, place.name, after, count, bytes_max=READ_BYTES, here=place.here
        )
        gap = None if page.gap is None else page.gap._asdict()
        head = {"type": "history", "id": request_id, "channel": channel, "cut": page.cut}
        rest = {**head, "newest": page.newest, "gap": gap}
        messages = b",".join(one.text for one in page.messages)
        frame = text_frame(b'%b,"messages":[%b]}' % (encode_json(rest)[:-1], messages))
        self._socket.send_now(frame)

    def _end_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task is self._page:
            self._page = None
            self._make_page()
        if not task.cancelled() and (error := task.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a WebSocket's request failed", "exception": error}
            )
        self._socket.proceed()

    def _subscribe(self, request_id: int, channel: str, fields: Mapping[str, object]) -> None:
        account, name, here = self._place(channel, Grant.SUBSCRIBE, ChannelRight.SUBSCRIBE)
        after = fields.get("after")
        if after is not None:
            self._place(channel, Grant.SUBSCRIBE, ChannelRight.HISTORY)
        position = NOW if after is None else whole_of(after, "after", 0, POSITION_MAX)
        readers = whole_of(fields.get("readers", 1), "readers", 0, READERS_MAX)
        before = self._subscriptions.get(channel)
        if before is None and len(self._subscriptions) >= self._max:
            raise Refused(Decision(False, 0, -1, -1, SUBSCRIPTIONS_FULL, "connection"))
        subscription = self._service.subscribe(account, name, position, here=here)
        if here and isinstance(subscription, Subscription):
            subscription.count_readers(readers)
        if before is not None:
            self._forget(before)
        if self._pace.limited:  # which holds for all channels together
            for other in self._subscriptions.values():
                other.take_alone()
        self._subscriptions[channel] = subscription
        self._names[subscription] = channel
        if subscription.begun is None:
            self._begin(request_id, subscription)
        else:
            self._start(request_id, self._begin_later(request_id, subscription))

    def _begin(self, request_id: int, subscription: ChannelReading) -> None:
        # Before any of its messages.
        channel = self._names[subscription]
        self._reply("subscribed", request_id, channel=channel, position=subscription.position)
        subscription.wake = _Wake(self, subscription)
        self.wake(subscription)

    async def _begin_later(self, request_id: int, subscription: ChannelReading) -> None:
        try:
            while (begun := subscription.begun) is not None:
                await begun
        except SluicegateError:
            if subscription in self._names:
                del self._subscriptions[self._names[subscription]]
                self._forget(subscription)
            raise
        if subscription in self._names:
            self._begin(request_id, subscription)

    def _count_readers(self, request_id: int, channel: str, fields: Mapping[str, object]) -> None:
        self._place(channel, Grant.REPORT, ChannelRight.SUBSCRIBE)
        readers = whole_of(fields.get("readers"), "readers", 0, READERS_MAX)
        subscription = self._subscriptions.get(channel)
        if isinstance(subscription, Subscription):
            subscription.count_readers(readers)
        self._reply("counted", request_id, channel=channel)

    def _unsubscribe(self, request_id: int, channel: str, _: Mapping[str, object]) -> None:
        subscription = self._subscriptions.pop(channel, None)
        if subscription is not None:
            self._forget(subscription)
        self._reply("unsubscribed", request_id, channel=channel)

    def _forget(self, subscription: ChannelReading) -> None:
        self._names.pop(subscription, None)
        self._waiting.pop(subscription, None)
        self._service.unsubscribe(subscription)

    # What is told.

    def wake(self, subscription: ChannelReading) -> None:
        """A subscription has something to send."""
        self._waiting[subscription] = None
        if not self._awake:
            self._wake()

    def move(self, subscription: ChannelReading) -> None:
        """Its channel has another home: read on there."""
        if self._of_node:
            subscription.interrupt()  # it finds out by itself
            return
        subscription.take_alone()
        subscription.wake = NOBODY
        self._waiting.pop(subscription, None)
        task = asyncio.get_running_loop().create_task(self._follow(subscription))
        self._moves.add(task)
        task.add_done_callback(self._moves.discard)

    async def _follow(self, old: ChannelReading) -> None:
        new = await self._service.follow(old)
        channel = self._names.get(old)
        if channel is None:  # meanwhile nobody reads there
            self._service.unsubscribe(new)
            return
        self._forget(old)
        self._subscriptions[channel] = new
        self._names[new] = channel
        new.wake = _Wake(self, new)
        self.wake(new)

    def _wake(self) -> None:
        if not (self._awake or self._closed or self._socket.blocked or self._asleep_until):
            self._awake = True
            self._fan_out.wake(self)

    def send_some(self, left: int) -> int:
        """Send what one subscription has, as far as there is room; the next one comes after others.

        Many connections of the same channel then take the same messages.
        """
        self._awake = False
        waiting = self._waiting
        pace = self._pace
        if pace.charged:
            self._keep_pace(0, 0)
        if not waiting or self._socket.blocked or self._asleep_until:
            return 1
        if len(waiting) == 1:
            subscription, _ = waiting.popitem()
        else:
            subscription = next(iter(waiting))
            del waiting[subscription]
        pieces = subscription.take(pace.taken_max, pace.taken_bytes)  # wakes us, if more
        if pieces:
            fan_out, socket = self._fan_out, self._socket
            frames = fan_out.frames_of(subscription.key, pieces, self._names[subscription])
            fan_out.delivered += len(pieces) - isinstance(pieces[0], Gap)
            socket.send_now(frames)
            if pace.limited:
                self._keep_pace(len(pieces), len(frames))
            may_join = len(self._subscriptions) == 1 or not pace.limited
            if may_join and not (waiting or self._of_node or self._asleep_until or socket.blocked):
                fan_out.join(subscription, socket, pace)
        if waiting:
            self._wake()
        return 1

    def _keep_pace(self, messages: int, size: int) -> None:
        """Send more later, if these were more than may be sent."""
        delay_us = self._pace.spend(messages, size, self._clock.now_us())
        if delay_us:
            loop = asyncio.get_running_loop()
            self._asleep_until = loop.call_later(delay_us / _US, self._end_rest)

    def _end_rest(self) -> None:
        self._asleep_until = None
        self.resume()

    def _reply_accepted(
        self, kind: str, request_id: int, account: str, position: int, **more: object
    ) -> None:
        warnings = [one._asdict() for one in self._service.warnings(account)]
        if warnings:
            more["warnings"] = warnings
        self._reply(kind, request_id, position=position, **more)

    def _reply(self, kind: str, request_id: int | None, **fields: object) -> None:
        self._socket.send(text_frame(encode_json({"type": kind, "id": request_id, **fields})))

    def _send_error(self, request_id: int | None, error: SluicegateError) -> None:
        self._send_problem(request_id, reply_to(error).body)

    def _send_problem(self, request_id: int | None, body: bytes) -> None:
        # The same words as in HTTP.
        head = b'{"type":"error","id":%b,"problem":' % (
            b"null" if request_id is None else b"%d" % request_id
        )
        self._socket.send(text_frame(head + body.rstrip() + b"}"))


_WORK: Final[Mapping[str, Callable[[PubSubSession, int, str, Mapping[str, object]], None]]] = {
    "publish": PubSubSession._publish,
    "subscribe": PubSubSession._subscribe,
    "unsubscribe": PubSubSession._unsubscribe,
    "read": PubSubSession._read,
    "readers": PubSubSession._count_readers,
    "enter": PubSubSession._enter,
    "update": PubSubSession._enter,
    "leave": PubSubSession._leave,
    "members": PubSubSession._show_members,
}


def _id_at(head: bytes) -> int | None:
    """Return the id at the beginning of a message; None if a long field may precede it."""
    found = _BEGINNING.match(head)
    number = -1 if found is None else int(found["id"])
    return number if 0 <= number <= ID_MAX else None


def members_text(page: MembersPage) -> bytes:
    """Return a page of members as fields of a JSON object."""
    members = b",".join(
        b'{"member":%b,"data":%b,"position":%d}' % (encode_json(name), one.data, one.position)
        for name, one in page.members.items()
    )
    return b'"members":[%b],"next":%b' % (members, encode_json(page.next or None))


def require_member(by: Identity, member: str) -> None:
    """Raise `Forbidden` for a member that is not the client of a signed token."""
    if by.client and member != by.client:
        raise Forbidden(by.client, f"member {member}")
