"""Takedown: forget what is stored by URL, by hash or by owner, and keep a URL or a hash away.

    remove    URL records, remembered failures and variants go; `block` refuses the URL or the hash
    purge     variants and remembered failures go; originals stay, and are checked at next use

Blocks are written first, and every request reads them, so no download that is in flight brings back
what was removed. Bytes that nothing refers to any more are deleted by collection (`collect.py`):
after `--collect-grace-s` they are gone, and until then nothing leads to them. Each call leaves a
record with the caller's name, and raises the epoch by which other processes notice it.

Bounds: one walk over the URLs for a hash or an owner, in constant memory.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, NamedTuple, final

from sluicegate.apps.images.looks import forget_look, look_place
from sluicegate.apps.images.maps import (
    BLOCKS,
    LOOKS,
    TAKEDOWNS,
    URLS,
    VARIANTS,
    ImageMaps,
    block_place,
    content_place,
    settled,
    url_place,
)
from sluicegate.apps.images.owners import UPLOAD, owners_of, without_owner
from sluicegate.apps.images.records import (
    BlockRecord,
    TakedownRecord,
    UrlRecord,
    decode,
    encode,
)
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.engine import Change, KeyRange
from sluicegate.contracts.errors import BadValue

URL, ID, OWNER = "url", "id", "owner"
KINDS: Final = (URL, ID, OWNER)
REASON_CHARS_MAX: Final = 500
PROGRESS_EVERY: Final = 10_000  # URLs walked between two reports
_ROWS: Final = 1_000
_AUDIT: Final = b"takedowns"
_LAST: Final = (1 << 63) - 1  # minus the time: the newest is the first row
_log: Final = logging.getLogger("sluicegate.images")


class Selection(NamedTuple):
    """What to remove: a URL (or `upload:` and an id), a hash of an original, or an owner."""

    kind: str
    value: str


@dataclass
class Removed:
    """Totals of one call."""

    walked: int = 0
    urls: int = 0
    variants: int = 0
    blocked: bool = False


@final
class Takedown:
    """Removes records, within the loop that uses the maps. `changed` is called for each URL."""

    def __init__(self, maps: ImageMaps, clock: Clock, changed: Callable[[str], None]) -> None:
        self._maps = maps
        self._clock = clock
        self._changed = changed

    async def run(
        self,
        selected: Selection,
        *,
        by: str,
        purge: bool = False,
        block: bool = False,
        reason: str = "",
    ) -> AsyncGenerator[Removed, None]:
        """Remove, and yield what is done so far; the last value is the result."""
        check(selected, block=block and not purge, reason=reason)
        done = Removed(blocked=block)
        now_us = self._clock.now_us()
        if block:
            record = BlockRecord(*selected, by, now_us, reason)
            await self._maps.put(BLOCKS, block_place(*selected), record)
        async for entry in self._selected(selected, done):
            if entry is None:
                yield done
            else:
                await self._forget(selected, entry, done, purge=purge)
        if selected.kind == ID:
            await self._forget_original(selected.value, done, purge=purge)
        await self._maps.raise_epoch(now_us)
        action = "purge" if purge else "remove"
        kept = TakedownRecord(
            now_us, by, action, *selected, done.urls, done.variants, done.blocked, reason
        )
        place = (_AUDIT, (_LAST - now_us).to_bytes(8, "big") + _tag(selected))
        await self._maps.put(TAKEDOWNS, place, kept)
        _log.warning("%s of %s %s by %s: %d URLs", action, *selected, by, done.urls)
        yield done

    async def unblock(self, selected: Selection, *, by: str) -> bool:
        """Let a URL or a hash in again; whether it was blocked."""
        place = block_place(*selected)
        found = await self._maps.read(BLOCKS, place)
        if found is None:
            return False
        await self._maps.engine.write([Change(BLOCKS, *place, None)])
        now_us = self._clock.now_us()
        kept = TakedownRecord(now_us, by, "unblock", *selected)
        at = (_LAST - now_us).to_bytes(8, "big") + _tag(selected)
        await self._maps.put(TAKEDOWNS, (_AUDIT, at), kept)
        if selected.kind == URL:  # the failure that the block left
            await self._maps.engine.write([Change(URLS, *url_place(selected.value), None)])
        return True

    async def blocks(self, count_max: int) -> list[BlockRecord]:
        """Return the first blocks, in an order of the engine's own."""
        found: list[BlockRecord] = []
        async for entry in self._maps.walk(BLOCKS):
            if len(found) >= count_max:
                break
            found.append(decode(BlockRecord, entry[2]))
        return found

    async def audit(self, count_max: int) -> Sequence[TakedownRecord]:
        """Return the last calls, the newest first."""
        wanted = KeyRange(rows_max=count_max)
        page = await settled(self._maps.engine.scan(TAKEDOWNS, _AUDIT, wanted))
        return [decode(TakedownRecord, value) for _, value in page.rows]

    # Inside.

    async def _selected(
        self, selected: Selection, done: Removed
    ) -> AsyncGenerator[tuple[UrlRecord, bytes] | None, None]:
        """Yield the records of the selection with their bytes; None now and then, for progress."""
        if selected.kind == URL:
            raw = await self._maps.read(URLS, url_place(selected.value))
            if raw is not None:
                yield decode(UrlRecord, raw), raw
            return
        async for _, _, raw in self._maps.walk(URLS):
            done.walked += 1
            if done.walked % PROGRESS_EVERY == 0:
                yield None
            record = decode(UrlRecord, raw)
            if selected.kind == ID:
                wanted = record.content == selected.value
            else:
                wanted = selected.value in owners_of(record)
            if wanted:
                yield record, raw

    async def _forget(
        self, selected: Selection, entry: tuple[UrlRecord, bytes], done: Removed, *, purge: bool
    ) -> None:
        record, raw = entry
        place = url_place(record.url)
        while True:
            after = _after(selected, record, purge=purge)
            value = None if after is None else encode(after)
            if await self._maps.engine.swap(Change(URLS, *place, value), raw):
                break
            now = await self._maps.read(URLS, place)  # a request has written it meanwhile
            if now is None:
                break
            record, raw = decode(UrlRecord, now), now
        done.urls += 1
        if record.content and (after is None or purge):
            await self._forget_original(record.content, done, purge=purge)
        self._changed(record.url)

    async def _forget_original(self, digest: str, done: Removed, *, purge: bool) -> None:
        """Remove the variants of an original and its look."""
        partition = bytes.fromhex(digest)
        while True:
            wanted = KeyRange(rows_max=_ROWS)
            page = await settled(self._maps.engine.scan(VARIANTS, partition, wanted))
            if not page.rows:
                break
            await self._maps.engine.write(
                [Change(VARIANTS, partition, sort, None) for sort, _ in page.rows]
            )
            done.variants += len(page.rows)
        look = None if purge else await self._maps.read(LOOKS, look_place(digest))
        if look is not None:
            await forget_look(self._maps, (*content_place(digest), look))


def _after(selected: Selection, record: UrlRecord, *, purge: bool) -> UrlRecord | None:
    """Return what is left of a URL; None for nothing."""
    if purge and record.content:
        checked_us = record.checked_us if record.url.startswith(UPLOAD) else 0
        return record._replace(checked_us=checked_us, failure="", detail="", until_us=0)
    if selected.kind == OWNER and not purge and len(owners_of(record)) > 1:
        return without_owner(record, selected.value)  # the others keep it
    return None


def check(selected: Selection, *, block: bool, reason: str) -> None:
    """Raise for what cannot be removed or blocked."""
    if selected.kind == OWNER and block:
        raise BadValue("block", "yes", "block a url or an id, not an owner")
    if len(reason) > REASON_CHARS_MAX:
        raise BadValue("reason", f"{len(reason)} characters", f"give up to {REASON_CHARS_MAX}")


def _tag(selected: Selection) -> bytes:
    return sha256("\n".join(selected).encode()).digest()[:8]
