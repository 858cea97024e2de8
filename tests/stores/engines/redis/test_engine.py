"""One Redis, the one that pip brings, as an engine; and what its URL may say."""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import TYPE_CHECKING

import pytest

from sluicegate.contracts.engine import Change, KeyRange, Update
from sluicegate.contracts.errors import BadValue, OutcomeUnknown, Unavailable
from sluicegate.stores.engines.redis.engine import RedisEngine, Spread, open_redis
from sluicegate.stores.engines.redis.keys import bucket_of, keys_of
from sluicegate.stores.engines.redis.url import parse_url
from sluicegate.stores.redis.slots import slot_of
from sluicegate.testing.engines import SharedEngineSuite
from sluicegate.testing.engines.trial import walk_all
from tests.stores.redis.relay import Relay

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer


class TestRedis(SharedEngineSuite):
    @pytest.fixture(autouse=True)
    def _server(self, redis_server: RedisServer) -> None:
        self.url = redis_server.url

    def open_engine(self) -> RedisEngine:
        # Not how soon is asked: a machine may take seconds to have memory for the largest values.
        return open_redis(f"{self.url}?timeout_ms=10000")


def test_nothing_is_left_of_what_was_deleted_or_dropped(redis_server: RedisServer) -> None:
    async def story() -> None:
        engine = open_redis(redis_server.url)
        try:
            await engine.write([Change("t", b"p", b"a", b"v"), Change("t", b"q", b"a", b"v")])
            await engine.write([Change("t", b"p", b"a", None)])
            assert await engine.swap(Change("t", b"q", b"a", None), b"v")
            assert redis_server.ask("DBSIZE") == 0
            await engine.load("t", [(b"%d" % n, b"a", b"v") for n in range(700)])
            assert redis_server.ask("DBSIZE") > 1_400
            await engine.drop("t")
            assert redis_server.ask("DBSIZE") == 0
        finally:
            await engine.close()

    asyncio.run(story())


def test_a_partition_that_was_emptied_is_not_walked_to(redis_server: RedisServer) -> None:
    async def story() -> None:
        engine = open_redis(redis_server.url)
        try:
            await engine.write([Change("t", b"p", b"%d" % n, b"v") for n in range(2)])
            await engine.write([Change("t", b"p", b"0", None)])
            index = keys_of("sgkv", "t", b"p").parts.decode()
            assert redis_server.ask("ZCARD", index) == 1
            await engine.write([Change("t", b"p", b"1", None)])
            assert redis_server.ask("ZCARD", index) == 0
        finally:
            await engine.close()

    asyncio.run(story())


@pytest.mark.parametrize("rows_max", [10, 1_000])
def test_a_walk_tells_all_of_a_full_bucket_and_of_what_lies_behind_it(
    redis_server: RedisServer, rows_max: int
) -> None:
    async def story() -> None:
        engine = open_redis(redis_server.url)
        try:
            names = [b"%d" % number for number in range(40_000)]
            full = [name for name in names if bucket_of(name) == 7][:150]
            others = [name for name in names if bucket_of(name) in (3, 200)][:20]
            await engine.load("t", [(name, b"a", b"v") for name in full + others])
            partitions = [partition for partition, _, _ in await walk_all(engine, "t", rows_max)]
            assert sorted(partitions) == sorted(full + others)
        finally:
            await engine.close()

    asyncio.run(story())


def test_a_walk_that_tells_few_bytes_at_once_leaves_nothing_out(redis_server: RedisServer) -> None:
    async def story() -> None:
        engine = open_redis(f"{redis_server.url}?walk_bytes_max=300")
        try:
            rows = [(b"%d" % (n % 10), b"%03d" % n, b"v" * 40) for n in range(100)]
            await engine.load("t", rows)
            assert sorted(await walk_all(engine, "t", 1_000)) == sorted(rows)
            assert len(await engine.walk("t", None, 1_000)) < 20
        finally:
            await engine.close()

    asyncio.run(story())


def test_a_write_that_too_few_replicas_have_is_not_acknowledged(redis_server: RedisServer) -> None:
    async def story() -> None:
        engine = open_redis(f"{redis_server.url}?wait=1&wait_ms=10")
        try:
            with pytest.raises(Unavailable, match="0 of 1 replicas"):
                await engine.write([Change("t", b"p", b"", b"v")])
            with pytest.raises(Unavailable, match="0 of 1 replicas"):
                await engine.swap(Change("t", b"p", b"", b"w"), b"v")
        finally:
            await engine.close()

    asyncio.run(story())


def test_what_else_is_under_a_key_makes_the_engine_unavailable(redis_server: RedisServer) -> None:
    async def story() -> None:
        engine = open_redis(redis_server.url)
        try:
            redis_server.ask("SET", keys_of("sgkv", "t", b"p").values.decode(), "no hash")
            with pytest.raises(Unavailable, match="WRONGTYPE"):
                await engine.read("t", [(b"p", b"")])
        finally:
            await engine.close()

    asyncio.run(story())


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_takes_out_keys_whose_values_are_gone(
    redis_server: RedisServer, reverse: bool
) -> None:
    async def story() -> None:
        engine = open_redis(redis_server.url)
        keys = keys_of("sgkv", "t", b"p")
        try:
            await engine.write([Change("t", b"p", b"%d" % n, b"v") for n in range(6)])
            redis_server.ask("HDEL", keys.values.decode(), "0", "3", "5")
            page = await engine.scan("t", b"p", KeyRange(reverse=reverse, rows_max=3))
            left = [b"4", b"2", b"1"] if reverse else [b"1", b"2", b"4"]
            assert [sort for sort, _ in page.rows] == left
            assert not page.more, "behind the last lay only what is gone"
            assert redis_server.ask("ZCARD", keys.sorts.decode()) == 3
        finally:
            await engine.close()

    asyncio.run(story())


