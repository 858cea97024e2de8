"""Maps: URL to content, digest to content, content and specification to variant, in an engine.

Each is a space of the key-value engine, so what an engine promises (durable when a write returns,
compare-and-swap, several processes) holds here. A key is a digest: URLs and specifications are as
long as callers make them, and an engine's keys are not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterator
from hashlib import sha256
from typing import Final, NamedTuple, TypeVar, final

from sluicegate.apps.images.records import (
    BoundsRecord,
    ContentRecord,
    LeaseRecord,
    R,
    Record,
    UrlRecord,
    VariantRecord,
    decode,
    encode,
)
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.engine import Change, Engine, Entry, KeyRange, Place
from sluicegate.contracts.errors import Conflict

URLS: Final = "images/urls"
CONTENTS: Final = "images/contents"
VARIANTS: Final = "images/variants"
GENERATIONS: Final = "images/generations"
COLLECTOR: Final = "images/collector"
LOOKS: Final = "images/looks"
BOUNDS: Final = "images/bounds"
BLOCKS: Final = "images/blocks"
TAKEDOWNS: Final = "images/takedowns"
_BOUNDS_PLACE: Final = (b"bounds", b"")
_EPOCH_PLACE: Final = (b"epoch", b"")
_NEXT_PLACE: Final = (b"next", b"")
_LEASE_PLACE: Final = (b"lease", b"")
# Below, generations were counted for each content, and were reused.
_GENERATION_FIRST: Final = 1_000
GENERATIONS_AT_ONCE: Final = 1_000
TRIES_MAX: Final = 100
WALKED_AT_ONCE: Final = 1_000

T = TypeVar("T")


class Stored(NamedTuple):
    """A content's record, and the bytes by which it can be swapped; None where there is none."""

    raw: bytes | None
    record: ContentRecord | None


