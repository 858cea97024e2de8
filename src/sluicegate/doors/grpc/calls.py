"""Calls: gRPC on one HTTP/2 connection, without a socket and without a loop.

A whole unary request is passed to its method where it lies, and a result that is there at once is
in the output before the next frame is read: no task, no future, no queue. A result that comes later
is the `CallOwner`'s to wait for, which passes it to `respond` or `fail`. Streams are the slow path:
their bytes wait unparsed until their method asks for them, within their window.

What is answered waits for room: while the peer does not take its responses, requests that are here
whole wait in line, and streams that send wait too. A turn of the loop is shared: `receive` and
`work_on` stop after a portion of work, and `work_waits` says that there is more.

An error ends a call with the status that `methods.status_of` gives it. The owner logs a bug of
ours; the peer learns only that there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, final

from sluicegate.contracts.access import Access
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.errors import OutcomeUnknown, SluicegateError
from sluicegate.doors.connection_pace import ConnectionPace, is_over_quota
from sluicegate.doors.grpc.framing import (
    HEAD,
    OK,
    PREFIX_BYTES,
    gunzip,
    prefix,
    too_large,
    trailers,
    trailers_only,
)
from sluicegate.doors.grpc.methods import (
    CallMetadata,
    GrpcError,
    GrpcStatus,
    Methods,
    metadata_of,
    status_of,
)
from sluicegate.doors.grpc.route import NO_TIMEOUT, NOBODY, GrpcRoute, find_route, refuse_oversized
from sluicegate.doors.grpc.route import refuse as refuse_route
from sluicegate.doors.grpc.settings import GrpcSettings
from sluicegate.doors.turns import STRANGER, class_of
from sluicegate.wire.h2.connection import H2Connection
from sluicegate.wire.h2.fields import RequestHead
from sluicegate.wire.h2.frames import word
from sluicegate.wire.h2.stream import H2Stream

SLOWED_MS: Final = b"sluicegate-slowed-ms"  # how much later this connection is read
_PLAIN_BODY_BYTES_MAX: Final = 65_536  # of a request that is not gRPC; answered amid it beyond
_NONE_YET: Final = GrpcError(GrpcStatus.INTERNAL, "the request ended without a message")
_NOT_ONE: Final = GrpcError(GrpcStatus.INTERNAL, "a unary request is one message, whole")
_TOO_MANY_OPEN: Final = GrpcError(
    GrpcStatus.RESOURCE_EXHAUSTED, "too many calls at a time that say not who asks"
)
_NO_ROOM: Final = GrpcError(
    GrpcStatus.RESOURCE_EXHAUSTED, "too many responses wait on this connection; read them first"
)
_TOO_LONG: Final = GrpcError(
    GrpcStatus.RESOURCE_EXHAUSTED, "the reply is longer than grpc.reply_bytes_max; ask for less"
)
_RESULT_BYTES_FIRST: Final = 1 << 20  # so few calls begin before the first result is here
_LINE_PORTION: Final = 16  # calls from the line at a time
_BACKLOG_FREE_BYTES: Final = 65_536  # that each connection has, however much all others hold
_LATE: Final = GrpcError(GrpcStatus.DEADLINE_EXCEEDED, "the deadline has passed")
_LATE_CHANGE: Final = OutcomeUnknown("the service", "the deadline passed meanwhile")
_TOO_MUCH_PARTIAL: Final = GrpcError(
    GrpcStatus.RESOURCE_EXHAUSTED, "too many unfinished requests on this connection"
)


class CallOwner(Protocol):
    """The asyncio side of the connection, which can wait."""

    def wait(self, stream: H2Stream, result: object, deadline_us: int) -> None:
        """Wait for a unary result; `deadline_us` is an instant, or -1. Raises `TypeError`."""
        ...

    def run(self, stream: H2Stream, route: GrpcRoute, deadline_us: int) -> None:
        """Start the method of a stream."""
        ...

    def wake(self, stream: H2Stream) -> None:
        """Go on with a stream that has more to read, or more room to write."""
        ...

    def stop(self, stream: H2Stream) -> None:
        """Stop whatever waits for this stream."""
        ...

    def log_bug(self, error: BaseException) -> None:
        """Log a bug of ours."""
        ...


@final
class GrpcCounts:
    """Counters of the connections of one door."""

    __slots__ = (
        "backlog_bytes",
        "calls",
        "connections",
        "expired",
        "failed",
        "floods",
        "opened",
    )

    def __init__(self) -> None:
        self.connections = 0  # open now
        self.backlog_bytes = 0  # of responses that were not taken, all connections
        self.opened = 0  # ever
        self.calls = 0  # that reached a method
        self.failed = 0  # ended with a status other than OK
        self.expired = 0  # of these, by their deadline
        self.floods: dict[str, int] = {}  # connections ended, by the bound that was passed


@final
class PartialRequest:
    """The bytes of a request that are not yet a message, and what its owner keeps with it."""

    __slots__ = ("buffer", "head_sent", "waiter")

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.head_sent = False  # of the response
        self.waiter: object = None


@final
class GrpcCalls:
    """The owner of one HTTP/2 connection."""

    __slots__ = (
        "_access",
        "_counts",
        "_lag_us",
        "_line",
        "_methods",
        "_names",
        "_now_us",
        "_owner",
        "_pace",
        "_partial_bytes",
        "_result_bytes",
        "_settings",
        "caller",
        "class_",
        "h2",
    )

    def __init__(
        self,
        methods: Methods,
        access: Access,
        settings: GrpcSettings,
        counts: GrpcCounts,
        owner: CallOwner,
        names: Sequence[str],
        now_us: int,
        pace: ConnectionPace | None = None,
    ) -> None:
        self._methods = methods
        self._access = access
        self._settings = settings
        self._counts = counts
        self._owner = owner
        self._names = names
        self._pace = pace
        self._now_us = now_us
        self._partial_bytes = 0
        self._result_bytes = _RESULT_BYTES_FIRST  # on average, of those that were waited for
        self._line: dict[int, H2Stream] = {}  # what waits for room, in order
        self._lag_us = 0  # that what is read now had waited before it was
        self.class_ = STRANGER  # of who was last identified on this connection
        self.caller = ""
        self.h2 = H2Connection(settings.h2, self, now_us)

    def receive(self, data: bytes, now_us: int, lag_us: int = 0) -> None:
        """Take bytes that came `lag_us` ago; what must be sent is then in `h2`."""
        self._now_us = now_us
        self._lag_us = lag_us
        self.h2.receive(data, now_us)
        self.count_flood()

    @property
    def full(self) -> bool:
        """Whether responses must be taken before there can be more."""
        h2 = self.h2
        backlog = h2.backlog_bytes + h2.pending * self._result_bytes
        if backlog < _BACKLOG_FREE_BYTES:
            return False
        if self._counts.backlog_bytes >= self._settings.backlog_bytes_max:
            return True
        # The other half is for results that are larger than those before them.
        return backlog >= self._settings.h2.backlog_bytes_max >> 1

    @property
    def held_bytes(self) -> int:
        """Bytes of requests and responses that are here."""
        return self.h2.held_bytes + self._partial_bytes

    @property
    def work_waits(self) -> bool:
        """Whether there is more to do than a portion allowed."""
        return self.h2.waiting or (bool(self._line) and not self.full)

    def work_on(self, now_us: int, lag_us: int = 0) -> None:
        """Do a portion of what waits: of the line, or else of what has come."""
        self._now_us = now_us
        self._lag_us = lag_us
        line = self._line
        for _ in range(_LINE_PORTION):
            if not line or self.full:
                self.h2.read_on(now_us)
                break
            stream = line.pop(next(iter(line)))
            partial = stream.call
            if _route(stream).stream is not None:
                self._owner.wake(stream)
            elif isinstance(partial, PartialRequest):
                whole = bytes(partial.buffer)
                self._drop_buffer(stream)
                self._serve(stream, _route(stream), whole, 0, len(whole))
        self.count_flood()

    def sweep(self, now_us: int) -> None:
        """End what takes too long."""
        self._now_us = now_us
        self.h2.sweep(now_us)
        late_us = now_us - self._settings.call_us_max
        for stream in list(self.h2.streams.values()):
            route = _route(stream)
            unary = route.unary is not None or route.with_metadata is not None
            if unary and stream.began_us <= late_us:
                self.expire(stream)
        self.count_flood()

    def count_flood(self) -> None:
        """Count, once, the flood that ended the connection."""
        fault = self.h2.fault
        if fault is not None and fault.flood:
            floods = self._counts.floods
            floods[fault.flood] = floods.get(fault.flood, 0) + 1
            self.h2.fault = None

    # What the connection calls.

    def interpret(self, head: RequestHead) -> object:
        """Return the route of a request."""
        try:
            route = find_route(head, self._methods, self._access, self._names)
        except Exception as error:
            if not isinstance(error, SluicegateError):
                self._owner.log_bug(error)
            status, message = status_of(error)
            return refuse_route(status, message)  # whoever made the identity could not
        if route.identity is not NOBODY:
            self.class_ = class_of(route.identity)
            self.caller = route.identity.name
            if self._pace is not None:
                self._pace.identify(self.caller)
        settings = self._settings
        route.message_bytes_max = (
            settings.open_message_bytes_max if route.open else settings.message_bytes_max
        )
        return route

    def interpret_oversized(self) -> object:
        """Return the route of a request with too many headers."""
        return refuse_oversized()

    def begin_stream(self, stream: H2Stream) -> None:
        """Refuse at once what no body could save; start a stream."""
        route = _route(stream)
        if route.refusal is not None:
            self._refuse(stream, route)
        elif route.open and not self.h2.count_stream(stream, self._settings.open_streams_max):
            self.fail(stream, _TOO_MANY_OPEN)
        elif route.stream is not None:
            self._start_stream(stream, route)

    def receive_data(self, stream: H2Stream, data: bytes, start: int, end: int, last: bool) -> None:
        """Take a part of a body."""
        route = _route(stream)
        if route.unary is not None or route.with_metadata is not None:
            if last and stream.call is None:
                self._unary(stream, route, data, start, end)
            else:
                self._buffer_unary(stream, route, data[start:end], last)
        elif route.stream is not None:
            if stream.call is None:
                self._start_stream(stream, route)
            self._feed_stream(stream, data[start:end])
        elif last or stream.received_bytes > _PLAIN_BODY_BYTES_MAX:
            self._refuse(stream, route)

    def drop_stream(self, stream: H2Stream) -> None:
        """A stream ended before its result."""
        self._drop_buffer(stream)
        self._owner.stop(stream)

    def resume_stream(self, stream: H2Stream) -> None:
        """What was queued has left."""
        self._owner.wake(stream)

    # Unary calls.

    def _unary(self, stream: H2Stream, route: GrpcRoute, data: bytes, start: int, end: int) -> None:
        if not self._line and not self.full:
            self._serve(stream, route, data, start, end)
        elif self._buffer(stream, data[start:end]) is not None:
            self._line[stream.id] = stream

    def _serve(self, stream: H2Stream, route: GrpcRoute, data: bytes, start: int, end: int) -> None:
        size = end - start - PREFIX_BYTES
        try:
            if (
                size >= 0
                and data[start] == 0
                and word(data, start + 1) == size
                and size <= route.message_bytes_max
            ):
                message = data[start + PREFIX_BYTES : end]
            else:
                message = self._message(route, data[start:end])
            if route.timeout_us >= 0:
                self._check_deadline(stream, route)
            self._counts.calls += 1
            unary = route.unary
            if unary is not None:
                result = unary(message, route.identity)
            else:
                result = self._call_with_metadata(stream, route, message)
            if isinstance(result, bytes):
                self._reply(stream, result)
            else:
                self.h2.await_result(stream)
                self._owner.wait(stream, result, _deadline_us(stream, route))
        except Exception as error:
            self.fail(stream, error)  # whatever a method raises ends its call

    def _call_with_metadata(
        self, stream: H2Stream, route: GrpcRoute, message: bytes
    ) -> MaybeAwaitable[bytes]:
        method = route.with_metadata
        assert method is not None
        waited_us = self._waited_us(stream)
        left_us = route.timeout_us - waited_us if route.timeout_us >= 0 else NO_TIMEOUT
        return method(message, route.identity, CallMetadata(route.metadata, left_us, waited_us))

    def _waited_us(self, stream: H2Stream) -> int:
        """How long ago the request came; what was read in this portion came before it was read."""
        waited_us = self._now_us - stream.began_us
        return waited_us if waited_us > 0 else self._lag_us

    def _check_deadline(self, stream: H2Stream, route: GrpcRoute) -> None:
        if self._waited_us(stream) >= route.timeout_us:
            self._counts.expired += 1
            raise _LATE

    def _buffer_unary(self, stream: H2Stream, route: GrpcRoute, part: bytes, last: bool) -> None:
        """Gather a unary request that comes in several frames."""
        partial = self._buffer(stream, part)
        if partial is None:
            return
        buffer = partial.buffer
        if len(buffer) >= PREFIX_BYTES:
            size = int.from_bytes(buffer[1:PREFIX_BYTES], "big")
            if size > route.message_bytes_max:
                self.fail(stream, too_large(route.message_bytes_max))
                return
            if len(buffer) > size + PREFIX_BYTES:
                self.fail(stream, _NOT_ONE)
                return
        if last:
            whole = bytes(buffer)
            self._drop_buffer(stream)
            self._unary(stream, route, whole, 0, len(whole))

    def _message(self, route: GrpcRoute, body: bytes) -> bytes:
        """Return the message of a body that is not simply one plain message."""
        if not body:
            raise _NONE_YET
        if len(body) < PREFIX_BYTES:
            raise _NOT_ONE
        size = word(body, 1)
        if size > route.message_bytes_max:
            raise too_large(route.message_bytes_max)
        if size != len(body) - PREFIX_BYTES:
            raise _NOT_ONE
        return self._decompressed(route, body[0], body[PREFIX_BYTES:])

    def _decompressed(self, route: GrpcRoute, flag: int, message: bytes) -> bytes:
        if flag == 0:
            return message
        if flag != 1:
            raise GrpcError(GrpcStatus.INTERNAL, "the compressed flag is neither 0 nor 1")
        if not route.gzip:
            raise GrpcError(GrpcStatus.INTERNAL, "a packed message, and no grpc-encoding")
        settings = self._settings
        unpacked_max = max(settings.gunzip_free_bytes, len(message) * settings.gunzip_ratio_max)
        unpacked = gunzip(message, min(unpacked_max, route.message_bytes_max))
        self.h2.work(len(unpacked))
        return unpacked

    def respond(self, stream: H2Stream, result: bytes) -> None:
        """Send the result of a unary call that was waited for."""
        if not stream.closed:
            self._result_bytes += (len(result) - self._result_bytes) >> 3
            self._reply(stream, result)

    def _reply(self, stream: H2Stream, result: bytes) -> None:
        size = len(result)
        if size > self._settings.reply_bytes_max:
            self.fail(stream, _TOO_LONG)
            return
        if size > _BACKLOG_FREE_BYTES and (
            self._counts.backlog_bytes >= self._settings.backlog_bytes_max
            or not self.h2.has_room(size)
        ):
            self.fail(stream, _NO_ROOM)
            return
        if self._pace is not None:
            self._pace.record_served(_route(stream).identity.name)
        self.h2.reply(stream, HEAD, prefix(result), OK)

    def fail(self, stream: H2Stream, error: BaseException) -> None:
        """End a call by an error."""
        if not isinstance(error, SluicegateError):
            self._owner.log_bug(error)
        if stream.closed or stream.finished:
            return
        self._counts.failed += 1
        status, message = status_of(error)
        metadata = metadata_of(error)
        if self._pace is not None and is_over_quota(error):
            slowed_us = self._pace.record_refused(_route(stream).identity.name)
            if slowed_us > 0:
                metadata.append((SLOWED_MS, b"%d" % -(-slowed_us // 1_000)))
        head_sent = isinstance(stream.call, PartialRequest) and stream.call.head_sent
        self._drop_buffer(stream)
        if head_sent:
            self.h2.finish(stream, trailers(status, message, metadata))
        else:
            self.h2.start(stream, trailers_only(status, message, metadata), last=True)

    def expire(self, stream: H2Stream) -> None:
        """End a call whose deadline has passed, and stop the work, which may be done by now."""
        if stream.closed or stream.finished:
            return
        self._counts.expired += 1
        self.fail(stream, _LATE_CHANGE if _route(stream).changes else _LATE)
        self._owner.stop(stream)

    def end_callers(self, now_us: int) -> None:
        """End the calls of callers whose access has ended."""
        for stream in list(self.h2.streams.values()):
            why = _route(stream).identity.ended(now_us)
            if why and not (stream.closed or stream.finished):
                self.fail(stream, GrpcError(GrpcStatus.UNAUTHENTICATED, why))
                self._owner.stop(stream)

    def _refuse(self, stream: H2Stream, route: GrpcRoute) -> None:
        if route.refusal is not None:
            self._counts.failed += 1
            if route.of_stranger and self._pace is not None:
                self._pace.record_stranger()
            self.h2.start(stream, route.refusal, last=True)
        elif route.plain is not None:
            self.h2.start(stream, route.plain)
            self.h2.send(stream, route.why, last=True)

    # Streams.

    def _start_stream(self, stream: H2Stream, route: GrpcRoute) -> None:
        self._counts.calls += 1
        stream.consumes = False
        stream.call = PartialRequest()
        self._owner.run(stream, route, _deadline_us(stream, route))

    def _feed_stream(self, stream: H2Stream, part: bytes) -> None:
        partial = self._buffer(stream, part)
        if partial is None:
            return
        route = _route(stream)
        if route.open and len(partial.buffer) > route.message_bytes_max + PREFIX_BYTES:
            self.fail(stream, too_large(route.message_bytes_max))
            self._owner.stop(stream)
            return
        self._open_window(stream)
        self._owner.wake(stream)

    def next_message(self, stream: H2Stream) -> bytes | None:
        """Return the next message of a stream, if it is here whole. Raises `GrpcError`."""
        partial = stream.call
        assert isinstance(partial, PartialRequest)
        buffer = partial.buffer
        size = _first_size(buffer)
        bytes_max = _route(stream).message_bytes_max
        if size > bytes_max:
            raise too_large(bytes_max)
        whole = size + PREFIX_BYTES
        if size < 0 or len(buffer) < whole:
            if stream.ended_by_peer and buffer:
                raise GrpcError(GrpcStatus.INTERNAL, "the request ended amid a message")
            return None
        flag = buffer[0]
        message = bytes(buffer[PREFIX_BYTES:whole])
        del buffer[:whole]
        self._partial_bytes -= whole
        self.h2.consume(stream, min(whole, stream.unread_bytes))
        self._open_window(stream)
        return self._decompressed(_route(stream), flag, message)

    def send(self, stream: H2Stream, message: bytes) -> None:
        """Send one message of a stream's response; raises `GrpcError` if it is too long."""
        if stream.closed:
            return
        if len(message) > self._settings.reply_bytes_max:
            raise _TOO_LONG
        partial = stream.call
        assert isinstance(partial, PartialRequest)
        if not partial.head_sent:
            partial.head_sent = True
            self.h2.start(stream, HEAD)
        self.h2.send(stream, prefix(message))

    def wait_for_room(self, stream: H2Stream) -> bool:
        """Whether a stream must wait before it sends more; it is woken when there is room."""
        if stream.closed or (stream.queue is None and not self.full):
            return False
        if stream.queue is None:
            self._line[stream.id] = stream
        return True

    def close(self, stream: H2Stream) -> None:
        """End a stream's response."""
        if stream.closed or stream.finished:
            return
        partial = stream.call
        assert isinstance(partial, PartialRequest)
        self._drop_buffer(stream)
        if partial.head_sent:
            self.h2.finish(stream, OK)
        else:
            self.h2.start(stream, trailers_only(GrpcStatus.OK, ""), last=True)

    # Partial requests.

    def _buffer(self, stream: H2Stream, part: bytes) -> PartialRequest | None:
        """Keep a part; None if the connection holds too much, and the call has failed."""
        partial = stream.call
        if not isinstance(partial, PartialRequest):
            partial = PartialRequest()
            stream.call = partial
        if self._partial_bytes + len(part) > self._settings.partial_bytes_max:
            self.fail(stream, _TOO_MUCH_PARTIAL)
            self._owner.stop(stream)
            return None
        self._partial_bytes += len(part)
        partial.buffer += part
        return partial

    def _drop_buffer(self, stream: H2Stream) -> None:
        self._line.pop(stream.id, None)
        partial = stream.call
        if isinstance(partial, PartialRequest):
            self._partial_bytes -= len(partial.buffer)
            partial.buffer = bytearray()

    def _open_window(self, stream: H2Stream) -> None:
        """Let more come where the next message needs it; no message could outgrow its window."""
        partial = stream.call
        if isinstance(partial, PartialRequest) and stream.unread_bytes:
            size = _first_size(partial.buffer)
            if size < 0 or len(partial.buffer) < size + PREFIX_BYTES:
                self.h2.consume(stream, stream.unread_bytes)


def _route(stream: H2Stream) -> GrpcRoute:
    route = stream.meaning
    assert isinstance(route, GrpcRoute)
    return route


def _deadline_us(stream: H2Stream, route: GrpcRoute) -> int:
    if route.timeout_us < 0:
        return -1
    return stream.began_us + route.timeout_us


def _first_size(buffer: bytearray) -> int:
    """Return the size that the first message announces; -1 if that is not here yet."""
    if len(buffer) < PREFIX_BYTES:
        return -1
    return int.from_bytes(buffer[1:PREFIX_BYTES], "big")
