"""A loop and a transport that are moved by hand: no socket, no waiting, no real time.

Only what a connection uses is here. Futures need a real loop to belong to; that loop never runs,
and a test looks at them directly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from sluicegate.policies.client.path_timeout import PathTimeout
from sluicegate.stores.redis.connection import RedisCall, RedisConnection, Reply
from sluicegate.stores.redis.settings import Endpoint, RedisSettings
from sluicegate.wire.resp import ErrorReply, command


class HandTimer:
    """A handle of `call_at`; without `when`, like uvloop's for a near instant."""

    def __init__(self, at: float, then: Callable[[], None]) -> None:
        self.at = at
        self.then = then
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class HandLoop:
    """Time stands still until `advance`; what is to run soon runs at `turn`."""

    def __init__(self) -> None:
        self.real = asyncio.new_event_loop()
        self.now = 1_000.0
        self.soon: list[Callable[[], None]] = []
        self.timers: list[HandTimer] = []
        self.timers_made = 0

    def time(self) -> float:
        return self.now

    def create_future(self) -> asyncio.Future[Reply]:
        return self.real.create_future()

    def call_soon(self, then: Callable[[], None]) -> None:
        self.soon.append(then)

    def call_at(self, at: float, then: Callable[[], None]) -> HandTimer:
        timer = HandTimer(at, then)
        self.timers.append(timer)
        self.timers_made += 1
        return timer

    def turn(self) -> None:
        """Run what is to run soon, and then the timers that are due."""
        soon, self.soon = self.soon, []
        for then in soon:
            then()
        self.timers = [timer for timer in self.timers if not timer.cancelled]
        for timer in [timer for timer in self.timers if timer.at <= self.now]:
            self.timers.remove(timer)
            if not timer.cancelled:
                timer.then()

    def advance(self, ms: float, steps: int = 10) -> None:
        """Let time pass, in steps, each with a turn of the loop."""
        for _ in range(steps):
            self.now += ms / 1e3 / steps
            self.turn()

    def close(self) -> None:
        self.real.close()


class HandTransport:
    """Keeps what is written."""

    def __init__(self, protocol: RedisConnection) -> None:
        self.protocol = protocol
        self.writes: list[bytes] = []
        self.ended = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def abort(self) -> None:
        if not self.ended:
            self.ended = True
            self.protocol.connection_lost(None)

    close = abort

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_extra_info(self, name: str) -> None:
        return None


class HandListener:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def on_replies(self) -> None:
        self.events.append("heard")

    def on_timeout(self, reason: str) -> None:
        self.events.append(f"missed: {reason}")

    def on_error(self, call: RedisCall, error: ErrorReply) -> None:
        self.events.append(f"refused: {error.code}")
        call.fail(error)

    def on_close(self, reason: str) -> None:
        self.events.append(f"lost: {reason}")


class Wire:
    """A connection between such a loop and such a transport."""

    def __init__(self, **settings: Any) -> None:
        self.loop = HandLoop()
        redis_settings = RedisSettings(**settings)
        loop = cast("asyncio.AbstractEventLoop", self.loop)
        self.connection = RedisConnection(Endpoint("redis.test", 6379), redis_settings, loop)
        self.transport = HandTransport(self.connection)
        self.connection.connection_made(cast("asyncio.Transport", self.transport))
        self.owner = HandListener()
        self.path = PathTimeout(redis_settings.timeout_us)
        self.connection.serve(self.owner, self.path)

    def ask(self, *parts: bytes | str | int) -> asyncio.Future[Reply]:
        """Send a command; it leaves with the next turn."""
        future = self.loop.create_future()
        self.connection.send(RedisCall(future, command(*parts)))
        return future

    def answer(self, data: bytes) -> None:
        self.connection.data_received(data)

    def close(self) -> None:
        self.connection.end("the test is over")
        self.loop.close()
