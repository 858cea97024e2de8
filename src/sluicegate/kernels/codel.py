"""CoDel for services: how long a unit may wait in a queue before it is better refused.

Source: Nichols and Jacobson, "Controlling Queue Delay" (2012), in the two forms that services use
instead of the packet rule: Maurer, "Fail at Scale" (2015), and the Codel of the folly library. The
idea they share: a queue that empties is doing its work, a queue that *stands* only adds delay.

`CodelTimeout`, decided when a unit is queued. N is `normal_us`, M is `aggressive_us`:

    timeout = M  if the queue was last empty more than N ago  else  N

The queue goes from empty to not empty only when a unit is queued, so "last empty" is the instant of
the last unit that found it empty: nothing has to be noted when it drains.

`Codel`, decided when a unit is taken out. Over each interval it keeps the least delay, and then

    overloaded = least delay > target          dropped = overloaded and delay > 2 * target

The first unit of an interval is never dropped.

Why not RFC 8289: the packet rule drops one packet every interval / sqrt(n) and waits for senders to
slow down. Callers of a service do not (they are open-loop, and they retry), so the queue grows
between two drops and whatever is served is already too late. Answers within 500 ms as a share of
capacity, 32 workers of 10 ms, Poisson arrivals, 5 s of which the first 2 do not count, p99 of the
answers behind it (the simulation is in tests/kernels/test_codel.py):

    offered load          1.2             2              5             10
    plain FIFO            0.32            0              0              0
    RFC 8289              0.49            0              0              0
    Codel                 1.00   40 ms    1.00   20 ms   1.00   20 ms   1.00   20 ms
    CodelTimeout          1.00   30 ms    1.00   15 ms   1.00   15 ms   1.00   15 ms

What was changed from folly's form: an interval is judged overloaded only if the unit that ends it
was already waiting when it ended. A later one proves that nothing stood there, so an hour of
silence does not carry an old verdict into the next burst. And target and interval can be scaled
with the service time (`fit`): 5 ms is half of a 10 ms service, but a twentieth of a 100 ms one,
where it sheds what a short wait would have served. 32 workers of 100 ms at 0.95 of their capacity
answer 97% of what is asked with a target of 5 ms, and all of it when fitted. Feed `fit` the time of
an *unloaded* service: the loaded one would raise its own target; `target_us_max` bounds that harm.

A clock that goes back ends no interval and empties no queue: a running interval is cut to its own
length from there, a standing queue stays standing, and a unit with a negative delay passes and
tells nothing.

Not good at: fewer than two units an interval (the first one always passes, so nothing is dropped);
LIFO order, where the newest unit hides the delay of the others (`Codel` goes with FIFO,
`CodelTimeout` with `adaptive_lifo`); units that have some time left but too little to be served in,
which is the deadline's business.

Cost: three integers, a handful of comparisons a unit. Bounds: 0 < aggressive <= normal and 0 <
target < interval, all up to one hour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from sluicegate.kernels.bounds import check_ranges, ranged, within

SPAN_US_MAX: Final = 3_600_000_000

_NOT_STARTED: Final = -1


def allowance(
    empty_us: int, standing: bool, queued: int, now_us: int, normal_us: int, aggressive_us: int
) -> tuple[int, bool, int]:
    """Decide how long a unit that is queued now, behind `queued` others, may wait.

    Returns the new instant at which the queue was last seen empty, whether it stands, and the
    timeout.
    """
    if queued == 0:
        return now_us, False, normal_us
    if now_us < empty_us:  # The clock went back; what has passed until then is not known.
        empty_us = now_us
    if standing or now_us - empty_us > normal_us:
        return empty_us, True, aggressive_us
    return empty_us, False, normal_us


def step(
    delay_us_min: int,
    interval_end_us: int,
    overloaded: bool,
    delay_us: int,
    now_us: int,
    target_us: int,
    interval_us: int,
) -> tuple[int, int, bool, bool]:
    """Judge a unit that leaves the queue at `now_us` after `delay_us` in it.

    An overload is an interval whose least delay was above `target_us`. Returns the new least delay,
    end of the interval and state of overload, and whether to drop.
    """
    if delay_us < 0:
        return delay_us_min, interval_end_us, overloaded, False
    if now_us > interval_end_us:
        overloaded = delay_us_min > target_us and now_us - delay_us <= interval_end_us
        return delay_us, now_us + interval_us, overloaded, False
    if now_us + interval_us < interval_end_us:
        interval_end_us = now_us + interval_us
    if delay_us < delay_us_min:
        delay_us_min = delay_us
    return delay_us_min, interval_end_us, overloaded, overloaded and delay_us > 2 * target_us


@dataclass(frozen=True, kw_only=True)
class CodelSettings:
    """Target and interval, for units that leave; the two timeouts, for those that are queued."""

    target_us: int = 5_000
    interval_us: int = ranged(100_000, 2, SPAN_US_MAX)
    target_us_max: int = 1_000_000
    normal_us: int = ranged(100_000, 1, SPAN_US_MAX)
    aggressive_us: int = 5_000

    def __post_init__(self) -> None:
        check_ranges(self)
        within("target_us", self.target_us, 1, self.interval_us - 1)
        within("target_us_max", self.target_us_max, self.target_us, SPAN_US_MAX)
        within("aggressive_us", self.aggressive_us, 1, self.normal_us)


DEFAULTS: Final = CodelSettings()


@final
class CodelTimeout:
    """The form that decides when a unit is queued."""

    __slots__ = ("_aggressive_us", "_empty_us", "_normal_us", "_standing")

    def __init__(self, settings: CodelSettings = DEFAULTS) -> None:
        self._normal_us = settings.normal_us
        self._aggressive_us = settings.aggressive_us
        self._empty_us = 0
        self._standing = False

    @property
    def standing(self) -> bool:
        """Whether the last unit was queued behind a queue that stands."""
        return self._standing

    def timeout_us(self, queued: int, now_us: int) -> int:
        """How long a unit queued now, behind `queued` others, may wait."""
        self._empty_us, self._standing, timeout_us = allowance(
            self._empty_us, self._standing, queued, now_us, self._normal_us, self._aggressive_us
        )
        return timeout_us


@final
class Codel:
    """The form that decides when a unit is taken out."""

    __slots__ = (
        "_base_interval_us",
        "_base_target_us",
        "_delay_us_min",
        "_interval_end_us",
        "_overloaded",
        "_target_us_max",
        "interval_us",
        "target_us",
    )

    def __init__(self, settings: CodelSettings = DEFAULTS) -> None:
        self._base_target_us = self.target_us = settings.target_us
        self._base_interval_us = self.interval_us = settings.interval_us
        self._target_us_max = settings.target_us_max
        self._delay_us_min = 0
        self._interval_end_us = _NOT_STARTED
        self._overloaded = False

    @property
    def overloaded(self) -> bool:
        """Whether the last whole interval never saw a short delay."""
        return self._overloaded

    def fit(self, service_us: int) -> None:
        """Scale to a service that takes `service_us` unloaded: target half of it, within bounds."""
        if service_us < 0:
            raise ValueError(f"service_us must not be negative, not {service_us}")
        base_us = self._base_target_us
        self.target_us = min(self._target_us_max, max(base_us, service_us // 2))
        self.interval_us = self._base_interval_us * self.target_us // base_us

    def drop(self, delay_us: int, now_us: int) -> bool:
        """Whether to refuse a unit that leaves the queue now, after `delay_us` in it."""
        self._delay_us_min, self._interval_end_us, self._overloaded, dropped = step(
            self._delay_us_min,
            self._interval_end_us,
            self._overloaded,
            delay_us,
            now_us,
            self.target_us,
            self.interval_us,
        )
        return dropped
