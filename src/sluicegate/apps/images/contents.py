"""Contents: bytes stored once under the digest of what they are, and verified when they are read.

A record is `writing` before its blob is there, and `live` afterwards. An entry that
refers to a content is written, and then the record is checked (`refer`). So a killed process leaves
a blob too many and never an acknowledged reference to nothing. Blobs are created and not
overwritten, except damaged ones.

Collection (`collect.py`) runs beside writers, in other processes too. Every step is a
compare-and-swap of the record:

    none        take a new generation, swap to writing, write the blob, swap to live
    writing     write the same blob, swap to live: another process may have been killed
    live        nothing to do
    condemned   swap to live: a collector then finds another record than it had read
    gone        as none: its blob may vanish at any moment

A generation is never reused (`ImageMaps.new_generation`), so a delete that comes late never meets
the blob of a live content. No step depends on a clock: the grace period of collection
only spares work.

Originals that were stored or verified lately are in memory, so many bytes of them: who shows an
image asks for it in several sizes.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Final, NamedTuple, Protocol, TypeVar, final

from sluicegate.apps.images.maps import ImageMaps
from sluicegate.apps.images.records import (
    CONDEMNED,
    GONE,
    LIVE,
    WRITING,
    ContentRecord,
    encode,
)
from sluicegate.contracts.blob_store import BlobStore
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, Conflict
from sluicegate.kernels.lru_ttl import FRESH, LruTtl

THREADS_MAX: Final = 16
HASHED_HERE_BYTES: Final = 1 << 16
TRIES_MAX: Final = 32
RECENT_LEAST: Final = 4  # originals that have room in memory, however large
_RECENT_US: Final = 600_000_000
_NAME: Final = re.compile(r"[0-9a-f]{2}/([0-9a-f]{64})(?:\.([1-9][0-9]{0,18}))?")
_log: Final = logging.getLogger("sluicegate.images")

T = TypeVar("T")


class BlobCall(Protocol):
    """Makes a blocking call of a blob store."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """Return the result of the call."""
        ...


class Content(NamedTuple):
    """Bytes that are stored: their digest, and which blob has them."""

    digest: str
    generation: int
    size: int
    known: bool = False  # they were there before


@final
class Contents:
    """The stored bytes of originals and variants."""

    def __init__(
        self,
        blobs: BlobStore,
        maps: ImageMaps,
        clock: Clock,
        recent_bytes: int = 0,
        run: BlobCall | None = None,
    ) -> None:
        """`run` makes a call of the blob store; in a thread, unless it is given."""
        self._blobs = blobs
        self._maps = maps
        self._clock = clock
        self._threads = ThreadPoolExecutor(THREADS_MAX, "images-blobs")
        self._run = self._in_thread if run is None else run
        self._recent: LruTtl[bytes] | None = None
        if recent_bytes:
            largest = max(1, recent_bytes // RECENT_LEAST)
            self._recent = LruTtl(
                recent_bytes, ttl_us=_RECENT_US, beta=0.0, entry_bytes_max=largest
            )
        self.damaged = 0
        self.written = 0
        self.bytes_written = 0

    async def store(self, data: bytes, *, again: bool = False) -> Content:
        """Keep the bytes, durably when it returns; `again` for what was found damaged."""
        if len(data) <= HASHED_HERE_BYTES:  # it takes less than to have a thread do it
            digest = sha256(data).hexdigest()
        else:
            digest = await self._run(lambda: sha256(data).hexdigest())
        for _ in range(TRIES_MAX):
            raw, record = await self._maps.content(digest)
            if record is not None and is_referable(record):
                if again:
                    await self._write(digest, record.generation, data, again=True)
                if await self._make_live(digest, raw, record):
                    return Content(digest, record.generation, len(data), known=True)
                continue
            if record is None or record.state == GONE:
                generation = await self._maps.new_generation()
                record = ContentRecord(WRITING, len(data), generation, self._clock.now_us())
                if not await self._maps.swap_content(digest, raw, record):
                    continue
                raw = encode(record)
            await self._write(digest, record.generation, data, again=again)
            if await self._make_live(digest, raw, record):
                return Content(digest, record.generation, len(data))
        raise _busy(digest)

    async def refer(
        self, data: bytes, put: Callable[[Content], Awaitable[object]], *, again: bool = False
    ) -> Content:
        """Store the bytes, `put` an entry that refers to them, and see that they are kept."""
        for _ in range(TRIES_MAX):
            content = await self.store(data, again=again)
            await put(content)
            if await self.take_up(content.digest, content.generation):
                return content
        raise _busy(sha256(data).hexdigest())

    async def read(self, digest: str, generation: int, size: int) -> bytes | None:
        """The bytes; None if they are missing, or are not what they should be."""
        name = blob_name(digest, generation)
        data = await self._run(lambda: self._get(name, digest, size))
        if data is None:
            self.damaged += 1
            _log.error("the blob %s is missing or damaged", name)
        return data

    async def original(self, digest: str) -> bytes | None:
        """The bytes of this digest, wherever they are now."""
        record = (await self._maps.content(digest)).record
        if record is None or not is_referable(record):
            return None
        if self._recent is not None:
            state, found = self._recent.get(digest, self._clock.now_us(), 0.0)
            if state == FRESH and found is not None:
                return found
        data = await self.read(digest, record.generation, record.size)
        if data is not None:
            self.keep(digest, data)
        return data

    def keep(self, digest: str, data: bytes) -> None:
        """Have an original in memory for those who ask for it next."""
        if self._recent is not None:
            now_us, epoch = self._clock.now_us(), self._recent.begin(digest)
            self._recent.put(digest, data, len(data), epoch=epoch, now_us=now_us, draw=0.0)

    async def take_up(self, digest: str, generation: int | None = None) -> bool:
        """Keep a content that an entry refers to; return whether it is there, of this generation.

        Call it after the entry was written: a collection that has not seen the entry then finds
        another record than it had read.
        """
        for _ in range(TRIES_MAX):
            raw, record = await self._maps.content(digest)
            if record is None or not is_referable(record):
                return False
            if generation not in (None, record.generation):
                return False
            if await self._make_live(digest, raw, record):
                return True
        raise _busy(digest)

    async def _make_live(self, digest: str, raw: bytes | None, record: ContentRecord) -> bool:
        """Swap the record to live, if it is not; return whether it was what was read."""
        if record.state == LIVE:
            return True
        live = record._replace(state=LIVE, since_us=self._clock.now_us(), run=0)
        return await self._maps.swap_content(digest, raw, live)

    async def names(self, prefix: str, names_max: int) -> list[str]:
        """The names of blobs that begin so."""
        return list(await self._run(lambda: self._blobs.names(prefix, names_max=names_max)))

    async def delete(self, name: str) -> None:
        """Delete a blob, for collection alone."""
        await self._run(lambda: self._blobs.delete(name))

    async def close(self) -> None:
        """Let calls under way end."""
        await asyncio.to_thread(self._threads.shutdown)
        self._blobs.close()

    def _get(self, name: str, digest: str, size: int) -> bytes | None:
        """The bytes of a blob if they are what they should be."""
        try:
            blob = self._blobs.get(name, bytes_max=size)
        except BadValue:  # it is longer
            return None
        if blob is None or (blob.digest or sha256(blob.data).hexdigest()) != digest:
            return None
        return blob.data

    async def _write(self, digest: str, generation: int, data: bytes, *, again: bool) -> None:
        name = blob_name(digest, generation)

        def put() -> None:
            if not again:
                try:
                    self._blobs.put(name, data, if_absent=True)
                except Conflict:
                    # Left by whoever was killed before the record, or written at this moment.
                    if self._get(name, digest, len(data)) is not None:
                        return
                else:
                    return
            self._blobs.put(name, data)

        await self._run(put)
        self.written += 1
        self.bytes_written += len(data)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _busy(digest: str) -> Conflict:
    return Conflict(f"the content {digest}", "others write or collect it all the time")


def blob_name(digest: str, generation: int) -> str:
    """The name of a blob."""
    suffix = f".{generation}" if generation else ""
    return f"{digest[:2]}/{digest}{suffix}"


def parse_blob_name(name: str) -> tuple[str, int] | None:
    """Digest and generation of a blob of ours; None of any other."""
    found = _NAME.fullmatch(name)
    if found is None or found[1][:2] != name[:2]:
        return None
    return found[1], int(found[2] or 0)


def is_referable(record: ContentRecord | None) -> bool:
    """Whether an entry may point to it."""
    return record is not None and record.state in (LIVE, CONDEMNED)
