"""Two choices: draw two hosts, send the work to the one that is less loaded.

Source: Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing" (1996): of n hosts the
fullest holds about log log n more than the mean, where one random choice gives log n / log log n.
The load is that of Finagle's peak EWMA balancer, with the failure penalty of linkerd2:

    load = max(peak latency, mean age of the calls in flight) * (calls in flight + 1) / weight

The peak latency rises with a slow answer at once and is forgiven by half every half-life: the
highest latency seen, each halved in that time. Finagle lets a lower value pull it down by the
gap since the last one, so of two at one instant the second is lost; a maximum has no order. A
failure is entered as a latency of `penalty_us`, or of the server's Retry-After: else a host that
fails fast looks like the best host there is and draws the traffic of the others.

What was changed: the age of the calls in flight. A host that hangs answers nothing, so its latency
stays what it was, or fades, and only the count holds work back; but a call that has been out for a
second is known to take a second or more. The mean age needs only the sum of the starts. Measured by
the simulation in tests/kernels/test_two_choices.py, ten hosts, 1000 calls a second of 10 ms each,
the calls of 40 s that went to the one bad host, where an even share is 4000:

    fails in 1 ms, entered as it took          7997        (two draws in ten find it: 8000 at most)
    fails in 1 ms, entered as 5 s                 2
    hangs 30 s, without the age                 309
    hangs 30 s, with the age                      2

A host that has not answered yet, or is back from an ejection, counts as quick as the other that was
drawn, and as no slower than `latency_us_start`. At 30 ms it had hardly a call for seconds beside
hosts of 2 ms: 4 of its first 100, at 1,000 calls a second. What its failures were priced at kept a
host away for 22 s after its ejection was over, where it is asked as soon as it has started slowly.
Not more than `latency_us_start`: beside a host that fails it would be as good as that.

Two draws choose two different hosts without a second try: the second index is drawn from the n - 1
others. Equal loads go to the first drawn.

Not good at: telling why calls fail. A failing host is avoided, not ejected, and one failure costs a
host most of its traffic for several half-lives; if all fail alike, nothing changes. Each balancer
sees only its own calls in flight.

A clock that goes backwards makes no age negative and no latency younger.

Cost: two exponentials a choice, whatever the number of hosts; six numbers a host.
Bounds: a failure counts as at most `penalty_us_max` or as long as it took; the busy time is never
below 1 us, so that calls in flight count even on a host that was silent for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import Final, final

from sluicegate.kernels.backoff import WAIT_US_MAX
from sluicegate.kernels.bounds import check_ranges, ranged, within

WEIGHT_MAX: Final = 1_000_000.0
# Loads nearer than a billionth are equal. A peak that fades in many steps differs by rounding from
# one that fades at once; taken at its word, that can keep a new host unasked for dozens of calls.
TIE: Final = 1.0 - 1e-9
HALF_LIFE_US_MAX: Final = 1 << 53
_LN_2: Final = 0.6931471805599453


@dataclass(frozen=True, kw_only=True)
class LoadSettings:
    """How latency is forgotten and failures are priced; one object serves all hosts."""

    half_life_us: int = ranged(5_000_000, 1, HALF_LIFE_US_MAX)
    latency_us_start: int = ranged(30_000, 1, WAIT_US_MAX)
    penalty_us: int = ranged(5_000_000, 0, WAIT_US_MAX)
    penalty_us_max: int = 300_000_000

    def __post_init__(self) -> None:
        check_ranges(self)
        within("penalty_us_max", self.penalty_us_max, self.penalty_us, WAIT_US_MAX)


@final
class HostLoad:
    """What one balancer knows of one host.

    Every `start` is followed by exactly one of `succeed`, `fail` and `cancel`, with the instant
    that `start` was given.
    """

    __slots__ = (
        "_answered",
        "_at_us",
        "_decay",
        "_inflight",
        "_peak_us",
        "_settings",
        "_started_sum_us",
        "_weight",
    )

    def __init__(self, settings: LoadSettings) -> None:
        self._settings = settings
        self._decay = _LN_2 / settings.half_life_us
        self._answered = False
        self._peak_us = float(settings.latency_us_start)
        self._at_us = 0
        self._inflight = 0
        self._started_sum_us = 0
        self._weight = 1.0

    @property
    def inflight(self) -> int:
        """Calls that have started and not ended."""
        return self._inflight

    def set_weight(self, weight: float) -> None:
        """The host's share beside others: its size, or less than 1 while it starts slowly."""
        if not 0.0 < weight <= WEIGHT_MAX:
            raise ValueError(f"weight must be above 0 and at most 1000000, not {weight}")
        self._weight = weight

    def load(self, now_us: int) -> float:
        """What one more call would find here, in microseconds over the weight."""
        return self._load(self._latency_us(now_us), now_us)

    def is_above(self, other: HostLoad, now_us: int) -> bool:
        """Whether one more call would find more here than at `other`."""
        mine_us, theirs_us = self._latency_us(now_us), other._latency_us(now_us)
        if not self._answered:
            mine_us = min(mine_us, theirs_us)
        elif not other._answered:
            theirs_us = min(mine_us, theirs_us)
        return other._load(theirs_us, now_us) < self._load(mine_us, now_us) * TIE

    def forget(self) -> None:
        """Take it for new: nothing that was seen of it holds any more but what is in flight."""
        self._answered = False
        self._peak_us = float(self._settings.latency_us_start)

    def start(self, now_us: int) -> None:
        """A call was sent here."""
        self._inflight += 1
        self._started_sum_us += now_us

    def succeed(self, started_us: int, now_us: int) -> None:
        """A call was answered well."""
        self._end(started_us)
        self._observe(now_us - started_us, now_us)

    def fail(self, started_us: int, now_us: int, retry_after_us: int = 0) -> None:
        """A call failed; `retry_after_us` is the server's own word on how long to stay away."""
        self._end(started_us)
        settings = self._settings
        latency_us = retry_after_us if retry_after_us > 0 else settings.penalty_us
        if latency_us > settings.penalty_us_max:
            latency_us = settings.penalty_us_max
        took_us = now_us - started_us
        self._observe(took_us if took_us > latency_us else latency_us, now_us)

    def cancel(self, started_us: int) -> None:
        """A call was given up by its caller; it says nothing about the host."""
        self._end(started_us)

    def _latency_us(self, now_us: int) -> float:
        gap_us = now_us - self._at_us if self._answered else 0
        peak_us = self._peak_us * exp(-gap_us * self._decay) if gap_us > 0 else self._peak_us
        return peak_us if peak_us > 1.0 else 1.0

    def _load(self, busy_us: float, now_us: int) -> float:
        inflight = self._inflight
        if inflight:
            age_us = (now_us * inflight - self._started_sum_us) / inflight
            if age_us > busy_us:
                busy_us = age_us
        return busy_us * (inflight + 1) / self._weight

    def _end(self, started_us: int) -> None:
        if self._inflight == 0:
            raise ValueError("a call ended that had not started, or ended twice")
        self._inflight -= 1
        self._started_sum_us -= started_us

    def _observe(self, latency_us: int, now_us: int) -> None:
        if latency_us <= 0:
            return
        if not self._answered:
            self._answered = True
            self._peak_us, self._at_us = float(latency_us), now_us
        else:
            peak_us = self._peak_us
            if now_us > self._at_us:
                peak_us *= exp((self._at_us - now_us) * self._decay)
                self._at_us = now_us
            self._peak_us = max(peak_us, float(latency_us))


def pick_two(count: int, draw_first: float, draw_second: float) -> tuple[int, int]:
    """Two different indices below `count`, every ordered pair as likely as any other."""
    if count < 2:
        raise ValueError(f"count must be 2 or more, not {count}")
    if not (0.0 <= draw_first < 1.0 and 0.0 <= draw_second < 1.0):
        raise ValueError(
            f"draws must be at least 0 and below 1, not {draw_first} and {draw_second}"
        )
    first = int(draw_first * count)
    second = int(draw_second * (count - 1))
    return first, second + 1 if second >= first else second


def choose(hosts: list[HostLoad], now_us: int, draw_first: float, draw_second: float) -> int:
    """The index of the less loaded of two hosts drawn; the first drawn if they are equal."""
    if len(hosts) == 1:
        return 0
    first, second = pick_two(len(hosts), draw_first, draw_second)
    return second if hosts[first].is_above(hosts[second], now_us) else first
