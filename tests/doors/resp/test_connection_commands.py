"""Clients that are not ours: each speaks to a real server on loopback as it always does."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio

from sluicegate.contracts.access import EVERY_GRANT, Identity
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.stores.redis.throttle import RedisThrottle
from sluicegate.testing import SeededChance
from tests.doors.resp.service import RULE, Service, Tokens
from tests.doors.resp.talk import listening, served
from tests.redis.members import ASK_ONCE

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

ROOT = Path(__file__).resolve().parents[3]
ANN = Identity("ann", EVERY_GRANT)


def needs(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not on this machine")
    return found


@pytest.fixture
def port() -> Iterator[int]:
    """A door that anybody may ask, and `secret` is ann's."""

    async def make() -> RespDoor:
        return RespDoor(Service(), Tokens({"secret": ANN}))

    with served(make) as number:
        yield number


def reply(*words: str, stdin: str | None = None) -> str:
    """What a program says."""
    ran = subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=60, check=True)
    return ran.stdout


def test_redis_cli(port: int) -> None:
    cli = (needs("redis-cli"), "-p", str(port))
    assert reply(*cli, "PING") == "PONG\n"
    assert reply(*cli, "CL.THROTTLE", "ann", "15", "30", "60").split() == [
        "0",
        "16",
        "15",
        "-1",
        "2",
    ]
    assert reply(*cli, "-3", "SG.CHECK", "ann", "/a").split("\n")[5] == RULE
    assert reply(*cli, "-a", "secret", "--no-auth-warning", "CLIENT", "INFO").count("user=ann") == 1
    assert reply(*cli, "AUTH", "wrong").startswith("WRONGPASS")
    typed = reply(*cli, stdin="PING\nECHO 'a b'\nnonsense\nHG.PEEK ann /a\n").split("\n")
    assert typed[:2] == ["PONG", "a b"]
    assert typed[2].startswith("ERR unknown command 'nonsense'")


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py(port: int, protocol: int) -> None:
    with redis.Redis(port=port, protocol=protocol, password="secret", client_name="me") as client:
        assert client.ping()
        assert client.client_getname() in ("me", b"me")
        assert client.execute_command("CL.THROTTLE", "k", 1, 1, 60) == [0, 2, 1, -1, 60]
        reply = client.execute_command("SG.CHECK", "ann", "/a")
        assert reply[:2] == [1, 4]
        assert reply[5] == RULE.encode()
        with client.pipeline(transaction=False) as pipe:
            for _ in range(100):
                pipe.execute_command("CL.THROTTLE", "p", 49, 1, 60)
                pipe.execute_command("SG.PEEK", "ann", "/a")
            replies = pipe.execute()
        assert [one[0] for one in replies[::2]] == [0] * 50 + [1] * 50
        assert replies[1::2] == [replies[1]] * 100
        with pytest.raises(redis.ResponseError, match="Zero rates"):
            client.execute_command("CL.THROTTLE", "k", 1, 0, 60)
        assert client.info("server")["redis_mode"] == "standalone"
        assert client.client_info()["lib-name"] == "redis-py"
    with (
        pytest.raises(redis.AuthenticationError),
        redis.Redis(port=port, protocol=protocol, password="wrong", retry=ASK_ONCE) as wrong,
    ):
        wrong.ping()


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py_in_a_loop(protocol: int) -> None:
    async def story() -> None:
        door = RespDoor(Service(), Tokens())
        async with listening(door) as port:
            client = redis.asyncio.Redis(port=port, protocol=protocol)
            request: Any = client.execute_command
            replies = await asyncio.gather(
                *(request("CL.THROTTLE", "k", 9, 1, 60) for _ in range(40))
            )
            assert sorted(one[0] for one in replies) == [0] * 10 + [1] * 30
            await client.aclose()
        assert door.commands >= 40

    asyncio.run(story())


def test_redis_benchmark_is_answered_as_often_as_it_asks(port: int) -> None:
    benchmark = needs("redis-benchmark")
    for pipeline in ("1", "16"):
        words = ("-p", str(port), "-c", "20", "-n", "2000", "-P", pipeline, "-q")
        output = reply(benchmark, *words, "CL.THROTTLE", "bench", "1000000", "1", "3600")
        assert "requests per second" in output
    left = reply(
        needs("redis-cli"), "-p", str(port), "CL.THROTTLE", "bench", "1000000", "1", "3600", "0"
    )
    assert left.split()[:3] == ["0", "1000001", str(1_000_001 - 4_000)]