@final
class ImageMaps:
    """The three maps of one service."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._generations: Iterator[int] = iter(())

    async def url(self, url: str) -> UrlRecord | None:
        """What is known of a URL."""
        return _decoded(UrlRecord, await self.read(URLS, url_place(url)))

    async def put_url(self, record: UrlRecord) -> None:
        """Durable when it returns."""
        await self.put(URLS, url_place(record.url), record)

    async def variant(self, original: str, engine: str, spec: str) -> VariantRecord | None:
        """What is known of a variant of this original."""
        place = variant_place(original, engine, spec)
        return _decoded(VariantRecord, await self.read(VARIANTS, place))

    async def variants(self, original: str, rows_max: int) -> list[VariantRecord]:
        """Return the records of at most `rows_max` variants of this original."""
        span = KeyRange(rows_max=rows_max)
        page = await settled(self.engine.scan(VARIANTS, bytes.fromhex(original), span))
        return [decode(VariantRecord, value) for _, value in page.rows]

    async def put_variant(self, original: str, record: VariantRecord) -> None:
        """Durable when it returns."""
        place = variant_place(original, record.engine, record.spec)
        await self.put(VARIANTS, place, record)

    async def swap_variant(
        self, original: str, before: VariantRecord, record: VariantRecord
    ) -> bool:
        """Replace the record of a variant if it still is what was read; whether it was."""
        place = variant_place(original, record.engine, record.spec)
        return await self.engine.swap(Change(VARIANTS, *place, encode(record)), encode(before))

    async def bounds_since_us(self, bounds: str, now_us: int) -> int:
        """Since when these bounds hold; from now on, if it was others until now."""
        record = _decoded(BoundsRecord, await self.read(BOUNDS, _BOUNDS_PLACE))
        if record is None or record.bounds != bounds:
            record = BoundsRecord(bounds, now_us)
            await self.put(BOUNDS, _BOUNDS_PLACE, record)
        return record.since_us

    async def content(self, digest: str) -> Stored:
        """What is known of stored bytes."""
        raw = await self.read(CONTENTS, content_place(digest))
        return Stored(raw, _decoded(ContentRecord, raw))

    async def swap_content(
        self, digest: str, expected: bytes | None, record: ContentRecord | None
    ) -> bool:
        """Replace the record if it still is what was read; return whether it was."""
        partition, sort = content_place(digest)
        value = None if record is None else encode(record)
        return await self.engine.swap(Change(CONTENTS, partition, sort, value), expected)

    async def new_generation(self) -> int:
        """A number that no content had before; this process takes many of them at a time."""
        found = next(self._generations, None)
        if found is not None:
            return found
        for _ in range(TRIES_MAX):
            raw = await self.read(GENERATIONS, _NEXT_PLACE)
            first = _GENERATION_FIRST if raw is None else int(raw)
            after = first + GENERATIONS_AT_ONCE
            if await self.engine.swap(Change(GENERATIONS, *_NEXT_PLACE, b"%d" % after), raw):
                self._generations = iter(range(first + 1, after))
                return first
        raise Conflict("the counter of generations", "other processes change it all the time")

    async def lease(self) -> tuple[bytes | None, LeaseRecord | None]:
        """The collector's lease, and the bytes by which it can be swapped."""
        raw = await self.read(COLLECTOR, _LEASE_PLACE)
        return raw, _decoded(LeaseRecord, raw)

    async def swap_lease(self, expected: bytes | None, record: LeaseRecord) -> bool:
        """Replace the lease if it still is what was read; return whether it was."""
        return await self.engine.swap(Change(COLLECTOR, *_LEASE_PLACE, encode(record)), expected)

    async def walk(self, space: str) -> AsyncIterator[Entry]:
        """All entries of a space, in an order of the engine's own."""
        after: Place | None = None
        while entries := await self.engine.walk(space, after, WALKED_AT_ONCE):
            for entry in entries:
                yield entry
            after = entries[-1][0], entries[-1][1]

    async def remove(self, space: str, entry: Entry) -> bool:
        """Delete an entry if it still is what was walked over."""
        partition, sort, value = entry
        return await self.engine.swap(Change(space, partition, sort, None), value)

    async def read(self, space: str, place: Place) -> bytes | None:
        """The value at a place."""
        return (await settled(self.engine.read(space, (place,))))[0]

    async def put(self, space: str, place: Place, record: Record) -> None:
        """Durable when it returns."""
        await self.engine.write([Change(space, *place, encode(record))])

    async def is_blocked(self, url: str, content: str) -> bool:
        """Whether a URL or a hash was taken down, and is refused."""
        places = [block_place("url", url)]
        if content:
            places.append(block_place("id", content))
        return any(one is not None for one in await settled(self.engine.read(BLOCKS, places)))

    async def epoch(self) -> int:
        """When something was removed last, by any process."""
        raw = await self.read(TAKEDOWNS, _EPOCH_PLACE)
        return 0 if raw is None else int(raw)

    async def raise_epoch(self, now_us: int) -> None:
        """Have every process drop the images that it keeps in memory."""
        await self.engine.write([Change(TAKEDOWNS, *_EPOCH_PLACE, b"%d" % now_us)])


async def settled(answer: MaybeAwaitable[T]) -> T:
    """The answer of an engine that may have it at once."""
    return await answer if isinstance(answer, Awaitable) else answer


def url_place(url: str) -> Place:
    """Where a URL's record is."""
    return sha256(url.encode()).digest(), b""


def block_place(kind: str, value: str) -> Place:
    """Where the block of a URL or a hash is."""
    return sha256(f"{kind}\n{value}".encode()).digest(), b""


def content_place(digest: str) -> Place:
    """Where the record of stored bytes is."""
    return bytes.fromhex(digest), b""


def variant_place(original: str, engine: str, spec: str) -> Place:
    """Where a variant's record is: with the others of its original, which are removed together."""
    return bytes.fromhex(original), sha256(f"{engine}\n{spec}".encode()).digest()


def _decoded(kind: type[R], raw: bytes | None) -> R | None:
    return None if raw is None else decode(kind, raw)
