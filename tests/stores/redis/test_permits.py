"""Permits in Redis, beside those in memory, on real servers and between real processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.stores.memory.permits import MemoryPermits
from sluicegate.stores.redis.permits import DEBTS_TOLD_MAX, RedisPermits
from sluicegate.stores.redis.settings import parse_url
from sluicegate.stores.redis.slots import slot_of
from sluicegate.testing import START_US, HandClock, SeededChance
from tests.stores.redis.live import PATIENT_US, run

if TYPE_CHECKING:
    from tests.engines.redis import RedisCluster, RedisServer

ROOT = Path(__file__).resolve().parents[3]
SECOND = 1_000_000
MINUTE = 60 * SECOND
HELD_US = 4_000_000  # by a process that is killed; it renews 200 times in that time


@asynccontextmanager
async def holding(
    url: str,
    limit: int = 5,
    expires_after_us: int = MINUTE,
    *,
    timeout_us: int = PATIENT_US,
    **options: Any,
) -> AsyncIterator[RedisPermits]:
    """A connected store."""
    settings = replace(parse_url(url), timeout_us=timeout_us)
    store = RedisPermits(settings, SeededChance(1), "exports", limit, expires_after_us, **options)
    try:
        await store.connect()
        yield store
    finally:
        await store.close()


def members(server: RedisServer, key: str = "rate_limit:{ann}:exports:permits") -> list[str]:
    return [str(member) for member in server.ask("ZRANGE", key, 0, -1)]


def test_a_long_story_is_told_as_memory_tells_it(redis_server: RedisServer) -> None:
    async def story() -> None:
        chance, clock = SeededChance(7), HandClock()
        async with holding(redis_server.url, expires_after_us=20) as store:
            memory = MemoryPermits(clock.now_us, "exports", 5, 20)
            outcomes = set()
            for number in range(600):
                clock.advance(us=int(chance.draw() * 6))
                store.now = clock.now_us()
                key, count = "ab"[int(chance.draw() * 2)], 1 + int(chance.draw() ** 3 * 6)
                which = f"p{number - int(chance.draw() * 12)}"
                step = ["acquire", "acquire", "look", "renew", "release"][int(chance.draw() * 5)]
                answers: list[object] = []
                for place in (store, memory):
                    if step == "acquire":
                        answers.append(await place.acquire(key, f"p{number}", count))
                    elif step == "look":
                        answers.append(await place.look(key, count))
                    else:
                        # What is there has one count; what is not has none that matters.
                        answers.append(await getattr(place, step)(key, which, counts.get(which, 1)))
                if step == "acquire":
                    counts[f"p{number}"] = count
                assert answers[0] == answers[1], (number, step, key, count, which)
                outcomes.add((step, bool(answers[0])))
            assert len(outcomes) == 8  # each of them with both answers

    counts: dict[str, int] = {}
    run(story())


def test_what_lies_in_the_server_can_be_read_by_a_person_and_goes_in_its_time(
    redis_server: RedisServer,
) -> None:
    async def story() -> None:
        async with holding(redis_server.url, prefix="api") as store:
            await store.acquire("a}b%", "one", 3)
            key = "api:{a%7Db%25}:exports:permits"
            assert redis_server.ask("KEYS", "*") == [key]
            assert members(redis_server, key) == ["one", "one/2", "one/3"]
            seconds, micros = redis_server.ask("TIME")
            left_us = int(redis_server.ask("ZSCORE", key, "one/3")) - seconds * SECOND - micros
            assert 50 * SECOND < left_us <= MINUTE
            assert 50_000 < redis_server.ask("PTTL", key) <= 61_000
            assert await store.release("a}b%", "one", 3)
            assert redis_server.ask("KEYS", "*") == []

    run(story())


def test_a_look_writes_nothing(redis_server: RedisServer) -> None:
    async def story() -> None:
        async with holding(redis_server.url, limit=1) as store:
            assert (await store.look("ann", 1)).remaining == 1
            assert redis_server.ask("KEYS", "*") == []
            store.now = START_US
            await store.acquire("ann", "old", 1)
            store.now = START_US + MINUTE
            assert await store.look("ann", 1)
            assert members(redis_server) == ["old"]
            assert await store.acquire("ann", "new", 1)
            assert members(redis_server) == ["new"]

    run(story())


def test_a_renewal_keeps_the_set_in_the_server_for_as_long_as_the_permit(
    redis_server: RedisServer,
) -> None:
    async def story() -> None:
        async with holding(redis_server.url) as store:
            await store.acquire("ann", "one", 2)
            redis_server.ask("PEXPIRE", "rate_limit:{ann}:exports:permits", 5_000)
            assert await store.renew("ann", "one", 2)
            assert redis_server.ask("PTTL", "rate_limit:{ann}:exports:permits") > 50_000

        async with holding(redis_server.url, expires_after_us=SECOND) as brief:
            # A process with a shorter expiry does not cut short what others hold.
            await brief.acquire("ann", "brief", 1)
            assert redis_server.ask("PTTL", "rate_limit:{ann}:exports:permits") > 50_000

    run(story())


def test_a_late_release_removes_its_own_name_and_nobody_elses_place(
    redis_server: RedisServer,
) -> None:
    async def story() -> None:
        async with holding(redis_server.url, limit=2) as store:
            store.now = START_US
            await store.acquire("ann", "late", 1)
            store.now = START_US + MINUTE - 1
            assert await store.renew("ann", "late", 1)
            store.now = START_US + 2 * MINUTE - 1
            assert not await store.renew("ann", "late", 1)
            assert not await store.release("ann", "late", 1)
            assert redis_server.ask("KEYS", "*") == []
            await store.acquire("ann", "late", 1)
            store.now = START_US + 4 * MINUTE
            await store.acquire("ann", "other", 2)
            assert not await store.release("ann", "late", 1)
            assert not await store.acquire("ann", "third", 1)

    run(story())


def test_heavy_permits_and_a_limit_that_has_been_lowered(redis_server: RedisServer) -> None:
    async def story() -> None:
        async with holding(redis_server.url, limit=2_000) as store:
            heavy = await store.acquire("ann", "heavy", 1_000)
            assert heavy.remaining == 1_000
            assert await store.renew("ann", "heavy", 1_000)
            assert await store.acquire("ann", "more", 1_000)
            assert len(members(redis_server)) == 2_000
            async with holding(redis_server.url, limit=3) as lowered:
                on_error = await lowered.look("ann", 1)
                assert (on_error.allowed, on_error.remaining) == (False, 0)
                assert 50 * SECOND < on_error.retry_after_us <= MINUTE
            assert await store.release("ann", "heavy", 1_000)
            assert len(members(redis_server)) == 1_000
            never = await store.acquire("ann", "x", 2_001)
            assert never.retry_after_us == -1
            assert never.reason is not None
            assert never.reason.name == "cost_above_limit"

    run(story())


def test_a_place_that_was_taken_unheard_is_given_back_by_the_next_acquire(
    redis_server: RedisServer,
) -> None:
    async def story() -> None:
        async with holding(redis_server.url, limit=1, timeout_us=100_000) as store:
            redis_server.pause()
            with pytest.raises(Unavailable):
                await store.acquire("ann", "unheard", 1)
            redis_server.resume()
            while not members(redis_server):  # it was carried out all the same
                await asyncio.sleep(0.01)
            assert await acquire_until_heard(store, "ann", "heard")
            assert members(redis_server) == ["heard"]

    run(story())


async def acquire_until_heard(store: RedisPermits, key: str, permit_id: str) -> bool:
    """Ask until the client's breaker lets it through; what was not heard is owed once more."""
    while True:
        try:
            return bool(await store.acquire(key, permit_id, 1))
        except Unavailable:
            await asyncio.sleep(0.02)