def test_a_line_typed_by_hand_and_a_half_closed_socket(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as typed:
        typed.sendall(b"ping\r\nsg.check ann /a\r\n")
        typed.shutdown(socket.SHUT_WR)
        got = b""
        while data := typed.recv(4_096):
            got += data
    assert got.startswith(b"+PONG\r\n*9\r\n:1\r\n:4\r\n")


def test_many_clients_at_once_each_get_their_own_answers(port: int) -> None:
    async def one(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for round_ in range(20):
            word = f"{number}:{round_}".encode()
            writer.write(b"*2\r\n$4\r\nECHO\r\n$%d\r\n%b\r\n" % (len(word), word))
            writer.write(b"SG.PEEK %b /a\r\n" % word)
            assert await reader.readuntil(b"\r\n") == b"$%d\r\n" % len(word)
            assert await reader.readuntil(b"\r\n") == word + b"\r\n"
            assert await reader.readuntil(b"\r\n") == b"*9\r\n"
            for _ in range(12):
                await reader.readuntil(b"\r\n")
        writer.close()
        await writer.wait_closed()

    async def story() -> None:
        await asyncio.gather(*map(one, range(50)))

    asyncio.run(story())


def test_a_client_that_reads_nothing_costs_no_more_than_it_may(port: int) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        service = Service()
        door = RespDoor(service, Tokens())
        async with listening(door) as own:
            with socket.socket() as deaf:
                deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                deaf.connect(("127.0.0.1", own))
                deaf.setblocking(False)
                request = b"COMMAND DOCS\r\n" * 1_000
                sent = 0
                for _ in range(2_000):
                    try:
                        sent += deaf.send(request)
                    except BlockingIOError:
                        await asyncio.sleep(0)
                # It has answered some, and then stopped to read.
                assert 0 < door.commands < sent / 14 / 2
                ran = door.commands
                for _ in range(50):
                    await asyncio.sleep(0)
                assert door.commands == ran
                with redis.Redis(port=port) as other:
                    assert await loop.run_in_executor(None, other.ping)
        await asyncio.sleep(0.01)

    asyncio.run(story())


def test_counts_in_redis_are_shared_by_doors(redis_server: RedisServer) -> None:
    async def story() -> None:
        fars = [RedisThrottle(redis_server.patient_url, SeededChance(n)) for n in range(2)]
        doors = [RespDoor(Service(far), Tokens()) for far in fars]
        for far in fars:
            await far.connect()
        async with listening(doors[0]) as first, listening(doors[1]) as second:
            clients = [redis.asyncio.Redis(port=port) for port in (first, second)]
            requests: list[Any] = []
            for client in clients:
                pipe = client.pipeline(transaction=False)
                for _ in range(100):
                    pipe.execute_command("CL.THROTTLE", "state", 99, 1, 3_600)
                    pipe.execute_command("PING")
                requests.append(pipe.execute())
            replies = [one for batch in await asyncio.gather(*requests) for one in batch]
            assert sum(one[0] == 0 for one in replies[::2]) == 100
            assert replies[1::2] == [True] * 200 or set(replies[1::2]) <= {b"PONG", True}
            for client in clients:
                await client.aclose()
        for far in fars:
            await far.close()
        async with listening(doors[0]) as port:
            redis_client = redis.asyncio.Redis(port=port)
            request: Any = redis_client.execute_command
            with pytest.raises(redis.RedisError, match="unavailable"):
                await request("CL.THROTTLE", "k", 1, 1, 1)
            await redis_client.aclose()

    asyncio.run(story())


IOREDIS = """
const Redis = require("ioredis");
const [port, password] = process.argv.slice(2);
(async () => {
  const told = {};
  const client = new Redis({
    port: Number(port), password, connectionName: "node", lazyConnect: true,
  });
  await client.connect();
  told.ping = await client.ping();
  told.encode_throttle = await client.call("CL.THROTTLE", "node", 1, 1, 60);
  told.encode_check = await client.call("SG.CHECK", "ann", "/a", "WEIGHT", 2);
  const pipe = client.pipeline();
  for (let n = 0; n < 30; n++) pipe.call("CL.THROTTLE", "pipe", 9, 1, 60);
  told.limited = (await pipe.exec()).map(([error, reply]) => reply[0]);
  told.error = await client.call("CL.THROTTLE", "node", 1, 0, 60).catch((error) => error.message);
  told.info = (await client.client("INFO")).includes("name=node");
  await client.quit();
  console.log(JSON.stringify(told));
})();
"""


@pytest.mark.engine
def test_ioredis(port: int) -> None:
    node, npm = needs("node"), needs("npm")
    folder = ROOT / "build" / "ioredis"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "node_modules" / "ioredis").exists():
        (folder / "package.json").write_text('{"private": true}')
        subprocess.run(
            (npm, "install", "--no-audit", "--no-fund", "ioredis@5"),
            cwd=folder, check=True, capture_output=True, timeout=300,
        )  # fmt: skip
    script = folder / "request.js"
    script.write_text(IOREDIS)
    output = json.loads(reply(node, str(script), str(port), "secret"))
    assert output == {
        "ping": "PONG",
        "encode_throttle": [0, 2, 1, -1, 60],
        "encode_check": [1, 3, 0, 24_000, 5, RULE, "", "", 0],
        "limited": [0] * 10 + [1] * 20,
        "error": "Cell error: Store error: Zero rates are not supported",
        "info": True,
    }


def test_a_stranger_is_shown_the_door() -> None:
    async def make() -> RespDoor:
        access = Tokens({"secret": ANN}, everybody=False)
        return RespDoor(Service(), access, RespSettings(auth_failures_max=2))

    with served(make) as port:
        with (
            pytest.raises(redis.AuthenticationError, match="Authentication required"),
            redis.Redis(port=port, protocol=2, retry=ASK_ONCE) as stranger,
        ):
            stranger.ping()
        with redis.Redis(port=port, username="ann", password="secret") as client:
            assert client.ping()
