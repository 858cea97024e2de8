"""Clients that are not ours, each on a real server on loopback; and bytes cut anywhere."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from typing import Any

import coredis
import hiredis
import pytest
import redis
import redis.asyncio
import valkey
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.doors.resp.kv.commands import KEY_VALUES
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.system import SystemClock
from sluicegate.wire.resp import command
from sluicegate.wire.row_stream import StreamRow, stream_of
from tests.doors.resp.kv.door import kv_door
from tests.doors.resp.talk import Talk, served
from tests.doors.resp.test_connection_commands import needs, reply


@pytest.fixture
def port() -> Iterator[int]:
    """A door that anybody may ask, and `secret` is ann's."""

    async def make() -> RespDoor:
        return kv_door(True, SystemClock())[1]

    with served(make) as number:
        yield number


@pytest.mark.parametrize("package", [redis, valkey])
def test_a_client_counts_and_makes_transactions(port: int, package: Any) -> None:
    kind = package.Redis if package is redis else package.Valkey
    with kind(port=port) as client:
        assert client.incr("t:n", 41) == 41
        assert client.getset("t:n", 1) == b"41"
        assert client.setnx("t:n", 2) is False
        with client.pipeline() as pipe:
            pipe.watch("t:p:a")
            assert pipe.get("t:p:a") is None
            pipe.multi()
            pipe.incr("t:p:a").incr("t:p:a").set("t:p:b", 1).mget("t:p:a", "t:p:b")
            assert pipe.execute() == [1, 2, True, [b"2", b"1"]]
        with client.pipeline() as pipe:
            pipe.watch("t:p:a")
            client.set("t:p:a", "of somebody else")
            pipe.multi()
            pipe.incr("t:p:a")
            with pytest.raises(package.WatchError):
                pipe.execute()
        with client.pipeline() as pipe, pytest.raises(package.ResponseError, match="one partition"):
            pipe.set("t:p:a", 1).set("t:q:a", 1).execute()
        assert client.delete("t:n", "t:p:a", "t:p:b") == 3


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("package", [redis, valkey])
def test_a_client_that_waits(port: int, package: Any, protocol: int) -> None:
    kind = package.Redis if package is redis else package.Valkey
    with kind(port=port, protocol=protocol, client_name="me") as client:
        assert client.set("t:a", "1", ex=100)
        assert client.get("t:a") == b"1"
        assert client.ttl("t:a") in (99, 100)
        assert client.set("t:a", "2", nx=True) is None
        assert client.set("t:a", "3", xx=True, get=True) == b"1"
        assert client.persist("t:a") == 0
        assert client.mset({"t:b": 2, "u:c": 3})
        assert client.mget("t:a", "t:b", "t:none", "u:c") == [b"3", b"2", None, b"3"]
        assert client.exists("t:a", "t:a", "t:none") == 2
        assert client.expire("t:b", 50) == 1
        assert client.type("t:a") == b"string"
        assert client.getex("t:a", px=5_000) == b"3"
        assert sorted(client.scan_iter("t:*", count=1)) == [b"t:a", b"t:b"]
        assert sorted(client.scan_iter("t:*", _type="string")) == [b"t:a", b"t:b"]
        assert client.getdel("t:a") == b"3"
        assert client.delete("t:b", "t:a") == 1
        assert client.unlink("u:c") == 1
        assert client.strlen("u:c") == 0
        with client.pipeline(transaction=False) as pipe:
            for number in range(200):
                pipe.set(f"t:{number % 7}", number)
                pipe.get(f"t:{number % 7}")
            assert pipe.execute()[1::2] == [b"%d" % number for number in range(200)]
        with pytest.raises(package.ResponseError, match="write it table:partition"):
            client.get("nonsense")
        reply = client.execute_command("SG.RANGE", "t:1")
        rows = reply[b"rows"] if protocol == 3 else reply[0]
        assert rows == [[b"", b"197", -1]]
        piece = stream_of([StreamRow(b"loaded", b"", b"yes")])
        digest = hashlib.sha256(piece)
        client.execute_command("SG.BULK", "BEGIN", "t", "up")
        client.execute_command("SG.BULK", "PART", "t", "up", 0, digest.hexdigest(), piece)
        whole = hashlib.sha256(digest.digest()).hexdigest()
        client.execute_command("SG.BULK", "COMMIT", "t", "up", 1, 1, whole)
        assert client.get("t:loaded") == b"yes"


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py_in_a_loop(port: int, protocol: int) -> None:
    async def story() -> None:
        client = redis.asyncio.Redis(port=port, protocol=protocol)
        await asyncio.gather(*(client.set(f"t:{number}", number) for number in range(50)))
        got = await client.mget([f"t:{number}" for number in range(50)])
        assert got == [b"%d" % number for number in range(50)]
        assert len([key async for key in client.scan_iter("t:*", count=7)]) == 50
        pipe: Any = client.pipeline(transaction=False)
        pipe.set("t:x", 1).get("t:x").delete("t:x").get("t:x")
        assert await pipe.execute() == [True, b"1", 1, None]
        await client.aclose()

    asyncio.run(story())


