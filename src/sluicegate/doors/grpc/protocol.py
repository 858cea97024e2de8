"""Protocol: the asyncio side of the gRPC server: sockets, tasks and timers, and nothing else.

One `GrpcProtocol` a connection. All answers to one read leave in one write, and so do all that
become ready in one turn of the loop. A peer that does not read is not read either: while its socket
is full we take nothing from it, so what we hold for it stays within the bounds of HTTP/2.

Work is done in portions, of which a connection has a share in each turn of the loop
(`doors/turns.py`); what it sends beyond waits for the next one. The first that is read of somebody
who has not said who they are is free: so health is served in any turn.

`GrpcDoor` makes the protocols and knows which are open: to count, to sweep out the slow and the
idle, and to end them all in peace.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast, final

from sluicegate.contracts.access import Access
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import SluicegateError
from sluicegate.doors.connection_pace import ConnectionPace
from sluicegate.doors.grpc.calls import GrpcCalls, GrpcCounts, PartialRequest
from sluicegate.doors.grpc.methods import GrpcError, GrpcStatus, Methods
from sluicegate.doors.grpc.route import GrpcRoute
from sluicegate.doors.grpc.settings import GrpcSettings
from sluicegate.doors.grpc.streaming import StreamRun
from sluicegate.doors.stepper import Stepper
from sluicegate.doors.tls import names_in
from sluicegate.doors.turns import NEW_READS_MAX, STRANGER, Turns, TurnShare
from sluicegate.policies.quota.refusal_pace import RefusalPace
from sluicegate.wire.h2.stream import H2Stream

_log: Final = logging.getLogger("sluicegate.grpc")
_US: Final = 1_000_000
_WRITE_BYTES: Final = 262_144  # that the transport is handed at a time; it may pause us in between


@final
class GrpcDoor:
    """Makes a protocol for each connection that is accepted. Belongs to one loop."""

    __slots__ = (
        "_sweep", "access", "clock", "counts", "draining", "methods", "open", "pace", "settings",
        "turns",
    )  # fmt: skip

    def __init__(
        self,
        methods: Methods,
        access: Access,
        clock: Clock,
        settings: GrpcSettings | None = None,
        pace: RefusalPace | None = None,
    ) -> None:
        self.methods = methods
        self.access = access
        self.clock = clock
        self.pace = pace  # of callers far over their quota
        self.settings = GrpcSettings() if settings is None else settings
        self.turns = Turns(clock, self.settings.turn_portions_max, self.settings.turn_us_max)
        self.counts = GrpcCounts()
        self.open: set[GrpcProtocol] = set()
        self.draining = False
        self._sweep: asyncio.TimerHandle | None = None

    def __call__(self) -> GrpcProtocol:
        """A protocol for one more connection."""
        return GrpcProtocol(self)

    @property
    def streams(self) -> int:
        """Streams open now."""
        return sum(protocol.streams for protocol in self.open)

    async def drain(self, grace_s: float) -> bool:
        """End all connections: what is under way may finish within `grace_s`. Whether all did."""
        self.draining = True
        for protocol in list(self.open):
            protocol.drain()
        loop = asyncio.get_running_loop()
        until = loop.time() + grace_s
        while self.open and loop.time() < until:
            waiting = [protocol.closed for protocol in self.open]
            await asyncio.wait(waiting, timeout=until - loop.time())
        finished = self.streams == 0
        for protocol in list(self.open):
            protocol.abort()
        return finished

    def add(self, protocol: GrpcProtocol, loop: asyncio.AbstractEventLoop) -> None:
        """Add a connection that was opened."""
        self.open.add(protocol)
        self.counts.connections += 1
        self.counts.opened += 1
        if self._sweep is None:
            self._sweep = loop.call_later(self.settings.sweep_us / _US, self._sweep_all, loop)

    def remove(self, protocol: GrpcProtocol) -> None:
        """Remove a connection that was lost."""
        if protocol in self.open:
            self.open.remove(protocol)
            self.counts.connections -= 1
        if not self.open and self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def _sweep_all(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweep = loop.call_later(self.settings.sweep_us / _US, self._sweep_all, loop)
        for protocol in list(self.open):
            protocol.sweep()


@final
class GrpcProtocol:
    """One connection on a loop.

    It does what `asyncio.Protocol` asks for; a compiled class has none but compiled ancestors.
    """

    def __init__(self, door: GrpcDoor) -> None:
        self._door = door
        self._calls: GrpcCalls | None = None
        self._pace: ConnectionPace | None = None
        if door.pace is not None:
            self._pace = ConnectionPace(door.pace, door.clock)
        self._rests = False  # since all who speak on it are far over their quota
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._flushing = False
        self._reading = False
        self._paused = False  # the peer does not read
        self._share = TurnShare(door.turns, door.settings.connection_portions_max, self._go_on)
        self._reads = 0
        self._read_on = True  # while it waits
        self._ready_us = 0  # since when what is to be done waits for others alone
        self._stopped = False  # the transport reads no more
        self._backlog_bytes = 0
        self._ending = False  # nothing more is sent, and what still comes is thrown away
        self._timer: asyncio.TimerHandle | None = None  # for the drain's echo, then for the end
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @property
    def streams(self) -> int:
        """Streams open now."""
        return 0 if self._calls is None else len(self._calls.h2.streams)

    def under_way(self) -> int:
        """Streams open now, for a listener that asks what a connection still has to do."""
        return self.streams

    def caller(self) -> str:
        """Return the caller of its last request."""
        return "" if self._calls is None else self._calls.caller

    def held_bytes(self) -> int:
        """Bytes of requests and responses that are here, and not in the transport."""
        return 0 if self._calls is None else self._calls.held_bytes

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send our SETTINGS."""
        self._transport = cast("asyncio.Transport", transport)
        door = self._door
        self._calls = GrpcCalls(
            door.methods,
            door.access,
            door.settings,
            door.counts,
            self,
            names_in(transport.get_extra_info("peercert")),
            self._now_us(),
            self._pace,
        )
        door.add(self, self._loop)
        self._flush()
        if door.draining:
            self.drain()

    def data_received(self, data: bytes) -> None:
        """Take bytes that were read, and write all responses to them."""
        calls = self._calls
        if calls is None or self._ending:
            return
        share = self._share
        if self._paused or share.waiting:
            calls.h2.hold(data)
            self._read_on = False
            if self._transport is not None:
                self._read_or_stop(self._transport)
            return
        share.begin()
        self._reads += 1
        now_us = self._now_us()
        lag_us = self._door.turns.lag_us()
        self._ready_us = now_us - lag_us
        new = calls.class_ == STRANGER and self._reads <= NEW_READS_MAX
        if not (new or share.enter()):
            calls.h2.hold(data)
            self._flush()
            return
        self._reading = True
        calls.receive(data, now_us, lag_us)
        if calls.h2.slowed:
            share.give_up()
        self._work(calls)

    def _go_on(self) -> None:
        calls = self._calls
        if calls is not None and self._transport is not None:
            self._reading = True
            if self._rests:
                self._rests = False
                self._ready_us = self._now_us()  # that it was put off is no queue
            self._work(calls)

    def _work(self, calls: GrpcCalls) -> None:
        """Work until all is done or the share of this turn is; and write."""
        share, h2 = self._share, calls.h2
        lag_us = self._now_us() - self._ready_us  # its own portions are nobody's delay
        while calls.work_waits and not self._paused and share.enter():
            if h2.out_bytes >= _WRITE_BYTES:
                self._flush()
            calls.work_on(self._now_us(), lag_us)
            if h2.slowed:
                share.give_up()
        self._reading = False
        self._flush()

    def _keep_pace(self, calls: GrpcCalls) -> None:
        """Put the connection off if all who speak on it are far over their quota."""
        if self._pace is None or self._share.waiting:
            return
        delay_us = self._pace.rest_us()
        if delay_us > 0:
            self._rests = True
            self._share.rest(delay_us, calls.class_, calls.caller)

    def eof_received(self) -> bool:
        """Close: a peer that has ended its side cannot be answered by the rules."""
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        """Drop everything."""
        self._transport = None
        if self._calls is not None:
            self._calls.h2.close()
        self._door.counts.backlog_bytes -= self._backlog_bytes
        self._backlog_bytes = 0
        self._door.remove(self)
        if self._timer is not None:
            self._timer.cancel()
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        """Stop reading: the peer does not read."""
        self._paused = True
        if self._transport is not None:
            self._read_or_stop(self._transport)

    def resume_writing(self) -> None:
        """It reads again."""
        self._paused = False
        self._flush()

    # What the door asks.

    def drain(self) -> None:
        """End gracefully; the second step comes with the echo, or without it in a while."""
        if self._calls is None:
            return
        self._calls.h2.drain()
        self._flush()
        if self._timer is None and not self.closed.done():
            wait_s = self._door.settings.drain_echo_us / _US
            self._timer = self._loop.call_later(wait_s, self._no_echo)

    def sweep(self) -> None:
        """End what is slow or idle."""
        if self._calls is not None:
            self._calls.sweep(self._now_us())
            self._flush()

    def check_callers(self, reloaded: bool) -> bool:
        """End the calls of callers whose access has ended; other calls go on."""
        if self._calls is not None:
            if reloaded:
                self._calls.h2.forget()  # what header blocks mean: they name callers
            self._calls.end_callers(self._now_us())
            self._flush()
        return False

    def abort(self) -> None:
        """End at once."""
        if self._transport is not None:
            self._transport.abort()

    def _no_echo(self) -> None:
        if self._calls is not None:
            self._calls.h2.refuse_new()
            self._flush()

    # What the calls ask.

    def wait(self, stream: H2Stream, answer: object, deadline_us: int) -> None:
        """Wait for an answer."""
        waiting = _Waiting(self, stream)
        stream.call = waiting
        if deadline_us >= 0:
            waiting.timer = self._call_at(deadline_us, waiting.expire)
        if asyncio.iscoroutine(answer):
            stepper = Stepper(answer, self._loop, waiting.finish)
            waiting.work = stepper
            stepper.start()
            return
        future = asyncio.ensure_future(cast("Awaitable[bytes]", answer), loop=self._loop)
        waiting.work = future
        future.add_done_callback(waiting.finish_future)

    def run(self, stream: H2Stream, route: GrpcRoute, deadline_us: int) -> None:
        """Start a stream's method."""
        partial = stream.call
        assert isinstance(partial, PartialRequest)
        running = StreamRun(self, stream)
        partial.waiter = running
        running.task = self._loop.create_task(running.run(route))
        if deadline_us >= 0:
            running.timer = self._call_at(deadline_us, running.expire)

    def wake(self, stream: H2Stream) -> None:
        """Wake the stream's method."""
        partial = stream.call
        if isinstance(partial, PartialRequest) and isinstance(partial.waiter, StreamRun):
            partial.waiter.wake()

    def stop(self, stream: H2Stream) -> None:
        """Stop what waits."""
        call = stream.call
        if isinstance(call, PartialRequest):
            call = call.waiter
        if isinstance(call, _Waiting | StreamRun):
            call.stop()

    def log_bug(self, error: BaseException) -> None:
        """Log it."""
        _log.error("a method failed", exc_info=error)

    # Writing.

    @property
    def calls(self) -> GrpcCalls:
        """The calls of a connection that was made."""
        assert self._calls is not None
        return self._calls

    def flush_soon(self) -> None:
        """Write once this tick, with whatever else becomes ready in it."""
        if not self._flushing and not self._reading:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        transport = self._transport
        calls = self._calls
        if transport is None or calls is None:
            return
        h2 = calls.h2
        while h2.out and not (self._paused or self._ending):
            transport.write(h2.take(_WRITE_BYTES))
        if h2.done and not h2.out and not self._ending:
            self._end(transport)
        h2.unsent_bytes = transport.get_write_buffer_size()
        backlog = h2.backlog_bytes
        self._door.counts.backlog_bytes += backlog - self._backlog_bytes
        self._backlog_bytes = backlog
        if self._reading:
            return
        self._keep_pace(calls)
        if calls.work_waits and not self._ending and not self._paused:
            share = self._share
            if not share.waiting:
                share.wait(calls.class_, calls.caller)
                if share.served:
                    self._ready_us = self._now_us()  # from here on it waits for others alone
        self._read_or_stop(transport)

    def _end(self, transport: asyncio.Transport) -> None:
        """Say that nothing more comes, and give the peer time to read what came.

        Closed with bytes unread it would be a reset, which takes our last GOAWAY with it.
        """
        self._ending = True
        if not transport.can_write_eof():
            transport.close()
            return
        transport.write_eof()
        if self._timer is not None:
            self._timer.cancel()
        wait_s = self._door.settings.linger_us / _US
        self._timer = self._loop.call_later(wait_s, transport.abort)

    def _read_or_stop(self, transport: asyncio.Transport) -> None:
        """Read what the peer sends, unless it does not read, or waits for its turn.

        Who had nothing in this turn is read once more: mostly nothing comes.
        """
        share = self._share
        waits = share.waiting and (share.served or not self._read_on)
        if not share.waiting:
            self._read_on = True
        stop = (self._paused or waits) and not self._ending
        if stop == self._stopped or transport.is_closing():
            return
        self._stopped = stop
        if stop:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def _call_at(self, at_us: int, call: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later((at_us - self._now_us()) / _US, call)

    def _now_us(self) -> int:
        return self._door.clock.now_us()  # uvloop's time stands still through a turn


@final
class _Waiting:
    """A unary call whose result is not here yet."""

    __slots__ = ("protocol", "stream", "timer", "work")

    def __init__(self, protocol: GrpcProtocol, stream: H2Stream) -> None:
        self.protocol = protocol
        self.stream = stream
        self.work: Stepper | asyncio.Future[Any] | None = None
        self.timer: asyncio.TimerHandle | None = None

    def finish_future(self, future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            self.finish(None, asyncio.CancelledError())
        else:
            error = future.exception()
            self.finish(None if error is not None else future.result(), error)

    def finish(self, answer: object, error: BaseException | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.work = None  # it holds us
        stream = self.stream
        stream.call = None
        calls = self.protocol.calls
        if error is None:
            if isinstance(answer, bytes):
                calls.respond(stream, answer)
            else:
                calls.fail(stream, TypeError(f"a method answered {type(answer).__name__}"))
        elif isinstance(error, asyncio.CancelledError):
            calls.fail(stream, GrpcError(GrpcStatus.CANCELLED, "the work was cancelled"))
        elif not stream.closed or not isinstance(error, SluicegateError):
            calls.fail(stream, error)
        self.protocol.flush_soon()

    def expire(self) -> None:
        self.protocol.calls.expire(self.stream)
        self.protocol.flush_soon()

    def stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if self.work is not None:
            self.work.cancel()
