"""Pub/sub client: publish with acknowledgement, subscribe with resumption, on one connection.

    async with PubSubClient("ws://127.0.0.1:7090") as client:
        position = await client.publish("news", "hello")    # durable, or an error says why not
        async with client.subscribe("news") as received:
            async for one in received: ...                  # PubSubMessage, or LostContinuity

A connection that breaks is opened again, with backoff and full jitter, and each subscription goes
on behind what it received last. A publish that got no answer may have been accepted; it is never
sent twice here. Who iterates too slowly has at most `buffer_max` messages waiting: then the channel
is unsubscribed, and subscribed to again from there when they are taken, so nothing else is held up.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Container, Mapping, Sequence
from functools import partial
from typing import Any, Final, Self, final
from urllib.parse import urlsplit

from sluicegate.client.channel_subscription import ChannelSubscription
from sluicegate.client.pubsub_messages import (
    SERVICE,
    LostContinuity,
    PubSubMember,
    PubSubMembersPage,
    PubSubMessage,
    PubSubPage,
    Received,
    error_of,
    handshake_error,
    message_of,
)
from sluicegate.contracts.chance import Chance
from sluicegate.contracts.errors import (
    BadValue,
    MissingPackage,
    Refused,
    SluicegateError,
    Unavailable,
)
from sluicegate.kernels.backoff import Backoff, BackoffSettings
from sluicegate.system import SystemChance

try:
    from websockets.asyncio.client import ClientConnection, connect
    from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
    from websockets.frames import CloseCode
    from websockets.typing import Subprotocol
except ModuleNotFoundError as error:
    raise MissingPackage(error.name or "websockets", "pubsub") from None

__all__ = [
    "ChannelSubscription",
    "LostContinuity",
    "PubSubClient",
    "PubSubMember",
    "PubSubMembersPage",
    "PubSubMessage",
    "PubSubPage",
    "Received",
]

SUBPROTOCOL: Final = Subprotocol("sluicegate.pubsub.v1")
PATH: Final = "/v1/socket"
UNDER_WAY_MAX: Final = 256  # publishes that wait for their answer; more wait to be sent
MEMBERS_BYTES: Final = 64 << 10  # of a page
READS_MAX: Final = 16  # pages under way: beside the publishes, which never wait for them
MESSAGE_BYTES_MAX: Final = 4 << 20  # that are received
FINAL: Final = (401, 403, 404, 421)  # answers to a handshake that another try will get too
# At debug level `websockets` writes down frames and headers, tokens too.
_QUIET: Final = logging.getLogger("sluicegate.client.websocket")
_QUIET.setLevel(logging.WARNING)
NEVER_S: Final = float("-inf")
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class Left(Unavailable):
    """The service said goodbye, and did not accept this request: what it had begun is answered."""


@final
class PubSubClient:
    """One connection to a service, opened when it is first needed and whenever it breaks.

    `timeout_ms` bounds a publish, and a subscription's beginning, from the call to the answer,
    connecting included.
    """

    def __init__(
        self,
        url: str = "ws://127.0.0.1:7090",
        *,
        token: str = "",
        timeout_ms: float = 5_000,
        buffer_max: int = 1_000,
        backoff: BackoffSettings | None = None,
        chance: Chance | None = None,
        final: Container[int] = FINAL,
        **connecting: Any,
    ) -> None:
        """`connecting` is for the connect of `websockets`, as `ssl` or `proxy`.

        A handshake that is answered with one of the statuses in `final` is not tried again.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("ws", "wss") or not parts.hostname:
            raise BadValue("url", url, "give ws://HOST:PORT, or wss:// for TLS")
        for name, value in (("timeout_ms", timeout_ms), ("buffer_max", buffer_max)):
            if value <= 0:
                raise BadValue(name, value, "give more than 0")
        self.buffer_max = buffer_max
        self.reconnects = 0
        self.breaks = 0  # connections that have ended
        self.left_s = NEVER_S  # when the service said goodbye, if it did so at the last end
        self.warnings: Sequence[Mapping[str, Any]] = ()  # of the last publish that was accepted
        self.cost = 0  # of the last publish that was accepted, if this is a node of a cluster
        self._url = url.rstrip("/") + (PATH if parts.path in ("", "/") else "")
        self._timeout_s = timeout_ms / 1e3
        self._backoff = Backoff(
            BackoffSettings(base_us=250_000, wait_us_max=10_000_000) if backoff is None else backoff
        )
        self._final = final
        self._draw = (SystemChance() if chance is None else chance).draw
        headers = {"Authorization": f"Bearer {token}"} if token else None
        self._connecting = {
            "additional_headers": headers,
            "subprotocols": [SUBPROTOCOL],
            "compression": None,
            "logger": _QUIET,
            "max_size": MESSAGE_BYTES_MAX,
            "close_timeout": 1.0,
            "open_timeout": self._timeout_s,
        } | connecting
        self._message_bytes_max = MESSAGE_BYTES_MAX  # until the service says it
        self._socket: ClientConnection | None = None
        self._connected = asyncio.Event()
        self._failure: SluicegateError | None = None  # that no other try would mend
        self._problem = "it has not answered yet"
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._last_id = 0
        self._places = asyncio.Semaphore(UNDER_WAY_MAX)
        self._reads = asyncio.Semaphore(READS_MAX)
        self._subscriptions: dict[str, ChannelSubscription] = {}
        self._entered: dict[tuple[str, str], tuple[int, str]] = {}  # members, where and with what
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def publish(
        self, channel: str, data: Any, *, timeout_ms: float | None = None, passed: bool = False
    ) -> int:
        """Return the message's position when it is durable.

        `Refused` if a limit does not let it in, and `Unavailable` if no answer came in
        time: then it may have been accepted all the same. `passed` is for nodes of a cluster, which
        have held the account to its limit themselves.
        """
        more = {"data": data, "passed": True} if passed else {"data": data}
        message = await self._ask_in_time(self._places, "publish", channel, timeout_ms, **more)
        self.warnings = message.get("warnings", ())
        self.cost = int(message.get("cost", 0))
        return int(message["position"])

    async def read(self, channel: str, after: int = 0, count: int = 64) -> PubSubPage:
        """Messages behind a position that were accepted before, at most so many, oldest first."""
        page = await self._ask_in_time(self._reads, "read", channel, None, after=after, count=count)
        gap = page["gap"]
        messages = [message_of(channel, one) for one in page["messages"]]
        lost = None if gap is None else LostContinuity(gap["after"], gap["before"], gap["lost"])
        return PubSubPage(tuple(messages), page["cut"], page["newest"], lost)

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._socket is not None

    async def enter(self, channel: str, member: str, data: Any = None, *, held: int = 0) -> int:
        """Be in a channel as `member`, with data for the others, until `leave` or `close`.

        It enters again by itself when the connection breaks. Return the position at which the
        others hear of it; errors are those of `publish`. `held` is where it entered before, if this
        only repeats that: then one who has entered it since keeps it.
        """
        answer = await self._ask_in_time(
            self._places, "enter", channel, None, member=member, data=data, held=held
        )
        # As text, whose size the service bounds; as objects it may be twenty times as large.
        self._entered[channel, member] = (int(answer["position"]), json.dumps(data))
        return int(answer["position"])

    async def update(self, channel: str, member: str, data: Any) -> int:
        """Have other data for the others; the same as to enter again."""
        return await self.enter(channel, member, data)

    async def leave(self, channel: str, member: str) -> None:
        """Be there no more."""
        self._entered.pop((channel, member), None)
        await self._ask_in_time(self._places, "leave", channel, None, member=member)

    async def members(self, channel: str) -> tuple[PubSubMember, ...]:
        """Return all members of a channel by name, page by page."""
        page = await self.members_page(channel)
        found = list(page.members)
        while page.next is not None:
            page = await self.members_page(channel, page.next)
            found += page.members
        return tuple(found)

    async def members_page(
        self, channel: str, after: str = "", *, bytes_max: int = MEMBERS_BYTES
    ) -> PubSubMembersPage:
        """Return the members after a name, up to `bytes_max`, and at least one."""
        answer = await self._ask_in_time(
            self._reads, "members", channel, None, after=after, bytes=bytes_max
        )
        members = [
            PubSubMember(one["member"], one["data"], one["position"]) for one in answer["members"]
        ]
        return PubSubMembersPage(tuple(members), answer["next"])

    def subscribe(
        self, channel: str, after: int | None = None, *, presence: bool = False
    ) -> ChannelSubscription:
        """What is received of a channel, behind a position or from now on; to be entered.

        With `presence`, also what members do.
        """
        return ChannelSubscription(self, channel, after, presence=presence)

    async def close(self) -> None:
        """Wait at most `timeout_ms` for the answers to sent requests, then end the connection."""
        self._closed = True
        if self._socket is not None and self._asked:
            await asyncio.wait(list(self._asked.values()), timeout=self._timeout_s)
        self._fail_all(Unavailable(SERVICE, "this client is closed"))
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # What subscriptions call.

    async def add(self, subscription: ChannelSubscription) -> None:
        """Subscribe, and return when that is done."""
        name = subscription.channel
        if name in self._subscriptions:
            raise BadValue("channel", name, "a client subscribes to a channel once at a time")
        self._subscriptions[name] = subscription
        try:
            async with asyncio.timeout(self._timeout_s):
                if self._socket is not None:
                    self.resubscribe(subscription)
                else:
                    await self._connect()
                await subscription.begun.wait()
        except BaseException as error:
            await self.remove(subscription)
            if isinstance(error, TimeoutError):
                raise Unavailable(SERVICE, self._problem) from None
            raise
        if subscription.failure is not None:
            await self.remove(subscription)
            raise subscription.failure

    async def remove(self, subscription: ChannelSubscription) -> None:
        """Unsubscribe."""
        self.discard(subscription)

    def discard(self, subscription: ChannelSubscription) -> None:
        """Unsubscribe at once; nothing is done if another one has its channel meanwhile."""
        if self._subscriptions.get(subscription.channel) is subscription:
            del self._subscriptions[subscription.channel]
            self.unsubscribe(subscription)

    def resubscribe(self, subscription: ChannelSubscription) -> None:
        """Ask for what comes behind the last that was received."""
        more = {} if subscription.position is None else {"after": subscription.position}
        if subscription.readers is not None:
            more["readers"] = subscription.readers
        self._start(subscription, "subscribe", more)

    def unsubscribe(self, subscription: ChannelSubscription) -> None:
        """Ask for no more."""
        subscription.stop()
        if self._socket is not None:
            self._start(None, "unsubscribe", {}, subscription.channel)

    def count_readers(self, subscription: ChannelSubscription) -> None:
        """Say for how many a node reads, if it is connected; else it is said when it is."""
        current = self._subscriptions.get(subscription.channel)
        if self._socket is not None and current is subscription:
            self._start(None, "readers", {"readers": subscription.readers}, subscription.channel)

    # Inside.

    async def _ask_in_time(
        self,
        places: asyncio.Semaphore,
        kind: str,
        channel: str,
        timeout_ms: float | None,
        **more: Any,
    ) -> dict[str, Any]:
        timeout_s = self._timeout_s if timeout_ms is None else timeout_ms / 1e3
        fields = _fields_of({"channel": channel, **more})
        try:
            async with asyncio.timeout(timeout_s), places:
                await self._connect()
                return await self._asked_later(kind, fields)
        except TimeoutError:
            detail = f"no answer in {timeout_s:g} s; {self._problem}"
            raise Unavailable(SERVICE, detail) from None

    def _start(
        self,
        subscription: ChannelSubscription | None,
        kind: str,
        more: Mapping[str, Any],
        channel: str = "",
    ) -> None:
        name = channel or getattr(subscription, "channel", "")
        asked = self._asked_later(kind, _fields_of({"channel": name, **more}))
        if subscription is not None:
            subscription.expect(asked)
        asked.add_done_callback(_ignore)

    def _asked_later(self, kind: str, fields: bytes) -> asyncio.Future[dict[str, Any]]:
        self._last_id += 1
        request_id = self._last_id
        # The id first: the service finds it though it cannot read the rest.
        text = b'{"type":"%b","id":%d,%b' % (kind.encode(), request_id, fields)
        if len(text) > self._message_bytes_max:
            remedy = f"send at most {self._message_bytes_max:,} (--message-bytes-max)"
            raise BadValue("message", f"{len(text):,} bytes", remedy)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._asked[request_id] = answer
        answer.add_done_callback(lambda _: self._asked.pop(request_id, None))
        self._send(text, answer)
        return answer

    def _send(self, text: bytes, answer: asyncio.Future[dict[str, Any]]) -> None:
        socket = self._socket
        if socket is None:
            answer.set_exception(self._ended(self._problem))
            return
        task = asyncio.get_running_loop().create_task(socket.send(text, text=True))

        def sent(done: asyncio.Task[None]) -> None:
            if done.cancelled() or answer.done() or (error := done.exception()) is None:
                return
            received = error.rcvd if isinstance(error, ConnectionClosed) else None
            left = received is not None and received.code == CloseCode.GOING_AWAY
            answer.set_exception((Left if left else Unavailable)(SERVICE, "the connection broke"))

        task.add_done_callback(sent)

    async def _connect(self) -> None:
        """Return when there is a connection."""
        if self._closed:
            raise Unavailable(SERVICE, "this client is closed")
        if self._failure is not None:
            raise self._failure
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        await self._connected.wait()
        if self._failure is not None:
            raise self._failure

    async def _run(self) -> None:
        attempt = 0
        while True:
            try:
                async with connect(self._url, **self._connecting) as socket:
                    attempt = await self._serve(socket, attempt)
                    self._problem = "it has ended the connection"
            except InvalidStatus as error:
                self._problem = str(error)
                if error.response.status_code in self._final:
                    self._give_up(handshake_error(error.response.status_code, self._problem))
                    return
            except (OSError, TimeoutError, WebSocketException) as error:
                self._problem = str(error) or type(error).__name__
            except Exception:  # of any kind: nothing else would connect again
                self._problem = "what it sent is no message of this protocol"
            await asyncio.sleep(self._backoff.wait_us(attempt, self._draw()) / 1e6)
            attempt += 1
            self.reconnects += 1

    async def _serve(self, socket: ClientConnection, attempt: int) -> int:
        """Receive until the connection ends; how often in vain it was tried since it worked."""
        self._socket = socket
        self._connected.set()
        try:
            for subscription in self._subscriptions.values():
                if not subscription.full:
                    self.resubscribe(subscription)
            self._enter_again()
            async for text in socket:
                attempt = 0
                self._take(json.loads(text))
        finally:
            self._socket = None
            self.breaks += 1
            left = socket.close_code == CloseCode.GOING_AWAY
            self.left_s = asyncio.get_running_loop().time() if left else NEVER_S
            self._connected.clear()
            self._fail_asked(self._ended("the connection broke before the answer came"))
        return attempt

    def _ended(self, detail: str) -> Unavailable:
        """The error of a request that the last connection did not answer."""
        return (Unavailable if self.left_s == NEVER_S else Left)(SERVICE, detail)

    def _take(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "welcome":
            self._message_bytes_max = int(message["message_bytes_max"])
            return
        if kind in ("message", "presence", "gap"):
            subscription = self._subscriptions.get(message["channel"])
            if subscription is not None:
                subscription.take(message)
            return
        answer = self._asked.get(message["id"])
        if answer is None or answer.done():
            return
        if kind == "error":
            answer.set_exception(error_of(message["problem"]))
        else:
            answer.set_result(message)
            if kind == "subscribed" and message["channel"] in self._subscriptions:
                # At once: its messages may be in what was read already.
                self._subscriptions[message["channel"]].begin(answer, message)

    def _enter_again(self) -> None:
        """The last connection's members are gone, or will be soon."""
        for place in list(self._entered):
            self._enter_one_again(place)

    def _note_entered(self, place: tuple[str, str], answer: asyncio.Future[dict[str, Any]]) -> None:
        if answer.cancelled() or place not in self._entered:
            return
        error = answer.exception()
        if error is None:
            self._entered[place] = (int(answer.result()["position"]), self._entered[place][1])
        elif isinstance(error, Refused) and not self._closed:
            # Soon, and not at once: it was refused for there is too much.
            wait_s = max(error.decision.retry_after_us, 0) / 1e6 * (1 + self._draw())
            asyncio.get_running_loop().call_later(wait_s, self._enter_one_again, place)

    def _enter_one_again(self, place: tuple[str, str]) -> None:
        if self._socket is not None and not self._closed and place in self._entered:
            position, text = self._entered[place]
            more = {"member": place[1], "data": json.loads(text), "held": position}
            asked = self._asked_later("enter", _fields_of({"channel": place[0], **more}))
            asked.add_done_callback(partial(self._note_entered, place))

    def _give_up(self, error: SluicegateError) -> None:
        self._failure = error
        self._connected.set()
        self._fail_all(error)

    def _fail_all(self, error: SluicegateError) -> None:
        self._fail_asked(error)
        for subscription in list(self._subscriptions.values()):
            subscription.fail(error)

    def _fail_asked(self, error: SluicegateError) -> None:
        for answer in list(self._asked.values()):
            if not answer.done():
                answer.set_exception(error)


def _fields_of(fields: Mapping[str, Any]) -> bytes:
    """Fields of a message and its end; `BadValue` for what JSON cannot write."""
    try:
        return _ENCODER.encode(fields).encode()[1:]
    except (TypeError, ValueError, RecursionError) as error:
        remedy = f"send what JSON in UTF-8 can write ({error})"
        raise BadValue("data", "(not shown)", remedy) from None


def _ignore(answer: asyncio.Future[dict[str, Any]]) -> None:
    """Nobody waits for it alone."""
    if not answer.cancelled():
        answer.exception()
