"""Class reserve: the last free places of a part that is full are kept for higher classes.

A part whose places are all taken serves whoever asks in the moment when one is free. That is by
rate, not by class: of one shard of a store, fifty times slower, CRITICAL got 41% of what it asked.
So a class may not take the last few. Source: trunk reservation (Weber, "A simulation study of
routing and control in communications networks", 1964), which telephone networks use for the same.

    kept       from a class: as many as are taken by those above it before one is given back, but
               for one time in 32. If those above ask `a` times while `d` are given back, that is
               the smallest r with (a / (a + d)) ** r at most 1/32: 3 places where they ask for a
               quarter of what can be done, 5 where for all of it; a quarter of all at most
    floor      of each class a sixteenth of the places may be at work whatever is kept, so that
               there are always some that tell how it is

Nothing is kept while the part finds room for all who come: only from a tenth of a second after a
refusal until a second without one.

Cost: a comparison and an addition for each who asks, a look-up while places are kept. Bounds: four
classes.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.contracts.criticality import Criticality

WINDOW_US: Final = 1_000_000
FIRST_US: Final = 100_000  # from a first refusal until places are kept
_FLOOR_BITS: Final = 4  # a sixteenth
KEPT_BITS: Final = 2  # a quarter
_ALL: Final = 1 << 20
_SELDOM: Final = _ALL // 32


@final
class ClassReserve:
    """Who is at work in one part, and how many places are kept from each class."""

    __slots__ = ("_asked", "_at_work", "_ended", "_keeps", "_kept", "_short", "_window_ends_us")

    def __init__(self, now_us: int) -> None:
        classes = len(Criticality)
        self._asked = [0] * classes
        self._at_work = [0] * classes
        self._kept = [0] * classes
        self._ended = 0
        self._short = False  # of places, within this window
        self._window_ends_us = now_us + WINDOW_US
        self._keeps = False

    def ask(self, criticality: Criticality, now_us: int) -> None:
        """One of this class asks for a place."""
        if now_us >= self._window_ends_us:
            self._begin_window(now_us)
        self._asked[criticality] += 1

    def record_refusal(self, now_us: int) -> None:
        """There was no place for somebody."""
        if not self._short and not self._keeps:
            self._window_ends_us = min(self._window_ends_us, now_us + FIRST_US)
        self._short = True

    def enter(self, criticality: Criticality) -> None:
        """One of this class has a place."""
        self._at_work[criticality] += 1

    def leave(self, criticality: Criticality) -> None:
        """It has given it back."""
        self._at_work[criticality] -= 1
        self._ended += 1

    def limit(self, criticality: Criticality, places: int) -> int:
        """How many of so many places may be taken when one more of this class enters."""
        if not self._keeps or self._at_work[criticality] < places >> _FLOOR_BITS:
            return places
        return places - min(self._kept[criticality], places >> KEPT_BITS)

    def _begin_window(self, now_us: int) -> None:
        # A window without anybody, or two, tell nothing of who comes now.
        self._keeps = self._short and now_us < self._window_ends_us + WINDOW_US
        above = 0
        for criticality, asked in enumerate(self._asked):
            self._kept[criticality] = _places_kept(above, self._ended)
            above += asked
            self._asked[criticality] = 0
        self._ended = 0
        self._short = False
        self._window_ends_us = now_us + WINDOW_US


def _places_kept(asked: int, ended: int) -> int:
    """How many places seldom are too few, for so many who ask while so many are given back."""
    if asked == 0:
        return 0
    part = asked * _ALL // (asked + ended)
    kept, chance = 1, part
    while chance > _SELDOM and kept < 64:
        chance = chance * part // _ALL
        kept += 1
    return kept
