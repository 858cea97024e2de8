"""Over-limit cache: counters that have passed their limit, until their window ends.

Asking for them again would change nothing that matters: they are over. Nothing is counted either,
so a counter ends its window with less than the requests it had.
"""

from __future__ import annotations

from typing import final

from sluicegate.contracts.store import SharedKey


@final
class OverLimitCache:
    """Keys and the instants until which they are over. When it is full, the oldest goes."""

    __slots__ = ("_until_us", "keys_max")

    def __init__(self, keys_max: int) -> None:
        self._until_us: dict[SharedKey, int] = {}
        self.keys_max = keys_max

    def has(self, key: SharedKey, now_us: int) -> bool:
        """Whether this key is known to be over now."""
        until_us = self._until_us.get(key)
        if until_us is None:
            return False
        if now_us < until_us:
            return True
        self._until_us.pop(key, None)
        return False

    def add(self, key: SharedKey, until_us: int) -> None:
        """Remember a key."""
        entries = self._until_us
        if key not in entries and len(entries) >= self.keys_max:
            entries.pop(next(iter(entries)), None)
        entries[key] = until_us

    def __len__(self) -> int:
        return len(self._until_us)
