"""Paths: which path patterns match a path, all of them and not only the best.

    /login        this path
    /users/{id}   one segment, whatever it is
    /api/**       /api and everything under it

The path index of the kernels finds the *one* pattern that fits best. Here all that match are
wanted. So the patterns are completed first: wherever two of them overlap, the pattern of the paths
they share is added, and each knows by whom it is covered. Of a completed set, the one that fits
best lies within all others that match, so what it knows is the whole answer, in one look-up.

Bounds: `OVERLAPS_MAX` patterns when completed, and those of the index. Exact paths are not counted:
they overlap with nothing but what covers them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

from sluicegate.kernels.path_index import ANY, BELOW, PathIndex, plain_pattern

OVERLAPS_MAX: Final = 16_384
SEGMENTS_MAX: Final = 32
SHAPES_MAX: Final = 1_024

T = TypeVar("T")


class Pattern(NamedTuple):
    """A pattern in parts: segments, where None is any; and whether everything below is meant."""

    segments: tuple[str | None, ...]
    below: bool
    names: tuple[tuple[str, int], ...] = ()  # of segments in braces, and their places

    @property
    def exact(self) -> bool:
        """Whether it matches a single path."""
        return not self.below and None not in self.segments

    def covers(self, other: Pattern) -> bool:
        """Whether all that matches `other` matches this too."""
        return overlap_of(self, other) == (other.segments, other.below)

    def __str__(self) -> str:
        names = {place: f"{{{name}}}" for name, place in self.names}
        parts = [
            names.get(place, "*") if segment is None else segment
            for place, segment in enumerate(self.segments)
        ]
        return "/" + "/".join([*parts, "**"] if self.below else parts)


EVERY_PATH: Final = Pattern((), True)


def parse_pattern(text: str) -> Pattern:
    """The pattern that a text says; a `ValueError` has the remedy."""
    parts = [part for part in text.split("/") if part]
    below = bool(parts) and parts[-1] == "**"
    plain = plain_pattern(text, SEGMENTS_MAX + below)
    if plain.endswith("/*") and not below:
        raise ValueError("write '/{name}' for one segment, or '/**' for all below")
    segments: list[str | None] = [*plain.split("/")[1:]]
    if below or segments == [""]:
        segments.pop()
    names: list[tuple[str, int]] = []
    for place, segment in enumerate(segments):
        if segment == ANY:
            segments[place] = None
            name = parts[place][1:-1]
            if not name.isidentifier():
                raise ValueError(f"{{{name}}} is no name; use letters, digits and '_'")
            if name in dict(names):
                raise ValueError(f"{{{name}}} stands in it twice; give each its own name")
            names.append((name, place))
    return Pattern(tuple(segments), below, tuple(names))


def overlap_of(one: Pattern, other: Pattern) -> tuple[tuple[str | None, ...], bool] | None:
    """The pattern of the paths that match both, None if there are none."""
    longer, shorter = (one, other) if len(one[0]) >= len(other[0]) else (other, one)
    if len(longer[0]) > len(shorter[0]) and not shorter[1]:
        return None
    segments = list(longer[0])
    for place, segment in enumerate(shorter[0]):
        present = segments[place]
        if present is None:
            segments[place] = segment
        elif segment is not None and segment != present:
            return None
    return tuple(segments), longer[1] and (shorter[1] or len(longer[0]) > len(shorter[0]))


def file_paths(
    patterns: Iterable[tuple[Pattern, int]],
    shelve: Callable[[int], T],
    *,
    overlaps_max: int = OVERLAPS_MAX,
) -> PathIndex[T]:
    """An index that answers with `shelve(set)`, the set of all that match a path.

    Each pattern comes with the set it stands for, as the bits of a number; `shelve` is called once
    a set. A `ValueError` has the remedy.
    """
    exact: dict[Pattern, int] = {}
    loose: dict[Pattern, int] = {}
    for pattern, bits in patterns:
        plain = Pattern(pattern.segments, pattern.below)
        kind = exact if plain.exact else loose
        kind[plain] = kind.get(plain, 0) | bits
    completed = _complete(loose, overlaps_max)
    sets: PathIndex[int] = PathIndex(shapes_max=SHAPES_MAX)
    for place, bits in completed.items():
        sets.add(_spell(place), bits)
    for place, bits in exact.items():
        completed[place] = bits | (sets.find(_spell(place)) or 0)
    shelves = {bits: shelve(bits) for bits in set(completed.values())}
    index: PathIndex[T] = PathIndex(shapes_max=SHAPES_MAX)
    for place, bits in completed.items():
        index.add(_spell(place), shelves[bits])
    return index


def _complete(patterns: dict[Pattern, int], overlaps_max: int) -> dict[Pattern, int]:
    """The patterns and all their overlaps, each with the bits of everything that covers it."""
    completed: dict[Pattern, int] = {}
    for pattern, bits in patterns.items():
        overlaps = {pattern: bits}
        for place, others in completed.items():
            overlap = overlap_of(pattern, place)
            if overlap is not None:
                both = Pattern(*overlap)
                overlaps[both] = overlaps.get(both, 0) | bits | others
        completed.update(overlaps)  # whatever it covers is among the overlaps, with the bits it had
        if len(completed) > overlaps_max:
            raise ValueError(
                f"the patterns overlap in more than {overlaps_max:,} ways; "
                "put their wildcards at fewer different places"
            )
    return completed


def _spell(pattern: Pattern) -> str:
    """As the path index spells it."""
    parts = [ANY if segment is None else segment for segment in pattern.segments]
    return "/" + "/".join([*parts, BELOW] if pattern.below else parts)
