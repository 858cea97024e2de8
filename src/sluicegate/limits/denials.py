"""Denials: a key that was refused is refused here, until the instant that the refusal named.

How a refusal is held is in `stores/memory/refusal_cache.py`; here is which are held: those
that will pass by waiting.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.contracts.decision import Decision
from sluicegate.stores.memory.refusal_cache import HOLD_US_MAX, KEYS_MAX, RefusalCache, with_age

__all__ = ["HOLD_US_MAX", "KEYS_MAX", "Denials"]


@final
class Denials:
    """The refused keys of one rule."""

    __slots__ = ("_cache",)

    def __init__(self, *, hold_us_max: int = HOLD_US_MAX, keys_max: int = KEYS_MAX) -> None:
        self._cache: Final[RefusalCache[str, Decision]] = RefusalCache(
            hold_us_max=hold_us_max, keys_max=keys_max
        )

    def refusal(self, key: str, cost: int, now_us: int) -> Decision | None:
        """Return the refusal that still holds for as much; None if the store must be asked."""
        cached = self._cache.find(key, cost, now_us)
        return None if cached is None else with_age(cached.value, now_us - cached.sent_us)

    def remember(self, key: str, cost: int, decision: Decision, sent_us: int) -> None:
        """Believe a refusal; `sent_us` is from before the store was asked."""
        # A cost above the limit is none: the cost says so each time.
        if decision.retry_after_us > 0:
            self._cache.remember(key, cost, decision, sent_us, decision.retry_after_us)

    def forget(self, key: str) -> None:
        """The key may have room again."""
        self._cache.forget(key)

    def __len__(self) -> int:
        return len(self._cache)
