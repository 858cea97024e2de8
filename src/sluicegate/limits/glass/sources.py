"""Glass sources: where openings are kept for all processes, and the three things done there.

A source is asked what is open (`look`), and told to break and to mend. It reads the page, decides
what the next one is, and puts that in place only if nobody else has meanwhile; the lines of the
audit go in with it, before it. So a change without its line does not exist, and two people who
break the glass at once both have their opening.

What keeps the page is a *glass store*: this process, a file, a Redis. Whoever can write there can
break the glass, and nobody else can.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Final, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, MissingPackage, Unavailable
from sluicegate.limits.glass.break_glass import (
    ALL,
    BY_CHARS_MAX,
    FOR_S_MAX,
    FOR_S_MIN,
    WHY_CHARS_MAX,
    GlassView,
    Opening,
    check_opening,
    check_words,
)
from sluicegate.limits.glass.file import FileGlassStore, path_of
from sluicegate.limits.glass.page import (
    BREAK,
    MEND,
    AuditEntry,
    GlassPage,
    GlassStore,
    UnreadableLine,
    add_opening,
    history,
    read_line,
    read_page,
    remove_openings,
    replaced_by,
    write_line,
    write_page,
)
from sluicegate.system import SystemChance, SystemClock

PREFIX_DEFAULT: Final = "rate_limit"
AUDIT_MAX: Final = 1_000  # lines kept and told
_WAY_OUT: Final = "glass mend --all puts an empty page there"
_TRIES_MAX: Final = 20
_PAUSE_S_MAX: Final = 0.02  # after each try that somebody else was quicker at


@final
class GlassSource:
    """Openings in a glass store. Use it from one event loop at a time, also again once closed."""

    def __init__(self, store: GlassStore, chance: Chance, *, for_s_max: float = FOR_S_MAX) -> None:
        if not FOR_S_MIN <= for_s_max <= 366 * 86_400:
            raise BadValue("glass.for_s_max", for_s_max, "give seconds, from 1 to a year")
        self.what = store.what
        self._store = store
        self._chance = chance
        self._for_us_max = round(for_s_max * 1e6)

    async def look(self) -> GlassView:
        """Return what is open. What cannot be understood is told as damage, and opens nothing."""
        page = await self._store.read()
        try:
            return GlassView(page.now_us, self._openings(page))
        except BadValue as error:
            return GlassView(page.now_us, (), str(error))

    async def break_(
        self, *, rule: str = ALL, key: str = ALL, for_s: float, by: str, why: str, rate: str = ""
    ) -> Opening:
        """Stop the enforcement of a rule, for a key, or of everything, for `for_s` seconds.

        With a `rate`, hold the key to that instead, and end its earlier rate under the same rule.
        """
        for_us = round(for_s * 1e6) if 0 <= for_s < 1e9 else 0
        for attempt in range(_TRIES_MAX):
            page = await self._store.read()
            now_us, openings = page.now_us, self._openings(page)
            opening = Opening(
                self._new_id(openings), rule, key, now_us + for_us, now_us, by, why, rate
            )
            after = add_opening(openings, check_opening(opening, self._for_us_max), now_us)
            ended = replaced_by(openings, opening, now_us)
            entries = [
                AuditEntry(now_us, MEND, by, f"replaced by {opening.id}", one) for one in ended
            ]
            entries.append(AuditEntry(now_us, BREAK, by, why, opening))
            if await self._swap(page, after, [write_line(one) for one in entries]):
                return opening
            await self._pause(attempt)
        raise Unavailable(self.what, "others change it all the time")

    async def mend(self, opening_id: str | None, *, by: str, why: str = "") -> tuple[Opening, ...]:
        """End the opening of that id at once, or all for None; what was ended.

        All includes what cannot be understood.
        """
        check_words("by", by, BY_CHARS_MAX)
        if why:
            check_words("why", why, WHY_CHARS_MAX)
        for attempt in range(_TRIES_MAX):
            page = await self._store.read()
            mended: list[Opening | None] = []
            try:
                openings = self._openings(page)
            except BadValue:
                if opening_id is not None:
                    raise
                openings, mended = (), [None]
            remaining, removed = remove_openings(openings, opening_id, page.now_us)
            mended += removed
            lines = [write_line(AuditEntry(page.now_us, MEND, by, why, one)) for one in mended]
            if not (page.text or page.foreign) or await self._swap(page, remaining, lines):
                return removed
            await self._pause(attempt)
        raise Unavailable(self.what, "others change it all the time")

    async def audit(self, last: int = AUDIT_MAX) -> list[AuditEntry | UnreadableLine]:
        """Return what was done, and what ended by itself; the oldest first."""
        if not 1 <= last <= AUDIT_MAX:
            raise BadValue("glass.last", last, f"give a number from 1 to {AUDIT_MAX}")
        page = await self._store.read()
        lines = await self._store.lines(last)
        return history([read_line(line) for line in lines], page.now_us)

    async def close(self) -> None:
        """Give back what is held."""
        await self._store.close()

    # Inside.

    def _openings(self, page: GlassPage) -> tuple[Opening, ...]:
        if page.foreign:
            raise BadValue("glass", self.what, f"it {page.foreign}; {_WAY_OUT}")
        try:
            return read_page(page.text, self._for_us_max)
        except BadValue as error:
            remedy = f"{error.remedy}; {_WAY_OUT}"
            raise BadValue(error.field, error.value, remedy) from None

    async def _swap(self, page: GlassPage, after: tuple[Opening, ...], lines: list[bytes]) -> bool:
        text = write_page(after) if after else b""
        until_us = max((one.until_us for one in after), default=page.now_us)
        return await self._store.swap(page, text, lines, until_us)

    async def _pause(self, attempt: int) -> None:
        await asyncio.sleep(_PAUSE_S_MAX * self._chance.draw() * (1 + attempt / 4))

    def _new_id(self, openings: Sequence[Opening]) -> str:
        taken = {one.id for one in openings}
        while True:
            fresh = f"{int(self._chance.draw() * (1 << 32)):08x}"
            if fresh not in taken:
                return fresh


@final
class MemoryGlassStore:
    """A page in this process, for tests and for limits that nobody else shares."""

    def __init__(self, clock: Clock) -> None:
        self.what = "the glass in this process"
        self._clock = clock
        self._lock = threading.Lock()
        self._text = b""
        self._lines: list[bytes] = []

    async def read(self) -> GlassPage:
        """Return the page."""
        return GlassPage(self._clock.now_us(), self._text)

    async def swap(
        self, page: GlassPage, text: bytes, lines: Sequence[bytes], until_us: int
    ) -> bool:
        """Put `text` in place of `page`."""
        with self._lock:
            if self._text != page.text:
                return False
            self._lines = [*self._lines, *lines][-AUDIT_MAX:]
            self._text = text
            return True

    async def lines(self, last: int) -> list[bytes]:
        """Return the newest lines of the audit."""
        return self._lines[-last:]

    async def close(self) -> None:
        """Nothing is held."""


def memory_source(
    clock: Clock | None = None, chance: Chance | None = None, *, for_s_max: float = FOR_S_MAX
) -> GlassSource:
    """Return a source in this process; keep it, for another call makes another."""
    store = MemoryGlassStore(clock or SystemClock())
    return GlassSource(store, chance or SystemChance(), for_s_max=for_s_max)


def open_source(
    url: str,
    *,
    prefix: str = PREFIX_DEFAULT,
    for_s_max: float = FOR_S_MAX,
    audit_max: int = AUDIT_MAX,
    clock: Clock | None = None,
    chance: Chance | None = None,
) -> GlassSource:
    """Return the source of a URL: `redis://...` as a limiter takes it, or `file:/path/glass.json`.

    Nothing is asked before the first look. `prefix` is that of the limiter's keys.
    """
    if not 1 <= audit_max <= AUDIT_MAX:
        raise BadValue("glass.audit_max", audit_max, f"give a number from 1 to {AUDIT_MAX}")
    chance = chance or SystemChance()
    store: GlassStore
    if url.partition(":")[0] == "file":
        store = FileGlassStore(path_of(url), clock or SystemClock())
    elif "://" in url and not url.startswith(("memory:", "async+memory:")):
        try:
            from sluicegate.limits.glass.redis import RedisGlassStore  # noqa: PLC0415
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("sluicegate"):
                raise
            raise MissingPackage(error.name, "redis") from None
        store = RedisGlassStore(url, chance, prefix=prefix, audit_max=audit_max)
    else:
        raise BadValue(
            "glass.url", url, 'give "redis://host:6379/0" or "file:/path/glass.json", which '
            "processes can share"
        )  # fmt: skip
    return GlassSource(store, chance, for_s_max=for_s_max)
