"""Key counters: two ways to notice the keys that are read most, without a bound or without care.

*Exact counts* keeps a number for every key, and forgets all at the end of each second. It is what
one writes first, and it counts without an error. It bounds no memory: whoever cycles through
endless keys fills it. What is hot is noticed anew in each second.

*LRU counts* keeps counters for the keys that came last, as many as the product has. It is what
Sentinel's hot-parameter rules keep. A key without a counter takes that of the key which has not
come for longest, so it is bounded. What it names is uncertain: a key that comes evenly but seldom
is pushed out between two of its reads, and its count begins anew.
"""

from __future__ import annotations

from collections import OrderedDict
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
        """Count a read, and return whether the key is hot."""
        if now_us // WINDOW_US != self._window:
            self._window = now_us // WINDOW_US
            self._counts.clear()
        count = self._counts[key] = self._counts.get(key, 0) + 1
        return count >= self._least

    def top(self, k: int) -> list[str]:
        """Return the most frequent keys of this second."""
        return nlargest(k, self._counts, key=self._counts.__getitem__)


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
        """Count a read, and return whether the key is hot."""
        if now_us // WINDOW_US != self._window:
            self._window = now_us // WINDOW_US
            for counted in self._counts:
                self._counts[counted] //= 2
        count = self._counts[key] = self._counts.pop(key, 0) + 1
        if len(self._counts) > self._capacity:
            self._counts.popitem(last=False)
        return count >= self._least

    def top(self, k: int) -> list[str]:
        """Return the most frequent keys."""
        return nlargest(k, self._counts, key=self._counts.__getitem__)
