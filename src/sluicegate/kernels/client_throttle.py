"""Client throttle: a caller that is being refused stops asking, in proportion.

Source: Beyer et al., "Site Reliability Engineering" (2016), chapter 21. Refusing costs the refuser
too, so a service far above its capacity can spend all of it on refusals. Each caller keeps, over a
sliding window, how often it asked and how often it was accepted, and refuses its own calls
with

    p = max(0, (requests - K * accepts) / (requests + 1))

Calls refused here count as requests, so the longer the service refuses, the fewer get through:
about K times what it accepts. With K = 2 it sees at most one refusal for each acceptance; a smaller
K spares it more and learns more slowly that it has recovered. And with a K below 1 / (1 - f) a
service that loses a part f of its calls whatever is asked of it is asked for less and less.

What was changed. The window is a ring of buckets, so memory is fixed and a call costs the same
however many came before. With fewer than `requests_min` requests in it, there is nothing to go by
and p is 0. A call that is sent counts as a request when it has ended, with what became of it: one
under way is no refusal, and in a burst of 1,000 to a service at rest nothing has been accepted yet.
And one call every `probe_us` passes whatever the draw: when nothing at all is
accepted p comes so close to 1 that a quiet caller would wait for minutes to notice a recovery.

Where the service says by its own word that it has too much, K is `multiplier_told` until it has not
said so for `told_us`: a refusal can cost a twentieth of the work, and with K = 2 there is one for
each acceptance. A caller of 100/s, a history of 2 s, a service that was asked for ten times and for
three times what it could do, how long until 90% pass again:

    K = 2     2.3 s   0.0 s
    1.5       5.9     1.0
    told      2.3     0.7     2, and 1.5 while the service says so

The history decides how soon it reacts and how soon it recovers. A caller of 100/s, K = 2, a service
that accepts nothing for 60 s and then everything: how many of 6,000 calls are sent in vain, and how
long until 90% of the calls of a second pass again (tests/kernels/test_client_throttle.py):

    history     sent in vain     recovery, a probe every second     without probes
      5 s             427              15 s                              28 s
     10 s             783              34 s                              45 s
     30 s           2,241              82 s                             130 s

A clock that goes back moves nothing: time stands still for that step and goes on from there.

Not good at: refusals that are not overload (a quota's 429 will not get better by asking less; do
not count it as a request at all); several classes or services behind one throttle, where the
refusals of one silence the others. Keep one for each pair.

Cost: O(1), and O(buckets) once after a silence. Bounds: `buckets` from 2 to `BUCKETS_MAX`, two
integers each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from sluicegate.kernels.bounds import check_ranges, ranged, within

BUCKETS_MAX: Final = 1_000
SPAN_US_MAX: Final = 86_400_000_000

_NEVER: Final = -SPAN_US_MAX


def refuse_probability(requests: int, accepts: int, multiplier: float) -> float:
    """The share of calls to refuse after `requests` of which `accepts` were accepted."""
    excess = requests - multiplier * accepts
    return excess / (requests + 1) if excess > 0.0 else 0.0


@dataclass(frozen=True, kw_only=True)
class ThrottleSettings:
    """How much may be asked above what is accepted, over which history, and how often at least."""

    multiplier: float = 2.0
    multiplier_told: float = 1.5
    told_us: int = ranged(1_000_000, 0, SPAN_US_MAX)
    history_us: int = 10_000_000
    buckets: int = ranged(40, 2, BUCKETS_MAX)
    requests_min: int = 10
    probe_us: int = ranged(1_000_000, 1, SPAN_US_MAX)

    def __post_init__(self) -> None:
        check_ranges(self)
        within("history_us", self.history_us, self.buckets, SPAN_US_MAX)
        for name in ("multiplier", "multiplier_told"):
            if not 1.0 <= getattr(self, name) <= 1_000.0:
                raise ValueError(f"{name} must be from 1 to 1000, not {getattr(self, name)}")
        if self.requests_min < 1:
            raise ValueError(f"requests_min must be from 1, not {self.requests_min}")


@final
class ThrottleWindow:
    """What one caller keeps about one service (and one class of calls to it)."""

    __slots__ = (
        "_accepts",
        "_accepts_sum",
        "_buckets",
        "_history_us",
        "_index",
        "_latest_us",
        "_multiplier",
        "_multiplier_told",
        "_passed_us",
        "_probe_us",
        "_requests",
        "_requests_min",
        "_requests_sum",
        "_told_at_us",
        "_told_us",
        "_turned_back_us",
    )

    def __init__(self, settings: ThrottleSettings | None = None) -> None:
        settings = ThrottleSettings() if settings is None else settings
        self._history_us = settings.history_us
        self._buckets = settings.buckets
        self._multiplier = settings.multiplier
        self._multiplier_told = settings.multiplier_told
        self._told_us = settings.told_us
        self._told_at_us = _NEVER
        self._requests_min = settings.requests_min
        self._probe_us = settings.probe_us
        self._requests = [0] * settings.buckets
        self._accepts = [0] * settings.buckets
        self._requests_sum = 0
        self._accepts_sum = 0
        self._index = 0
        self._passed_us = _NEVER
        self._latest_us = 0
        self._turned_back_us = 0

    def admit(self, draw: float, now_us: int) -> bool:
        """Whether to send this call, or to refuse it here, which counts as a request.

        One that is sent counts when it ends: call `record_end` then, once.
        """
        if not 0.0 <= draw < 1.0:
            raise ValueError(f"draw must be from 0 to below 1, not {draw}")
        at_us = self._advance(now_us)
        probability = 0.0
        if self._requests_sum >= self._requests_min:
            multiplier = self._multiplier
            if at_us - self._told_at_us < self._told_us and self._multiplier_told < multiplier:
                multiplier = self._multiplier_told
            probability = refuse_probability(self._requests_sum, self._accepts_sum, multiplier)
        if draw < probability and at_us - self._passed_us < self._probe_us:
            self._requests[self._index % self._buckets] += 1
            self._requests_sum += 1
            return False
        self._passed_us = at_us
        return True

    def record_end(self, now_us: int) -> None:
        """Record the end of a call that was sent, whatever became of it."""
        self._advance(now_us)
        self._requests[self._index % self._buckets] += 1
        self._requests_sum += 1

    def record_accept(self, now_us: int) -> None:
        """Record that the service accepted a call: it answered, even with an error of its own."""
        self._advance(now_us)
        self._accepts[self._index % self._buckets] += 1
        self._accepts_sum += 1

    def record_told(self, now_us: int) -> None:
        """Record that a call was refused by the service's own word that it has too much."""
        self._told_at_us = self._advance(now_us)

    def counts(self, now_us: int) -> tuple[int, int]:
        """Requests and acceptances in the window."""
        self._advance(now_us)
        return self._requests_sum, self._accepts_sum

    def _advance(self, now_us: int) -> int:
        if now_us < self._latest_us:
            self._turned_back_us += self._latest_us - now_us
        self._latest_us = now_us
        at_us = now_us + self._turned_back_us
        index = at_us * self._buckets // self._history_us
        if index > self._index:
            self._forget(index)
        return at_us

    def _forget(self, index: int) -> None:
        """Empty the buckets between the last one used and this one, at most all of them."""
        buckets = self._buckets
        for bucket in range(max(self._index, index - buckets) + 1, index + 1):
            slot = bucket % buckets
            self._requests_sum -= self._requests[slot]
            self._accepts_sum -= self._accepts[slot]
            self._requests[slot] = 0
            self._accepts[slot] = 0
        self._index = index
