"""A connection on the loops that ship, over a real socket: late timers, and exceptions in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import hiredis
import pytest

from sluicegate.contracts.errors import Unavailable
from sluicegate.policies.client.path_timeout import PathTimeout
from sluicegate.stores.redis.connection import RedisCall, RedisConnection, open_connection
from sluicegate.stores.redis.node import RedisNode
from sluicegate.stores.redis.settings import Endpoint, RedisSettings
from sluicegate.testing import SeededChance
from sluicegate.wire.resp import ErrorReply, command
from tests.stores.redis.live import LOOPS, PATIENCE_S, run

TIMEOUT_US = 10_000
each_loop = pytest.mark.parametrize("loop", LOOPS)


class EchoServer(asyncio.Protocol):
    """Answers ECHO and PING with their words, and HOLD never."""

    def connection_made(self, transport: Any) -> None:
        self.reader = hiredis.Reader()
        self.held = False
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.reader.feed(data)
        while parts := self.reader.gets():
            word = parts[0].upper()
            if word == b"HOLD" or self.held:
                self.held = True
            elif word == b"HELLO":
                self.transport.write(b"%0\r\n")
            elif word == b"FAIL":
                self.transport.write(b"-ERR failed\r\n")
            else:
                text = parts[1] if len(parts) > 1 else b"PONG"
                self.transport.write(b"$%d\r\n%b\r\n" % (len(text), text))


class Owner:
    """Notes how the connection ended; raises in the method that is named."""

    def __init__(self, raises: str = "") -> None:
        self.raises = raises
        self.closed = ""

    def on_replies(self) -> None:
        self.check("on_replies")

    def on_timeout(self, reason: str) -> None:
        self.check("on_timeout")

    def on_error(self, call: RedisCall, error: ErrorReply) -> None:
        self.check("on_error")
        call.fail(error)

    def on_close(self, reason: str) -> None:
        self.closed = reason

    def check(self, method: str) -> None:
        if method == self.raises:
            raise ValueError(method)


class BrokenReceiver(asyncio.Future[Any]):
    """Raises when it is handed its answer."""

    def set_result(self, reply: Any, /) -> None:
        raise ValueError("receiver")


@asynccontextmanager
async def served(owner: Owner, **settings: Any) -> AsyncIterator[RedisConnection]:
    """A connection that a node could use, and its server."""
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(EchoServer, "127.0.0.1", 0)
    endpoint = Endpoint("127.0.0.1", listener.sockets[0].getsockname()[1])
    connection = await open_connection(endpoint, RedisSettings(**settings))
    connection.serve(owner, PathTimeout(TIMEOUT_US))
    try:
        yield connection
    finally:
        await connection.close()
        listener.close()
        await listener.wait_closed()


async def outcome(answer: asyncio.Future[Any]) -> Any:
    """The answer, or the error."""
    try:
        async with asyncio.timeout(60):
            return await answer
    except (ErrorReply, Unavailable) as error:
        return error


@each_loop
def test_flush_right_after_late_sweep_is_written(loop: str) -> None:
    """uvloop's `call_at` gave the sweep a Handle, which has no `when` to compare with."""

    async def story() -> list[Any]:
        async with served(Owner()) as connection:
            here = asyncio.get_running_loop()
            first = connection.ask("ECHO", "first")
            connection.push()
            calls: list[asyncio.Future[Any]] = []

            def send_in_phase_of_sweep() -> None:
                calls.append(connection.ask("ECHO", "second"))
                connection.push()

            here.call_at(here.time() + 2 * TIMEOUT_US / 1e6, send_in_phase_of_sweep)
            time.sleep(5 * TIMEOUT_US / 1e6)
            await outcome(first)
            third = connection.ask("ECHO", "third")
            return [await outcome(calls[0]), await outcome(third)]

    assert run(story(), loop) == [b"second", b"third"]


# Where it raises, and the command that leads there.
FAILURES = {
    "on_replies": ["ECHO", "1"],
    "on_timeout": ["HOLD"],
    "on_error": ["FAIL"],
    "receiver": ["ECHO", "1"],
}


@each_loop
@pytest.mark.parametrize("where", FAILURES)
def test_exception_in_connection_fails_all_its_calls(where: str, loop: str) -> None:
    complaints: list[str] = []

    async def story() -> tuple[list[Any], Owner, bool]:
        here = asyncio.get_running_loop()
        here.set_exception_handler(lambda _, about: complaints.append(repr(about["exception"])))
        owner = Owner(where)
        async with served(owner, silence_us_max=60_000_000) as connection:
            receiver = BrokenReceiver() if where == "receiver" else here.create_future()
            connection.send(RedisCall(receiver, command(*FAILURES[where])))
            connection.push()
            second = connection.ask("HOLD")
            outcomes = [await outcome(receiver), await outcome(second)]
            third = await outcome(connection.ask("ECHO", "3"))
            return [*outcomes, third], owner, connection.is_open

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        outcomes, owner, is_open = runner.run(story())
    assert complaints == [f"ValueError({where!r})"]
    assert not is_open
    assert f"ValueError({where!r})" in owner.closed
    if where == "on_replies":
        assert outcomes.pop(0) == b"1"
    assert all(isinstance(one, Unavailable) for one in outcomes), outcomes


def test_unforeseen_exception_while_connecting_fails_calls_and_is_retried() -> None:
    """An unforeseen exception ended the only task that connects."""
    complaints: list[str] = []

    async def story() -> None:
        here = asyncio.get_running_loop()
        here.set_exception_handler(lambda _, about: complaints.append(repr(about["exception"])))
        endpoint = Endpoint("no\0host", 6379)
        settings = RedisSettings(endpoints=(endpoint,), backoff_us=1_000, backoff_us_max=1_000)
        node = RedisNode(endpoint, settings, SeededChance(3))
        async with asyncio.timeout(PATIENCE_S):
            assert "null" in str(await outcome(node.call("GET", "key")))
            while len(complaints) < 3:
                await asyncio.sleep(0)
        await node.close()

    with asyncio.Runner(loop_factory=LOOPS["asyncio"]) as runner:
        runner.run(story())
    assert "null" in complaints[0]
