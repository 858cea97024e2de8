"""Place search: how many may be at work at once, found by trying fewer and looking at what is done.

A pool in front of an engine has more places than the engine can work on, or fewer. With more, the
line is inside the engine, where nobody orders it: what matters waits behind what does not. With
fewer, the engine idles. The limits of TCP's kind (`concurrency_limit.py`, `fast_limit.py`) find the
number by latency alone, and latency alone cannot tell a line from work that has become slower: an
engine four times slower, with places to spare, had 35% of its lowest class refused by one of them.

So here a smaller number is an experiment, and what is done in a second is the judge. By Little's
law fewer places shorten the time in the engine by as much, if there was a line in it, and what is
done stays the same; without a line, what is done falls, and the places are given back.

    steady    while all places are taken and work takes longer than usual, or nobody knows what is
              usual since the last try was long ago: try half of them
    draining  until no more are at work than are to be tried
    trying    for a window: what is done stays        keep them, and try half again while it helps
                            it falls beyond its noise take the old number, wait before the next try
                            a place is free           look again: less came, which says nothing

What takes no longer than usual while all places are taken gets more of them, a tenth, then twice as
many each window, up to `most`, unless most of it is too late, or there was a window in which work
took half as long: then up to `first`; so does what does not take all of its places, for there is no
line to order, up to `first` again, unless a price keeps others away: when it ends they come. A
place that is free for a moment says nothing while work takes longer than usual: the line is in the
engine. The next try begins with what the last one kept. What takes no longer than it did when most
places were free stands in no line: fewer would only do less, and are not tried. What a failed try
had is a floor: the next is between the two. While some place is free nothing is tried, unless most
of what the engine ends is too late for anybody: then there are too many places, and a try costs
nobody anything.

Where nothing at all is in time there is nothing to lose, and no window to wait for: by Little's law
what is done in a second times what callers wait is how many may be at work, and `_SPARE` of that is
had at once. Of an engine that does five a second a window is twelve seconds long, and callers who
wait for half a second were all too late for a minute. For a while after it nothing has more places
that takes as long as that: what made all too late would be back before the line is gone.

What counts is what the engine has ended, in time or not: whether it was in time is what the places
are to bring about, and where nothing is in time there is no other measure.

Engine of 8 slots, 10 ms each, twice the load, 64 places at first: 64, 32, 16, 8 within a second;
then between 8 and 15. With 64 slots it tries once in a while, and gives back; with 256 it has some
400 after two seconds.

Cost: six additions an end. Bounds: 1 <= places <= most.
"""

from __future__ import annotations

from math import ceil, sqrt
from typing import Final, final

from sluicegate.kernels.bounds import within

PLACES_MAX: Final = 1 << 20
_STEADY: Final = 0
_DRAINING: Final = 1
_TRYING: Final = 2
_FULL_SHARE: Final = 0.8  # of the ends in a window, that saw no place free
_SLOW: Final = 1.4  # times as long as usual
_HELPED: Final = 0.7  # of the time before: fewer places made it shorter
_LOSS: Final = 0.08  # of what is done, which is none
_NOISE_MAX: Final = 0.25
_FORGET: Final = 1.02  # the usual time rises by so much a window at most
_FORGET_LEAST: Final = 1.001  # and the least one
_ALONE: Final = 1.2  # times the least: there is no line in the engine
_LINE: Final = 2.0  # times the shortest mean of a window: there is one, whatever is usual
_GROWTH: Final = 0.1
_GROWTH_MAX: Final = 1.0
_SLOW_GROWTHS: Final = 4  # by a tenth, before it doubles
_WINDOWS_MAX: Final = 10  # that a window may last, until it has ends enough
_TRY_WINDOWS_MAX: Final = 15  # and one whose noise hides what it shows
_REST_US: Final = 1_000_000
_REST_US_MAX: Final = 16_000_000
_ENDS_MIN: Final = 20  # below which a window of a try says nothing, however bad it looks
_ROUNDS_MAX: Final = 10.0  # times the usual time, for work that takes longer than a window
_BASE_US_MAX: Final = 3_000_000
_LATE_MIN: Final = 8  # ends that were too late, one after the other and with all places taken
_UNSURE_MAX: Final = 10  # windows of a try in which too little came
_SPARE: Final = 0.75  # of what callers wait, for the work and its line


