"""A node and a cluster against a server that answers what the test says: loops, doubt, secrets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import hiredis
import pytest

from sluicegate.contracts.errors import Unavailable
from sluicegate.kernels.breaker import CircuitSettings
from sluicegate.stores.redis.node import RedisNode
from sluicegate.stores.redis.settings import Endpoint, RedisSettings
from sluicegate.stores.redis.slots import slot_of
from sluicegate.testing import SeededChance
from sluicegate.wire.resp import ErrorReply
from tests.stores.redis import live
from tests.stores.redis.live import ADD, opened, run


@pytest.fixture(autouse=True, params=live.LOOPS)
def each_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of these run on each loop that ships."""
    monkeypatch.setattr(live, "default_loop", request.param)


Answer = Callable[[list[bytes]], bytes]


@asynccontextmanager
async def scripted(answer: Answer) -> AsyncIterator[int]:
    """A server that answers HELLO and PING, and the rest by `answer`; gives its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parser = hiredis.Reader(notEnoughData=...)
        while data := await reader.read(65_536):
            parser.feed(data)
            while (command := parser.gets()) is not ...:
                if command[0] == b"HELLO":
                    writer.write(b"%0\r\n")
                elif command[0] == b"PING":
                    writer.write(b"+%b\r\n" % command[-1])
                else:
                    writer.write(answer(command))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()
        await asyncio.sleep(0.01)  # its connections see the end


async def failure(answer: Any) -> Exception:
    try:
        result = await answer
    except (Unavailable, ErrorReply) as error:
        return error
    raise AssertionError(f"it was answered: {result!r}")


def test_nodes_that_send_a_call_in_a_circle_do_so_only_so_often() -> None:
    commands: list[bytes] = []
    port = 0

    def answer(parts: list[bytes]) -> bytes:
        commands.append(parts[0])
        if parts[0] == b"CLUSTER":
            return b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n" % port
        return b"-MOVED 1 127.0.0.1:%d\r\n" % port

    async def story() -> None:
        nonlocal port
        async with (
            scripted(answer) as port,
            opened(f"redis+cluster://127.0.0.1:{port}", resends_max=3) as client,
        ):
            error = await failure(client.run_script(ADD, ["key"], [1]))
            assert "sent on 3 times" in str(error)
            assert commands.count(b"EVALSHA") == 4

    run(story())


def test_a_script_that_never_stays_is_given_up() -> None:
    commands: list[bytes] = []

    def answer(parts: list[bytes]) -> bytes:
        commands.append(parts[0])
        return b"+OK\r\n" if parts[0] == b"SCRIPT" else b"-NOSCRIPT No matching script.\r\n"

    async def story() -> None:
        async with (
            scripted(answer) as port,
            opened(f"redis://127.0.0.1:{port}", resends_max=3) as client,
        ):
            error = await failure(client.run_script(ADD, ["key"], [1]))
            assert isinstance(error, ErrorReply)
            assert error.code == "NOSCRIPT"
            assert commands.count(b"EVALSHA") == 4

    run(story())


def test_a_thousand_calls_that_miss_a_script_load_it_once() -> None:
    commands: list[bytes] = []

    def answer(parts: list[bytes]) -> bytes:
        commands.append(parts[0])
        if parts[0] == b"SCRIPT":
            return b"+OK\r\n"
        return b":1\r\n" if b"SCRIPT" in commands else b"-NOSCRIPT No matching script.\r\n"

    async def story() -> None:
        async with scripted(answer) as port, opened(f"redis://127.0.0.1:{port}") as client:
            results = await asyncio.gather(
                *(client.run_script(ADD, ["key"], [1]) for _ in range(100))
            )
            assert results == [1] * 100
            assert commands.count(b"SCRIPT") == 1

    run(story())


def test_while_half_open_only_so_many_calls_are_let_in_and_they_decide() -> None:
    ill = True

    def answer(parts: list[bytes]) -> bytes:
        return b"-BUSY Redis is busy running a script.\r\n" if ill else b"+OK\r\n"

    async def story() -> None:
        nonlocal ill
        async with scripted(answer) as port:
            settings = RedisSettings(
                endpoints=(Endpoint("127.0.0.1", port),), timeout_us=5_000_000, backoff_us=1_000
            )
            breaker = CircuitSettings(failures_in_row=2, open_us=30_000, open_us_max=30_000)
            node = RedisNode(settings.endpoints[0], settings, SeededChance(3), breaker=breaker)
            await node.connect()
            for _ in range(2):
                assert "SCRIPT KILL" in str(await failure(node.call("GET", "key")))
            assert node.state == "open"
            assert "held back" in str(await failure(node.call("GET", "key")))
            # PING is answered, so calls are let in after the open time; they fail, and it opens.
            await asyncio.sleep(0.1)
            for _ in range(2):
                assert "SCRIPT KILL" in str(await failure(node.call("GET", "key")))
            assert node.state == "open"
            ill = False
            await asyncio.sleep(0.1)
            results = await asyncio.gather(
                *(node.call("GET", "key") for _ in range(10)), return_exceptions=True
            )
            assert results[:3] == [b"OK"] * 3
            assert all("held back" in str(error) for error in results[3:])
            assert node.state == "closed"
            await node.close()

    run(story())


@pytest.mark.parametrize("code", ["OOM", "MISCONF", "NOREPLICAS"])
def test_a_server_that_takes_no_writes_is_read_all_the_same(code: str) -> None:
    ill = False

    def answer(parts: list[bytes]) -> bytes:
        if ill:
            return b"-BUSY Redis is busy running a script.\r\n"
        if parts[0] == b"GET":
            return b"+kept\r\n"
        return b"-%b not now. script: 8083356fa2, on @user_script:8.\r\n" % code.encode()

    async def story() -> None:
        nonlocal ill
        async with scripted(answer) as port:
            settings = RedisSettings(endpoints=(Endpoint("127.0.0.1", port),), backoff_us=1_000)
            breaker = CircuitSettings(failures_in_row=2, open_us=30_000, open_us_max=30_000)
            node = RedisNode(settings.endpoints[0], settings, SeededChance(3), breaker=breaker)
            await node.connect()
            for _ in range(5):
                error = await failure(node.call("SET", "key", 1))
                assert isinstance(error, Unavailable)
                assert "script" not in str(error)
                assert await node.call("GET", "key") == b"kept"
            ill = True
            for _ in range(2):
                await failure(node.call("GET", "key"))
            assert node.state == "open"
            ill = False
            await asyncio.sleep(0.1)
            for _ in range(3):  # it answers again, and that is what a trial is for
                await failure(node.call("SET", "key", 1))
            assert node.state == "closed"
            await node.close()

    run(story())


def test_while_ping_is_not_answered_no_caller_spends_its_time_on_finding_out() -> None:
    ill = False

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.read(65_536)
        writer.write(b"%0\r\n+PONG\r\n")  # HELLO and PING, when it connects
        while data := await reader.read(65_536):
            if not ill:
                guard = data.split(b"\r\n")[-2]  # its text is the last word of each write
                writer.write(b"+OK\r\n" * (data.count(b"*") - 1) + b"+%b\r\n" % guard)
        writer.close()

    async def story() -> None:
        nonlocal ill
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        endpoint = Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
        settings = RedisSettings(endpoints=(endpoint,), timeout_us=20_000, backoff_us=1_000)
        breaker = CircuitSettings(failures_in_row=2, open_us=10_000, open_us_max=10_000)
        node = RedisNode(endpoint, settings, SeededChance(3), breaker=breaker)
        await node.connect()
        ill = True
        for _ in range(2):
            assert "no answer" in str(await failure(node.call("GET", "key")))
        assert node.state == "open"
        for _ in range(30):  # many times the open time
            answer = node.call("GET", "key")
            assert answer.done()
            assert "held back" in str(await failure(answer))
            await asyncio.sleep(0.01)
        ill = False
        await node.close()
        server.close()
        await server.wait_closed()
        await asyncio.sleep(0.01)

    run(story())


def test_a_moved_slot_is_asked_for_in_its_new_place_from_then_on() -> None:
    calls: dict[str, int] = {"old": 0, "new": 0}
    ports: dict[str, int] = {}

    def old(parts: list[bytes]) -> bytes:
        if parts[0] == b"CLUSTER":
            return b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$0\r\n\r\n:%d\r\n" % ports["old"]
        calls["old"] += 1
        return b"-MOVED %d :%d\r\n" % (slot_of("key"), ports["new"])

    def new(parts: list[bytes]) -> bytes:
        calls["new"] += 1
        return b":1\r\n"

    async def story() -> None:
        async with scripted(old) as ports["old"], scripted(new) as ports["new"]:
            url = f"redis+cluster://127.0.0.1:{ports['old']}"
            async with opened(url, refresh_us_min=1_000_000) as client:
                for _ in range(10):
                    assert await client.run_script(ADD, ["key"], [1]) == 1
        assert calls == {"old": 1, "new": 10}

    run(story())


def test_a_replica_that_a_sentinel_still_calls_master_is_not_believed() -> None:
    ports: dict[str, int] = {}

    def sentinel(parts: list[bytes]) -> bytes:
        return b"*2\r\n$9\r\n127.0.0.1\r\n$5\r\n%05d\r\n" % ports["data"]

    def data(parts: list[bytes]) -> bytes:
        return b"*5\r\n$5\r\nslave\r\n$1\r\nx\r\n:1\r\n$9\r\nconnected\r\n:0\r\n"

    async def story() -> None:
        async with scripted(sentinel) as ports["sentinel"], scripted(data) as ports["data"]:
            with pytest.raises(Unavailable, match="it is a slave now"):
                async with opened(f"redis+sentinel://127.0.0.1:{ports['sentinel']}/m"):
                    pass

    run(story())


def test_a_server_that_repeats_the_question_does_not_make_us_tell_the_password() -> None:
    async def story() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            data = await reader.read(65_536)
            line = b" ".join(data.split(b"\r\n"))
            writer.write(b"-ERR I do not understand " + line + b"\r\n" + b"+OK\r\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unavailable, match="do not understand") as caught:
            async with opened(f"redis://:s3cr3t@127.0.0.1:{port}"):
                pass
        assert "s3cr3t" not in str(caught.value)
        server.close()
        await server.wait_closed()
        await asyncio.sleep(0.01)

    run(story())


def test_a_server_without_hello_is_called_too_old() -> None:
    async def story() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(65_536)
            writer.write(
                b"-ERR unknown command `HELLO`, with args beginning with: `3`\r\n+PONG\r\n"
            )
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unavailable, match=r"Redis 6\.2 or newer"):
            async with opened(f"redis://127.0.0.1:{port}"):
                pass
        server.close()
        await server.wait_closed()
        await asyncio.sleep(0.01)

    run(story())


def test_a_host_that_cannot_be_one_is_unavailable_and_no_crash() -> None:
    async def story() -> None:
        with pytest.raises(Unavailable, match="cannot connect"):
            async with opened(f"redis://{'x' * 70}.invalid:6379"):
                pass

    run(story())
