"""Denials: a key that was refused is refused here, until the instant that the refusal named.

How a refusal is held is in `stores/memory/believed.py`; here is which are: those that some waiting
will turn.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.contracts.decision import Decision
from sluicegate.stores.memory.refusal_cache import BELIEVED_US_MAX, KEYS_MAX, RefusalCache, aged

__all__ = ["BELIEVED_US_MAX", "KEYS_MAX", "Denials"]


@final
class Denials:
    """The refused keys of one rule."""

    __slots__ = ("_believed",)

    def __init__(self, *, believed_us_max: int = BELIEVED_US_MAX, keys_max: int = KEYS_MAX) -> None:
        self._believed: Final[RefusalCache[str, Decision]] = RefusalCache(
            believed_us_max=believed_us_max, keys_max=keys_max
        )

    def refusal(self, key: str, cost: int, now_us: int) -> Decision | None:
        """The refusal that still holds for as much; None if the store must be asked."""
        belief = self._believed.find(key, cost, now_us)
        return None if belief is None else aged(belief.said, now_us - belief.asked_us)

    def remember(self, key: str, cost: int, decision: Decision, asked_us: int) -> None:
        """Believe a refusal; `asked_us` is from before the store was asked."""
        # A cost above the limit is none: the cost says so each time.
        if decision.retry_after_us > 0:
            self._believed.remember(key, cost, decision, asked_us, decision.retry_after_us)

    def forget(self, key: str) -> None:
        """The key may have room again."""
        self._believed.forget(key)

    def __len__(self) -> int:
        return len(self._believed)