def test_a_release_that_was_not_heard_is_made_good_by_the_next_acquire(
    redis_server: RedisServer,
) -> None:
    async def story() -> None:
        async with holding(redis_server.url, limit=1, timeout_us=100_000) as store:
            assert await store.acquire("ann", "one", 1)
            client, store._client = store._client, Deaf()  # type: ignore[assignment]
            with pytest.raises(Unavailable):
                await store.release("ann", "one", 1)
            store._client = client
            assert members(redis_server) == ["one"]
            assert await store.acquire("bob", "two", 1)  # another key pays nothing for it
            assert await store.acquire("ann", "three", 1)
            assert members(redis_server) == ["three"]
            assert not store._debts

    run(story())


class Deaf:
    """A client whose calls get lost."""

    def run_script(self, *_: object) -> asyncio.Future[Any]:
        on_close: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        on_close.set_exception(Unavailable("Redis", "lost"))
        return on_close


def test_who_is_cancelled_while_acquiring_leaves_no_place_taken(
    redis_server: RedisServer,
) -> None:
    async def story() -> None:
        async with holding(redis_server.url, limit=1) as store:
            asking = asyncio.create_task(store.acquire("ann", "gone", 1))
            await asyncio.sleep(0)  # it is on its way
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert await store.acquire("ann", "one", 1)
            assert members(redis_server) == ["one"]

    run(story())


