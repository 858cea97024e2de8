"""Contents: bytes stored once under the digest of what they are, and verified when they are read.

A blob is written before the record that names it, and a record before anything that refers to it,
so whoever is killed leaves a blob too many and never a reference to nothing. Blobs are created and
not overwritten; only what is found damaged is written again.

Collection (`collect.py`) runs beside writers, in other processes too. The record decides between
them, by compare-and-swap:

    none        write the blob, then the record
    live        there is nothing to do
    condemned   make it live again: whoever collects finds another record than it had read
    gone        its blob may vanish at any moment: write the next generation, a blob of another name

So a delete that comes late never meets a blob that a writer relies on. What is assumed: from
reading a record to referring to it takes less than the grace period of collection.

Originals that were stored or verified lately are in memory, so many bytes of them: who shows an
image asks for it in several sizes.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Final, NamedTuple, TypeVar, final

from sluicegate.apps.images.maps import ImageMaps
from sluicegate.apps.images.records import CONDEMNED, GONE, LIVE, ContentRecord
from sluicegate.contracts.blob_store import BlobStore
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, Conflict
from sluicegate.kernels.lru_ttl import FRESH, LruTtl

THREADS_MAX: Final = 16
HASHED_HERE_BYTES: Final = 1 << 16
TRIES_MAX: Final = 32
RECENT_LEAST: Final = 4  # originals that have room in memory, however large
_RECENT_US: Final = 600_000_000
_NAME: Final = re.compile(r"[0-9a-f]{2}/([0-9a-f]{64})(?:\.([1-9][0-9]{0,9}))?")
_log: Final = logging.getLogger("sluicegate.images")

T = TypeVar("T")


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
        self, blobs: BlobStore, maps: ImageMaps, clock: Clock, recent_bytes: int = 0
    ) -> None:
        self._blobs = blobs
        self._maps = maps
        self._clock = clock
        self._threads = ThreadPoolExecutor(THREADS_MAX, "images-blobs")
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
            generation = 0 if record is None else record.generation
            live = ContentRecord(LIVE, len(data), generation, self._clock.now_us())
            known = record is not None and record.state != GONE
            if record is not None and record.state == LIVE:
                if again:
                    await self._write(digest, generation, data, again=True)
                return Content(digest, generation, len(data), known=True)
            if record is not None and record.state == GONE:
                live = live._replace(generation=generation + 1)
            if not known or again:
                await self._write(digest, live.generation, data, again=again)
            if await self._maps.swap_content(digest, raw, live):
                return Content(digest, live.generation, len(data), known)
        raise Conflict(f"the content {digest}", "others write or collect it all the time")

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
        if record is None or record.state == GONE:
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

    async def take_up(self, digest: str) -> bool:
        """Have collection leave it for a grace period at least; whether it is there still."""
        for _ in range(TRIES_MAX):
            raw, record = await self._maps.content(digest)
            if record is None or record.state == GONE:
                return False
            if record.state == LIVE:
                return True
            live = record._replace(state=LIVE, since_us=self._clock.now_us())
            if await self._maps.swap_content(digest, raw, live):
                return True
        raise Conflict(f"the content {digest}", "others write or collect it all the time")

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

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


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
