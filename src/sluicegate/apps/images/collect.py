"""Collect: find what nothing refers to any more, and check all that is referred to.

Mark: every content of a URL or an upload, and every variant of such a content. Sweep: what is not
marked is condemned; what still is not marked in a later run, begun a grace period after, is gone
and its blob deleted. Both are swaps, so a writer that has taken it up meanwhile keeps it
(`contents.py` has the writer's side). Blobs without a record, which a killed writer leaves, are
noted, and claimed in a later run in the same way.

    run     1                          2, a grace period later       3, another one later
    record  live -> condemned          condemned -> gone             gone -> none
    blob                               deleted                       deleted once more

Memory: 32 bytes and a set's place for each content that is marked, about 100 together.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, final

from sluicegate.apps.images.contents import (
    Contents,
    blob_name,
    is_referable,
    parse_blob_name,
)
from sluicegate.apps.images.maps import CONTENTS, ORPHANS, URLS, VARIANTS, ImageMaps
from sluicegate.apps.images.pipeline import UPLOAD
from sluicegate.apps.images.records import (
    CONDEMNED,
    GONE,
    LIVE,
    ContentRecord,
    UrlRecord,
    VariantRecord,
    decode,
)
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.engine import Change, Entry

BLOBS_IN_PREFIX_MAX: Final = 10_000_000
PREFIXES: Final = [f"{one:02x}/" for one in range(256)]
YIELD_EVERY: Final = 200  # entries, after which others have a turn

Progress = Callable[[str, int], object]


def no_progress(_phase: str, _count: int) -> None:
    """Report nothing."""


@dataclass
class Collected:
    """What one run found and did."""

    urls: int = 0
    urls_removed: int = 0
    variants: int = 0
    variants_removed: int = 0
    contents: int = 0
    condemned: int = 0
    spared: int = 0  # condemned before, and referred to again
    removed: int = 0
    bytes_removed: int = 0
    orphans: int = 0
    orphans_removed: int = 0


@dataclass
class Checked:
    """What a check found; it is good if there are no errors."""

    urls: int = 0
    variants: int = 0
    contents: int = 0
    bytes: int = 0
    errors: list[str] = field(default_factory=list)


@final
class Collector:
    """Mark and sweep over the maps and the blobs of one service."""

    def __init__(
        self,
        maps: ImageMaps,
        contents: Contents,
        clock: Clock,
        *,
        engine: str,
        grace_s: float,
        keep_s: float,
        progress: Progress = no_progress,
    ) -> None:
        """`engine` is whose variants are kept, empty is any; URLs not asked for `keep_s` go."""
        self._maps = maps
        self._contents = contents
        self._clock = clock
        self._engine = engine
        self._grace_us = int(grace_s * 1e6)
        self._keep_us = int(keep_s * 1e6)
        self._progress = progress
        self.prefixes: Sequence[str] = PREFIXES  # of the blobs' names

    async def collect(self) -> Collected:
        """Do one run."""
        found = Collected()
        begun_us = self._clock.now_us()
        originals = await self._mark_urls(found, begun_us)
        marked = set(originals)
        await self._mark_variants(found, originals, marked, begun_us)
        await self._sweep(found, marked, begun_us)
        await self._sweep_orphans(found, begun_us)
        return found

    async def check(self) -> Checked:
        """Read every blob that an entry points to, and verify it."""
        found = Checked()
        verified: dict[tuple[str, int], bool] = {}

        async def verify(what: str, digest: str, generation: int | None) -> None:
            record = (await self._maps.content(digest)).record
            if not is_referable(record):
                found.errors.append(f"{what} points to {digest}, which is not stored")
                return
            assert record is not None
            blob = (digest, record.generation if generation is None else generation)
            if blob not in verified:
                data = await self._contents.read(*blob, record.size)
                verified[blob] = data is not None
                found.bytes += record.size
            if not verified[blob]:
                found.errors.append(f"{what}: the blob {blob_name(*blob)} is missing or damaged")

        async for entry in self._entries("URLs", URLS):
            url = decode(UrlRecord, entry[2])
            found.urls += 1
            if url.content:
                await verify(url.url, url.content, None)
        async for entry in self._entries("variants", VARIANTS):
            variant = decode(VariantRecord, entry[2])
            found.variants += 1
            if variant.content:
                what = f"{variant.spec} of {entry[0].hex()}"
                await verify(what, variant.content, variant.generation)
        async for entry in self._entries("contents", CONTENTS):
            if is_referable(decode(ContentRecord, entry[2])):
                digest = entry[0].hex()
                await verify(f"the content {digest}", digest, None)
        found.contents = len(verified)
        return found

    # Mark.

    async def _mark_urls(self, found: Collected, now_us: int) -> set[bytes]:
        originals: set[bytes] = set()
        async for entry in self._entries("URLs", URLS):
            record = decode(UrlRecord, entry[2])
            if self._is_forgotten(record, now_us) and await self._maps.remove(URLS, entry):
                found.urls_removed += 1
                continue
            found.urls += 1
            if record.content:
                originals.add(bytes.fromhex(record.content))
        return originals

    def _is_forgotten(self, record: UrlRecord, now_us: int) -> bool:
        if not record.content:
            return now_us >= record.until_us
        if record.url.startswith(UPLOAD) or not self._keep_us:
            return False
        return now_us - max(record.checked_us, record.until_us) >= self._keep_us

    async def _mark_variants(
        self, found: Collected, originals: set[bytes], marked: set[bytes], now_us: int
    ) -> None:
        async for entry in self._entries("variants", VARIANTS):
            record = decode(VariantRecord, entry[2])
            old = now_us - record.at_us >= self._grace_us
            useless = entry[0] not in originals or self._engine not in ("", record.engine)
            expired = bool(record.failure) and now_us >= record.until_us
            if ((useless and old) or expired) and await self._maps.remove(VARIANTS, entry):
                found.variants_removed += 1
                continue
            found.variants += 1
            if record.content:
                marked.add(bytes.fromhex(record.content))

    # Sweep.

    async def _sweep(self, found: Collected, marked: set[bytes], begun_us: int) -> None:
        async for entry in self._entries("contents", CONTENTS):
            digest, _, raw = entry
            record = decode(ContentRecord, raw)
            found.contents += 1
            due = begun_us - record.since_us >= self._grace_us
            if record.state == GONE:
                await self._contents.delete(blob_name(digest.hex(), record.generation))
                if due:
                    await self._maps.swap_content(digest.hex(), raw, None)
            elif digest in marked:
                if record.state == CONDEMNED:
                    found.spared += await self._turn(digest, raw, record, LIVE)
            elif due and record.state == LIVE:
                found.condemned += await self._turn(digest, raw, record, CONDEMNED)
            elif due and await self._turn(digest, raw, record, GONE):
                await self._contents.delete(blob_name(digest.hex(), record.generation))
                found.removed += 1
                found.bytes_removed += record.size

    async def _turn(self, digest: bytes, raw: bytes, record: ContentRecord, state: str) -> bool:
        after = record._replace(state=state, since_us=self._clock.now_us())
        return await self._maps.swap_content(digest.hex(), raw, after)

    async def _sweep_orphans(self, found: Collected, begun_us: int) -> None:
        """Blobs that no record names: noted first, and claimed before they are deleted."""
        noted = {entry[0]: entry async for entry in self._maps.walk(ORPHANS)}
        for number, prefix in enumerate(self.prefixes):
            self._progress("blobs", number)
            for name in await self._contents.names(prefix, BLOBS_IN_PREFIX_MAX):
                parsed = parse_blob_name(name)
                if parsed is None or not await self._is_orphan(*parsed):
                    continue
                found.orphans += 1
                note = noted.pop(name.encode(), None)
                if note is None:
                    value = begun_us.to_bytes(8, "big")
                    await self._maps.engine.write([Change(ORPHANS, name.encode(), b"", value)])
                elif begun_us - int.from_bytes(note[2], "big") >= self._grace_us:
                    found.orphans_removed += await self._remove_orphan(name, note, *parsed)
        for note in noted.values():  # they are no orphans any more
            await self._maps.remove(ORPHANS, note)

    async def _is_orphan(self, digest: str, generation: int) -> bool:
        record = (await self._maps.content(digest)).record
        return record is None or generation < record.generation

    async def _remove_orphan(self, name: str, note: Entry, digest: str, generation: int) -> bool:
        raw, record = await self._maps.content(digest)
        if record is None:
            gone = ContentRecord(GONE, 0, generation, self._clock.now_us())
            if not await self._maps.swap_content(digest, raw, gone):
                return False
        elif generation >= record.generation:
            return False
        await self._contents.delete(name)
        await self._maps.remove(ORPHANS, note)
        return True

    async def _entries(self, phase: str, space: str) -> AsyncIterator[Entry]:
        number = 0
        async for entry in self._maps.walk(space):
            yield entry
            number += 1
            if number % YIELD_EVERY == 0:
                self._progress(phase, number)
                await asyncio.sleep(0)
        self._progress(phase, number)
