"""A real Cassandra of three nodes as an engine."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import pytest

from sluicegate.contracts.engine import Change
from sluicegate.contracts.errors import BadValue, OutcomeUnknown, Unavailable
from sluicegate.stores.engines.cassandra.engine import CassandraEngine, open_cassandra
from sluicegate.testing.engines import SharedEngineSuite
from sluicegate.testing.engines.trial import walk_all

if TYPE_CHECKING:
    from tests.engines.cassandra import CassandraCluster

KEYSPACE = "kv"
VALUE_BYTES_MAX = 4_000_000  # half a segment of the commit log, which here has 8 MiB
ORDERS = ("clock", "paxos")


def url_of(cassandra: CassandraCluster, more: str = "", keyspace: str = KEYSPACE) -> str:
    hosts = ",".join(cassandra.contact_points)
    return f"cassandra://{hosts}:{cassandra.port}/{keyspace}?timeout_ms=15000{more}"


Story = Callable[..., Coroutine[Any, Any, None]]


def run_story(story: Story, *urls: str) -> None:
    """The story of an engine for each URL."""

    async def tell() -> None:
        engines = [open_cassandra(url) for url in urls]
        try:
            await story(*engines)
        finally:
            for engine in engines:
                await engine.close()

    asyncio.run(tell())


class TestCassandra(SharedEngineSuite):
    value_bytes_max = VALUE_BYTES_MAX
    random_steps = 40

    @pytest.fixture(autouse=True)
    def _cluster(self, cassandra: CassandraCluster) -> None:
        self.url = url_of(cassandra)

    def open_engine(self) -> CassandraEngine:
        return open_cassandra(self.url)


def test_dispatchers_may_make_the_tables_at_once(cassandra: CassandraCluster) -> None:
    async def story(*engines: CassandraEngine) -> None:
        place = (b"p", b"")
        await asyncio.gather(*(engine.read("t", [place]) for engine in engines))
        for number, writer in enumerate(engines):
            await writer.write([Change("t", *place, b"%d" % number)])
            for reader in engines:
                assert await reader.read("t", [place]) == [b"%d" % number]

    # Often a node has not heard yet of what another one has made.
    for number in range(8):
        run_story(story, *[url_of(cassandra, keyspace=f"made_at_once_{number}")] * 3)


def test_a_keyspace_that_may_not_be_made_is_unavailable(cassandra: CassandraCluster) -> None:
    async def story(engine: CassandraEngine) -> None:
        for _ in range(2):  # the second is told what the first has seen
            with pytest.raises(Unavailable, match="nowhere"):
                await engine.read("t", [(b"p", b"")])

    run_story(story, url_of(cassandra, "&create=no", keyspace="nowhere"))


def test_a_value_larger_than_a_change_may_be_is_a_bad_value(cassandra: CassandraCluster) -> None:
    async def story(engine: CassandraEngine) -> None:
        for size in (5_000_000, 16 << 20):
            with pytest.raises(BadValue, match="commitlog_segment_size"):
                await engine.write([Change("t", b"large", b"", b"v" * size)])

    run_story(story, url_of(cassandra))


@pytest.mark.parametrize("order", ORDERS)
def test_each_value_is_swapped_away_once_and_none_comes_back(
    cassandra: CassandraCluster, order: str
) -> None:
    """Two dispatchers write and swap one place; every value that is written is its own."""

    async def story(*engines: CassandraEngine) -> None:
        space, place = f"race.{order}", (b"p", b"s")
        swapped: list[bytes] = []

        async def swap(engine: CassandraEngine, who: bytes) -> None:
            for number in range(8):
                (found,) = await engine.read(space, [place])
                change = Change(space, *place, b"swap %b %d" % (who, number))
                if await engine.swap(change, found) and found is not None:
                    swapped.append(found)

        async def write(engine: CassandraEngine, who: bytes) -> None:
            for number in range(8):
                await engine.write([Change(space, *place, b"write %b %d" % (who, number))])

        await asyncio.gather(
            *(swap(engine, b"%d" % at) for at, engine in enumerate(engines)),
            *(write(engine, b"%d" % at) for at, engine in enumerate(engines)),
        )
        (last,) = await engines[0].read(space, [place])
        assert len(set(swapped)) == len(swapped)
        assert last not in swapped
        await engines[0].drop(space)

    run_story(story, *[url_of(cassandra, f"&order={order}")] * 2)


@pytest.mark.parametrize("order", ORDERS)
def test_writes_and_swaps_of_two_dispatchers_in_turn_are_seen_in_that_order(
    cassandra: CassandraCluster, order: str
) -> None:
    async def story(one: CassandraEngine, other: CassandraEngine) -> None:
        space, place = f"turns.{order}", (b"p", b"s")
        for number in range(15):
            first, second = (one, other) if number % 2 else (other, one)
            await first.write([Change(space, *place, b"written %d" % number)])
            change = Change(space, *place, b"swapped %d" % number)
            assert await second.swap(change, b"written %d" % number)
            assert await first.read(space, [place]) == [change.value]
            await second.write([Change(space, *place, None)])
            assert await first.swap(Change(space, *place, b"anew"), None)
            assert await second.swap(Change(space, *place, None), b"anew")
        await one.drop(space)

    run_story(story, *[url_of(cassandra, f"&order={order}")] * 2)


def test_what_two_dispatchers_change_by_swaps_is_all_there(cassandra: CassandraCluster) -> None:
    async def story(*engines: CassandraEngine) -> None:
        space = "sum"

        async def add(engine: CassandraEngine) -> None:
            for _ in range(6):
                made = False
                while not made:
                    (found,) = await engine.read(space, [(b"p", b"")])
                    number = 0 if found is None else int(found)
                    made = await engine.swap(Change(space, b"p", b"", b"%d" % (number + 1)), found)

        await engines[0].drop(space)
        await asyncio.gather(*(add(engine) for engine in engines for _ in range(2)))
        assert await engines[0].read(space, [(b"p", b"")]) == [b"24"]

    run_story(story, *[url_of(cassandra)] * 2)


def test_a_swap_whose_answer_was_lost_is_found_out(cassandra: CassandraCluster) -> None:
    """The answers of the first batches are taken away, after the cluster has made them."""

    async def story(engine: CassandraEngine) -> None:
        link = engine._link
        run = link.run
        lost = 0

        async def losing(statement: Any, *, batch: bool = False, **more: Any) -> Any:
            nonlocal lost
            rows = await run(statement, batch=batch, **more)
            if batch and lost < 1:
                lost += 1
                raise OutcomeUnknown(link.what, "the answer was lost")
            return rows

        await engine.write([Change("lost", b"p", b"", b"old")])
        link.run = losing  # type: ignore[method-assign]
        assert await engine.swap(Change("lost", b"p", b"", b"new"), b"old")
        lost = 0
        assert not await engine.swap(Change("lost", b"p", b"", b"newer"), b"old")
        assert await engine.read("lost", [(b"p", b"")]) == [b"new"]
        assert lost == 1
        await engine.drop("lost")

    run_story(story, url_of(cassandra))


def test_what_may_be_purged_goes_by_itself(cassandra: CassandraCluster) -> None:
    async def story(engine: CassandraEngine) -> None:
        await engine.read("purge", [(b"p", b"")])
        long_ago_us = engine._link.now_us() - 59_000_000  # a minute's margin, and a second is left
        await engine.write(
            [
                Change("purge", b"p", b"1", b"v", long_ago_us),
                Change("purge", b"p", b"2", b"v", long_ago_us + 79_000_000),
            ]
        )
        async with asyncio.timeout(60):
            while await engine.read("purge", [(b"p", b"1")]) != [None]:
                await asyncio.sleep(0.1)
        assert await engine.read("purge", [(b"p", b"2")]) == [b"v"]
        assert await walk_all(engine, "purge", 10) == [(b"p", b"2", b"v")]
        # What has gone by itself is nothing that a swap would have to expect.
        assert await engine.swap(Change("purge", b"p", b"1", b"new"), None)
        await engine.drop("purge")

    run_story(story, url_of(cassandra))


def test_requests_beyond_the_bounds_wait_or_are_refused_at_once(
    cassandra: CassandraCluster,
) -> None:
    async def story(engine: CassandraEngine) -> None:
        await engine.read("t", [(b"p", b"")])
        answers = await asyncio.gather(
            *(engine.read("t", [(b"p", b"")]) for _ in range(10)), return_exceptions=True
        )
        refused = [answer for answer in answers if isinstance(answer, Unavailable)]
        assert len(refused) == 10 - 2 - 3
        assert "waiting_max" in refused[0].detail
        assert await engine.read("t", [(b"p", b"")]) == [None]

    run_story(story, url_of(cassandra, "&inflight_max=2&waiting_max=3&load_max=2"))


def test_a_cluster_that_is_not_there_is_unavailable(cassandra: CassandraCluster) -> None:
    async def story(engine: CassandraEngine) -> None:
        for _ in range(2):
            with pytest.raises(Unavailable):
                await engine.write([Change("t", b"p", b"", b"v")])

    run_story(story, "cassandra://127.0.0.1:1/kv?connect_timeout_ms=500")


def test_more_copies_than_nodes_name_the_cause_and_the_fix(cassandra: CassandraCluster) -> None:
    async def story(engine: CassandraEngine) -> None:
        with pytest.raises(Unavailable, match="wants 7 copies and the cluster has 3 nodes"):
            await engine.read("t", [(b"p", b"")])

    run_story(story, url_of(cassandra, "&replication=7", keyspace="too_many_copies"))


def test_silent_node_fails_no_write_and_no_swap(cassandra: CassandraCluster) -> None:
    async def story(engine: CassandraEngine) -> None:
        await engine.drop("silent")
        places = [b"%d" % number for number in range(64)]
        for partition in places:  # in the index, and every node's connection in use
            await engine.write([Change("silent", partition, b"", b"0")])
        pid = cassandra.pid(2)
        os.kill(pid, signal.SIGSTOP)
        try:
            numbers = iter(range(600))

            async def write() -> None:
                for number in numbers:
                    partition = places[number % 64]
                    if number % 10:
                        change = Change("silent", partition, b"%d" % number, b"v")
                        await engine.write([change])
                    else:
                        place = Change("silent", partition, b"s%d" % number, b"v")
                        assert await engine.swap(place, None)

            await asyncio.gather(*(write() for _ in range(8)))
        finally:
            os.kill(pid, signal.SIGCONT)
        assert len(await walk_all(engine, "silent", 1_000)) == 64 + 600

    run_story(story, url_of(cassandra).replace("timeout_ms=15000", "timeout_ms=6000"))


def test_write_without_answer_is_unknown(cassandra: CassandraCluster) -> None:
    async def story(engine: CassandraEngine) -> None:
        await engine.write([Change("lost", b"p", b"", b"1")])
        pids = [cassandra.pid(number) for number in (1, 2, 3)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(OutcomeUnknown):
                await engine.write([Change("lost", b"p", b"", b"2")])
            with pytest.raises(OutcomeUnknown):
                await engine.swap(Change("lost", b"p", b"", b"3"), b"1")
            with pytest.raises(Unavailable) as found:
                await engine.read("lost", [(b"p", b"")])
            assert not isinstance(found.value, OutcomeUnknown)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        cassandra.await_ready()

    run_story(story, url_of(cassandra).replace("timeout_ms=15000", "timeout_ms=1000"))


def test_what_a_quorum_acknowledged_outlives_a_killed_node(cassandra: CassandraCluster) -> None:
    async def story(engine: CassandraEngine) -> None:
        acknowledged: list[int] = []
        failed: list[int] = []
        numbers = iter(range(4_000))
        await engine.drop("journal")

        async def write() -> None:
            for number in numbers:
                if number == 1_000:
                    # In a thread: the loop goes on, with writes on their way to that node.
                    await asyncio.to_thread(cassandra.kill, 2)
                try:
                    await engine.write(
                        [Change("journal", b"%d" % (number % 64), b"%05d" % number, b"v")]
                    )
                except Unavailable:
                    failed.append(number)
                else:
                    acknowledged.append(number)

        await asyncio.gather(*(write() for _ in range(32)))
        assert cassandra.alive == (1, 3)
        assert len(acknowledged) > 3_900
        found = {int(sort) for _, sort, _ in await walk_all(engine, "journal", 1_000)}
        assert set(acknowledged) <= found
        assert found <= {*acknowledged, *failed}
        # The two that are left are a quorum, for swaps too.
        assert await engine.swap(Change("journal", b"swap", b"", b"v"), None)

    run_story(story, url_of(cassandra))
