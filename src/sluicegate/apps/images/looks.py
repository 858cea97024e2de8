"""Looks: which originals look nearly the same, found in maps, so that it survives restarts.

Each original has a record of what it looks like: a perceptual hash of its brightness
(`kernels/perceptual_hash.py`), the colours of 4 x 4 parts of it, its shape. The hash is also a row
in each of four bands, which are partitions of the engine; to look within a distance is to read the
bands near it. Nothing is kept in memory.

    alike    at most `distance` bits of the hash, COLOURS_MAX of 255 in each colour of each part,
             and the shape within 2%; and neither is so plain that its hash says nothing

The hash alone would take a red coat for a blue one, and all plain pictures for each other. What is
alike is reported, or shared: then an original that looks like one that was there first has no
variants of its own, and is served those of the first. It is decided once, when it is first seen,
and kept with it. A first is never like another first, so nothing drifts along a chain.

Cost: an original decoded once more, as bulk work behind all other (`report`) or before its first
variant (`share`); a look takes 1 to 188 reads of partitions, 20 at the distance 4. Bounds:
`ROWS_MAX` of a partition are looked at, enough for 60 million originals of all kinds; `BACKLOG_MAX`
wait to be looked at, beyond that one is passed over, and looked at when its next variant is made.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from sluicegate.apps.images.contents import Contents, is_referable
from sluicegate.apps.images.maps import LOOKS, ImageMaps, settled
from sluicegate.apps.images.records import LookRecord, decode, encode
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.engine import Change, Entry, KeyRange, Place
from sluicegate.contracts.errors import SluicegateError
from sluicegate.contracts.image import ImageInfo
from sluicegate.contracts.request import Request
from sluicegate.kernels.perceptual_hash import bands_near, bands_of, hash_distance

BANDS: Final = "images/looks/bands"
COLOURS_MAX: Final = 20
SHAPE_PERMILLE_MAX: Final = 20
BITS_MIN: Final = 6  # of the hash, of either kind: a plain picture has fewer
BACKLOG_MAX: Final = 1_000
ROWS_MAX: Final = 1_000
_HASH_BYTES: Final = 8
_log: Final = logging.getLogger("sluicegate.images")

Describe = Callable[[str, Request], Awaitable[ImageInfo]]


class NearImage(NamedTuple):
    """An original that looks like another one: how many bits away."""

    distance: int
    digest: str
    look: LookRecord


@dataclass
class LookCounts:
    """What was done."""

    looked: int = 0
    alike: int = 0  # of them, to one that was there
    shared: int = 0  # requests served the variant of another original
    passed_over: int = 0  # for now, since too many waited
    failed: int = 0


@final
class Looks:
    """What originals look like. `describe` decodes one, with a place among the workers."""

    def __init__(
        self,
        maps: ImageMaps,
        contents: Contents,
        clock: Clock,
        describe: Describe,
        *,
        distance: int,
        shares: bool,
    ) -> None:
        self.distance = distance
        self.shares = shares
        self.counts = LookCounts()
        self._maps = maps
        self._contents = contents
        self._clock = clock
        self._describe = describe
        self._waiting: OrderedDict[str, str] = OrderedDict()
        self._task: asyncio.Task[None] | None = None

    # Who is like whom.

    async def look_of(self, digest: str) -> LookRecord | None:
        """What is known of an original."""
        raw = await self._maps.read(LOOKS, look_place(digest))
        return None if raw is None else decode(LookRecord, raw)

    async def near(self, digest: str, look: LookRecord, distance: int) -> list[NearImage]:
        """The other originals that look like this one, the nearest first."""
        if is_plain(look.hash):
            return []
        seen: set[bytes] = set()
        found: list[NearImage] = []
        for band, key in bands_near(look.hash, distance):
            page = await settled(
                self._maps.engine.scan(
                    BANDS, band_partition(band, key), KeyRange(rows_max=ROWS_MAX)
                )
            )
            for sort, _ in page.rows:
                bits = hash_distance(int.from_bytes(sort[:_HASH_BYTES], "big"), look.hash)
                if bits > distance or sort in seen:
                    continue
                seen.add(sort)
                other = sort[_HASH_BYTES:].hex()
                there = None if other == digest else await self.look_of(other)
                if there is not None and is_alike(look, there):
                    found.append(NearImage(bits, other, there))
        return sorted(found)

    async def walk(self) -> AsyncIterator[tuple[str, LookRecord]]:
        """All originals that were looked at."""
        async for entry in self._maps.walk(LOOKS):
            yield entry[0].hex(), decode(LookRecord, entry[2])

    # What is seen.

    async def first_of(self, digest: str, url: str, request: Request) -> str:
        """The original whose variants are served for this one: itself, or one that was first."""
        look = await self.look_of(digest)
        if look is None:
            look = await self._examine(digest, url, request)
        return look.same_as or digest

    async def stand_alone(self, digest: str) -> None:
        """Its first is gone: from now on it has variants of its own."""
        look = await self.look_of(digest)
        if look is not None and look.same_as:
            await self._put(digest, look._replace(same_as=""))

    async def is_there(self, digest: str) -> bool:
        """Whether an original can still be read."""
        known = await self.look_of(digest) is not None  # a removed image is not
        return known and is_referable((await self._maps.content(digest)).record)

    def note(self, digest: str, url: str) -> None:
        """Have it looked at when there is time."""
        if digest in self._waiting:
            return
        if len(self._waiting) >= BACKLOG_MAX:
            self.counts.passed_over += 1
            return
        self._waiting[digest] = url
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())

    async def drain(self) -> None:
        """Wait until all that was noted has been looked at."""
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """Look at nothing any more."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _work(self) -> None:
        while self._waiting:
            digest, url = next(iter(self._waiting.items()))
            try:
                if await self.look_of(digest) is None:
                    await self._examine(digest, url, Request(url, criticality=Criticality.BULK))
            except SluicegateError:  # there is no room now; its next variant brings it back
                self.counts.failed += 1
            except Exception:
                self.counts.failed += 1
                _log.exception("looking at %s", url)
            self._waiting.pop(digest, None)

    async def _examine(self, digest: str, url: str, request: Request) -> LookRecord:
        info = await self._describe(digest, request)
        colours, size = info.colours.hex(), (info.width, info.height)
        now_us = self._clock.now_us()
        look = LookRecord(url, info.perceptual_hash, colours, *size, now_us)
        self.counts.looked += 1
        firsts = [
            one for one in await self.near(digest, look, self.distance) if not one.look.same_as
        ]
        if firsts:
            self.counts.alike += 1
        if self.shares:
            for first in firsts:
                if await self._contents.take_up(first.digest):
                    look = look._replace(same_as=first.digest)
                    break
        await self._put(digest, look)
        return look

    async def _put(self, digest: str, look: LookRecord) -> None:
        # The bands last: whoever finds it there finds what it looks like.
        change = Change(LOOKS, *look_place(digest), encode(look))
        await self._maps.engine.write([change])
        if not is_plain(look.hash):
            await self._maps.engine.write(_band_changes(digest, look, there=True))


