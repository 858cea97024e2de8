"""One real server: everything a client must survive there, with tasks counted at the end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

import pytest

from sluicegate.contracts.errors import Unavailable
from sluicegate.stores.redis.client import open_client
from sluicegate.stores.redis.node import RedisNode
from sluicegate.stores.redis.script import Script
from sluicegate.stores.redis.settings import parse_url
from sluicegate.testing import SeededChance
from sluicegate.wire.resp import ErrorReply
from tests.stores.redis.live import (
    ADD,
    ECHO,
    LOOPS,
    PATIENCE_S,
    PATIENT_US,
    Load,
    opened,
    run,
    within,
)

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

SHORT_US = 50_000


both_loops = pytest.mark.parametrize("loop", LOOPS)


async def failure(answer: Any) -> Exception:
    try:
        result = await answer
    except (Unavailable, ErrorReply) as error:
        return error
    raise AssertionError(f"it was answered: {result!r}")


@both_loops
def test_ten_thousand_calls_at_once_are_answered_in_their_order(
    redis_server: RedisServer, loop: str
) -> None:
    async def story() -> None:
        async with opened(redis_server.url) as client:
            calls = [client.run_script(ECHO, ["key"], [n]) for n in range(5_000)]
            calls += [client.run_script(ADD, ["count"], [1]) for _ in range(5_000)]
            results = await asyncio.gather(*calls)
            assert results == [b"%d" % n for n in range(5_000)] + [*range(1, 5_001)]

    run(story(), loop)


def test_replies_are_those_that_the_kept_client_gets(redis_server: RedisServer) -> None:
    commands: list[tuple[str | int, ...]] = [
        ("SET", "a", "1"),
        ("GET", "a"),
        ("GET", "none"),
        ("HSET", "h", "f", 1, "g", 2),
        ("HMGET", "h", "f", "none", "g"),
        ("ZADD", "z", 1, "one", 2, "two"),
        ("ZRANGE", "z", 0, -1),
        ("EVAL", "return {1, 'x', false, {2, redis.status_reply('OK')}}", 0),
        ("SMEMBERS", "none"),
        ("EXISTS", "a", "z"),
    ]

    async def story() -> list[Any]:
        async with opened(redis_server.url) as client:
            return [await client.call(*command) for command in commands]

    ours = run(story())
    redis_server.ask("FLUSHALL")
    with redis_server.client(decode_responses=False, protocol=3) as peer:
        peer.response_callbacks.clear()
        execute = cast("Callable[..., Any]", peer.execute_command)
        assert ours == [execute(*command) for command in commands]


def test_scripts_come_back_after_a_flush_amid_the_load(redis_server: RedisServer) -> None:
    async def story() -> None:
        async with opened(redis_server.url) as client:
            load = Load(client, ["count"])
            async with load.pressing(tasks_a_key=64):
                for _ in range(20):
                    await asyncio.sleep(0.02)
                    await client.call("SCRIPT", "FLUSH")
            assert load.failed["count"] == []
            count = len(load.done["count"])
            assert int(await client.call("GET", "count")) == count  # each ran exactly once
            assert count > 1_000

    run(story())


def test_a_script_that_does_not_compile_says_so_and_harms_no_other(
    redis_server: RedisServer,
) -> None:
    async def story() -> None:
        async with opened(redis_server.url) as client:
            broken = Script("return {{{")
            results = await asyncio.gather(
                *(failure(client.run_script(broken, ["key"])) for _ in range(10)),
                client.run_script(ECHO, ["key"], ["well"]),
            )
            assert results[-1] == b"well"
            assert all("compiling" in str(error) for error in results[:-1]), results
            wrong = await failure(client.run_script(Script("return redis.call('GET')"), ["key"]))
            assert isinstance(wrong, ErrorReply)
            assert client.state == "closed" if isinstance(client, RedisNode) else False

    run(story())


@both_loops
def test_a_killed_server_fails_its_callers_promptly_and_is_used_again_when_it_returns(
    redis_server: RedisServer, loop: str
) -> None:
    async def story() -> None:
        timeout_us = 10_000_000
        async with opened(redis_server.url, timeout_us=timeout_us) as client:
            load = Load(client, ["count"])
            async with load.pressing(tasks_a_key=64):
                await load.reach(500, ["count"])
                await asyncio.to_thread(redis_server.kill)
                await within(PATIENCE_S, lambda: len(load.failed["count"]) > 1_000, "failures")
                await asyncio.to_thread(redis_server.restart)
                await load.reach(1, ["count"])
            # All that wait are told when it ends, and none waits for its time-out.
            assert max(spent for _, spent, _ in load.failed["count"]) < timeout_us / 2e6

    run(story(), loop)


@both_loops
def test_a_paused_server_costs_its_time_out_until_the_breaker_opens_and_then_nothing(
    redis_server: RedisServer, loop: str
) -> None:
    async def story() -> None:
        async with opened(redis_server.url, timeout_us=SHORT_US) as client:
            assert isinstance(client, RedisNode)
            load = Load(client, ["count"])
            async with load.pressing(tasks_a_key=32):
                await load.reach(500, ["count"])
                redis_server.pause()
                await within(PATIENCE_S, lambda: client.state == "open", "the breaker")
                await asyncio.sleep(1.5)  # beyond the silence that ends the connection
                redis_server.resume()
                await load.reach(1, ["count"])
                await within(PATIENCE_S, lambda: client.state == "closed", "the breaker")
            failed = load.failed["count"]
            waited = [spent for _, spent, reason in failed if reason == "no answer in 50 ms"]
            assert waited
            assert min(waited) >= SHORT_US / 1e6 * 0.99
            at_once = [reason for _, _, reason in failed if "calls are held back" in reason]
            assert len(at_once) > 10 * len(waited)

    run(story(), loop)


@both_loops
def test_cancelled_callers_never_shift_the_answers_of_others(
    redis_server: RedisServer, loop: str
) -> None:
    async def one(client: Any, number: int) -> None:
        reply = await client.run_script(ECHO, ["key"], [number])
        assert reply == b"%d" % number

    async def story() -> None:
        async with opened(redis_server.url) as client:
            for turn in range(20):
                tasks = [asyncio.create_task(one(client, n)) for n in range(200)]
                await asyncio.sleep(0)
                for number in range(turn % 7, 200, 7):
                    tasks[number].cancel()
                results = await asyncio.gather(*tasks, return_exceptions=True)
                kinds = {type(error) for error in results if error is not None}
                assert kinds <= {asyncio.CancelledError}, results

    run(story(), loop)


def test_more_than_inflight_max_fail_at_once_and_the_others_are_answered(
    redis_server: RedisServer,
) -> None:
    async def story() -> None:
        async with opened(redis_server.url, inflight_max=100) as client:
            calls = [client.run_script(ADD, ["count"], [1]) for _ in range(150)]
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert results[:100] == [*range(1, 101)]
            assert all("inflight_max" in str(error) for error in results[100:])
            assert await client.run_script(ADD, ["count"], [1]) == 101

    run(story())


def test_a_password_opens_and_a_wrong_one_is_named_but_not_told(redis_server: RedisServer) -> None:
    password = "p/a:s@s#?"
    redis_server.ask("ACL", "SETUSER", "ann", "on", f">{password}", "~*", "+@all")
    ann = redis_server.url.replace("://", f"://ann:{quote(password, safe='')}@")
    wrong = redis_server.url.replace("://", "://ann:s3cr3t@")

    async def story() -> None:
        async with opened(ann) as client:
            assert await client.call("ACL", "WHOAMI") == b"ann"
        with pytest.raises(Unavailable, match="correct the URL's") as caught:
            async with opened(wrong):
                pass
        assert "s3cr3t" not in str(caught.value)

    run(story())


def test_a_missing_password_and_a_missing_right_say_what_to_do(redis_server: RedisServer) -> None:
    redis_server.ask("ACL", "SETUSER", "bob", "on", ">secret", "~*", "+@all", "-evalsha")
    redis_server.ask("ACL", "SETUSER", "default", "resetpass", ">other")

    async def story() -> None:
        with pytest.raises(Unavailable, match="put one in the URL"):
            async with opened(redis_server.url):
                pass
        bob = redis_server.url.replace("://", "://bob:secret@")
        async with opened(bob) as client:
            error = await failure(client.run_script(ECHO, ["key"], [1]))
            assert "widen its ACL rule" in str(error)

    try:
        run(story())
    finally:
        with redis_server.client(username="bob", password="secret") as bob:
            bob.execute_command("ACL", "SETUSER", "default", "nopass")


def test_database_name_protocol_and_delay_are_as_the_settings_say(
    redis_server: RedisServer,
) -> None:
    async def story() -> None:
        url = redis_server.url.removesuffix("/0") + "/3?client_name=gate-7"
        async with opened(url) as client:
            info = (await client.call("CLIENT", "INFO")).decode()
            assert " db=3 " in info
            assert " name=gate-7 " in info
            assert (await client.call("HELLO"))[b"proto"] == 3
            assert isinstance(client, RedisNode)
            assert client._connection is not None
            sock = cast("Any", client._connection)._transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    run(story())


@pytest.mark.parametrize("scheme", ["unix", "redis+unix", "valkey+unix"])
def test_a_unix_socket_does_as_well(redis_server: RedisServer, scheme: str) -> None:
    async def story() -> None:
        async with opened(f"{scheme}://{redis_server.socket}?db=1") as client:
            assert await client.run_script(ADD, ["count"], [2]) == 2

    run(story())


def test_a_replica_a_full_server_and_a_busy_one_are_unavailable_with_their_reason(
    redis_server: RedisServer,
) -> None:
    async def story() -> None:
        async with opened(redis_server.url, timeout_us=1_000_000) as client:
            await client.run_script(ADD, ["count"], [1])
            await client.call("CONFIG", "SET", "maxmemory", "1")
            assert "raise maxmemory" in str(await failure(client.run_script(ADD, ["count"], [1])))
            await client.call("CONFIG", "SET", "maxmemory", "0")
            await client.call("REPLICAOF", "127.0.0.1", "1")
            assert "a replica" in str(await failure(client.run_script(ADD, ["count"], [1])))
            await client.call("REPLICAOF", "NO", "ONE")
            await client.call("CONFIG", "SET", "lua-time-limit", "1")
            endless = client.run_script(Script("while true do end"), ["key"])
            await asyncio.sleep(0.1)
            async with opened_when_busy(redis_server) as other:
                assert "SCRIPT KILL" in str(await failure(other.call("GET", "key")))
                await other.call("SCRIPT", "KILL")
            assert isinstance(await failure(endless), ErrorReply)
            assert await client.run_script(ADD, ["count"], [1]) == 2

    run(story())


class opened_when_busy:  # noqa: N801 - it reads as the function it stands for
    """A busy server answers PING with BUSY, so a node would not call itself connected."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server

    async def __aenter__(self) -> Any:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        return self

    def call(self, *parts: str) -> Any:
        return self._ask(" ".join(parts))

    async def _ask(self, line: str) -> bytes:
        self.writer.write(f"{line}\r\n".encode())
        reply = await self.reader.readline()
        if reply.startswith(b"-"):
            raise Unavailable("Redis", reply.decode() + "end that with SCRIPT KILL")
        return reply

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        await self.writer.wait_closed()


