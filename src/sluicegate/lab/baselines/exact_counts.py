"""Exact counts: a number for every key, all forgotten at the end of each second.

It is what one writes first, and it counts without an error. It bounds no memory: whoever cycles
through endless keys fills it. What is hot is noticed anew in each second.
"""

from __future__ import annotations

from heapq import nlargest
from typing import Final, final

WINDOW_US: Final = 1_000_000


@final
class ExactCounts:
    """A counter for every key of this second."""

    __slots__ = ("_counts", "_least", "_window")

    def __init__(self, *, least: int) -> None:
        self._counts: dict[str, int] = {}
        self._least = least
        self._window = -1

    def notice(self, key: str, now_us: int) -> bool:
        """Count it, and say whether it is hot."""
        if now_us // WINDOW_US != self._window:
            self._window = now_us // WINDOW_US
            self._counts.clear()
        count = self._counts[key] = self._counts.get(key, 0) + 1
        return count >= self._least

    def top(self, k: int) -> list[str]:
        """The most frequent keys of this second."""
        return nlargest(k, self._counts, key=self._counts.__getitem__)
