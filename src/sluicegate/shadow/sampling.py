"""Sampling: which entities are captured, all of them or a share of 10,000.

An entity is in the sample or not, now and on every machine that has the key: it is drawn by a keyed
hash of its name. So of an entity there are all requests or none, and a limit trips in a replay as
it would have tripped.

Cost: a look-up for a recent entity, else a hash. Bound: `memo_max` entities are
remembered, in two generations, so that a flood of new names cannot push out the busy ones at once.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.contracts.errors import BadValue
from sluicegate.shadow.capture.key import CaptureKey
from sluicegate.shadow.traffic import ALL

MEMO_MAX_DEFAULT: Final = 100_000
_CHARS_MAX: Final = 256  # what is longer is not remembered
_PLACES: Final = 1 << 64


@final
class Sample:
    """A share of all entities."""

    __slots__ = ("_all", "_below", "_key", "_older", "_recent", "_recent_max", "share")

    def __init__(
        self, key: CaptureKey | None, share: int, *, memo_max: int = MEMO_MAX_DEFAULT
    ) -> None:
        if not 0 <= share <= ALL:
            raise BadValue("capture.share", share, f"give so many of {ALL:,}, from 0 to {ALL:,}")
        if memo_max < 2:
            raise BadValue("capture.memo_max", memo_max, "give a whole number, at least 2")
        if key is None and share < ALL:
            raise BadValue("capture.share", share, f"give a key too, or {ALL:,} for all")
        self.share = share
        self._all = share >= ALL
        self._below = _PLACES * share // ALL
        self._key = key
        self._recent: dict[str, bool] = {}
        self._older: dict[str, bool] = {}
        self._recent_max = memo_max // 2

    def holds(self, entity: str) -> bool:
        """Whether this entity is captured."""
        if self._all:
            return True
        sampled = self._recent.get(entity)
        if sampled is not None:
            return sampled
        return self._draw(entity)

    def _draw(self, entity: str) -> bool:
        sampled = self._older.get(entity)
        if sampled is None:
            key = self._key
            sampled = key is not None and key.place(entity) < self._below
        if len(entity) <= _CHARS_MAX:
            if len(self._recent) >= self._recent_max:
                self._older = self._recent
                self._recent = {}
            self._recent[entity] = sampled
        return sampled
