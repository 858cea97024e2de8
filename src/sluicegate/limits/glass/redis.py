"""Glass in Redis: the page in one key, the audit in a list beside it, both in one slot.

`{prefix}:glass` and `{prefix}:glass:audit`, the braces literal. Reading is TIME and one GETRANGE of
bounded length, so a user who may only read can follow, and a huge or foreign value costs no more
than a page. Writing is a script that compares and sets, by the server's clock.

A page goes by itself when its last opening has ended; the audit stays, its oldest lines cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any, Final, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.errors import BadValue
from sluicegate.limits.glass.page import PAGE_BYTES_MAX, GlassPage
from sluicegate.stores.redis.client import RedisClient, open_client
from sluicegate.stores.redis.errors import as_unavailable, is_wrong_type, reply_of
from sluicegate.stores.redis.script import Script
from sluicegate.stores.redis.settings import parse_url
from sluicegate.wire.resp import Part

# Nobody's request waits for this, so a busy server is given more time than a decision has.
TIMEOUT_US_MIN: Final = 500_000
_SPARE_MS: Final = 1_000
_LINES_A_CALL: Final = 50


@final
class RedisGlassStore:
    """A page in a Redis, a cluster, or behind sentinels; connected from each loop that asks."""

    def __init__(self, url: str, chance: Chance, *, prefix: str, audit_max: int) -> None:
        if not prefix or "{" in prefix or "}" in prefix:
            raise BadValue("prefix", prefix, "give some text without braces")
        settings = parse_url(url)
        timeout_us = max(settings.timeout_us or 0, TIMEOUT_US_MIN)
        self._settings = replace(settings, timeout_us=timeout_us)
        self._chance = chance
        self._key = f"{{{prefix}}}:glass"
        self._audit_key = f"{self._key}:audit"
        self._audit_max = audit_max
        self._client: RedisClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._abandoned: list[object] = []
        source = files("sluicegate.stores.redis") / "glass.lua"
        self._script = Script(source.read_text(encoding="utf-8"), name="glass")
        self.what = f"the glass in Redis at {settings.endpoints[0]}"

    async def read(self) -> GlassPage:
        """Return the page, by the server's clock."""
        client = self._here()
        # The time is told first: what is left may seem more than it is by the moment between the
        # two, and is counted from before either was asked. Both leave in one write. A byte more
        # than a page may have is enough to tell that it is none.
        replies: Sequence[Any] = await asyncio.gather(
            client.call("TIME", key=self._key),
            client.call("GETRANGE", self._key, 0, PAGE_BYTES_MAX, key=self._key),
            return_exceptions=True,
        )
        time, text = replies
        if isinstance(time, BaseException):
            raise as_unavailable(time, self.what)
        now_us = int(time[0]) * 1_000_000 + int(time[1])
        if isinstance(text, BaseException) and is_wrong_type(text):
            return GlassPage(now_us, b"", f"has no string in {self._key}")
        if isinstance(text, BaseException):
            raise as_unavailable(text, self.what)
        return GlassPage(now_us, text)

    async def swap(
        self, page: GlassPage, text: bytes, lines: Sequence[bytes], until_us: int
    ) -> bool:
        """Put `text` in place of `page`, if that is still there."""
        life_ms = max(until_us - page.now_us, 0) // 1_000 + _SPARE_MS
        force = 1 if page.foreign else 0
        args: list[Part] = [
            page.text,
            text,
            life_ms,
            PAGE_BYTES_MAX,
            self._audit_max,
            force,
            *lines,
        ]
        call = self._here().run_script(self._script, [self._key, self._audit_key], args)
        return bool(await reply_of(call, self.what))

    async def lines(self, last: int) -> list[bytes]:
        """Return the newest lines of the audit, a few at a time, for a line may be long."""
        client, lines = self._here(), []
        for first in range(-last, 0, _LINES_A_CALL):
            end = min(first + _LINES_A_CALL, 0) - 1
            call = client.call("LRANGE", self._audit_key, first, end, key=self._audit_key)
            lines += await reply_of(call, self.what)
        return lines

    async def close(self) -> None:
        """Close the connection of this loop."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.close()
        self._loop = None

    def _here(self) -> RedisClient:
        """Return the client of the running loop."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            if self._client is not None:
                # Another loop's, and in a forked child the parent's socket: not ours to close.
                self._abandoned = [self._client, self._loop]
            self._client = open_client(self._settings, self._chance)
            self._loop = loop
        return self._client
