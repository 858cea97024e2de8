"""Permits in Redis: who holds places of which key, for all processes, by the server's clock.

One sorted set a key, `{prefix}:{entity}:{name}:permits` with the braces literal: a member is a
place, its score the instant at which it is free again. A permit of several places is several
members, which only ever change together. A hash of weights beside the set would have been smaller
for heavy permits, but then there would be two things that an eviction or a hand could part, and
neither what is used nor when enough of it expires could be read without walking over all.

A call whose answer did not come may have been carried out. Its permit belongs to nobody, and the
next acquire of that key says so in the same round trip; until then, or until it expires, its place
is taken. Such *debts* are bounded, and one is forgotten when it has expired.
"""

from __future__ import annotations

import asyncio
from collections import deque
from importlib.resources import files
from typing import Any, Final, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.reasons import CONCURRENCY_LIMITED, COST_ABOVE_LIMIT
from sluicegate.kernels.verdict import NEVER
from sluicegate.stores.redis.client import open_client
from sluicegate.stores.redis.counters import KEY_BYTES_MAX_DEFAULT, key_of
from sluicegate.stores.redis.errors import as_unavailable
from sluicegate.stores.redis.script import Script
from sluicegate.stores.redis.settings import RedisSettings, parse_url
from sluicegate.wire.resp import ErrorReply, Part

PREFIX_DEFAULT: Final = "rate_limit"
DEBTS_MAX: Final = 10_000  # of one store, all keys together
DEBTS_TOLD_MAX: Final = 50  # with one acquire


@final
class RedisPermits:
    """Permits of one name; make it within the loop that uses it."""

    def __init__(
        self,
        where: str | RedisSettings,
        chance: Chance,
        name: str,
        limit: int,
        expires_after_us: int,
        *,
        prefix: str = PREFIX_DEFAULT,
        key_bytes_max: int = KEY_BYTES_MAX_DEFAULT,
    ) -> None:
        if "{" in prefix:
            raise BadValue("prefix", prefix, "leave out the {: it marks the entity in a key")
        settings = parse_url(where) if isinstance(where, str) else where
        self.name = name
        self.limit = limit
        self.expires_after_us = expires_after_us
        self.prefix = prefix
        self.what = f"Redis at {settings.endpoints[0]}"
        self.now: Part = b""  # only tests say what time it is
        self._key_bytes_max = key_bytes_max
        self._loop = asyncio.get_running_loop()
        self._client = open_client(settings, chance)
        self._acquire = _script("acquire")
        self._renew = _script("renew")
        self._release = _script("release")
        self._closed = False
        # Of each key, the permits that are nobody's; and all of them by when they expire.
        self._debts: dict[str, dict[str, int]] = {}
        self._debts_due: deque[tuple[float, str, str]] = deque()

    async def connect(self) -> None:
        """Return when connected, or raise what prevents it. The first request does it too."""
        await self._client.connect()

    async def acquire(self, key: str, permit_id: str, count: int) -> Decision:
        """Hold `count` places of `key` under this name."""
        at, void = self._key(key), self._void_permits(key)
        args: list[Part] = [self.now, 1, self.limit, count, self.expires_after_us, permit_id]
        for owed_id, owed_count in void:
            args += (owed_id, owed_count)
        try:
            reply = await self._run(self._acquire, at, args)
        except BaseException:
            # Also when whoever asked was cancelled: the place may be taken, and nobody has it.
            self._owe(key, permit_id, count)
            raise
        self._clear_debts(key, void)
        return self._decision(reply, count)

    async def look(self, key: str, count: int) -> Decision:
        """Return what `acquire` would decide; nothing is written."""
        args: list[Part] = [self.now, 0, self.limit, count, self.expires_after_us]
        return self._decision(await self._run(self._acquire, self._key(key), args), count)

    async def renew(self, key: str, permit_id: str, count: int) -> bool:
        """Hold them for the whole time from now; False if the permit has ended."""
        args: list[Part] = [self.now, permit_id, count, self.expires_after_us]
        return bool(await self._run(self._renew, self._key(key), args))

    async def release(self, key: str, permit_id: str, count: int) -> bool:
        """Give them back; False if the permit has ended."""
        args: list[Part] = [self.now, permit_id, count]
        try:
            return bool(await self._run(self._release, self._key(key), args))
        except BaseException:
            self._owe(key, permit_id, count)
            raise

    async def close(self) -> None:
        """Fail what is under way with `Unavailable`, and close the connections."""
        self._closed = True
        await self._client.close()

    # Inside.

    async def _run(self, script: Script, at: bytes, args: list[Part]) -> Any:
        if self._closed:
            raise Unavailable(self.what, "the store is closed")
        try:
            return await self._client.run_script(script, [at], args)
        except (Unavailable, ErrorReply) as error:
            raise as_unavailable(error) from None

    def _decision(self, reply: list[int], count: int) -> Decision:
        _, admitted, used, retry_us, reset_us = reply
        remaining = max(self.limit - used, 0)
        if admitted:
            retry_us, reason = 0, None
        elif count > self.limit:
            retry_us, reason = NEVER, COST_ABOVE_LIMIT
        else:
            reason = CONCURRENCY_LIMITED
        return Decision(
            reason is None, remaining, retry_us, reset_us, reason, self.name, limit=self.limit
        )

    def _key(self, entity: str) -> bytes:
        # As the keys of limits are written, so that all of an entity share a slot of a cluster.
        return key_of(f"{self.prefix}:{{", entity, f"}}:{self.name}:permits", self._key_bytes_max)

    def _owe(self, key: str, permit_id: str, count: int) -> None:
        now_s, due = self._loop.time(), self._debts_due
        while due and (due[0][0] <= now_s or len(due) >= DEBTS_MAX):
            self._clear_debts(due[0][1], [(due[0][2], 0)])
            due.popleft()
        due.append((now_s + self.expires_after_us / 1e6, key, permit_id))
        self._debts.setdefault(key, {})[permit_id] = count

    def _void_permits(self, key: str) -> list[tuple[str, int]]:
        debts = self._debts.get(key)
        return [] if debts is None else [*debts.items()][:DEBTS_TOLD_MAX]

    def _clear_debts(self, key: str, void: list[tuple[str, int]]) -> None:
        debts = self._debts.get(key)
        if debts is None:
            return
        for permit_id, _ in void:
            debts.pop(permit_id, None)
        if not debts:
            del self._debts[key]


def _script(operation: str) -> Script:
    folder = files(__package__)
    parts = ("clock", "permits", f"permits_{operation}")
    source = "\n".join((folder / f"{part}.lua").read_text(encoding="utf-8") for part in parts)
    return Script(source, name=f"permits_{operation}")
