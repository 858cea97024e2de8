"""Cassandra: an engine that outlives its machines, over the asyncio driver of the C++ client.

A partition of a space is a partition of one table (`schema.py`): its rows lie together, in
the order of their sort keys, on as many nodes as there are copies. Reads and writes are answered by
a quorum of these, so a read sees every write that was acknowledged, with any one node gone.

*All or none.* The changes of a call in one partition are one batch of one instant; several
partitions are several batches, side by side.

*What is later.* A plain write carries the instant of the wall clock here, which never repeats or
goes back within a process. A swap is a conditional write: the nodes agree on it by Paxos, and give
it an instant of their own clocks. Within a process the two exclude each other
(`partition_locks.py`). Between processes the later one wins as far as clocks agree: with
`order=clock` all dispatchers and nodes must keep theirs together, and a plain write that overlaps a
swap of the same place elsewhere may count as the earlier one. With `order=paxos` every write is a
conditional one whose condition always holds. Then only the nodes decide, whatever any clock says;
it costs four round trips in place of one (here 4,200 plain writes a second, and 740 of those).

*Walks and drops* go by an index of each space's partitions. A partition is entered before it is
first written, and again every `known_us`, so an entry that is old and leads to nothing can be taken
out by whoever walks by. What a drop finds is deleted at once, and its young entries are left to go
by themselves within the hour: somebody may still rely on them, and write there anew.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, final

from sluicegate.contracts.engine import Change, EnginePage, Entry, KeyRange, Place, Update
from sluicegate.contracts.errors import OutcomeUnknown, Unavailable
from sluicegate.stores.engines.batches import all_changes, all_of, batches_of, some_at_once
from sluicegate.stores.engines.bounds import (
    CHANGE_BYTES,
    check_after,
    check_changes,
    check_place,
    check_rows_max,
    check_space,
    check_update,
)
from sluicegate.stores.engines.bucket_walk import BucketWalk
from sluicegate.stores.engines.cassandra.schema import AFTER_ALL, BUCKETS, bucket_of
from sluicegate.stores.engines.cassandra.session import (
    SWAP_NOT_MADE,
    WRITE_NOT_MADE,
    CassandraSession,
)
from sluicegate.stores.engines.cassandra.url import PAXOS, CassandraSettings, parse_url
from sluicegate.stores.engines.partition_locks import PartitionLocks
from sluicegate.stores.engines.updates import Swap, update_by_swaps

SHARDS: Final = 16
SORTS_MAX: Final = 32  # that one read names
# A scan is one question up to the first of these: then it sees all of a call or nothing. What
# needs more rows than the second is asked in several.
CHUNK_ROWS_MIN: Final = 128
CHUNK_ROWS_MAX: Final = 1_000
SIZES_MAX: Final = 1_024  # spaces of which that is remembered
AT_ONCE: Final = 16  # buckets or partitions of a walk or a drop
PARTS_MAX: Final = 1_000  # that a drop asks of the index at once
UNKNOWN_AFTER_S: Final = 3_600  # no process relies on an entry as old as that
TRIES_MAX: Final = 8  # questions about one conditional batch
PAUSE_S: Final = 0.005  # at most, after the first; twice that after the next
TRIED_TTL_S: Final = 86_400  # that its number is kept
TTL_MARGIN_US: Final = 60_000_000  # clocks differ, and nothing may go too early
TTL_S_MAX: Final = 630_720_000  # twenty years: more than that, Cassandra does not take


def open_cassandra(url: str) -> CassandraEngine:
    """The engine of `cassandra://...`; it connects at the first request."""
    return CassandraEngine(parse_url(url))


@final
class CassandraEngine:
    """Ordered bytes in a cluster; used by one event loop."""

    def __init__(self, settings: CassandraSettings) -> None:
        self.name = "cassandra"
        self.shared = True
        self._settings = settings
        self._link = CassandraSession(settings)
        self._turns = PartitionLocks()
        self._paxos = settings.order == PAXOS
        self._marked_until: dict[tuple[str, bytes], int] = {}  # until when, the oldest first
        self._tries = 0  # conditional batches so far
        self._sizes: dict[str, int] = {}  # a row's bytes, as last seen

    @property
    def durability(self) -> str:
        """What an acknowledgement means."""
        return (
            f"{self._settings.consistency.replace('_', ' ')} of the copies have it in their commit "
            "logs, which each node syncs as its commitlog_sync says (every 10 s, unless set)"
        )

    # Reads.

    async def read(self, space: str, places: Sequence[Place]) -> Sequence[bytes | None]:
        """The values at these places."""
        check_space(space)
        by_partition: dict[bytes, list[bytes]] = {}
        for partition, sort in places:
            check_place(partition, sort)
            by_partition.setdefault(partition, []).append(sort)
        await self._link.ready()
        if len(places) == 1:
            ((partition, sort),) = places
            return [await self._get(space, partition, sort)]
        asks = [
            self._get_each(space, partition, sorts[at : at + SORTS_MAX])
            for partition, every in by_partition.items()
            for sorts in [[*dict.fromkeys(every)]]
            for at in range(0, len(sorts), SORTS_MAX)
        ]
        values: dict[Place, bytes] = {}
        for part in await all_of(asks):
            values.update(part)
        return [values.get((partition, sort)) for partition, sort in places]

    async def _get(self, space: str, partition: bytes, sort: bytes) -> bytes | None:
        rows = await self._link.run(self._link.bound("get", [space, partition, sort]))
        return rows[0][0] if rows else None

    async def _get_each(
        self, space: str, partition: bytes, sorts: Sequence[bytes]
    ) -> dict[Place, bytes]:
        rows = await self._link.run(self._link.bound("get_each", [space, partition, [*sorts]]))
        return {(partition, sort): value for sort, value in rows if value is not None}

    async def scan(self, space: str, partition: bytes, span: KeyRange) -> EnginePage:
        """Rows of one partition, from either side."""
        check_space(space)
        check_place(partition, b"")
        begin, end, reverse, rows_max, bytes_max = span
        check_rows_max(rows_max)
        await self._link.ready()
        end = AFTER_ALL if end is None else end
        begin = min(begin, AFTER_ALL)
        page_rows: list[tuple[bytes, bytes]] = []
        size = 0
        while begin < end:
            limit = self._chunk(space, rows_max - len(page_rows), bytes_max - size)
            select = self._link.bound(
                "down" if reverse else "up", [space, partition, begin, end, limit]
            )
            rows = await self._link.run(select)
            for sort, value in rows:
                if page_rows and (len(page_rows) >= rows_max or size >= bytes_max):
                    return EnginePage(page_rows, True, len(page_rows), size)
                page_rows.append((sort, value))
                size += len(sort) + len(value)
            if page_rows:
                self._record_row_size(space, size // len(page_rows))
            if len(rows) < limit:
                break
            if reverse:
                end = rows[-1][0]
            else:
                begin = rows[-1][0] + b"\0"
        return EnginePage(page_rows, False, len(page_rows), size)

    def _chunk(self, space: str, rows_left: int, bytes_left: int) -> int:
        """Return the rows of the next query: those wanted and one more, if they should fit."""
        likely = max(bytes_left, 0) // (self._sizes.get(space, 0) + 1) + 1
        return min(rows_left + 1, max(likely, CHUNK_ROWS_MIN), CHUNK_ROWS_MAX)

    def _record_row_size(self, space: str, row: int) -> None:
        if space not in self._sizes and len(self._sizes) >= SIZES_MAX:
            self._sizes.pop(next(iter(self._sizes)))
        self._sizes[space] = row

    # Writes.

    async def write(self, changes: Sequence[Change]) -> None:
        """Make these changes; those in one partition all or none."""
        check_changes(changes)
        groups: dict[tuple[str, bytes], dict[bytes, Change]] = {}
        for change in changes:
            # In a batch all have one instant, so what is changed twice must be in it once.
            groups.setdefault((change.space, change.partition), {})[change.sort] = change
        if not groups:
            return
        await self._link.ready()
        if len(groups) == 1:
            (((space, partition), group),) = groups.items()
            await self._write(space, partition, group.values())
            return
        await all_changes(
            [
                self._write(space, partition, group.values())
                for (space, partition), group in groups.items()
            ]
        )

    async def swap(self, change: Change, expected: bytes | None) -> bool:
        """Make it if the value there is `expected`; the nodes compare and write as one."""
        check_changes([change])
        await self._link.ready()
        work = partial(self._swap, change, expected)
        return await self._turns.run(change.space, change.partition, work, alone=True)

    async def update(self, update: Update) -> bool:
        """Read, decide, and have the nodes compare all that was read and write, as one."""
        check_update(update)
        work = partial(update_by_swaps, self._link.what, update, self.read, self._swap_all)
        return await self._turns.run(update.space, update.partition, work, alone=True)

    async def _swap_all(self, space: str, partition: bytes, swaps: Sequence[Swap]) -> bool:
        if len(swaps) == 1:
            ((_, expected, change),) = swaps
            return change is None or await self._swap(change, expected)
        commands: list[tuple[str, list[Any]]] = []
        for sort, expected, change in swaps:
            place = [space, partition, sort]
            if change is None:
                # A condition comes with a write: of what is there already, for ever.
                commands.append(("put_if", [0, expected, *place, expected]))
            elif change.value is None and expected is not None:
                commands.append(("delete_if", [*place, expected]))
            else:
                ttl_s = self._ttl_s(change.purge_us)
                commands.append(("put_if", [ttl_s, change.value, *place, expected]))
        await self._index_partition(space, partition)
        return await self._write_marked(space, partition, "try", commands)

    async def _swap(self, change: Change, expected: bytes | None) -> bool:
        space, partition, sort, value, purge_us = change
        link = self._link
        place = [space, partition, sort]
        if value is None and expected is None:
            return not await link.run(link.serial(link.bound("get", place)))
        if value is None:
            return await self._write_marked(
                space, partition, "try", [("delete_if", [*place, expected])]
            )
        await self._index_partition(space, partition)
        put = [self._ttl_s(purge_us), value, *place, expected]
        return await self._write_marked(space, partition, "try", [("put_if", put)])

    async def _write_marked(
        self, space: str, partition: bytes, mark: str, commands: Sequence[tuple[str, list[Any]]]
    ) -> bool:
        """Have the nodes agree on a conditional batch; whether its condition held.

        Where others compete, or a node is lost amid it, the answer may be that nobody knows. Then
        the partition is asked which of our batches was its last, behind all that is under way: if
        it is not this one, it never will be, and it can be tried anew.
        """
        link = self._link
        late_at = asyncio.get_running_loop().time() + self._settings.timeout_us / 1e6
        number = 0
        unknown = False  # whether the batch of this number was made
        for turn in range(TRIES_MAX):
            try:
                if unknown:
                    query = link.bound("tried", [link.engine_id, space, partition])
                    rows = await link.run(link.serial(query))
                    if rows and rows[0][0] == number:
                        return True
                    unknown = False
                self._tries += 1
                number = self._tries
                mark_values = [TRIED_TTL_S, link.engine_id, number, space, partition]
                statements = [link.bound(mark, mark_values, again=False)]
                statements += [link.bound(name, values, again=False) for name, values in commands]
                batch = link.batch(statements, again=False)
                rows = await link.run(batch, batch=True, not_made=SWAP_NOT_MADE)
                return bool(rows[0][0])
            except Unavailable as error:
                unknown = unknown or isinstance(error, OutcomeUnknown)
                if turn == TRIES_MAX - 1 or asyncio.get_running_loop().time() >= late_at:
                    if unknown:
                        raise OutcomeUnknown(error.what, error.detail) from error
                    raise
            # Whoever competes with us pauses for another time than we do.
            share = zlib.crc32(b"%b %d" % (link.engine_id, self._tries)) / 2**32
            await asyncio.sleep(PAUSE_S * (1 << turn) * share)
        raise Unavailable(link.what, "it was never tried")

    async def load(self, space: str, entries: Sequence[Entry]) -> None:
        """Write many, in batches of a bounded size, so many at a time."""
        check_space(space)
        settings = self._settings
        batches = batches_of(
            space, entries, bytes_max=settings.batch_bytes_max, change_bytes=CHANGE_BYTES
        )
        await self._link.ready()
        works = [partial(self._write, space, partition, batch) for partition, batch in batches]
        await some_at_once(works, settings.load_max)

    async def _write(self, space: str, partition: bytes, changes: Iterable[Change]) -> None:
        work = partial(self._write_now, space, partition, changes)
        # With Paxos each is alone: those that compete would only make each other begin again.
        await self._turns.run(space, partition, work, alone=self._paxos)

    async def _write_now(self, space: str, partition: bytes, changes: Iterable[Change]) -> None:
        link = self._link
        commands: list[tuple[str, list[Any]]] = []
        for _, _, sort, value, purge_us in changes:
            place = [space, partition, sort]
            if value is None:
                commands.append(("delete", place))
            else:
                commands.append(("put", [self._ttl_s(purge_us), value, *place]))
                await self._index_partition(space, partition)
        if self._paxos:
            if not await self._write_marked(space, partition, "try_if", commands):
                raise Unavailable(link.what, "somebody else has set the column guard")
            return
        statements = [link.bound(name, values) for name, values in commands]
        if len(statements) == 1:
            await link.run(statements[0], not_made=WRITE_NOT_MADE)
        else:
            batch = link.batch(statements, again=True)
            await link.run(batch, batch=True, not_made=WRITE_NOT_MADE)

    async def _index_partition(self, space: str, partition: bytes) -> None:
        """Have the partition in the index."""
        marked = self._marked_until
        key = (space, partition)
        now_us = self._link.now_us()
        if marked.get(key, 0) > now_us:
            return
        await self._link.run(self._link.bound("know", [space, bucket_of(partition), partition]))
        marked.pop(key, None)
        if len(marked) >= self._settings.known_max:
            marked.pop(next(iter(marked)))
        marked[key] = now_us + self._settings.known_us

    def _ttl_s(self, purge_us: int) -> int:
        """How long from now Cassandra is to keep it, in its seconds; 0 is for ever."""
        if purge_us <= 0:
            return 0
        left_s = -(-(purge_us + TTL_MARGIN_US - self._link.now_us()) // 1_000_000)
        return max(1, left_s) if left_s <= TTL_S_MAX else 0

    # Whole spaces.

    async def walk(self, space: str, after: Place | None, rows_max: int) -> Sequence[Entry]:
        """Entries by their bucket, their partition, and their sort key."""
        check_space(space)
        check_rows_max(rows_max)
        check_after(after)
        await self._link.ready()
        walk = BucketWalk(
            CassandraBuckets(self, space),
            rows_max=rows_max,
            bytes_max=self._settings.walk_bytes_max,
            at_once=AT_ONCE,
        )
        return await walk.entries(after)

    async def parts_of(
        self, space: str, bucket: int, after: bytes, limit: int
    ) -> list[tuple[bytes, int | None]]:
        """Partitions of a bucket behind one, and when each was entered."""
        rows = await self._link.run(self._link.bound("parts", [space, bucket, after, limit]))
        return [(part, seen_us) for part, seen_us in rows]

    async def unknow(self, space: str, part: bytes, seen_us: int) -> bool:
        """Take an entry that leads to nothing out of the index, if it is old; whether it is."""
        old = seen_us < self._link.now_us() - UNKNOWN_AFTER_S * 1_000_000
        if old:
            # As it was when it was seen: one that was entered again meanwhile stays.
            values = [seen_us, space, bucket_of(part), part]
            await self._link.run(self._link.bound("unknow", values))
        return old

    async def drop(self, space: str) -> None:
        """Delete every partition; compactions later take from the disks what was deleted."""
        check_space(space)
        await self._link.ready()
        works = [partial(self._drop, space, bucket) for bucket in range(BUCKETS)]
        await some_at_once(works, self._settings.load_max)

    async def _drop(self, space: str, bucket: int) -> None:
        part = b""
        while parts := await self.parts_of(space, bucket, part, PARTS_MAX):
            for at in range(0, len(parts), AT_ONCE):
                those = parts[at : at + AT_ONCE]
                await all_of([self._forget(space, bucket, *one) for one in those])
            part = parts[-1][0]

    async def _forget(self, space: str, bucket: int, part: bytes, seen_us: int | None) -> None:
        link = self._link
        forget = partial(self._link.run, link.bound("forget", [space, part]))
        await self._turns.run(space, part, forget, alone=True)
        if seen_us is not None and not await self.unknow(space, part, seen_us):
            await link.run(link.bound("know_for", [UNKNOWN_AFTER_S, space, bucket, part]))

    def shard_of(self, space: str, partition: bytes) -> str:
        """One of sixteen: nodes are slow for none or for all, but a large partition is so alone."""
        return f"ring-{zlib.crc32(partition) % SHARDS:02d}"

    async def close(self) -> None:
        """End the session."""
        await self._link.close()


@final
class CassandraBuckets:
    """A space for `BucketWalk`; partitions that were empty for long are removed on the way."""

    __slots__ = ("_engine", "_seen_us", "_space")

    def __init__(self, engine: CassandraEngine, space: str) -> None:
        self._engine = engine
        self._space = space
        self._seen_us: dict[bytes, int | None] = {}

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
        results = await all_of(
            [engine.parts_of(self._space, bucket, after, limit) for bucket, after in asks]
        )
        self._seen_us = {part: seen_us for parts in results for part, seen_us in parts}
        return [[part for part, _ in parts] for parts in results]

    async def pages(
        self, parts: Sequence[bytes], begin: bytes, rows_max: int, bytes_max: int
    ) -> Sequence[EnginePage]:
        """Rows, of several partitions at once."""
        return await all_of([self._page(part, begin, rows_max, bytes_max) for part in parts])

    async def _page(self, part: bytes, begin: bytes, rows_max: int, bytes_max: int) -> EnginePage:
        page = await self._engine.scan(
            self._space,
            part,
            KeyRange(begin, rows_max=rows_max, bytes_max=bytes_max),
        )
        seen_us = self._seen_us.get(part)
        if not page.rows and not begin and seen_us is not None:
            await self._engine.unknow(self._space, part, seen_us)
        return page
