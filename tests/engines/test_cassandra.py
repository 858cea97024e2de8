"""Cassandra as brought here keeps what our adapters will lean on, shown with the plain drivers.

Only what the ring and its drivers promise is tested: agreement, order within a partition, quorum,
compare-and-set. What Sluicegate makes of it belongs to the adapters' tests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.engines.catalogue import CASSANDRA_VERSION, ENGINES
from tests.engines.need import engine

if TYPE_CHECKING:
    from tests.engines.cassandra import CassandraCluster


@pytest.fixture(scope="module")
def keyspace(cassandra: CassandraCluster) -> str:
    return cassandra.create_keyspace("trial")


def test_three_nodes_see_each_other_and_one_schema(cassandra: CassandraCluster) -> None:
    versions = set()
    for number in cassandra.numbers:
        with cassandra.session(node=number) as session:
            local = session.execute(
                "SELECT release_version, schema_version FROM system.local"
            ).one()
            peers = session.execute("SELECT schema_version FROM system.peers_v2").all()
            status = session.execute("SELECT status_with_port FROM system_views.gossip_info").all()
        assert local.release_version == CASSANDRA_VERSION
        assert [row.status_with_port.partition(",")[0] for row in status] == ["NORMAL"] * 3
        versions.update([local.schema_version, *(peer.schema_version for peer in peers)])
        assert len(peers) == 2
    assert len(versions) == 1


def test_a_range_of_clustering_keys_is_read_in_order(
    cassandra: CassandraCluster, keyspace: str
) -> None:
    with cassandra.session(keyspace=keyspace) as session:
        session.execute(
            "CREATE TABLE readings (sensor text, at int, value text, PRIMARY KEY (sensor, at))"
        )
        insert = session.prepare("INSERT INTO readings (sensor, at, value) VALUES (?, ?, ?)")
        between = session.prepare(
            "SELECT at, value FROM readings WHERE sensor = ? AND at >= ? AND at < ?"
        )
        latest = session.prepare(
            "SELECT at FROM readings WHERE sensor = ? ORDER BY at DESC LIMIT 3"
        )
        for at in reversed(range(200)):
            session.execute(insert, ("north", at, f"v{at}"))
            session.execute(insert, ("south", at, "other"))

        rows = [(row.at, row.value) for row in session.execute(between, ("north", 50, 60))]
        assert rows == [(at, f"v{at}") for at in range(50, 60)]
        assert [row.at for row in session.execute(latest, ("north",))] == [199, 198, 197]


def test_if_not_exists_is_applied_once_for_each_key_under_contention(
    cassandra: CassandraCluster, keyspace: str
) -> None:
    keys = range(50)
    claim = "INSERT INTO locks (name, owner) VALUES (%s, %s) IF NOT EXISTS"
    won: dict[int, list[int]] = {key: [] for key in keys}
    doubtful: dict[int, list[int]] = {key: [] for key in keys}
    with ExitStack() as stack:
        session = stack.enter_context(cassandra.session(keyspace=keyspace))
        session.execute("CREATE TABLE locks (name int PRIMARY KEY, owner int)")
        claimants = {
            number: stack.enter_context(cassandra.session(keyspace=keyspace, node=number))
            for number in cassandra.numbers
        }
        for key in keys:
            # all three at once, each by a node of its own
            claims = {
                owner: claimant.execute_async(claim, (key, owner))
                for owner, claimant in claimants.items()
            }
            for owner, answer in claims.items():
                try:
                    if answer.result().was_applied:
                        won[key].append(owner)
                except cassandra.not_acknowledged:
                    doubtful[key].append(owner)

    # Paxos may lose sight of its own proposal; a SERIAL read ends it and tells who holds.
    with cassandra.session(keyspace=keyspace, consistency="SERIAL") as session:
        look = session.prepare("SELECT owner FROM locks WHERE name = ?")
        owners = {key: session.execute(look, (key,)).one().owner for key in keys}

    for key in keys:
        assert won[key] == [owners[key]] or (won[key] == [] and owners[key] in doubtful[key])
    # Doubt is the exception: about one key in thirty here.
    assert sum(len(winners) for winners in won.values()) > len(keys) / 2


def test_what_a_quorum_acknowledged_outlives_a_killed_node(
    cassandra: CassandraCluster, keyspace: str
) -> None:
    total, killed_at, window, victim = 3_000, 1_000, 64, 2
    acknowledged: list[int] = []
    doubtful: list[int] = []
    with cassandra.session(keyspace=keyspace) as session:
        session.execute(
            "CREATE TABLE journal (bucket int, number int, value text, "
            "PRIMARY KEY (bucket, number))"
        )
        insert = session.prepare("INSERT INTO journal (bucket, number, value) VALUES (?, ?, ?)")
        under_way: deque[tuple[int, Any]] = deque()

        def settle() -> None:
            number, answer = under_way.popleft()
            try:
                answer.result()
            except cassandra.not_acknowledged:
                doubtful.append(number)
            else:
                acknowledged.append(number)

        for number in range(total):
            if number == killed_at:
                assert under_way
                cassandra.kill(victim)
            under_way.append(
                (number, session.execute_async(insert, (number % 16, number, f"v{number}")))
            )
            if len(under_way) >= window:
                settle()
        while under_way:
            settle()

        # Some were acknowledged before and many after; in doubt is at most what was under way.
        assert acknowledged[0] == 0
        assert acknowledged[-1] == total - 1
        assert len(doubtful) <= window
        # The victim is still dead; a quorum of those left has all that was acknowledged.
        assert cassandra.alive == (1, 3)
        assert set(acknowledged) <= numbers(session)

    cassandra.restart(victim)

    with cassandra.session(keyspace=keyspace, consistency="ALL") as session:
        assert set(acknowledged) <= numbers(session)


# acsylla 1.2 leaves its loop's two pairs of sockets to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_the_asyncio_driver_reads_and_writes_by_quorum(
    cassandra: CassandraCluster, keyspace: str
) -> None:
    engine("acsylla", ENGINES["acsylla"])
    import acsylla  # type: ignore[import-untyped, unused-ignore]

    async def story() -> dict[str, int]:
        driver = acsylla.create_cluster(
            cassandra.contact_points,
            port=cassandra.port,
            consistency=acsylla.Consistency.QUORUM,
        )
        session = await driver.create_session(keyspace=keyspace)
        try:
            await session.query("CREATE TABLE counts (word text PRIMARY KEY, times bigint)")
            insert = await session.create_prepared("INSERT INTO counts (word, times) VALUES (?, ?)")
            select = await session.create_prepared("SELECT word, times FROM counts WHERE word = ?")

            async def write(number: int) -> None:
                bound = insert.bind()
                bound.bind_list([f"word-{number}", number])
                await session.execute(bound)

            async def read(number: int) -> tuple[str, int]:
                bound = select.bind()
                bound.bind_list([f"word-{number}"])
                row = (await session.execute(bound)).first()
                return row.word, row.times

            await asyncio.gather(*(write(number) for number in range(300)))
            return dict(await asyncio.gather(*(read(number) for number in range(300))))
        finally:
            await session.close()

    assert asyncio.run(story()) == {f"word-{number}": number for number in range(300)}


def numbers(session: Any) -> set[int]:
    select = session.prepare("SELECT number FROM journal WHERE bucket = ?")
    return {row.number for bucket in range(16) for row in session.execute(select, (bucket,))}
