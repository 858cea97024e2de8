"""Redis and Redis Cluster: an engine in the memory of servers that are there already.

A partition is a sorted set of its sort keys, all of one score and therefore in the order of their
bytes, and a hash of their values (`keys.py`). Whatever belongs together is done by one script on
one server, so nobody sees half of it. Every read asks a master. It goes over the client that limits
go over: one connection a server, many calls at once, no waiting for a server that is known to be
gone, and the others none the slower for it.

*What an acknowledgement means* is the servers' business. A master that is killed starts with what
its disk has (`appendfsync always` loses nothing, `everysec` a second, nothing set: all). A replica
that takes over has what had reached it: replication is not waited for. `wait=N` has every write
wait for N replicas, which makes a loss by failover unlikely and not impossible. A connection waits
as a whole: with `wait`, writes and what stands behind them take as long as replication does.

*Eviction* would drop a sort key or a value by itself, and nobody would be told. So each master is
asked for its `maxmemory-policy` before it is first used, and only `noeviction` will do.

What may be purged is kept until somebody deletes it: a hash has no expiry for each of its values.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.engine import Change, EnginePage, Entry, KeyRange, Place, Update
from sluicegate.contracts.errors import OutcomeUnknown, Unanswered, Unavailable
from sluicegate.stores.engines.batches import all_changes, all_of, batches_of, some_at_once
from sluicegate.stores.engines.bounds import (
    check_after,
    check_changes,
    check_place,
    check_rows_max,
    check_space,
    check_update,
)
from sluicegate.stores.engines.bucket_walk import BucketWalk
from sluicegate.stores.engines.partition_locks import PartitionLocks
from sluicegate.stores.engines.redis.keys import (
    BUCKETS,
    EngineKeys,
    bucket_of,
    keys_of,
    load_scripts,
    parts_key,
    tag_of,
)
from sluicegate.stores.engines.redis.url import RedisEngineSettings, parse_url
from sluicegate.stores.engines.updates import Swap, update_by_swaps
from sluicegate.stores.redis.client import RedisClient, open_client
from sluicegate.stores.redis.connection import Reply
from sluicegate.stores.redis.settings import CLUSTER, SINGLE
from sluicegate.stores.redis.slots import SLOTS, slot_of
from sluicegate.wire.resp import ErrorReply, Part

SHARDS: Final = 16  # of a cluster's slots, each a run of them
FORGET_MAX: Final = 256  # partitions in one call
POLICY: Final = "maxmemory-policy"
COVERAGE: Final = "cluster-require-full-coverage"
_log: Final = logging.getLogger("sluicegate.kv")


def open_redis(url: str, chance: Chance | None = None) -> RedisEngine:
    """The engine of `redis://...` or `redis+cluster://...`; it connects at the first request."""
    return RedisEngine(parse_url(url), chance or Spread(hash((url, os.getpid()))))


@final
class Spread:
    """Draws that are evenly spread, where they only keep dispatchers from asking in step."""

    def __init__(self, seed: int) -> None:
        self._at = seed % 65_536 / 65_536

    def draw(self) -> float:
        """The next: a golden section further."""
        self._at = (self._at + 0.6180339887498949) % 1.0
        return self._at


@final
class RedisEngine:
    """Ordered bytes in Redis; used by one event loop."""

    def __init__(self, settings: RedisEngineSettings, chance: Chance) -> None:
        topology = settings.redis.topology
        self.name = "redis" if topology == SINGLE else f"redis+{topology}"
        self.shared = True
        self._settings = settings
        self._chance = chance
        self._client: RedisClient | None = None
        self._closed = False
        self._scripts = load_scripts()
        self._turns = PartitionLocks()
        self._spread = topology == CLUSTER
        self._trusted: set[int] = set()  # runs of slots whose master evicts nothing
        self._runs = SHARDS if self._spread else 1
        self._warned = False
        self._coverage_asked = not self._spread
        self.what = f"{settings.redis.kind} at {settings.redis.endpoints[0]}"

    @property
    def durability(self) -> str:
        """What an acknowledgement means."""
        wait = self._settings.wait
        where = f"the master and {wait} of its replicas have it" if wait else "the master has it"
        return f"{where} in memory, and on disk as their appendfsync says; a failover may lose it"

    # Reads.

    async def read(self, space: str, places: Sequence[Place]) -> Sequence[bytes | None]:
        """The values at these places."""
        check_space(space)
        by_partition: dict[bytes, list[int]] = {}
        for number, (partition, sort) in enumerate(places):
            check_place(partition, sort)
            by_partition.setdefault(partition, []).append(number)
        if len(self._trusted) < self._runs:
            await self.trust(space, {bucket_of(partition) for partition in by_partition})
        client = self._open()
        calls = []
        for partition, numbers in by_partition.items():
            key = self._keys(space, partition).values
            sorts = [places[number][1] for number in numbers]
            calls.append(client.call("HMGET", key, *sorts, key=key))
        values: list[bytes | None] = [None] * len(places)
        for numbers, reply in zip(by_partition.values(), await self.all_of(calls), strict=True):
            for number, value in zip(numbers, reply, strict=True):
                values[number] = value
        return values

    async def scan(self, space: str, partition: bytes, span: KeyRange) -> EnginePage:
        """Rows of one partition as they are at one instant, from either side."""
        check_space(space)
        check_place(partition, b"")
        check_rows_max(span.rows_max)
        if len(self._trusted) < self._runs:
            await self.trust(space, {bucket_of(partition)})
        (reply,) = await self.all_of([self.scan_of(space, partition, span)])
        return _page(reply)

    def scan_of(self, space: str, partition: bytes, span: KeyRange) -> Awaitable[Reply]:
        """The answer to a scan, on its way."""
        begin, end, reverse, rows_max, bytes_max = span
        keys = self._keys(space, partition)
        args: list[Part] = [
            b"[" + begin,
            b"+" if end is None else b"(" + end,
            b"1" if reverse else b"0",
            rows_max,
            bytes_max,
        ]
        return self._open().run_script(self._scripts["scan"], [keys.sorts, keys.values], args)

    # Writes.

    async def write(self, changes: Sequence[Change]) -> None:
        """Make these changes; those in one partition all or none."""
        check_changes(changes)
        groups: dict[tuple[str, bytes], list[Change]] = {}
        for change in changes:
            groups.setdefault((change.space, change.partition), []).append(change)
        await all_changes([self._write(*place, group) for place, group in groups.items()])

    async def swap(self, change: Change, expected: bytes | None) -> bool:
        """Make it if the value there is `expected`, by one script."""
        check_changes([change])
        return await self._swap(change.space, change.partition, [(change.sort, expected, change)])

    async def update(self, update: Update) -> bool:
        """Read, decide, and swap; one update of a partition at a time, as far as this process."""
        check_update(update)
        work = partial(update_by_swaps, self.what, update, self.read, self._swap)
        return await self._turns.run(update.space, update.partition, work, alone=True)

    async def _swap(self, space: str, partition: bytes, swaps: Sequence[Swap]) -> bool:
        args: list[Part] = [partition]
        for sort, expected, change in swaps:
            value = None if change is None else change.value
            args += (sort, *_maybe(expected), b"0" if change is None else b"1", *_maybe(value))
        return bool(await self._sure("swap", space, partition, args) == 1)

    async def load(self, space: str, entries: Sequence[Entry]) -> None:
        """Write many, in calls of a bounded size, so many at a time."""
        check_space(space)
        batches = batches_of(space, entries, bytes_max=self._settings.batch_bytes_max)
        await self._some(
            [partial(self._write, space, partition, batch) for partition, batch in batches]
        )

    async def _write(self, space: str, partition: bytes, changes: Iterable[Change]) -> None:
        args: list[Part] = [partition]
        for _, _, sort, value, _ in changes:
            present, content = _maybe(value)
            args += (present, sort, content)
        await self._sure("write", space, partition, args)

    async def _sure(self, script: str, space: str, partition: bytes, args: Sequence[Part]) -> Reply:
        """Run a script that writes, and return when as many replicas have it as must."""
        client, keys = self._open(), self._keys(space, partition)
        if len(self._trusted) < self._runs:
            await self.trust(space, {bucket_of(partition)})
        try:
            reply = await client.run_script(self._scripts[script], list(keys), args)
        except Unanswered as error:
            raise OutcomeUnknown(error.what, error.detail) from error
        except ErrorReply as error:
            raise Unavailable(self.what, str(error)) from None
        if self._settings.wait:
            await self._wait(client, keys)
        return reply

    async def _wait(self, client: RedisClient, keys: EngineKeys) -> None:
        """Return when `wait` replicas have acknowledged the write."""
        # Sent after the write's reply: sent together, it could overtake a script that must be
        # loaded first.
        wait, wait_ms = self._settings.wait, max(self._settings.wait_us // 1_000, 1)
        try:
            acknowledged = await client.call("WAIT", wait, wait_ms, key=keys.parts)
        except (ErrorReply, Unavailable) as error:
            raise OutcomeUnknown(self.what, f"the master has it, then {error}") from error
        if acknowledged < wait:
            raise OutcomeUnknown(self.what, f"{acknowledged} of {wait} replicas have it (wait)")

    # Whole spaces.

    async def walk(self, space: str, after: Place | None, rows_max: int) -> Sequence[Entry]:
        """Entries by their bucket, their partition, and their sort key."""
        check_space(space)
        check_rows_max(rows_max)
        check_after(after)
        settings = self._settings
        walk = BucketWalk(
            RedisBuckets(self, space),
            rows_max=rows_max,
            bytes_max=settings.walk_bytes_max,
            at_once=settings.load_max,
        )
        return await walk.entries(after)

    async def drop(self, space: str) -> None:
        """Unlink every partition; the servers give their memory back in the background."""
        check_space(space)
        await self._some([partial(self._drop, space, bucket) for bucket in range(BUCKETS)])

    async def _drop(self, space: str, bucket: int) -> None:
        client, prefix = self._open(), self._settings.prefix
        await self.trust(space, {bucket})
        while parts := await self.parts_of(space, bucket, b"", FORGET_MAX):
            keys = [parts_key(prefix, space, bucket)]
            for part in parts:
                keys += keys_of(prefix, space, part)[1:]
            await client.run_script(self._scripts["forget"], keys, parts)

    def shard_of(self, space: str, partition: bytes) -> str:
        """A sixteenth of a cluster's slots: a run of them is nearly always on one master."""
        if not self._spread:
            return self.name
        slot = slot_of(f"{{{tag_of(space, bucket_of(partition))}}}")
        return f"slots-{slot * SHARDS // SLOTS:02d}"

    async def close(self) -> None:
        """Fail what is under way, and free all resources."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    # What a walk asks.

    def parts_of(self, space: str, bucket: int, after: bytes, limit: int) -> Awaitable[Reply]:
        """Partitions of a bucket behind one."""
        key = parts_key(self._settings.prefix, space, bucket)
        return self._open().call("ZRANGEBYLEX", key, b"(" + after, b"+", "LIMIT", 0, limit, key=key)

    async def all_of(self, works: Sequence[Awaitable[Any]]) -> list[Any]:
        """Every answer, or the first failure when all have ended."""
        try:
            return await all_of(works)
        except ErrorReply as error:
            raise Unavailable(self.what, str(error)) from None

    # Inside.

    async def trust(self, space: str, buckets: Iterable[int]) -> None:
        """Return if the masters of these buckets evict nothing; each is checked once."""
        keys: dict[int, bytes] = {}
        for bucket in buckets:
            key = parts_key(self._settings.prefix, space, bucket)
            keys[slot_of(key) * SHARDS // SLOTS if self._spread else 0] = key
        await self.all_of(
            [self._ask_policy(run, key) for run, key in keys.items() if run not in self._trusted]
        )

    async def _ask_policy(self, run: int, key: bytes) -> None:
        client = self._open()
        try:
            reply = await client.call("CONFIG", "GET", POLICY, key=key)
        except (ErrorReply, Unavailable) as error:
            # CONFIG is forbidden to us, or has another name. Anything else is the call's own fate.
            if isinstance(error, Unavailable) and "NOPERM" not in error.detail:
                raise
            self._warn(str(error))
            self._trusted.add(run)
            return
        policy = _setting_in(reply, POLICY)
        if policy is None:
            self._warn("it names no such setting")
        elif policy != b"noeviction":
            raise Unavailable(
                self.what,
                f"its {POLICY} is {policy.decode('utf-8', 'replace')}, which drops what was"
                f" acknowledged; say CONFIG SET {POLICY} noeviction, and keep it in its file",
            )
        self._trusted.add(run)
        if not self._coverage_asked:
            self._coverage_asked = True
            await self._check_coverage(client, key)

    async def _check_coverage(self, client: RedisClient, key: bytes) -> None:
        """Log a warning if one lost master stops all the others."""
        try:
            reply = await client.call("CONFIG", "GET", COVERAGE, key=key)
        except (ErrorReply, Unavailable):
            return  # only a warning depends on it
        if _setting_in(reply, COVERAGE) == b"yes":
            _log.warning(
                "%s has %s yes: while one master is down, the others reject all reads and writes;"
                " say CONFIG SET %s no on each node, and keep it in its file",
                self.what,
                COVERAGE,
                COVERAGE,
            )

    def _warn(self, detail: str) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(
                "%s does not say its %s (%s); see that it is noeviction,"
                " or it will drop what was acknowledged",
                self.what,
                POLICY,
                detail,
            )

    def _open(self) -> RedisClient:
        if self._client is None:
            if self._closed:
                raise Unavailable(self.what, "the engine is closed")
            self._client = open_client(self._settings.redis, self._chance)
        return self._client

    def _keys(self, space: str, partition: bytes) -> EngineKeys:
        return keys_of(self._settings.prefix, space, partition)

    async def _some(self, works: Sequence[Callable[[], Awaitable[Any]]]) -> None:
        """All of these, `load_max` at a time."""
        await self.all_of([some_at_once(works, self._settings.load_max)])


@final
class RedisBuckets:
    """A space for `BucketWalk`."""

    __slots__ = ("_engine", "_space")

    def __init__(self, engine: RedisEngine, space: str) -> None:
        self._engine = engine
        self._space = space

    @property
    def count(self) -> int:
        """How many buckets it has."""
        return BUCKETS

    def bucket_of(self, partition: bytes) -> int:
        """The bucket that a partition is in."""
        return bucket_of(partition)

    async def parts(
        self, asks: Sequence[tuple[int, bytes]], limit: int
    ) -> Sequence[Sequence[bytes]]:
        """Partitions, of several buckets at once."""
        engine = self._engine
        await engine.trust(self._space, [bucket for bucket, _ in asks])
        return await engine.all_of(
            [engine.parts_of(self._space, bucket, after, limit) for bucket, after in asks]
        )

    async def pages(
        self, parts: Sequence[bytes], begin: bytes, rows_max: int, bytes_max: int
    ) -> Sequence[EnginePage]:
        """Rows, of several partitions at once."""
        engine = self._engine
        await engine.trust(self._space, {bucket_of(part) for part in parts})
        asks = [
            engine.scan_of(
                self._space, part, KeyRange(begin, rows_max=rows_max, bytes_max=bytes_max)
            )
            for part in parts
        ]
        return [_page(reply) for reply in await engine.all_of(asks)]


def _maybe(value: bytes | None) -> tuple[bytes, bytes]:
    """Return an optional value as the scripts take it."""
    return (b"0", b"") if value is None else (b"1", value)


def _setting_in(reply: Reply, wanted: str) -> bytes | None:
    """What CONFIG GET answered: names and values in turn, or a map."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return next((value for name, value in pairs if name == wanted.encode()), None)


def _page(reply: Reply) -> EnginePage:
    rows = [*zip(reply[1::2], reply[2::2], strict=True)]
    size = sum(len(sort) + len(value) for sort, value in rows)
    return EnginePage(rows, reply[0] == 1, len(rows), size)
