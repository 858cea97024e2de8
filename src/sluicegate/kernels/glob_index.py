"""Glob index: which of many patterns with `*` matches a value first, without trying them all.

A `*` stands for any run of characters, also none; everything else stands for itself. A pattern is
kept as its literal parts, `a*b*c` as (a, b, c). It matches when the value starts with the first
part, ends with the last, the two do not overlap, and the parts between are found in order, each
after the one before. Taking the leftmost place for each is always right, so there is nothing to go
back for and the time is linear in the value.

Of several patterns that match, the first in the order given wins, as in the descriptor rules of
Envoy's rate-limit service. Trying them in that order is what is usually done, and takes as long as
there are patterns. Here each is filed under its *anchor*: its first part if that is not empty, else
its last, else nothing. For a value, only the anchors that it really starts or ends with are looked
up, one per length that occurs, and only the patterns under those are tried. 100,000 patterns
`tenant-N-*` are one to six look-ups, and as many patterns `*.host-N.example` likewise.

What it cannot help is patterns that share an anchor, `*-a-*`, `*-b-*`. So the worst case over all
values is worked out when the index is built, the sum over the lengths of the fullest anchor of that
length, and more than `tries_max` is refused: what is slow is refused when it is loaded.

Not good at: telling that a pattern can never win because an earlier one covers it.

Cost: a slice and a dict look-up per anchor length, a test per pattern under a matching anchor.
Bounds: `tries_max` such look-ups and tests; the number of patterns only by memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

from sluicegate.kernels.bounds import within

TRIES_MAX: Final = 1_000_000


def parse(pattern: str) -> tuple[str, ...]:
    """The literal parts of a pattern: the first, those between stars, the last; two at least.

    Patterns that match the same values in the same way have the same parts: `a**b` is `a*b`.
    """
    if "*" not in pattern:
        raise ValueError(f"a glob must have a '*' in it, not {pattern!r}")
    first, *between, last = pattern.split("*")
    return (first, *[part for part in between if part], last)


def matches(parts: tuple[str, ...], value: str) -> bool:
    """Whether the whole value matches a parsed pattern."""
    first = parts[0]
    last = parts[-1]
    at = len(first)
    end = len(value) - len(last)
    if at > end or not value.startswith(first) or not value.endswith(last):
        return False
    for which in range(1, len(parts) - 1):
        part = parts[which]
        at = value.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


@final
class _Anchors:
    """Patterns filed under the text that a value must begin (or end) with."""

    __slots__ = ("at_end", "lengths", "places", "tries")

    def __init__(self, anchored: dict[str, list[int]], at_end: bool) -> None:
        fullest: dict[int, int] = {}
        for anchor, places in anchored.items():
            fullest[len(anchor)] = max(fullest.get(len(anchor), 0), len(places))
        self.at_end = at_end
        self.places = anchored
        self.lengths = sorted(fullest)
        self.tries = len(fullest) + sum(fullest.values())


@final
class GlobIndex:
    """The patterns in their order; `find` answers the position of the first that matches."""

    __slots__ = ("_anchors", "_parts", "_unanchored")

    def __init__(self, patterns: Iterable[str], *, tries_max: int = 1_000) -> None:
        within("tries_max", tries_max, 1, TRIES_MAX)
        starts: dict[str, list[int]] = {}
        ends: dict[str, list[int]] = {}
        self._parts: list[tuple[str, ...]] = []
        self._unanchored: list[int] = []
        for place, pattern in enumerate(patterns):
            parts = parse(pattern)
            self._parts.append(parts)
            if parts[0]:
                starts.setdefault(parts[0], []).append(place)
            elif parts[-1]:
                ends.setdefault(parts[-1], []).append(place)
            else:
                self._unanchored.append(place)
        both = (_Anchors(starts, at_end=False), _Anchors(ends, at_end=True))
        self._anchors = [anchors for anchors in both if anchors.places]
        tries = len(self._unanchored) + sum(anchors.tries for anchors in both)
        if tries > tries_max:
            raise ValueError(
                f"these {len(self._parts)} patterns could take {tries} tries for one value, more "
                f"than tries_max ({tries_max}): give them longer or more different beginnings"
            )

    def __len__(self) -> int:
        return len(self._parts)

    def find(self, value: str) -> int:
        """The position of the first pattern that matches the whole value, or -1."""
        none = best = len(self._parts)
        size = len(value)
        for anchors in self._anchors:
            for length in anchors.lengths:
                if length > size:
                    break
                anchor = value[size - length :] if anchors.at_end else value[:length]
                places = anchors.places.get(anchor)
                if places is not None:
                    best = self._first(places, value, best)
        best = self._first(self._unanchored, value, best)
        return best if best < none else -1

    def _first(self, places: list[int], value: str, best: int) -> int:
        """The first of `places` that matches, if it comes before `best`."""
        for place in places:
            if place >= best:
                break
            if matches(self._parts[place], value):
                return place
        return best
