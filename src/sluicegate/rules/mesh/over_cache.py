"""Over cache: counters that have passed their limit, until their window ends.

Asking for them again would change nothing that matters: they are over. Nothing is counted either,
so what a counter says at the end of its window is less than what was asked of it.
"""

from __future__ import annotations

from typing import final


@final
class OverCache:
    """Keys and the instants until which they are over. When it is full, the oldest goes."""

    __slots__ = ("_until_us", "keys_max")

    def __init__(self, keys_max: int) -> None:
        self._until_us: dict[str, int] = {}
        self.keys_max = keys_max

    def knows(self, key: str, now_us: int) -> bool:
        """Whether this key is known to be over now."""
        until_us = self._until_us.get(key)
        if until_us is None:
            return False
        if now_us < until_us:
            return True
        self._until_us.pop(key, None)
        return False

    def add(self, key: str, until_us: int) -> None:
        """Remember a key."""
        kept = self._until_us
        if key not in kept and len(kept) >= self.keys_max:
            kept.pop(next(iter(kept)), None)
        kept[key] = until_us

    def __len__(self) -> int:
        return len(self._until_us)