def test_a_server_that_stays_a_replica_opens_the_breaker(redis_server: RedisServer) -> None:
    async def story() -> None:
        async with opened(redis_server.url) as client:
            assert isinstance(client, RedisNode)
            await client.call("REPLICAOF", "127.0.0.1", "1")
            for _ in range(10):
                await failure(client.run_script(ADD, ["count"], [1]))
            assert client.state == "open"
            assert "a replica" in str(await failure(client.run_script(ADD, ["count"], [1])))
            redis_server.ask("REPLICAOF", "NO", "ONE")
            load = Load(client, ["count"])
            async with load.pressing(tasks_a_key=4):
                await within(PATIENCE_S, lambda: client.state == "closed", "recovery")

    run(story())


def test_calls_before_the_first_connection_wait_for_it(redis_server: RedisServer) -> None:
    async def story() -> None:
        client = open_client(parse_url(redis_server.url), SeededChance(1))
        calls = [client.run_script(ADD, ["count"], [1]) for _ in range(10)]
        assert await asyncio.gather(*calls) == [*range(1, 11)]
        await client.close()

    run(story())


def test_a_server_that_is_not_there_is_told_by_the_first_call_and_then_at_once(
    redis_server: RedisServer,
) -> None:
    async def story() -> None:
        client = open_client("redis://127.0.0.1:1?connect_timeout_ms=500", SeededChance(1))
        error = await failure(client.call("PING"))
        assert "cannot connect" in str(error)
        again = client.call("PING")
        assert again.done()
        assert "cannot connect" in str(await failure(again))
        with pytest.raises(Unavailable, match="cannot connect"):
            await client.connect()
        await client.close()
        assert "is closed" in str(await failure(client.call("PING")))
        with pytest.raises(Unavailable, match="is closed"):
            await client.connect()

    run(story())