def test_coredis(port: int) -> None:
    async def story() -> None:
        client: Any = coredis.Redis(host="127.0.0.1", port=port)
        assert await client.set("t:a", "1")
        assert await client.get("t:a") == b"1"
        assert await client.mget(["t:a", "t:b"]) == (b"1", None)
        assert [key async for key in client.scan_iter("t:*")] == [b"t:a"]
        assert await client.delete(["t:a"]) == 1
        client.connection_pool.disconnect()

    asyncio.run(story())


def test_redis_cli(port: int) -> None:
    cli = (needs("redis-cli"), "-p", str(port))
    assert reply(*cli, "SET", "t:a:x", "1") == "OK\n"
    assert reply(*cli, "SET", "t:a:y", "2") == "OK\n"
    assert reply(*cli, "--scan", "--pattern", "t:*").split() == ["t:a:x", "t:a:y"]
    assert reply(*cli, "-3", "SG.RANGE", "t:a", "LIMIT", "1").split()[:4] == [
        "rows",
        "x",
        "1",
        "-1",
    ]
    assert reply(*cli, "-x", "SET", "t:a:z", stdin="from a file") == "OK\n"
    assert reply(*cli, "GET", "t:a:z") == "from a file\n"


def test_redis_benchmark_finds_all_that_it_asks_for(port: int) -> None:
    words = (needs("redis-benchmark"), "-p", str(port), "-c", "20", "-n", "1000", "-q", "-P", "4")
    output = reply(*words, "-r", "50", "SET", "t:__rand_int__", "x")
    assert "requests per second" in output
    assert "WARNING" not in output
    assert "requests per second" in reply(*words, "GET", "t:000000000001")


SENT = [
    *(command(name, "t:a", "t:b", 1) for name in KEY_VALUES.by_name if name != b"QUIT"),
    *(command(name.lower()) for name in KEY_VALUES.by_name if name != b"QUIT"),
    command("SET", "t:a", 1, "EX", 10),
    command("SET", "t:a:b", 1, "GET"),
    command("SCAN", 0, "MATCH", "t:*", "COUNT", 1),
    command("SG.RANGE", "t:a", "LIMIT", 1),
    command("SG.BULK", "BEGIN", "t", "a"),
    command("HELLO", 3),
    b'set t:a "a b"\r\n',
]


async def replies(data: bytes, cuts: list[int], late: bool) -> bytes:
    _, door = kv_door(late)
    talk = Talk(door)
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        if not talk.wire.is_closing():
            talk.protocol.data_received(data[start:end])
            await asyncio.sleep(0)
    await talk.settled()
    talk.lose()
    return talk.wire.output


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(SENT), max_size=15), st.booleans(), st.data())
def test_however_bytes_are_cut_the_replies_are_the_same(
    commands: list[bytes], late: bool, data: st.DataObject
) -> None:
    sent = b"".join(commands)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=6)))

    async def story() -> None:
        whole = await replies(sent, [], late)
        assert await replies(sent, cuts, late) == whole
        reader = hiredis.Reader(notEnoughData=...)
        reader.feed(whole)
        count = 0
        while reader.gets() is not ...:
            count += 1
        assert count == len(commands)

    asyncio.run(story())


words = st.one_of(
    st.sampled_from([*KEY_VALUES.by_name, b"MATCH", b"t:*", b"t:a", b"EX", b"GET", b"NX", b"0"]),
    st.sampled_from([b"TAG", b"LIMIT", b"REV", b"BEGIN", b"PART", b"1", b"-1", b"KEEPTTL"]),
    st.binary(max_size=12),
    st.integers(-(1 << 70), 1 << 70).map(lambda number: b"%d" % number),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(words, min_size=1, max_size=8), max_size=8), st.booleans())
def test_nonsense_is_answered_command_for_command_and_is_never_our_bug(
    commands: list[list[bytes]], late: bool
) -> None:
    commands = [parts for parts in commands if parts[0].upper() != b"QUIT"]

    async def story() -> None:
        _, door = kv_door(late)
        talk = Talk(door)
        reader = hiredis.Reader(notEnoughData=...)
        reader.feed(await talk.request(b"".join(command(*parts) for parts in commands)))
        for parts in commands:
            reply = reader.gets()
            assert reply is not ..., parts
            assert "the service failed to answer" not in str(reply), parts
        assert reader.gets() is ...
        talk.lose()

    asyncio.run(story())
