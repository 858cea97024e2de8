"""Lane search: how many places heavy work may have, by what quick work takes beside it.

Heavy work that may have half of the places takes half of an engine only where somebody knows how
many places that has. Of 64 places before 8 slots half are four times the engine. So what quick work
takes is told apart by how much heavy work was under way when it ended:

    up to `LEAST`    what it takes otherwise
    more             what it takes beside heavy work. Where that is a tenth longer, beyond its
                     noise, the lane has half as many places as there was heavy work, or `LEAST`

Places that the lane lacks come back once it has been full for a second without a pause, or a minute
after the last harm: a tenth more each window, then twice as many, up to `most`. From where it did
harm it is one at a time, and each waits twice as long as after the harm before.

An engine that becomes slower is so for both kinds, and nothing is taken from anybody for it; where
there is nothing quick, or never without much heavy work beside it, nothing is known and nothing is
changed. What quick work takes otherwise is forgotten after ten seconds without any of it.

Reads at 40% of 8 slots of 10 ms, and scans of 110 ms at ten times their quota, which lets them in
when a second begins; 64 places at first, three seeds, p99 from the fourth second on
(tests/lab/test_dispatcher_worlds.py):

    the lane has                    half of the places    what is found    no scans
    p99 of the reads, ms            28 to 36              15 to 18         11
    scanned a second                8.1 to 8.9            8.6 to 9.4

Whoever hands in times of several kinds of work divides each by what is usual of its kind.

Cost: six additions an end. Bounds: 1 <= places <= most.
"""

from __future__ import annotations

from math import ceil, sqrt
from typing import Final, final

from sluicegate.kernels.bounds import within
from sluicegate.kernels.place_search import PLACES_MAX

LEAST: Final = 4
_LONGER: Final = 1.1
_SIGMAS: Final = 4.0
_ENDS_MIN: Final = 10  # of each kind, before they are compared, and again after so many more
_ENDS_MAX: Final = 256  # then those so far count half
_KNOWN_US: Final = 10_000_000
_SPAN_US: Final = 100_000
_GROWTH: Final = 0.1
_SLOW_GROWTHS: Final = 4  # by a tenth, before it doubles
_FULL_US: Final = 1_000_000
_FORGET_US: Final = 60_000_000
_REST_US: Final = 1_000_000
_REST_US_MAX: Final = 16_000_000


@final
class LaneSearch:
    """The number of places, and what it is found by."""

    __slots__ = (
        "_beside",
        "_full_us",
        "_growths",
        "_harm",
        "_harm_us",
        "_heavy",
        "_known_us",
        "_next_us",
        "_otherwise",
        "_rest_us",
        "most",
        "places",
    )

    def __init__(self, most: int) -> None:
        within("most", most, 1, PLACES_MAX)
        self.most = self.places = most
        self._otherwise = _Times()
        self._beside = _Times()
        self._heavy = 0  # under way, over all that ended beside it
        self._known_us = 0  # when quick work last ended otherwise
        self._harm = PLACES_MAX  # so many did harm, or were not tried since
        self._harm_us = 0
        self._full_us = -1  # since when the lane is full
        self._next_us = 0  # no growth before
        self._rest_us = _REST_US
        self._growths = 0  # in a row

    def limit(self, most: int) -> bool:
        """Have at most so many from now on; return whether `places` has changed."""
        within("most", most, 1, PLACES_MAX)
        places = most if self.places == self.most else min(self.places, most)
        self.most = most
        return self._set(places)

    def record_quick(self, time: float, heavy: int, now_us: int) -> bool:
        """Take in quick work that has ended, with so much heavy work under way.

        Return whether `places` has changed.
        """
        beside, otherwise = self._beside, self._otherwise
        if heavy <= LEAST:
            if now_us - self._known_us > _KNOWN_US:
                otherwise.clear()
            self._known_us = now_us
            otherwise.add(time)
            return False
        beside.add(time)
        self._heavy += heavy
        if beside.count % _ENDS_MIN or otherwise.count < _ENDS_MIN:
            return False
        if now_us - self._known_us > _KNOWN_US:
            return False
        noise = sqrt(beside.error() + _LONGER**2 * otherwise.error())
        if beside.mean() <= _LONGER * otherwise.mean() + _SIGMAS * noise:
            return False
        self._harm = min(self._heavy // beside.seen, self.places)
        self._harm_us = now_us
        self._rest_us = min(2 * self._rest_us, _REST_US_MAX)
        self._next_us = now_us + self._rest_us
        self._growths = 0
        return self._set(min(self.places, max(LEAST, self._harm // 2)))

    def record_heavy(self, heavy: int, now_us: int) -> bool:
        """Take in heavy work that has ended, and how much is under way with who took its place.

        Return whether `places` has changed.
        """
        if heavy < self.places:
            self._full_us = -1
            return False
        if self._full_us < 0 or now_us < self._full_us:  # or the clock went back
            self._full_us = now_us
        if self.places >= self.most:
            return False
        recent = now_us - self._harm_us < _FORGET_US
        if now_us < self._next_us or (recent and now_us - self._full_us < _FULL_US):
            return False
        if not recent:
            self._rest_us = _REST_US
        if self.places + 1 >= self._harm:
            self._harm = self.places + 2
            self._next_us = now_us + self._rest_us
            return self._set(self.places + 1)
        self._next_us = now_us + _SPAN_US
        self._growths += 1
        doublings = max(0, self._growths - _SLOW_GROWTHS)
        more = ceil(self.places * min(_GROWTH * 2.0**doublings, 1.0))
        return self._set(min(self.places + more, self.most))

    def _set(self, places: int) -> bool:
        if places == self.places:
            return False
        self.places = places
        self._beside.clear()
        self._heavy = 0
        return True


@final
class _Times:
    """A mean and its error; what is old counts less."""

    __slots__ = ("count", "seen", "squares", "total")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.count = self.seen = 0
        self.total = self.squares = 0.0

    def add(self, time: float) -> None:
        """Take in one more."""
        if self.count == _ENDS_MAX:
            self.count //= 2
            self.total /= 2.0
            self.squares /= 2.0
        self.count += 1
        self.seen += 1
        self.total += time
        self.squares += time * time

    def mean(self) -> float:
        """Their mean."""
        return self.total / self.count

    def error(self) -> float:
        """The variance of that mean."""
        mean = self.mean()
        return max(0.0, self.squares / self.count - mean * mean) / self.count