@final
class PlaceSearch:
    """The number of places, and the experiments that find it.

    `places` is the number now, `first` what it begins with, `most` what it never exceeds; 0 is as
    many as at first. A window is `span_us` and at least `ends_min` ends long.
    """

    __slots__ = (
        "_base_ends",
        "_base_us",
        "_before",
        "_before_us",
        "_began_us",
        "_bound_until_us",
        "_bound_us",
        "_busy",
        "_due_us",
        "_ends",
        "_ends_min",
        "_first",
        "_floor",
        "_found",
        "_full",
        "_growths",
        "_inflight",
        "_late",
        "_late_run",
        "_late_since_us",
        "_least_us",
        "_next_us",
        "_rest_us",
        "_shortest_us",
        "_span_us",
        "_state",
        "_sure_until_us",
        "_timed",
        "_timed_us",
        "_unsure",
        "_usual_us",
        "_waits_us",
        "accepted",
        "most",
        "places",
        "tries",
    )

    def __init__(
        self, first: int, most: int = 0, span_us: int = 100_000, ends_min: int = 60
    ) -> None:
        within("first", first, 1, PLACES_MAX)
        most = most or first
        within("most", most, first, PLACES_MAX)
        within("span_us", span_us, 1, _REST_US)
        within("ends_min", ends_min, 1, PLACES_MAX)
        self.most = most
        self._first = self.places = first
        self.tries = self.accepted = 0
        self._span_us = span_us
        self._ends_min = ends_min
        self._state = _STEADY
        self._usual_us = 0.0  # what work takes without a line, as far as is known
        self._least_us = 0.0  # the least of it in a window in which half of the places sufficed
        self._shortest_us = 0.0  # the least mean of any window
        self._sure_until_us = 0  # what is usual was found by a try, not so long ago
        self._before = first  # places, and the time, before the try
        self._before_us = 0.0
        self._floor = 0  # what a try showed to be too few
        self._found = most  # what the last try showed to be enough
        self._growths = 0  # in a row
        self._unsure = 0  # windows of a try in which some place was free
        self._next_us = 0  # no try before
        self._rest_us = _REST_US
        # What ended with all places taken, at this number of them, and in how long.
        self._base_ends = 0.0
        self._base_us = 0.0
        self._began_us = -1
        self._due_us = 0
        self._ends = self._full = self._busy = self._late = self._timed = 0
        self._inflight = self._timed_us = 0
        # What was too late, since it was all that ended: how much, since when, and how long whoever
        # asked would have waited for all of it.
        self._late_run = self._late_since_us = self._waits_us = 0
        # What work may take and be in time, as of the last time that nothing was; for a while.
        self._bound_us = 0.0
        self._bound_until_us = 0

    def record(
        self,
        began_us: int,
        now_us: int,
        inflight: int,
        *,
        late: bool = False,
        waits_us: int = 0,
        kept_away: bool = False,
    ) -> bool:
        """Take in work that has ended; return whether `places` has changed.

        `inflight` are those at work now, with whoever has taken its place already; `late` is work
        that nobody waits for any more, because whoever asked waited for `waits_us` only. While some
        are `kept_away`, that a place is free is their doing, and no reason to have more.
        """
        if self._began_us < 0 or now_us < self._began_us:  # the first, or the clock went back
            self._open(now_us)
            self._late_run = 0
        if self._cuts(late and inflight >= self.places, waits_us, now_us):
            return True
        if self._state == _DRAINING:
            if inflight <= self.places:
                self._state = _TRYING
                self._open(now_us)
            return False
        self._ends += 1
        self._inflight += inflight
        if inflight >= self.places:
            self._full += 1
        if inflight * 2 > self.places:
            self._busy += 1
        if late:
            self._late += 1
        if began_us >= self._began_us:
            self._timed += 1
            self._timed_us += now_us - began_us
        if now_us < self._due_us:
            return False
        passed_us = now_us - self._began_us
        few = self._ends < self._ends_min and passed_us < self._longest_us(_WINDOWS_MAX)
        trying = self._state == _TRYING and self._ends >= _ENDS_MIN
        if few and not trying:
            self._due_us += self._span_us
            return False
        places = self.places
        if self._state == _TRYING:
            self._judge(passed_us, now_us, few=few)
        else:
            self._look(passed_us, now_us, kept_away)
        return self.places != places

    def _cuts(self, late: bool, waits_us: int, now_us: int) -> bool:
        """Whether all that has ended lately was too late; then there are fewer places."""
        if not late:
            self._late_run = 0
            return False
        if self._late_run == 0:
            self._late_since_us, self._waits_us = now_us, 0
        self._late_run += 1
        self._waits_us += waits_us
        passed_us = now_us - self._late_since_us
        if self._late_run < _LATE_MIN or passed_us < self._span_us:
            return False  # few ends say too little; where they take no time, a window is soon over
        done = (self._late_run - 1) / passed_us
        bound_us = _SPARE * self._waits_us / self._late_run
        places = max(1, int(done * bound_us))
        self._late_run = 0
        if self._waits_us == 0 or places * 2 > self.places:
            return False
        self._state = _STEADY
        self._open(now_us)
        self._floor = 0
        self._found = places
        self._set(places)
        self.accepted += 1
        self._bound_us = bound_us
        # It is in time with these, and a try costs much.
        self._next_us = self._bound_until_us = now_us + _REST_US_MAX
        return True

    def _longest_us(self, windows: int) -> float:
        return max(windows * self._span_us, _ROUNDS_MAX * self._usual_us)

    def _open(self, now_us: int) -> None:
        self._began_us = now_us
        self._due_us = now_us + self._span_us
        self._ends = self._full = self._busy = self._late = self._timed = 0
        self._inflight = self._timed_us = 0

    def _mean_us(self, passed_us: int) -> float:
        """What work took that began in this window; of what takes longer, by Little's law."""
        if self._timed * 4 >= self._ends:
            return self._timed_us / self._timed
        return self._inflight / self._ends * (passed_us / self._ends)

    def _is_full(self) -> bool:
        """Whether the places bind, or let in what is too late for anybody when it ends."""
        return self._full >= _FULL_SHARE * self._ends or self._late * 2 > self._ends

    def _look(self, passed_us: int, now_us: int, kept_away: bool) -> None:
        """A steady window has ended."""
        ends, mean_us = self._ends, self._mean_us(passed_us)
        full, calm, late = self._is_full(), self._busy == 0, self._late * 2 > ends
        self._open(now_us)
        if passed_us > self._longest_us(_WINDOWS_MAX) + self._span_us:
            return  # the engine stood still: that is not what it does in a second
        shortest_us = min(self._shortest_us * _FORGET_LEAST, mean_us) or mean_us
        self._shortest_us = shortest_us
        longer = mean_us > _SLOW * self._usual_us > 0.0
        if now_us < self._bound_until_us and mean_us * (1.0 + _GROWTH) > self._bound_us:
            longer = True
        if not full:
            self._base_ends = self._base_us = 0.0
            self._learn_usual(mean_us, calm=calm)
            if not kept_away and (calm or not longer):
                self._grow(self._first)
            return
        if self._base_us > _BASE_US_MAX:
            self._base_ends /= 2.0
            self._base_us /= 2.0
        self._base_ends += ends
        self._base_us += passed_us
        slow = longer or now_us >= self._sure_until_us
        if not (slow or late):
            self._grow(self.most if mean_us <= _LINE * shortest_us else self._first)
        elif slow and now_us >= self._next_us and self._base_ends > 0:
            self._growths = 0
            self._try(mean_us)

    def _learn_usual(self, mean_us: float, *, calm: bool) -> None:
        """With a place free there is no line of ours in the engine, but others may crowd it."""
        usual_us = self._usual_us
        if usual_us == 0.0 or mean_us < usual_us:
            self._usual_us = max(mean_us, 1.0)
        else:
            self._usual_us = min(usual_us * _FORGET, mean_us)
        least_us = self._least_us
        if calm:
            self._least_us = min(least_us * _FORGET_LEAST, mean_us) if least_us > 0.0 else mean_us

    def _grow(self, most: int) -> None:
        if self.places < most:
            self._growths += 1
            doublings = max(0, self._growths - _SLOW_GROWTHS)
            more = ceil(self.places * min(_GROWTH * 2.0**doublings, _GROWTH_MAX))
            self._set(min(self.places + more, most))

    def _set(self, places: int) -> None:
        self.places = places
        self._base_ends = self._base_us = 0.0

    def _try(self, mean_us: float) -> None:
        if mean_us <= _ALONE * self._least_us:
            self._sure_until_us = self._began_us + _REST_US_MAX
            self._next_us = self._began_us + self._rest_us
            return
        fewer = self._found if self._found < self.places else self.places // 2
        if fewer <= self._floor < self.places:
            fewer = int(sqrt(self._floor * self.places))
            if fewer <= self._floor:  # it is found, as closely as it matters
                self._floor = 0
                self._next_us = self._sure_until_us = self._began_us + self._rest_us
                return
        if fewer < 1:
            return
        self.tries += 1
        self._before = self.places
        self._before_us = mean_us
        self.places = fewer
        self._unsure = 0
        self._state = _DRAINING

    def _judge(self, passed_us: int, now_us: int, *, few: bool) -> None:
        """A window of the try has ended; it goes on where its noise hides what it shows."""
        mean_us = self._mean_us(passed_us)
        if self._is_full():
            kept = (self._ends / passed_us) / (self._base_ends / self._base_us)
            noise = min(sqrt(1.0 / self._ends + 1.0 / self._base_ends), _NOISE_MAX)
            if self._floor:  # a mistake costs a few places, and a long look the same for as long
                noise /= 2.0
            enough = kept >= 1.0 - _LOSS / 2.0 and not few
            clear = enough or kept < 1.0 - _LOSS - noise
            if not clear and passed_us < self._longest_us(_TRY_WINDOWS_MAX):
                self._due_us += self._span_us
                return
        elif few:
            self._due_us += self._span_us
            return
        else:  # less came than fills them: what was done says nothing of what could be
            self._open(now_us)
            self._unsure += 1
            if self._unsure >= _UNSURE_MAX:
                self._state = _STEADY
                self._set(self._before)
            return
        ends = self._ends
        self._open(now_us)
        self._state = _STEADY
        if kept < 1.0 - _LOSS:
            self._give_back(mean_us, now_us)
            return
        self.accepted += 1
        self._found = self.places
        self._set(self.places)
        if not self._floor:
            self._rest_us = _REST_US
        helped = mean_us < _HELPED * self._before_us
        if self._usual_us == 0.0 or mean_us < self._usual_us:
            self._usual_us = mean_us
        if helped:
            self._base_ends, self._base_us = float(ends), float(passed_us)
            self._try(mean_us)

    def _give_back(self, mean_us: float, now_us: int) -> None:
        self._floor = self.places
        self._found = self.most
        self._set(self._before)
        # With so few that less was done there was no line in the engine.
        self._usual_us = mean_us
        self._sure_until_us = now_us + _REST_US_MAX
        self._next_us = now_us + self._rest_us
        self._rest_us = min(self._rest_us * 2, _REST_US_MAX)