def test_a_listener_that_is_no_redis_is_called_so() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async def story() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unavailable, match="is this the port of a Redis"):
            async with opened(f"redis://127.0.0.1:{port}"):
                pass
        server.close()
        await server.wait_closed()

    run(story())


@both_loops
def test_a_listener_that_says_nothing_is_given_up(loop: str) -> None:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def story() -> None:
        server = await asyncio.start_server(hold, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unavailable, match="not connected in 100 ms"):
            async with opened(f"redis://127.0.0.1:{port}", connect_timeout_us=100_000):
                pass
        server.close()
        await server.wait_closed()

    run(story(), loop)


@both_loops
def test_closing_fails_who_waits_and_leaves_nothing(redis_server: RedisServer, loop: str) -> None:
    async def story() -> None:
        client = open_client(f"{redis_server.url}?timeout_ms={PATIENT_US // 1_000}", SeededChance())
        await client.connect()
        redis_server.pause()
        calls = [client.call("PING") for _ in range(3)]
        await asyncio.sleep(0)
        await client.close()
        for one in calls:
            assert "the client is closed" in str(await failure(one))
        await client.close()

    run(story(), loop)


@both_loops
def test_tls_is_spoken_and_a_stranger_is_not_believed(redis_tls: RedisServer, loop: str) -> None:
    async def story() -> None:
        async with opened(redis_tls.url) as client:
            calls = [client.run_script(ECHO, ["key"], [n]) for n in range(1_000)]
            assert await asyncio.gather(*calls) == [b"%d" % n for n in range(1_000)]
        with pytest.raises(Unavailable, match="TLS failed"):
            async with opened(redis_tls.url.partition("?")[0]):
                pass

    run(story(), loop)
