"""Streaming: a stream's method at work, message by message, in a task of its own.

The slower way beside unary calls: reflection and health watches go it. What a message or a frame is
is not known here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol, final

from sluicegate.doors.grpc.calls import GrpcCalls
from sluicegate.doors.grpc.methods import GrpcError, GrpcStatus
from sluicegate.doors.grpc.route import GrpcRoute
from sluicegate.wire.h2.stream import H2Stream


class _StreamOwner(Protocol):
    """The connection that a stream is on."""

    @property
    def calls(self) -> GrpcCalls:
        """Its calls."""
        ...

    def flush_soon(self) -> None:
        """Write once this turn."""
        ...


@final
class StreamRun:
    """A stream's method at work."""

    __slots__ = ("_more", "protocol", "stream", "task", "timer")

    def __init__(self, protocol: _StreamOwner, stream: H2Stream) -> None:
        self.protocol = protocol
        self.stream = stream
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self._more = asyncio.Event()

    async def run(self, route: GrpcRoute) -> None:
        """Pass the method what comes, and send what it yields."""
        calls = self.protocol.calls
        stream = self.stream
        method = route.stream
        assert method is not None
        answers = method(self._incoming(), route.identity)
        try:
            async for message in answers:
                calls.send(stream, message)
                self.protocol.flush_soon()
                await asyncio.sleep(0)  # others have their turn
                while calls.wait_for_room(stream):
                    await self._wait_for_more()
            calls.close(stream)
        except asyncio.CancelledError:
            calls.fail(stream, GrpcError(GrpcStatus.CANCELLED, "the work was cancelled"))
            raise
        except Exception as error:
            calls.fail(stream, error)  # whatever a method raises is the end of its call
        finally:
            if self.timer is not None:
                self.timer.cancel()
            close = getattr(answers, "aclose", None)
            if close is not None:
                await close()
            # What knows of this, and this of it: a cancelled task keeps its frames.
            stream.call = None
            self.task = None
        self.protocol.flush_soon()

    async def _incoming(self) -> AsyncIterator[bytes]:
        stream = self.stream
        while not stream.closed:
            message = self.protocol.calls.next_message(stream)
            if message is not None:
                self.protocol.flush_soon()  # a window may have opened
                yield message
            elif stream.ended_by_peer:
                return
            else:
                await self._wait_for_more()

    async def _wait_for_more(self) -> None:
        self._more.clear()
        await self._more.wait()

    def wake(self) -> None:
        """Go on: something has come, or has room."""
        self._more.set()

    def expire(self) -> None:
        """End the call: its deadline has passed."""
        self.protocol.calls.expire(self.stream)
        self.protocol.flush_soon()

    def stop(self) -> None:
        """Stop the method: the peer is gone."""
        if self.timer is not None:
            self.timer.cancel()
        if self.task is not None:
            self.task.cancel()