def test_a_server_that_evicts_is_refused_until_it_does_not(redis_server: RedisServer) -> None:
    async def story() -> None:
        engine = open_redis(redis_server.url)
        try:
            redis_server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
            for ask in (
                engine.write([Change("t", b"p", b"", b"v")]),
                engine.swap(Change("t", b"p", b"", b"v"), None),
                engine.read("t", [(b"p", b"")]),
                engine.walk("t", None, 9),
                engine.drop("t"),
                engine.scan("t", b"p", KeyRange()),
            ):
                with pytest.raises(Unavailable, match="maxmemory-policy is allkeys-lru"):
                    await ask
            assert redis_server.ask("DBSIZE") == 0
            redis_server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
            await engine.write([Change("t", b"p", b"", b"v")])
            redis_server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
            await engine.write([Change("t", b"p", b"", b"w")])  # it is asked once
        finally:
            redis_server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
            await engine.close()

    asyncio.run(story())


def test_where_config_is_forbidden_a_warning_names_the_setting(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        redis_server.ask("ACL", "SETUSER", "ann", "on", ">secret", "~*", "&*", "+@all", "-config")
        engine = open_redis(redis_server.url.replace("redis://", "redis://ann:secret@"))
        try:
            for number in range(3):
                await engine.write([Change("t", b"p%d" % number, b"", b"v")])
        finally:
            await engine.close()
            redis_server.ask("ACL", "DELUSER", "ann")

    with caplog.at_level(logging.WARNING, "sluicegate.kv"):
        asyncio.run(story())
    assert ["maxmemory-policy" in one.getMessage() for one in caplog.records] == [True]


@pytest.mark.parametrize("partition", [b"p", b"}", b"{}", b"a}b{c", b"\0\xff", b":" * 240])
def test_the_keys_of_a_partition_share_a_slot_whatever_its_bytes(partition: bytes) -> None:
    keys = keys_of("sgkv", "t.1", partition)
    assert len({slot_of(key) for key in keys}) == 1
    assert len(set(keys)) == 3
    bucket = bucket_of(partition)
    assert slot_of(b"{t.1/%02x}" % bucket) == slot_of(keys.sorts)


def test_a_url_says_the_servers_and_the_engine_in_one() -> None:
    settings = parse_url("redis+cluster://me:secret@a:1,b:2?wait=2&timeout_ms=400&prefix=x")
    assert [str(one) for one in settings.redis.endpoints] == ["a:1", "b:2"]
    assert (settings.wait, settings.wait_us, settings.prefix) == (2, 100_000, "x")
    assert settings.redis.timeout_us == 400_000
    assert settings.redis.reply_bytes_max > 100 << 20
    assert "secret" not in repr(settings)
    assert parse_url("redis://h").redis.timeout_us == 1_000_000


@pytest.mark.parametrize(
    ("url", "field"),
    [
        ("redis://h?wait=-1", "redis.wait"),
        ("redis://h?wait=1&wait_ms=2000", "redis.wait_ms"),
        ("redis://h?wait=much", "engine?wait"),
        ("redis://h?nonsense=1", "redis.url"),
        ("redis://h?prefix=%7B", "redis.prefix"),
        ("redis://h?wait", "engine"),
    ],
)
def test_a_url_that_cannot_be_meant_names_what_is_wrong(url: str, field: str) -> None:
    with pytest.raises(BadValue) as caught:
        parse_url(url)
    assert caught.value.field == field


def test_draws_without_chance_are_spread_evenly() -> None:
    spread = Spread(-7)
    draws = sorted(spread.draw() for _ in range(100))
    assert draws[0] >= 0.0
    assert draws[-1] < 1.0
    assert max(b - a for a, b in itertools.pairwise(draws)) < 0.03


def test_write_without_answer_is_unknown_and_read_is_not(redis_server: RedisServer) -> None:
    async def story(relay: Relay) -> None:
        engine = open_redis(f"{relay.url}?timeout_ms=100&silence_ms_max=600000")
        later = open_redis(redis_server.url)
        try:
            await engine.write([Change("lost", b"p", b"a", b"1")])
            assert await engine.swap(Change("lost", b"q", b"a", b"0"), None)
            relay.answers.clear()
            with pytest.raises(OutcomeUnknown):
                await engine.write([Change("lost", b"p", b"a", b"2")])
            with pytest.raises(OutcomeUnknown):
                await engine.swap(Change("lost", b"q", b"a", b"1"), b"0")
            with pytest.raises(Unavailable) as found:
                await engine.read("lost", [(b"p", b"a")])
            assert not isinstance(found.value, OutcomeUnknown)
            with pytest.raises(Unavailable) as found:
                await engine.update(Update("lost", b"p", [b"a"], lambda _: []))
            assert not isinstance(found.value, OutcomeUnknown)  # it was still reading
            assert await later.read("lost", [(b"p", b"a"), (b"q", b"a")]) == [b"2", b"1"]
        finally:
            relay.answers.set()
            await engine.close()
            await later.close()

    with Relay(redis_server.port) as relay:
        asyncio.run(story(relay))


def test_write_of_unreachable_redis_is_refused() -> None:
    async def story() -> None:
        engine = open_redis("redis://127.0.0.1:1")
        try:
            with pytest.raises(Unavailable) as found:
                await engine.write([Change("t", b"p", b"a", b"1")])
            assert not isinstance(found.value, OutcomeUnknown)
        finally:
            await engine.close()

    asyncio.run(story())
