"""The targets of a YCSB run: an engine directly, or a dispatcher over RESP.

Row n is in the partition of its hundred, under its own sort key, so a range of rows lies together.
A target returns bytes or raises; it checks nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.engine import Change, Engine, KeyRange
from sluicegate.contracts.errors import BadValue, MissingPackage
from sluicegate.contracts.key_values import tag_of
from sluicegate.stores.redis.settings import parse_url

if TYPE_CHECKING:
    from sluicegate.stores.redis.client import RedisClient

ROWS_IN_PARTITION: Final = 100
BYTES_MAX: Final = 16 << 20  # of a range
CONNECTIONS_MAX: Final = 256


class YcsbTarget(Protocol):
    """Rows by their numbers."""

    @property
    def name(self) -> str:
        """Its name, for people."""
        ...

    async def read(self, row: int) -> bytes | None:
        """The value of a row."""
        ...

    async def write(self, row: int, value: bytes) -> None:
        """Write a row."""
        ...

    async def swap(self, row: int, value: bytes, expected: bytes) -> bool:
        """Write this value if the row has that one; return whether it had."""
        ...

    async def scan(self, row: int, rows_max: int) -> Sequence[tuple[int, bytes]]:
        """Rows from this one on, as far as their partition goes."""
        ...

    async def load(self, rows: Sequence[tuple[int, bytes]]) -> None:
        """Write many rows."""
        ...

    async def close(self) -> None:
        """Drop what was written, where that can be done at once, and close."""
        ...


def partition_of(row: int) -> bytes:
    """The partition of a row."""
    return b"user%08d" % (row // ROWS_IN_PARTITION)


def sort_key_of(row: int) -> bytes:
    """Its sort key there."""
    return b"%02d" % (row % ROWS_IN_PARTITION)


def row_of(partition: bytes, sort: bytes) -> int:
    """The row that is there."""
    return int(partition.removeprefix(b"user")) * ROWS_IN_PARTITION + int(sort)


@final
class EngineTarget:
    """An engine, in a space of its own that is dropped at the end."""

    def __init__(self, engine: Engine, space: str) -> None:
        self._engine = engine
        self._space = space

    @property
    def name(self) -> str:
        """The engine's."""
        return f"engine {self._engine.name}"

    async def read(self, row: int) -> bytes | None:
        """By `read`."""
        found = self._engine.read(self._space, [(partition_of(row), sort_key_of(row))])
        if isawaitable(found):
            found = await found
        return found[0]

    async def write(self, row: int, value: bytes) -> None:
        """By `write`."""
        await self._engine.write([Change(self._space, partition_of(row), sort_key_of(row), value)])

    async def swap(self, row: int, value: bytes, expected: bytes) -> bool:
        """By `swap`."""
        change = Change(self._space, partition_of(row), sort_key_of(row), value)
        return await self._engine.swap(change, expected)

    async def scan(self, row: int, rows_max: int) -> Sequence[tuple[int, bytes]]:
        """By `scan`."""
        partition = partition_of(row)
        span = KeyRange(sort_key_of(row), rows_max=rows_max, bytes_max=BYTES_MAX)
        page = self._engine.scan(self._space, partition, span)
        if isawaitable(page):
            page = await page
        return [(row_of(partition, sort), value) for sort, value in page.rows]

    async def load(self, rows: Sequence[tuple[int, bytes]]) -> None:
        """By `load`."""
        await self._engine.load(
            self._space, [(partition_of(row), sort_key_of(row), value) for row, value in rows]
        )

    async def close(self) -> None:
        """Drop the space, and close the engine."""
        try:
            await self._engine.drop(self._space)
        finally:
            await self._engine.close()


@final
class RespTarget:
    """A running `sluicegate kv`, over so many connections; its table stays after the run."""

    def __init__(
        self, url: str, chance: Chance, *, table: str, connections: int, strong: bool
    ) -> None:
        if not 1 <= connections <= CONNECTIONS_MAX:
            raise BadValue("--connections", connections, f"give from 1 to {CONNECTIONS_MAX}")
        defaults = {
            "timeout_us": 30_000_000,
            "silence_us_max": 60_000_000,
            "unsent_bytes_max": 4 * BYTES_MAX,
            "reply_bytes_max": 4 * BYTES_MAX,
            "kind": "sluicegate kv",
        }
        settings = parse_url(url, defaults=defaults)
        try:
            from sluicegate.stores.redis.client import open_client  # noqa: PLC0415 - of an extra
        except ModuleNotFoundError as error:
            raise MissingPackage(error.name or "hiredis", "kv") from None
        self._clients = [open_client(settings, chance) for _ in range(connections)]
        self._next = 0
        self._table = table.encode()
        self._strong = strong
        self._where = str(settings.endpoints[0])

    @property
    def name(self) -> str:
        """Where it listens."""
        return f"sluicegate kv at {self._where}"

    async def connect(self) -> None:
        """Connect all, and ask for strong reads if they are wanted."""
        for client in self._clients:
            await client.connect()
            if self._strong:
                await client.call("SG.STRONG", "ON")

    async def read(self, row: int) -> bytes | None:
        """GET."""
        return cast("bytes | None", await self._client().call("GET", self._key(row)))

    async def write(self, row: int, value: bytes) -> None:
        """SET."""
        await self._client().call("SET", self._key(row), value)

    async def swap(self, row: int, value: bytes, expected: bytes) -> bool:
        """SG.PUTIF."""
        reply: Any = await self._client().call(
            "SG.PUTIF", self._key(row), value, "TAG", tag_of(expected).hex()
        )
        applied = reply[b"done"] if isinstance(reply, dict) else reply[0]
        return bool(applied)

    async def scan(self, row: int, rows_max: int) -> Sequence[tuple[int, bytes]]:
        """SG.RANGE."""
        partition = partition_of(row)
        name = b"%b:%b" % (self._table, partition)
        reply: Any = await self._client().call(
            "SG.RANGE", name, sort_key_of(row), "LIMIT", rows_max, "BYTES", BYTES_MAX
        )
        rows = reply[b"rows"] if isinstance(reply, dict) else reply[0]
        return [(row_of(partition, sort), value) for sort, value, _ in rows]

    async def load(self, rows: Sequence[tuple[int, bytes]]) -> None:
        """MSET."""
        arguments: list[bytes] = []
        for row, value in rows:
            arguments += (self._key(row), value)
        await self._client().call("MSET", *arguments)

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients:
            await client.close()

    def _client(self) -> RedisClient:
        self._next = (self._next + 1) % len(self._clients)
        return self._clients[self._next]

    def _key(self, row: int) -> bytes:
        return b"%b:%b:%b" % (self._table, partition_of(row), sort_key_of(row))
