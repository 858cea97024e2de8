"""The tables in a Cassandra, and every statement that is prepared for them.

    rows    (space, partition) -> sort -> value     the values, a partition in one place
    parts   (space, bucket) -> partition            which partitions a space has

Spaces come and go while tables stay: a change of the schema takes a cluster a second, must not be
made by two at once, and could not be refused to a stranger who invents names. So all spaces share
two tables, and dropping one costs a deletion for each of its partitions. `parts` makes the cost of
that, and of a walk, depend on the size of the space, and not of the keyspace.

A partition is listed in `parts` before its first row is written. The numbers in the tables' names
are the version of the format: a later one would have tables of its own.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

from sluicegate.contracts.engine import SORT_BYTES_MAX
from sluicegate.contracts.errors import Unavailable
from sluicegate.stores.engines.cassandra.url import ALL, LOCAL_QUORUM, CassandraSettings

BUCKETS: Final = 64  # of a space's partitions; part of the format
# Far above the usual time of a quorum, so a second attempt is rare, and too short for a person to
# notice. A slow cluster gets at most twice the requests. By default a coordinator waits for half of
# its read timeout until it has measured a new table.
SPECULATE_AFTER_MS: Final = 100
AFTER_ALL: Final = b"\xff" * (SORT_BYTES_MAX + 1)  # behind every sort key and partition there is

_TABLES: Final[dict[str, str]] = {
    # No row is ever inserted, only its cell is set: so a row is there exactly while its value is,
    # also where the value goes by itself. `guard` is never set: that it is not is a condition which
    # always holds, and makes of any batch a conditional one. `tries` has the number of each
    # engine's last conditional batch, so one whose answer was lost can be asked for.
    "rows_1": (
        "space text, part blob, sort blob, value blob, "
        "guard boolean static, tries map<blob, bigint> static, PRIMARY KEY ((space, part), sort)"
    ),
    "parts_1": (
        "space text, bucket int, part blob, seen boolean, PRIMARY KEY ((space, bucket), part)"
    ),
}

_PLACE: Final = "space = ? AND part = ? AND sort = ?"

# An instant, and a name that nobody else has.
GREETING: Final = "SELECT toUnixTimestamp(now()), uuid() FROM system.local"

STATEMENTS: Final[dict[str, str]] = {
    "get": f"SELECT value FROM {{keyspace}}.rows_1 WHERE {_PLACE}",
    "get_each": (
        "SELECT sort, value FROM {keyspace}.rows_1 WHERE space = ? AND part = ? AND sort IN ?"
    ),
    "up": (
        "SELECT sort, value FROM {keyspace}.rows_1 "
        "WHERE space = ? AND part = ? AND sort >= ? AND sort < ? ORDER BY sort ASC LIMIT ?"
    ),
    "down": (
        "SELECT sort, value FROM {keyspace}.rows_1 "
        "WHERE space = ? AND part = ? AND sort >= ? AND sort < ? ORDER BY sort DESC LIMIT ?"
    ),
    "put": f"UPDATE {{keyspace}}.rows_1 USING TTL ? SET value = ? WHERE {_PLACE}",
    "delete": f"DELETE FROM {{keyspace}}.rows_1 WHERE {_PLACE}",
    "put_if": f"UPDATE {{keyspace}}.rows_1 USING TTL ? SET value = ? WHERE {_PLACE} IF value = ?",
    "delete_if": f"DELETE FROM {{keyspace}}.rows_1 WHERE {_PLACE} IF value = ?",
    "try": ("UPDATE {keyspace}.rows_1 USING TTL ? SET tries[?] = ? WHERE space = ? AND part = ?"),
    "try_if": (
        "UPDATE {keyspace}.rows_1 USING TTL ? SET tries[?] = ? WHERE space = ? AND part = ? "
        "IF guard = null"
    ),
    "tried": "SELECT tries[?] FROM {keyspace}.rows_1 WHERE space = ? AND part = ? LIMIT 1",
    "forget": "DELETE FROM {keyspace}.rows_1 WHERE space = ? AND part = ?",
    "know": (
        "UPDATE {keyspace}.parts_1 SET seen = true WHERE space = ? AND bucket = ? AND part = ?"
    ),
    "know_for": (
        "UPDATE {keyspace}.parts_1 USING TTL ? SET seen = true "
        "WHERE space = ? AND bucket = ? AND part = ?"
    ),
    "parts": (
        "SELECT part, writetime(seen) FROM {keyspace}.parts_1 "
        "WHERE space = ? AND bucket = ? AND part > ? LIMIT ?"
    ),
    "unknow": (
        "DELETE FROM {keyspace}.parts_1 USING TIMESTAMP ? "
        "WHERE space = ? AND bucket = ? AND part = ?"
    ),
}


def bucket_of(partition: bytes) -> int:
    """The part of the index that a partition is in."""
    return zlib.crc32(partition) % BUCKETS


async def create_keyspace(session: Any, settings: CassandraSettings) -> None:
    """Create the keyspace if it is not there and may be created.

    Raises `Unavailable` if the cluster has too few nodes for a quorum of the copies.
    """
    nodes: list[str] = []  # the data center of each
    for table in ("local", "peers"):
        found = await session.query(f"SELECT data_center FROM system.{table}")
        nodes += [str(row.as_tuple()[0]) for row in found.all()]
    name, most = settings.keyspace, max(len(nodes), 1)
    query = f"SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = '{name}'"
    rows = [row.as_tuple() for row in (await session.query(query)).all()]
    if rows:
        copies = _copies_of(rows[0][0])
        remedy = (
            f"ALTER KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', "
            f"'replication_factor': {most}}}"
        )
    elif not settings.create:
        return  # the first statement reports that it is missing
    else:
        centers = [settings.datacenter] if settings.datacenter else [*dict.fromkeys(nodes)]
        copies = dict.fromkeys(centers, settings.replication)
        remedy = f"add replication={most} to the URL"
    if settings.consistency == LOCAL_QUORUM and settings.datacenter in copies:
        copies = {settings.datacenter: copies[settings.datacenter]}
    wanted = sum(copies.values())
    needed = wanted if settings.consistency == ALL else wanted // 2 + 1
    usable = sum(min(_count(nodes, center), number) for center, number in copies.items())
    if copies and usable < needed:
        many = "node" if len(nodes) == 1 else "nodes"
        raise Unavailable(
            f"Cassandra keyspace {name}",
            f"it wants {wanted} copies and the cluster has {len(nodes)} {many};"
            f" {remedy}, or add nodes",
        )
    if not rows:
        key = settings.datacenter or "replication_factor"
        await session.query(
            f"CREATE KEYSPACE IF NOT EXISTS {name} WITH replication = "
            f"{{'class': 'NetworkTopologyStrategy', '{key}': {settings.replication}}}"
        )


def _count(nodes: Sequence[str], center: str) -> int:
    return nodes.count(center) if center else len(nodes)


def _copies_of(replication: Mapping[str, str]) -> dict[str, int]:
    """Return the copies that a keyspace wants in each data center; "" is any of them.

    Only strategies whose settings are numbers of copies have any.
    """
    kind = replication["class"].rpartition(".")[2]
    if kind == "SimpleStrategy":
        return {"": int(replication["replication_factor"])}
    if kind != "NetworkTopologyStrategy":
        return {}
    # "3/1" has a transient copy.
    return {
        center: int(number.partition("/")[0])
        for center, number in replication.items()
        if center != "class"
    }


async def create_tables(session: Any, keyspace: str) -> None:
    """Make the tables, if they are not there.

    Two dispatchers that start at once may both make them. A table that is made twice gets two ids,
    and its rows are split between them; so the id is said, and is the same from whoever makes it.
    """
    query = f"SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{keyspace}'"
    there = {row.as_tuple()[0] for row in (await session.query(query)).all()}
    for name, columns in _TABLES.items():
        if name not in there:
            await session.query(
                f"CREATE TABLE IF NOT EXISTS {keyspace}.{name} ({columns}) "
                f"WITH ID = {_id_of(keyspace, name)} "
                f"AND speculative_retry = '{SPECULATE_AFTER_MS}ms'"
            )


def _id_of(keyspace: str, name: str) -> str:
    digest = bytearray(blake2b(f"sluicegate {keyspace}.{name}".encode(), digest_size=16).digest())
    digest[6] = digest[6] & 0x0F | 0x50  # as an id that is made of a name says of itself
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