def test_debts_are_bounded_in_number_in_time_and_in_one_call(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluicegate.stores.redis.permits.DEBTS_MAX", 200)

    async def story() -> None:
        async with holding(redis_server.url, limit=1_000) as store:
            for number in range(300):
                store._owe("ann", f"p{number}", 1)
            assert [*store._debts["ann"]] == [f"p{number}" for number in range(100, 300)]
            await store.acquire("ann", "one", 1)
            assert len(store._debts["ann"]) == 200 - DEBTS_TOLD_MAX
        async with holding(redis_server.url, expires_after_us=1_000) as store:
            store._owe("ann", "one", 1)
            await asyncio.sleep(0.01)
            store._owe("bob", "two", 1)
            assert store._debts == {"bob": {"two": 1}}

    run(story())


def test_what_cannot_be_decided_is_unavailable(redis_server: RedisServer) -> None:
    async def story() -> None:
        async with holding(redis_server.url) as store:
            redis_server.ask("SET", "rate_limit:{ann}:exports:permits", "other")
            with pytest.raises(Unavailable, match="WRONGTYPE"):
                await store.acquire("ann", "one", 1)
            assert (await store.acquire("\ud800", "one", 1)).allowed
        with pytest.raises(Unavailable, match="closed"):
            await store.renew("ann", "one", 1)
        with pytest.raises(BadValue, match="prefix"):
            RedisPermits(redis_server.url, SeededChance(1), "x", 1, 1, prefix="{")

    run(story())


def test_on_a_cluster_every_key_has_places_where_it_lives(redis_cluster: RedisCluster) -> None:
    async def story() -> None:
        async with holding(redis_cluster.url, limit=3) as store:
            keys = [f"user {number}" for number in range(30)]
            assert len({slot_of(f"{{{key}}}") // 5_462 for key in keys}) == 3
            decisions = await asyncio.gather(
                *(store.acquire(key, f"{key}-{n}", 1) for n in range(5) for key in keys)
            )
            for place, key in enumerate(keys):
                assert sum(decisions[place + 30 * n].allowed for n in range(5)) == 3, key
            assert await store.renew(keys[0], f"{keys[0]}-0", 1)
            assert await store.release(keys[0], f"{keys[0]}-0", 1)
            assert (await store.look(keys[0], 1)).remaining == 1

    run(story())


# Real processes. Who works says so in a hash, after the acquire and before the release; `most` is
# the highest number that ever worked at once.

WORKER = """
import asyncio, os, sys
from sluicegate.limits.permits import Permits
from sluicegate.stores.redis.script import Script
from sluicegate.stores.redis.client import open_client
from sluicegate.system import SystemChance

url, tasks, expires_after_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
BEGIN = Script('''
redis.call('HSET', KEYS[1], ARGV[1], 1)
local now, most = redis.call('HLEN', KEYS[1]), tonumber(redis.call('GET', KEYS[2]) or '0')
if now > most then redis.call('SET', KEYS[2], now) end
redis.call('INCR', KEYS[3])
return now''')
END = Script("return redis.call('HDEL', KEYS[1], ARGV[1])")
KEYS = ["{w}working", "{w}most", "{w}done"]

async def work(exports, client, name):
    while True:
        async with exports.hold("ann", wait_s=60, renew=True):
            await client.run_script(BEGIN, KEYS, [name])
            await asyncio.sleep(0.002)
            await client.run_script(END, KEYS[:1], [name])

async def main():
    exports = Permits(
        5, expires_after_s=expires_after_s, store_url=url, name="exports", failure="closed",
        poll_s=0.005,
    )
    client = open_client(url, SystemChance())
    await client.connect()
    print("ready", flush=True)
    await asyncio.gather(*(work(exports, client, f"{os.getpid()}-{n}") for n in range(tasks)))

asyncio.run(main())
"""


def worker(url: str, tasks: int, expires_after_s: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, f"{url}?timeout_ms=5000", str(tasks), str(expires_after_s)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def number(server: RedisServer, key: str) -> int:
    return int(server.ask("GET", key) or 0)


def until(ready: Any, what: str, within_s: float = 30.0) -> None:
    ends = time.monotonic() + within_s
    while not ready():
        assert time.monotonic() < ends, what
        time.sleep(0.01)


def test_many_processes_never_hold_more_than_the_limit_though_one_is_killed(
    redis_server: RedisServer,
) -> None:
    workers = [worker(redis_server.url, 3, 5.0) for _ in range(3)]
    try:
        for process in workers:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        until(lambda: number(redis_server, "{w}done") > 100, "they work")
        victim = workers[0]
        until(
            lambda: any(f.startswith(f"{victim.pid}-") for f in working(redis_server)),
            "it holds a place",
        )
        victim.kill()
        victim.wait()
        # Its places are still taken: whoever it was that worked is forgotten only now.
        for field in working(redis_server):
            if field.startswith(f"{victim.pid}-"):
                redis_server.ask("HDEL", "{w}working", field)
        done = number(redis_server, "{w}done")
        until(lambda: number(redis_server, "{w}done") > done + 100, "the others go on")
        assert number(redis_server, "{w}most") == 5
    finally:
        for process in workers:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def expiry_of(server: RedisServer) -> int:
    """When the first of the places that "ann" holds comes back, by the server's clock."""
    _, score = server.ask("ZRANGE", "rate_limit:{ann}:exports:permits", 0, 0, "WITHSCORES")
    return int(score)


def working(server: RedisServer) -> list[str]:
    return [str(field) for field in server.ask("HKEYS", "{w}working")]


HOLDER = """
import sys, time
from sluicegate.limits import permits as face
face._BEATS = 200
exports = face.Permits(
    2, expires_after_s=4, store_url=sys.argv[1], name="exports", failure="closed"
)
permits = [exports.acquire("ann"), exports.acquire("ann")]
assert all(permits)
for permit in permits:
    exports.heartbeat(permit)
print("held", flush=True)
time.sleep(60)
"""


def test_the_places_of_a_killed_process_come_back_after_the_expiry_and_not_before(
    redis_server: RedisServer,
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, f"{redis_server.url}?timeout_ms=5000"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )

    async def story() -> None:
        async with holding(redis_server.url, limit=2, expires_after_us=HELD_US) as store:
            first = expiry_of(redis_server)
            until(lambda: expiry_of(redis_server) > first + HELD_US, "a heartbeat keeps it")
            assert not await store.look("ann", 1)
            holder.kill()
            holder.wait()
            killed_s = time.monotonic()
            early = await store.acquire("ann", "early", 2)
            if time.monotonic() < killed_s + HELD_US / 2e6:  # or nobody knows which it should be
                assert not early
            if not early:
                assert 0 < early.retry_after_us <= HELD_US
                await asyncio.sleep(early.retry_after_us / 1e6 + 0.001)
                assert await store.acquire("ann", "one", 2)

    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        run(story())
    finally:
        holder.kill()
        holder.wait()
        assert holder.stdout is not None
        holder.stdout.close()
