"""A service in this process, reached after a while, for clients whose clocks are moved by hand.

It is the service of `tests/stores/service` behind the real door; what is simulated is the way
there: how long it takes, and that the service may be gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import hiredis

from sluicegate.client import Client
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.testing import HandClock
from tests.stores.service.checks import Checks, Doorman

T = TypeVar("T")


class Skewed:
    """A process's clock: it runs with the others and shows another time."""

    def __init__(self, clock: HandClock, wrong_us: int) -> None:
        self._clock = clock
        self._wrong_us = wrong_us

    def now_us(self) -> int:
        return self._clock.now_us() + self._wrong_us


class Pipe(asyncio.Transport):
    """Keeps what the door writes."""

    def __init__(self) -> None:
        super().__init__()
        self.out = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.out += bytes(data)


class HandLink:
    """The way to the service."""

    def __init__(
        self, checks: Checks, clock: HandClock, *, there_us: int = 0, back_us: int = 0
    ) -> None:
        self.clock = clock
        self._door = RespDoor(checks, Doorman())
        self.there_us = there_us
        self.back_us = back_us
        self.down = False
        self.commands: list[list[str]] = []
        self.vias: list[object] = []
        self.checked_us = 0  # when the last SG.CHECK reached the service
        self.gate: asyncio.Event | None = None  # answers wait for it
        self.closed = False

    async def ask(self, payload: bytes, via: object = None) -> Any:
        words = [word.decode() for word in parsed(payload)]
        self.commands.append(words)
        self.vias.append(via)
        self.clock.advance(us=self.there_us)
        if self.down:
            raise Unavailable("the service", "it is gone")
        if words[0] == "SG.CHECK":
            self.checked_us = self.clock.now_us()
        pipe = Pipe()
        protocol = self._door.protocol()
        protocol.connection_made(pipe)
        protocol.data_received(payload)
        while not pipe.out:
            await asyncio.sleep(0)
        protocol.connection_lost(None)
        if self.gate is not None:
            await self.gate.wait()
        self.clock.advance(us=self.back_us)
        return parsed(pipe.out)

    async def ask_one(self, payload: bytes) -> tuple[Any, object]:
        return await self.ask(payload, "worker 1"), "worker 1"

    async def connect(self) -> None:
        if self.down:
            raise Unavailable("the service", "it is gone")

    async def close(self) -> None:
        self.closed = True

    def named(self, name: str) -> list[list[str]]:
        """What was asked under that name."""
        return [words for words in self.commands if words[0] == name]


def parsed(data: bytes) -> Any:
    """One value as it comes off the wire."""
    reader = hiredis.Reader()
    reader.feed(data)
    return reader.gets()


class World:
    """One service, one way there, one client."""

    def __init__(
        self, limit: Limit | None = None, *, there_us: int = 0, back_us: int = 0, **settings: Any
    ) -> None:
        self.clock = HandClock()
        self.checks = Checks(self.clock.now_us)
        if limit is not None:
            self.checks.limit = limit
        self.link = HandLink(self.checks, self.clock, there_us=there_us, back_us=back_us)
        self.client = Client(link=self.link, clock=self.clock, **settings)

    @property
    def calls(self) -> list[str]:
        """The commands that have reached the service."""
        return [words[0] for words in self.link.commands]


def run(story: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Tell it on a loop of its own."""
    return asyncio.run(story())


def window(count: int, *, s: float = 60) -> Limit:
    """A fixed window, which leases without giving up a part."""
    return Limit(count, period_us=round(s * 1_000_000), algorithm=Algorithm.FIXED_WINDOW)
