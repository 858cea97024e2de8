"""Circuit: stop calling what does not answer, and ask again with a few probes.

Source: the circuit breaker of Michael Nygard ("Release It!", 2007), with the failure-rate and
slow-call windows of Hystrix and resilience4j, and the generations of Sony's gobreaker.

    closed     all calls pass. It opens when one of three rules says so:
                 failures_in_row    that many failures with no success between them
                 failure_percent    of the calls in the window, if there are at least calls_min
                 slow_percent       likewise, for calls that took slow_us or longer
    open       all calls are refused until the open time is over. That time is `open_percent` of
               what the outage has lasted, at least `open_us`, and is drawn from its upper half, so
               that many callers do not probe at one instant.
    half-open  `probes` calls pass, no more. `probe_successes` good ones close the breaker; as soon
               as they cannot be reached any more, it opens again.

Each state is a type. It is asked what follows from a call or a result, and answers with the state
that does, itself if nothing changes; the circuit goes into it. What a state counts lives and ends
with it.

Every change of state begins a new *generation*. `enter` answers the generation it let the call
into, and `leave` must bring it back: the result of a call that began before the change says nothing
about the state after it, and is void.

What was changed, and why. The usual open time is fixed, or doubles: then a breaker goes on refusing
for as long again as the outage took, or for a minute after one of a second. As a part of the outage
it adds no more than that part, whatever the length, and a dead server is asked less and less often.
With 5%, 5 ms at least and one probe, as `resilience/client` has it, against the fixed second that
doubles and 2 good probes of 3; calls at random instants, 5 ms each, an outage for a quarter of the
time, means of 2 to 10 runs (tests/resilience/client/test_outages.py plays the world):

    calls a second                        1      144    144    1,000   1,000
    outage, s                             30     2      10     0.1     1
    fewer answered than      doubling     8.2%   11.3%  6.5%   50.5%   26.8%
    without a breaker        a part       0.2%   0.6%   0.6%   0.4%    0.6%
    asked of the dead        doubling     0.80   0.08   0.02   0.26    0.03
    server, for each call    a part       1.14   0.27   0.08   0.34    0.08

A breaker that closes and opens again within as long as it was open goes on with the same outage: a
good answer now and then from a server that is broken does not bring all its probes back.

The rates are exact counts in buckets of time. A moving average weighted
by arrivals, the usual short cut, has a window of so many calls: under a burst it forgets in
milliseconds, and one burst of successes hides an outage that lasts. A result may be IGNORED: a
429, a call that was shed or cancelled is no evidence about the health of the other side, and it
gives its probe's place back. In half-open a success that is slow by the slow rule is a failure. A
probe that never reports does not hold the gate for ever: `probe_us_max` after the last probe went
in, a new generation of probes begins. `trip` opens at once, for a server that says it has too much.

Not good at: half-broken backends. A breaker is all or nothing, so one bad shard behind it becomes a
total outage: keep one per shard or host, and prefer the client throttle where a share of the calls
still succeeds. It does not count calls in flight; that is the bulkhead's work.

A clock that goes backwards keeps the breaker open longer by the step and counts results into the
current bucket; it never lets an extra call in.

Cost: a call of the state and a comparison to enter; to leave the same and two additions, for a
failure and with the slow rule a division and a few more, and once a bucket forgetting the old ones.
Bounds: 3 * `buckets` counters while closed, none while open, about 430 bytes in all by default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from sluicegate.kernels.backoff import WAIT_US_MAX, between_us
from sluicegate.kernels.bounds import check_ranges, ranged, within
from sluicegate.kernels.verdict import NEVER

SUCCESS: Final = 0
FAILURE: Final = 1
IGNORED: Final = 2

CLOSED: Final = 0
OPEN: Final = 1
HALF_OPEN: Final = 2
FORCED_OPEN: Final = 3
FORCED_CLOSED: Final = 4
STATES: Final = ("closed", "open", "half-open", "forced open", "forced closed")

REFUSED: Final = 0

BUCKETS_MAX: Final = 1_000
CALLS_MAX: Final = 1 << 30


@dataclass(frozen=True, kw_only=True)
class CircuitSettings:
    """When to open, for how long, and what to ask for before closing; a rule at 0 is off.

    One object may serve any number of circuits.
    """

    failures_in_row: int = ranged(5, 0, CALLS_MAX)
    failure_percent: int = ranged(50, 0, 100)
    slow_percent: int = ranged(0, 0, 100)
    slow_us: int = ranged(1_000_000, 0, WAIT_US_MAX)
    calls_min: int = ranged(20, 1, CALLS_MAX)
    window_us: int = 10_000_000
    buckets: int = ranged(10, 1, BUCKETS_MAX)
    open_us: int = ranged(5_000_000, 1, WAIT_US_MAX)  # at least, however short the outage
    open_percent: int = ranged(100, 0, 1_000)
    open_us_max: int = 300_000_000
    probes: int = ranged(3, 1, CALLS_MAX)
    probe_successes: int = 2
    probe_us_max: int = ranged(30_000_000, 1, WAIT_US_MAX)

    def __post_init__(self) -> None:
        check_ranges(self)
        within("window_us", self.window_us, self.buckets, WAIT_US_MAX)
        within("open_us_max", self.open_us_max, self.open_us, WAIT_US_MAX)
        within("probe_successes", self.probe_successes, 1, self.probes)
        if self.window_us % self.buckets:
            raise ValueError(
                f"window_us must be a multiple of buckets ({self.buckets}), not {self.window_us}"
            )


class _State:
    """What a call and a result meet, by itself in a state that people hold: nothing changes it."""

    __slots__ = ("number", "since_us")

    def __init__(self, number: int, since_us: int) -> None:
        self.number = number
        self.since_us = since_us  # when the outage began that this state belongs to

    def outage_us(self, now_us: int) -> int:
        """When the outage began that an opening now belongs to."""
        return self.since_us

    def enter(self, now_us: int) -> _State | None:
        """The state that a call goes into, or None: it is refused."""
        return self if self.number == FORCED_CLOSED else None

    def retry_after_us(self, now_us: int) -> int:
        """How long a refused caller should wait."""
        return 0 if self.number == FORCED_CLOSED else NEVER

    def leave(self, outcome: int, latency_us: int, now_us: int, draw: float) -> _State:
        """The state after a result."""
        return self


@final
class _Closed(_State):
    """All calls pass, and their results are counted in the buckets of the window."""

    __slots__ = (
        "_bucket", "_bucket_us", "_calls", "_counts", "_failed", "_good", "_row", "_settings",
        "_slow", "_trial_until_us", "_until_us",
    )  # fmt: skip

    def __init__(self, settings: CircuitSettings, since_us: int = 0, until_us: int = 0) -> None:
        super().__init__(CLOSED, since_us)
        self._trial_until_us = until_us  # an opening before that goes on with the outage before
        self._settings = settings
        self._bucket_us = settings.window_us // settings.buckets
        self._row = 0  # failures since the last success
        self._calls = 0
        self._failed = 0
        self._slow = 0
        self._counts: list[int] = []  # calls, failed and slow of each bucket; empty until needed
        self._bucket = 0  # the current bucket's number since the clock's zero
        self._until_us = 0  # its end
        self._good = 0  # plain successes of it that are in `_calls`, and not yet in `_counts`

    def enter(self, now_us: int) -> _State | None:
        return self

    def retry_after_us(self, now_us: int) -> int:
        return 0

    def leave(self, outcome: int, latency_us: int, now_us: int, draw: float) -> _State:
        if outcome == IGNORED:
            return self
        settings = self._settings
        failed = outcome == FAILURE
        if failed or now_us >= self._until_us or settings.slow_percent > 0:
            self._row = self._row + 1 if failed else 0
            self._count(failed, _is_slow(latency_us, settings), now_us)
        else:  # nearly every call
            self._row = 0
            self._good += 1
            self._calls += 1
        if not self._should_open():
            return self
        return _opened(settings, self.outage_us(now_us), now_us, draw)

    def outage_us(self, now_us: int) -> int:
        return self.since_us if self.since_us <= now_us < self._trial_until_us else now_us

    def _should_open(self) -> bool:
        settings = self._settings
        if 0 < settings.failures_in_row <= self._row:
            return True
        calls = self._calls
        if calls < settings.calls_min:
            return False
        if settings.failure_percent and 100 * self._failed >= settings.failure_percent * calls:
            return True
        return settings.slow_percent > 0 and 100 * self._slow >= settings.slow_percent * calls

    def _count(self, failed: bool, slow: bool, now_us: int) -> None:
        """Add a result to the current bucket, after the old ones have been forgotten."""
        buckets = self._settings.buckets
        counts = self._counts
        current = now_us // self._bucket_us
        if not counts:
            self._counts = counts = [0] * (3 * buckets)
            self._bucket = current
        elif current > self._bucket:
            counts[3 * (self._bucket % buckets)] += self._good
            self._good = 0
            oldest_kept = current - buckets
            for entered in range(max(self._bucket + 1, oldest_kept + 1), current + 1):
                self._forget(3 * (entered % buckets))
            self._bucket = current
        self._until_us = (self._bucket + 1) * self._bucket_us
        at = 3 * (self._bucket % buckets)
        counts[at] += 1
        self._calls += 1
        if failed:
            counts[at + 1] += 1
            self._failed += 1
        if slow:
            counts[at + 2] += 1
            self._slow += 1

    def _forget(self, at: int) -> None:
        counts = self._counts
        self._calls -= counts[at]
        self._failed -= counts[at + 1]
        self._slow -= counts[at + 2]
        counts[at] = counts[at + 1] = counts[at + 2] = 0


@final
class _Open(_State):
    """All calls are refused until its time is over; then the first is a probe."""

    __slots__ = ("_settings", "until_us")

    def __init__(self, settings: CircuitSettings, since_us: int, until_us: int) -> None:
        super().__init__(OPEN, since_us)
        self._settings = settings
        self.until_us = until_us

    def enter(self, now_us: int) -> _State | None:
        if now_us < self.until_us:
            return None
        return _HalfOpen(self._settings, self.since_us, now_us).enter(now_us)

    def retry_after_us(self, now_us: int) -> int:
        return max(0, self.until_us - now_us)


@final
class _HalfOpen(_State):
    """A few probes pass, and what they find decides."""

    __slots__ = ("_calls", "_failed", "_probes_in", "_settings", "_until_us")

    def __init__(self, settings: CircuitSettings, since_us: int, now_us: int) -> None:
        super().__init__(HALF_OPEN, since_us)
        self._settings = settings
        self._until_us = now_us  # when lost probes are given up
        self._probes_in = 0  # let in, less those that were IGNORED
        self._calls = 0  # that have reported
        self._failed = 0

    def enter(self, now_us: int) -> _State | None:
        settings = self._settings
        if self._probes_in >= settings.probes:
            if now_us < self._until_us:
                return None
            return _HalfOpen(settings, self.since_us, now_us).enter(now_us)
        until_us = now_us + settings.probe_us_max
        if until_us > self._until_us:
            self._until_us = until_us
        self._probes_in += 1
        return self

    def retry_after_us(self, now_us: int) -> int:
        if self._probes_in < self._settings.probes or now_us >= self._until_us:
            return 0
        return min(self._settings.open_us, self._until_us - now_us)

    def leave(self, outcome: int, latency_us: int, now_us: int, draw: float) -> _State:
        settings = self._settings
        if outcome == IGNORED:
            if self._probes_in > self._calls:
                self._probes_in -= 1
            return self
        self._calls += 1
        if outcome == FAILURE or _is_slow(latency_us, settings):
            self._failed += 1
        if self._failed > settings.probes - settings.probe_successes:
            return _opened(settings, self.since_us, now_us, draw)
        if self._calls - self._failed >= settings.probe_successes:
            return _Closed(settings, self.since_us, now_us + now_us - self.since_us)
        return self


def _is_slow(latency_us: int, settings: CircuitSettings) -> bool:
    return settings.slow_percent > 0 and latency_us >= settings.slow_us


def _opened(settings: CircuitSettings, since_us: int, now_us: int, draw: float) -> _Open:
    """Open for a part of the time that the outage has lasted."""
    longest_us = (now_us - since_us) * settings.open_percent // 100
    longest_us = min(max(longest_us, settings.open_us), settings.open_us_max)
    open_us = between_us(longest_us - longest_us // 2, longest_us, draw)
    return _Open(settings, since_us, now_us + open_us)


@final
class Circuit:
    """One circuit to one backend; ask `enter`, and tell `leave` how the call went."""

    __slots__ = ("_at", "_generation", "_settings")

    def __init__(self, settings: CircuitSettings) -> None:
        self._settings = settings
        self._at: _State = _Closed(settings)
        self._generation = 1

    @property
    def state(self) -> int:
        """The state as of the last call; an open time that has run out ends at the next `enter`."""
        return self._at.number

    @property
    def generation(self) -> int:
        """Counts the changes of state, from 1."""
        return self._generation

    def enter(self, now_us: int) -> int:
        """Let a call in: the generation to hand to `leave`, or `REFUSED` (0)."""
        at = self._at.enter(now_us)
        if at is None:
            return REFUSED
        if at is not self._at:
            self._begin(at)
        return self._generation

    def retry_after_us(self, now_us: int) -> int:
        """How long a refused caller should wait: 0 if it need not, `NEVER` if held open by hand.

        Exact while open. While half-open it depends on probes that have not reported yet: it is
        the first open time, and never later than when lost probes are given up.
        """
        return self._at.retry_after_us(now_us)

    def leave(
        self, generation: int, outcome: int, latency_us: int, now_us: int, draw: float
    ) -> int:
        """Report how a call ended; answers the state after it.

        `draw` places the end of the open time, and is read only when this result opens the breaker.
        """
        if not SUCCESS <= outcome <= IGNORED:
            raise ValueError(f"outcome must be SUCCESS, FAILURE or IGNORED, not {outcome}")
        at = self._at
        if generation == self._generation:
            at = at.leave(outcome, latency_us, now_us, draw)
            if at is not self._at:
                self._begin(at)
        return at.number

    def trip(self, now_us: int, draw: float, told_us: int = 0) -> None:
        """Open at once, for the time that a server asked for (at most `open_us_max`).

        That time is no part of an outage: the server knows when it can do more. `told_us` at 0
        says nothing, and the open time is drawn.
        """
        at, settings = self._at, self._settings
        if at.number in (FORCED_OPEN, FORCED_CLOSED):
            return
        until_us = now_us + min(told_us, settings.open_us_max)
        if isinstance(at, _Open):
            at.until_us = max(at.until_us, until_us)
        elif told_us > 0:
            self._begin(_Open(settings, until_us, until_us))
        else:
            self._begin(_opened(settings, at.outage_us(now_us), now_us, draw))

    def force_open(self) -> None:
        """Refuse everything until `release`."""
        self._begin(_State(FORCED_OPEN, 0))

    def force_closed(self) -> None:
        """Let everything in and count nothing until `release`."""
        self._begin(_State(FORCED_CLOSED, 0))

    def release(self) -> None:
        """End a forced state: closed, with nothing remembered."""
        if self._at.number in (FORCED_OPEN, FORCED_CLOSED):
            self._begin(_Closed(self._settings))

    def _begin(self, at: _State) -> None:
        self._at = at
        self._generation += 1
