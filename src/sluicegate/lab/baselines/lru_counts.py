"""LRU counts: counters for the keys that were seen last, as many as the product has.

It is what Sentinel's hot-parameter rules keep. A key that holds no counter takes that of the key
which has not been seen for longest, so it is bounded. It is not sure of what it names: a key that
comes evenly but seldom is pushed out between two of its reads, and counts begin anew.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import nlargest
from typing import Final, final

WINDOW_US: Final = 1_000_000


@final
class LruCounts:
    """Counters in the order of their last use."""

    __slots__ = ("_capacity", "_counts", "_least", "_window")

    def __init__(self, *, capacity: int, least: int) -> None:
        self._capacity = capacity
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._least = least
        self._window = -1

    def notice(self, key: str, now_us: int) -> bool:
        """Count it, and say whether it is hot."""
        if now_us // WINDOW_US != self._window:
            self._window = now_us // WINDOW_US
            for held in self._counts:
                self._counts[held] //= 2
        count = self._counts[key] = self._counts.pop(key, 0) + 1
        if len(self._counts) > self._capacity:
            self._counts.popitem(last=False)
        return count >= self._least

    def top(self, k: int) -> list[str]:
        """The most frequent keys."""
        return nlargest(k, self._counts, key=self._counts.__getitem__)