async def forget_look(maps: ImageMaps, entry: Entry) -> bool:
    """Forget an original, if its record is still this one; its bands first."""
    look = decode(LookRecord, entry[2])
    await maps.engine.write(_band_changes(entry[0].hex(), look, there=False))
    return await maps.remove(LOOKS, entry)


def look_place(digest: str) -> Place:
    """Where the look of an original is."""
    return bytes.fromhex(digest), b""


def band_partition(band: int, key: int) -> bytes:
    """The partition of those whose hash has these bits in this band."""
    return bytes([band]) + key.to_bytes(2, "big")


def _band_changes(digest: str, look: LookRecord, *, there: bool) -> list[Change]:
    sort = look.hash.to_bytes(_HASH_BYTES, "big") + bytes.fromhex(digest)
    value = b"" if there else None
    return [
        Change(BANDS, band_partition(band, key), sort, value) for band, key in bands_of(look.hash)
    ]


def is_plain(hash_: int) -> bool:
    """Whether a hash says too little to compare by."""
    ones = hash_.bit_count()
    return not BITS_MIN <= ones <= 64 - BITS_MIN


def is_alike(one: LookRecord, other: LookRecord) -> bool:
    """Whether colours and shape are those of the other, the hashes being near."""
    across = one.width * other.height, other.width * one.height
    if abs(across[0] - across[1]) * 1_000 > SHAPE_PERMILLE_MAX * max(across):
        return False
    pairs = zip(bytes.fromhex(one.colours), bytes.fromhex(other.colours), strict=True)
    return all(abs(left - right) <= COLOURS_MAX for left, right in pairs)
