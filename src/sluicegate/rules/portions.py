"""Portions: many items, listed a portion at a time while somebody looks through them.

A million at once would be a pause for everybody else; a portion is little work.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final, Generic, TypeVar, final

PORTION: Final = 1_000

T = TypeVar("T")


@final
class Portions(Generic[T]):
    """`count` items in portions of `PORTION`, taken from their source when first looked at."""

    __slots__ = ("_listed", "_portions", "_unlisted")

    def __init__(self, items: Iterable[T], count: int) -> None:
        self._portions = -(-count // PORTION)
        self._listed: list[T] = []
        self._unlisted = iter(items)

    def __len__(self) -> int:
        """How many portions there are."""
        return self._portions

    def portion(self, number: int) -> list[T]:
        """The items of one portion."""
        ends = (number + 1) * PORTION
        if len(self._listed) < ends:
            self._listed += islice(self._unlisted, ends - len(self._listed))
        return self._listed[ends - PORTION : ends]
