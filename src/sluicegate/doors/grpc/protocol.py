"""Calls: gRPC on one HTTP/2 connection, without a socket and without a loop.

A unary request that has come whole is handed to its method where it lies, and an answer that is
there at once is in the output before the next frame is read: no task, no future, no queue. What is
answered later is the `Host`'s to wait for; it comes back with `answered` or `failed`. Streams are
the slow path beside it: their bytes wait unparsed until their method asks, within their window.

An error ends a call with the status that `call.status_of` gives it. What is our own bug is told to
the host, which has a log; the peer learns only that there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, final

from sluicegate.contracts.access import Access
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.errors import SluicegateError
from sluicegate.doors.grpc.call import GrpcError, Methods, Status, Told, metadata_of, status_of
from sluicegate.doors.grpc.framing import (
    HEAD,
    OK,
    PREFIX_BYTES,
    prefixed,
    too_large,
    trailers,
    trailers_only,
    unpacked,
)
from sluicegate.doors.grpc.route import NO_TIMEOUT, Route, refused, route_of
from sluicegate.doors.grpc.route import too_large as head_too_large
from sluicegate.doors.grpc.settings import GrpcSettings
from sluicegate.wire.h2.connection import Connection
from sluicegate.wire.h2.fields import Head
from sluicegate.wire.h2.frames import word
from sluicegate.wire.h2.stream import Stream

_PLAIN_BODY_BYTES_MAX: Final = 65_536  # of a request that is not gRPC; answered amid it beyond
_NONE_YET: Final = GrpcError(Status.INTERNAL, "the request ended without a message")
_TWO: Final = GrpcError(Status.INTERNAL, "a unary request is one message, whole")
_LATE: Final = GrpcError(Status.DEADLINE_EXCEEDED, "the deadline has passed")
_HELD: Final = GrpcError(
    Status.RESOURCE_EXHAUSTED, "too many unfinished requests on this connection"
)


class Host(Protocol):
    """Who can wait: the asyncio side of the connection."""

    def later(self, stream: Stream, answer: object, deadline_us: int) -> None:
        """Wait for a unary answer; `deadline_us` is an instant, or -1. Raises `TypeError`."""
        ...

    def run(self, stream: Stream, route: Route, deadline_us: int) -> None:
        """Start the method of a stream."""
        ...

    def heard(self, stream: Stream) -> None:
        """A stream has more to read, or more room to write."""
        ...

    def gone(self, stream: Stream) -> None:
        """Whatever waits for this stream may stop."""
        ...

    def bug(self, error: BaseException) -> None:
        """An error of ours; write it down."""
        ...


@final
class Counts:
    """What the connections of one door have done."""

    __slots__ = ("answered_late", "calls", "connections", "expired", "failed", "floods", "opened")

    def __init__(self) -> None:
        self.connections = 0  # open now
        self.opened = 0  # ever
        self.calls = 0  # that reached a method
        self.answered_late = 0  # of these, not at once
        self.failed = 0  # ended with a status other than OK
        self.expired = 0  # of these, by their deadline
        self.floods: dict[str, int] = {}  # connections ended, by the bound that was passed


@final
class Partial:
    """The bytes of a request that are here and not yet a message; what a host keeps with it."""

    __slots__ = ("buffer", "said", "waiter")

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.said = False  # the head of the answer
        self.waiter: object = None


@final
class Calls:
    """The application of one connection."""

    __slots__ = (
        "_access",
        "_counts",
        "_host",
        "_methods",
        "_names",
        "_now_us",
        "_partial_bytes",
        "_settings",
        "h2",
    )

    def __init__(
        self,
        methods: Methods,
        access: Access,
        settings: GrpcSettings,
        counts: Counts,
        host: Host,
        names: Sequence[str],
        now_us: int,
    ) -> None:
        self._methods = methods
        self._access = access
        self._settings = settings
        self._counts = counts
        self._host = host
        self._names = names
        self._now_us = now_us
        self._partial_bytes = 0
        self.h2 = Connection(settings.h2, self, now_us)

    def receive(self, data: bytes, now_us: int) -> None:
        """Take what came; what must be sent is then in `h2`."""
        self._now_us = now_us
        self.h2.receive(data, now_us)
        self.count_flood()

    def sweep(self, now_us: int) -> None:
        """End what takes too long."""
        self._now_us = now_us
        self.h2.sweep(now_us)
        late_us = now_us - self._settings.call_us_max
        for stream in list(self.h2.streams.values()):
            route = _route(stream)
            unary = route.unary is not None or route.told is not None
            if unary and stream.began_us <= late_us:
                self.expired(stream)
        self.count_flood()

    def count_flood(self) -> None:
        """Write down, once, the flood that ended the connection."""
        fault = self.h2.fault
        if fault is not None and fault.flood:
            floods = self._counts.floods
            floods[fault.flood] = floods.get(fault.flood, 0) + 1
            self.h2.fault = None

    # What the connection tells.

    def understand(self, head: Head) -> object:
        """The route of a request."""
        try:
            return route_of(head, self._methods, self._access, self._names)
        except Exception as error:
            if not isinstance(error, SluicegateError):
                self._host.bug(error)
            status, message = status_of(error)
            return refused(status, message)  # whoever made the identity could not

    def too_large(self) -> object:
        """The route of one with too many headers."""
        return head_too_large()

    def began(self, stream: Stream) -> None:
        """A head without its body: refuse at once what no body could save; start a stream."""
        route = _route(stream)
        if route.refusal is not None:
            self._refuse(stream, route)
        elif route.stream is not None:
            self._begin(stream, route)

    def came(self, stream: Stream, data: bytes, start: int, end: int, last: bool) -> None:
        """A part of a body."""
        route = _route(stream)
        if route.unary is not None or route.told is not None:
            if last and stream.call is None:
                self._unary(stream, route, data, start, end)
            else:
                self._gather(stream, route, data[start:end], last)
        elif route.stream is not None:
            if stream.call is None:
                self._begin(stream, route)
            self._flow(stream, data[start:end])
        elif last or stream.received_bytes > _PLAIN_BODY_BYTES_MAX:
            self._refuse(stream, route)

    def gone(self, stream: Stream) -> None:
        """A stream ended before its answer."""
        self._let_go(stream)
        self._host.gone(stream)

    def flowing(self, stream: Stream) -> None:
        """What was queued has left."""
        self._host.heard(stream)

    # Unary calls.

    def _unary(self, stream: Stream, route: Route, data: bytes, start: int, end: int) -> None:
        size = end - start - PREFIX_BYTES
        try:
            if (
                size >= 0
                and data[start] == 0
                and word(data, start + 1) == size
                and size <= self._settings.message_bytes_max
            ):
                message = data[start + PREFIX_BYTES : end]
            else:
                message = self._message(route, data[start:end])
            if route.timeout_us >= 0:
                self._in_time(stream, route)
            self._counts.calls += 1
            unary = route.unary
            if unary is not None:
                answer = unary(message, route.identity)
            else:
                answer = self._telling(stream, route, message)
            if isinstance(answer, bytes):
                self.h2.reply(stream, HEAD, prefixed(answer), OK)
            else:
                self._counts.answered_late += 1
                self._host.later(stream, answer, _deadline_us(stream, route))
        except Exception as error:
            self.failed(stream, error)  # whatever a method raises is the end of its call

    def _telling(self, stream: Stream, route: Route, message: bytes) -> MaybeAwaitable[bytes]:
        told = route.told
        assert told is not None
        waited_us = self._now_us - stream.began_us
        left_us = route.timeout_us - waited_us if route.timeout_us >= 0 else NO_TIMEOUT
        return told(message, route.identity, Told(route.metadata, left_us, waited_us))

    def _in_time(self, stream: Stream, route: Route) -> None:
        if self._now_us - stream.began_us >= route.timeout_us:
            self._counts.expired += 1
            raise _LATE

    def _gather(self, stream: Stream, route: Route, part: bytes, last: bool) -> None:
        """A unary request in several frames."""
        held = self._hold(stream, part)
        if held is None:
            return
        buffer = held.buffer
        if len(buffer) >= PREFIX_BYTES:
            size = int.from_bytes(buffer[1:PREFIX_BYTES], "big")
            if size > self._settings.message_bytes_max:
                self.failed(stream, too_large(self._settings.message_bytes_max))
                return
            if len(buffer) > size + PREFIX_BYTES:
                self.failed(stream, _TWO)
                return
        if last:
            whole = bytes(buffer)
            self._let_go(stream)
            self._unary(stream, route, whole, 0, len(whole))

    def _message(self, route: Route, body: bytes) -> bytes:
        """The message of a body that is not simply one plain message."""
        if not body:
            raise _NONE_YET
        if len(body) < PREFIX_BYTES:
            raise _TWO
        size = word(body, 1)
        if size > self._settings.message_bytes_max:
            raise too_large(self._settings.message_bytes_max)
        if size != len(body) - PREFIX_BYTES:
            raise _TWO
        return self._opened(route, body[0], body[PREFIX_BYTES:])

    def _opened(self, route: Route, flag: int, message: bytes) -> bytes:
        if flag == 0:
            return message
        if flag != 1:
            raise GrpcError(Status.INTERNAL, "the compressed flag is neither 0 nor 1")
        if not route.gzip:
            raise GrpcError(Status.INTERNAL, "a packed message, and no grpc-encoding")
        return unpacked(message, self._settings.message_bytes_max)

    def answered(self, stream: Stream, answer: bytes) -> None:
        """The answer of a unary call, later."""
        if not stream.gone:
            self.h2.reply(stream, HEAD, prefixed(answer), OK)

    def failed(self, stream: Stream, error: BaseException) -> None:
        """The end of a call by an error."""
        if not isinstance(error, SluicegateError):
            self._host.bug(error)
        if stream.gone or stream.answered:
            return
        self._counts.failed += 1
        status, message = status_of(error)
        metadata = metadata_of(error)
        said = isinstance(stream.call, Partial) and stream.call.said
        self._let_go(stream)
        if said:
            self.h2.finish(stream, trailers(status, message, metadata))
        else:
            self.h2.start(stream, trailers_only(status, message, metadata), last=True)

    def expired(self, stream: Stream) -> None:
        """Its deadline has passed: tell the peer, and stop the work."""
        if stream.gone or stream.answered:
            return
        self._counts.expired += 1
        self.failed(stream, _LATE)
        self._host.gone(stream)

    def _refuse(self, stream: Stream, route: Route) -> None:
        if route.refusal is not None:
            self._counts.failed += 1
            self.h2.start(stream, route.refusal, last=True)
        elif route.plain is not None:
            self.h2.start(stream, route.plain)
            self.h2.send(stream, route.why, last=True)

    # Streams.

    def _begin(self, stream: Stream, route: Route) -> None:
        self._counts.calls += 1
        stream.taking = False
        stream.call = Partial()
        self._host.run(stream, route, _deadline_us(stream, route))

    def _flow(self, stream: Stream, part: bytes) -> None:
        if self._hold(stream, part) is None:
            return
        self._take_what_is_no_message(stream)
        self._host.heard(stream)

    def next_message(self, stream: Stream) -> bytes | None:
        """The next message of a stream, if it is here whole. Raises `GrpcError`."""
        held = stream.call
        assert isinstance(held, Partial)
        buffer = held.buffer
        size = _first_size(buffer)
        if size > self._settings.message_bytes_max:
            raise too_large(self._settings.message_bytes_max)
        whole = size + PREFIX_BYTES
        if size < 0 or len(buffer) < whole:
            if stream.ended_by_peer and buffer:
                raise GrpcError(Status.INTERNAL, "the request ended amid a message")
            return None
        flag = buffer[0]
        message = bytes(buffer[PREFIX_BYTES:whole])
        del buffer[:whole]
        self._partial_bytes -= whole
        self.h2.taken(stream, min(whole, stream.held))
        self._take_what_is_no_message(stream)
        return self._opened(_route(stream), flag, message)

    def say(self, stream: Stream, message: bytes) -> None:
        """One message of a stream's answer."""
        if stream.gone:
            return
        held = stream.call
        assert isinstance(held, Partial)
        if not held.said:
            held.said = True
            self.h2.start(stream, HEAD)
        self.h2.send(stream, prefixed(message))

    def close(self, stream: Stream) -> None:
        """The end of a stream's answer."""
        if stream.gone or stream.answered:
            return
        held = stream.call
        assert isinstance(held, Partial)
        self._let_go(stream)
        if held.said:
            self.h2.finish(stream, OK)
        else:
            self.h2.start(stream, trailers_only(Status.OK, ""), last=True)

    # What is not whole.

    def _hold(self, stream: Stream, part: bytes) -> Partial | None:
        """Keep a part; None if the connection holds too much, and the call has failed."""
        held = stream.call
        if not isinstance(held, Partial):
            held = Partial()
            stream.call = held
        if self._partial_bytes + len(part) > self._settings.partial_bytes_max:
            self.failed(stream, _HELD)
            self._host.gone(stream)
            return None
        self._partial_bytes += len(part)
        held.buffer += part
        return held

    def _let_go(self, stream: Stream) -> None:
        held = stream.call
        if isinstance(held, Partial):
            self._partial_bytes -= len(held.buffer)
            held.buffer = bytearray()

    def _take_what_is_no_message(self, stream: Stream) -> None:
        """Let more come where the next message needs it; no message could outgrow its window."""
        held = stream.call
        if isinstance(held, Partial) and stream.held:
            size = _first_size(held.buffer)
            if size < 0 or len(held.buffer) < size + PREFIX_BYTES:
                self.h2.taken(stream, stream.held)


def _route(stream: Stream) -> Route:
    route = stream.meaning
    assert isinstance(route, Route)
    return route


def _deadline_us(stream: Stream, route: Route) -> int:
    if route.timeout_us < 0:
        return -1
    return stream.began_us + route.timeout_us


def _first_size(buffer: bytearray) -> int:
    """The size that the first message says; -1 if not even that is here."""
    if len(buffer) < PREFIX_BYTES:
        return -1
    return int.from_bytes(buffer[1:PREFIX_BYTES], "big")
