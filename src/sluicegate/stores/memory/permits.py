"""Permits in memory: who holds places of which key, for one process.

It finds a key's places and asks them; how they are counted is in `kernels/permits.py`. A key that
holds nothing is forgotten at its last release, and one whose holders never came back when the next
comes. What is held is never forgotten to make room: with `keys_max` keys in use, a new one is
refused as KEYS_EXHAUSTED, and the limit stays what it is.

All permits last equally long, so the order in which keys were last acquired or renewed is the order
in which they come to rest: the front of one ordered dict is all that must be looked at.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.reasons import CONCURRENCY_LIMITED, COST_ABOVE_LIMIT, KEYS_EXHAUSTED
from sluicegate.kernels.permits import PermitSet
from sluicegate.kernels.verdict import NEVER, Verdict
from sluicegate.stores.memory.light_lock import LightLock

KEYS_MAX_DEFAULT: Final = 1_000_000
_LOOKS: Final = 2  # keys at rest that an acquire forgets; more than it adds


@final
class MemoryPermits:
    """Permits of one name; its coroutines never suspend."""

    __slots__ = ("_clock", "_keys", "_lock", "expires_after_us", "keys_max", "limit", "name")

    def __init__(
        self,
        clock: Callable[[], int],
        name: str,
        limit: int,
        expires_after_us: int,
        *,
        keys_max: int = KEYS_MAX_DEFAULT,
    ) -> None:
        self._clock = clock
        self._lock = LightLock()
        # In the order of their last acquire or renewal.
        self._keys: OrderedDict[str, PermitSet] = OrderedDict()
        self.name = name
        self.limit = limit
        self.expires_after_us = expires_after_us
        self.keys_max = keys_max

    async def acquire(self, key: str, permit_id: str, count: int) -> Decision:
        """Hold `count` places of `key` under this name."""
        clock = self._clock
        self._lock.acquire()
        try:
            now_us = clock()
            self._forget_idle(now_us)
            places = self._keys.get(key)
            if places is None:
                if len(self._keys) >= self.keys_max and count <= self.limit:
                    return self._keys_exhausted(now_us)
                places = PermitSet(self.limit, self.expires_after_us)
            verdict = places.acquire(permit_id, count, now_us)
            if verdict.allowed:
                self._keys[key] = places
                self._keys.move_to_end(key)
            return self._decision(verdict)
        finally:
            self._lock.release()

    async def renew(self, key: str, permit_id: str, count: int) -> bool:
        """Hold them for the whole time from now; False if the permit has ended."""
        self._lock.acquire()
        try:
            places = self._keys.get(key)
            if places is None or not places.renew(permit_id, self._clock()):
                return False
            self._keys.move_to_end(key)
            return True
        finally:
            self._lock.release()

    async def release(self, key: str, permit_id: str, count: int) -> bool:
        """Give them back; False if the permit has ended."""
        self._lock.acquire()
        try:
            now_us = self._clock()
            places = self._keys.get(key)
            if places is None:
                return False
            released = places.release(permit_id, now_us)
            if places.used(now_us) == 0:
                del self._keys[key]
            return released
        finally:
            self._lock.release()

    async def look(self, key: str, count: int) -> Decision:
        """Return what `acquire` would decide."""
        self._lock.acquire()
        try:
            places = self._keys.get(key)
            if places is None:
                places = PermitSet(self.limit, self.expires_after_us)
            return self._decision(places.look(count, self._clock()))
        finally:
            self._lock.release()

    async def close(self) -> None:
        """Nothing is open here; what is held stays held until it ends."""

    def __len__(self) -> int:
        """Return the keys that are tracked; some may be at rest and not forgotten yet."""
        return len(self._keys)

    def _forget_idle(self, now_us: int) -> None:
        """Forget keys whose holders have all expired."""
        keys = self._keys
        for _ in range(_LOOKS):
            if not keys:
                return
            first = next(iter(keys))
            if keys[first].used(now_us):
                return
            del keys[first]

    def _keys_exhausted(self, now_us: int) -> Decision:
        """Return the first key to come to rest is the one that was used least lately."""
        rest = self._keys[next(iter(self._keys))].look(1, now_us).reset_after_us
        return Decision(False, 0, rest, rest, KEYS_EXHAUSTED, self.name, limit=self.limit)

    def _decision(self, verdict: Verdict) -> Decision:
        reason = None
        if not verdict.allowed:
            never = verdict.retry_after_us == NEVER
            reason = COST_ABOVE_LIMIT if never else CONCURRENCY_LIMITED
        return Decision(
            verdict.allowed,
            verdict.remaining,
            verdict.retry_after_us,
            verdict.reset_after_us,
            reason,
            self.name,
            limit=self.limit,
        )
