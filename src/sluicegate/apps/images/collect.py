"""Collect: find what nothing refers to any more, and check all that is referred to.

One process collects at a time, by a lease; its run has a number (`lease.py`). A run goes through
all contents twice, and through all that refers to them in between:

    stamp   a content that an earlier run condemned, a grace period ago, gets the number of this run
    mark    every content of a URL or an upload, the one whose variants it shares (`looks.py`), and
            every variant of these
    sweep   what is not marked: live is condemned, and condemned with the number of this run is
            gone, its blob deleted, its record forgotten; condemned and marked is live again

Each of these is a compare-and-swap. A writer that refers to a content writes the entry first and
checks the record afterwards (`contents.py`). So an entry that the marks missed was written after
the stamp, and its writer changes the record, or finds it gone and stores the content again. The
rule holds for several collectors, for processes that pause for any time between two steps, and
for clocks that differ.

A blob that its record does not name belongs to no writer: the record names a generation before its
blob is written, and never names it again. It is deleted at once.

    record  live -> condemned          condemned -> gone -> none
    run     1                          2, a grace period later

Memory: `marks_bytes_max` for the marks, however large the store is. They are two filters that never
forget a mark (`kernels/digest_filter.py`), and take a few digests for marked that are not: those
are kept until a run whose salt is not mistaken about them. `mistaken` says which share that is:
with 32 MiB, 1 in 7,000 of 5 million contents, 1 in 12 of 25 million, half of 120 million, which
then go in several runs. Besides, it holds a page of entries, and `BLOBS_AT_ONCE` names of blobs,
about 10 MB.
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
from sluicegate.apps.images.lease import CollectorLease
from sluicegate.apps.images.looks import forget_look
from sluicegate.apps.images.maps import CONTENTS, LOOKS, URLS, VARIANTS, ImageMaps
from sluicegate.apps.images.owners import UPLOAD
from sluicegate.apps.images.records import (
    CONDEMNED,
    GONE,
    LIVE,
    WRITING,
    ContentRecord,
    LookRecord,
    UrlRecord,
    VariantRecord,
    decode,
    encode,
)
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.engine import Entry
from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.digest_filter import DigestFilter
from sluicegate.policies.images.cache_control import NO_STORE

BLOBS_AT_ONCE: Final = 1 << 16
PREFIX_CHARS_MAX: Final = len("ab/") + 8
ERRORS_MAX: Final = 1_000  # that are kept; all are counted
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
    orphans_removed: int = 0
    mistaken: float = 0.0  # the share of what is not marked that is kept as if it were


@dataclass
class Checked:
    """What a check found; it is good if there are no errors."""

    urls: int = 0
    variants: int = 0
    contents: int = 0
    bytes: int = 0
    failed: int = 0
    errors: list[str] = field(default_factory=list)  # the first of them

    def add_error(self, text: str) -> None:
        """Count it, and keep it if there is room."""
        self.failed += 1
        if len(self.errors) < ERRORS_MAX:
            self.errors.append(text)


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
        fresh_s: float,
        grace_s: float,
        keep_s: float,
        marks_bytes_max: int,
        progress: Progress = no_progress,
        holder: str = "this process",
    ) -> None:
        """`engine` is whose variants are kept, empty is any; URLs not asked for `keep_s` go.

        Requests within `fresh_s` of a check leave no trace.
        """
        self._maps = maps
        self._contents = contents
        self._clock = clock
        self._engine = engine
        self._fresh_us = int(fresh_s * 1e6)
        self._grace_us = int(grace_s * 1e6)
        self._keep_us = int(keep_s * 1e6)
        self._marks_bytes_max = marks_bytes_max
        self._progress = progress
        self._holder = holder
        self._lease: CollectorLease | None = None  # of the run in progress
        self.blobs_at_once = BLOBS_AT_ONCE
        self.prefixes: Sequence[str] = PREFIXES  # of the blobs' names

    async def collect(self) -> Collected:
        """Do one run; `Unavailable` if another process collects."""
        found = Collected()
        lease = self._lease = CollectorLease(self._maps, self._clock, self._holder)
        run = await lease.take()
        begun_us = self._clock.now_us()
        await self._stamp(run, begun_us)
        # Of another salt in each run, so that no content is taken for marked for ever.
        salt = run.to_bytes(8, "big")
        originals, marked = [DigestFilter(self._marks_bytes_max // 2, salt) for _ in range(2)]
        await self._mark_urls(found, originals, marked, begun_us)
        await self._mark_firsts(found, originals, marked, begun_us)
        await self._mark_variants(found, originals, marked, begun_us)
        found.mistaken = marked.mistaken
        await self._sweep(found, marked, run, begun_us)
        await self._sweep_orphans(found, lease)
        await lease.give_back()
        return found

    async def check(self) -> Checked:
        """Read and verify every blob; then see that every entry points to one that is good.

        What is written or collected meanwhile is looked at again before it is called wrong.
        """
        found = Checked()
        damaged: set[bytes] = set()
        async for entry in self._entries("contents", CONTENTS):
            record = decode(ContentRecord, entry[2])
            if is_referable(record) and not await self._is_good(found, entry, record.generation):
                found.add_error(f"the blob {_blob_of(entry)} is missing or damaged")
                if len(damaged) < ERRORS_MAX:
                    damaged.add(entry[0])
        async for entry in self._entries("URLs", URLS):
            url = decode(UrlRecord, entry[2])
            found.urls += 1
            if url.content:
                await self._check_entry(found, URLS, entry, url.content, None, damaged)
        async for entry in self._entries("variants", VARIANTS):
            variant = decode(VariantRecord, entry[2])
            found.variants += 1
            if variant.content:
                generation = variant.generation
                await self._check_entry(
                    found, VARIANTS, entry, variant.content, generation, damaged
                )
        return found

    async def _is_good(self, found: Checked, entry: Entry, generation: int) -> bool:
        """Whether the blob of a content's entry is what it should be, if that is still so."""
        digest, size = entry[0].hex(), decode(ContentRecord, entry[2]).size
        found.contents += 1
        found.bytes += size
        if await self._contents.read(digest, generation, size) is not None:
            return True
        return not await self._is_still(CONTENTS, entry)

    async def _check_entry(
        self,
        found: Checked,
        space: str,
        entry: Entry,
        content: str,
        generation: int | None,
        damaged: set[bytes],
    ) -> None:
        """See that an entry points to a record, and that to a blob that is good."""
        raw, record = await self._maps.content(content)
        why = ""
        if record is None or not is_referable(record):
            why = f"points to {content}, which is not stored"
        elif bytes.fromhex(content) in damaged:
            why = f"points to {content}, whose blob is missing or damaged"
        elif generation not in (None, record.generation):
            assert raw is not None
            assert generation is not None
            if not await self._is_good(found, (bytes.fromhex(content), b"", raw), generation):
                why = f"points to {blob_name(content, generation)}, which is missing or damaged"
        if why and await self._is_still(space, entry):
            found.add_error(f"{_name_of(space, entry)} {why}")

    async def _is_still(self, space: str, entry: Entry) -> bool:
        return await self._maps.read(space, (entry[0], entry[1])) == entry[2]

    # Mark.

    async def _mark_urls(
        self, found: Collected, originals: DigestFilter, marked: DigestFilter, now_us: int
    ) -> None:
        async for entry in self._entries("URLs", URLS):
            record = decode(UrlRecord, entry[2])
            if self._is_forgotten(record, now_us) and await self._maps.remove(URLS, entry):
                found.urls_removed += 1
                continue
            found.urls += 1
            if record.content:
                digest = bytes.fromhex(record.content)
                originals.add(digest)
                marked.add(digest)

    def _is_forgotten(self, record: UrlRecord, now_us: int) -> bool:
        if not record.content:
            return now_us >= record.until_us
        if record.url.startswith(UPLOAD):
            return False
        keep_us = self._keep_us
        if NO_STORE in record.directives:  # its origin does not want it kept
            keep_us = self._grace_us
        # It may have been asked for until the first request that would have had it checked.
        lifetime_us = max(self._fresh_us, record.lifetime_s * 1_000_000)
        asked_us = max(record.checked_us + lifetime_us, record.until_us)
        return 0 < keep_us <= now_us - asked_us

    async def _mark_firsts(
        self, found: Collected, originals: DigestFilter, marked: DigestFilter, now_us: int
    ) -> None:
        """Originals whose variants others share are needed as long as those are."""
        async for entry in self._entries("looks", LOOKS):
            look = decode(LookRecord, entry[2])
            if look.same_as and entry[0] in originals:
                originals.add(bytes.fromhex(look.same_as))
                marked.add(bytes.fromhex(look.same_as))
        async for entry in self._entries("looks", LOOKS):
            old = now_us - decode(LookRecord, entry[2]).at_us >= self._grace_us
            if old and entry[0] not in originals:
                await forget_look(self._maps, entry)

    async def _mark_variants(
        self, found: Collected, originals: DigestFilter, marked: DigestFilter, now_us: int
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

    async def _stamp(self, run: int, begun_us: int) -> None:
        async for digest, _, raw in self._entries("contents", CONTENTS):
            record = decode(ContentRecord, raw)
            if record.state == CONDEMNED and self._is_due(record, begun_us):
                await self._maps.swap_content(digest.hex(), raw, record._replace(run=run))

    async def _sweep(self, found: Collected, marked: DigestFilter, run: int, begun_us: int) -> None:
        async for entry in self._entries("contents", CONTENTS):
            digest, _, raw = entry
            record = decode(ContentRecord, raw)
            found.contents += 1
            if record.state == GONE:  # a collector was killed here
                await self._delete(digest.hex(), record)
            elif record.state == WRITING:  # or a writer
                if self._is_due(record, begun_us):
                    await self._remove(digest.hex(), raw, record)
            elif digest in marked:
                if record.state == CONDEMNED:
                    found.spared += await self._set_state(digest.hex(), raw, record, LIVE)
            elif record.state == LIVE:
                if self._is_due(record, begun_us):
                    found.condemned += await self._set_state(digest.hex(), raw, record, CONDEMNED)
            elif record.run == run and await self._remove(digest.hex(), raw, record):
                found.removed += 1
                found.bytes_removed += record.size

    def _is_due(self, record: ContentRecord, begun_us: int) -> bool:
        return begun_us - record.since_us >= self._grace_us

    async def _set_state(self, digest: str, raw: bytes, record: ContentRecord, state: str) -> bool:
        after = record._replace(state=state, since_us=self._clock.now_us(), run=0)
        return await self._maps.swap_content(digest, raw, after)

    async def _remove(self, digest: str, raw: bytes, record: ContentRecord) -> bool:
        gone = record._replace(state=GONE, since_us=self._clock.now_us())
        if not await self._maps.swap_content(digest, raw, gone):
            return False
        await self._delete(digest, gone)
        return True

    async def _delete(self, digest: str, gone: ContentRecord) -> None:
        """Delete the blob of a content that is gone, then forget the content."""
        await self._contents.delete(blob_name(digest, gone.generation))
        await self._maps.swap_content(digest, encode(gone), None)

    async def _sweep_orphans(self, found: Collected, lease: CollectorLease) -> None:
        """Delete blobs that no record names."""
        if not found.contents:  # an emptied engine beside full blobs is no reason to delete them
            return
        for number, prefix in enumerate(self.prefixes):
            self._progress("blobs", number)
            async for name in self._names(prefix):
                parsed = parse_blob_name(name)
                if parsed is not None and await self._is_orphan(*parsed):
                    await self._contents.delete(name)
                    found.orphans_removed += 1
            await lease.renew()

    async def _names(self, prefix: str) -> AsyncIterator[str]:
        """The names of blobs below a prefix; where they are too many, those of longer ones."""
        try:
            names = await self._contents.names(prefix, self.blobs_at_once)
        except BadValue:
            if len(prefix) >= PREFIX_CHARS_MAX:
                raise
            # A name of ours begins as its folder does, so the first two are known.
            longer = prefix + prefix[:-1] if prefix.endswith("/") else prefix
            for digit in "0123456789abcdef":
                async for name in self._names(longer + digit):
                    yield name
        else:
            for name in names:
                yield name

    async def _is_orphan(self, digest: str, generation: int) -> bool:
        record = (await self._maps.content(digest)).record
        return record is None or generation != record.generation

    async def _entries(self, phase: str, space: str) -> AsyncIterator[Entry]:
        number = 0
        async for entry in self._maps.walk(space):
            yield entry
            number += 1
            if number % YIELD_EVERY == 0:
                self._progress(phase, number)
                await asyncio.sleep(0)
                if self._lease is not None:
                    await self._lease.renew()
        self._progress(phase, number)


def _blob_of(entry: Entry) -> str:
    return blob_name(entry[0].hex(), decode(ContentRecord, entry[2]).generation)


def _name_of(space: str, entry: Entry) -> str:
    if space == URLS:
        return decode(UrlRecord, entry[2]).url
    return f"{decode(VariantRecord, entry[2]).spec} of {entry[0].hex()}"
