"""Vegas: a concurrency limit that keeps a small queue, of which it knows the length.

Source: TCP Vegas (Brakmo and Peterson, 1994), in the form of Netflix's concurrency-limits (2018).
What is at work and not being served waits, and Little's law says how much that is:

    queue = limit * (1 - unloaded / latency), with g = log10(limit), at least 1:
        queue <= g: + 6g     < 3g: + g     > 6g: - g     between: as it is

What was changed, and why. The original takes the least latency it has seen for one without a queue.
Among noisy windows that is a lucky one, and holds the limit too low; and now and then it believes
the present one instead, queue and all. Done seldom, a service that became slower stays throttled
for minutes; done often, the limit climbs. Here a probe drains first, after `probe_multiplier` times
the limit in updates (`concurrency_limit.py`), and a lesser latency is believed by a quarter. The
original is `drain=False` with `probe_multiplier=30`. It counts in whole numbers.

Holds little more than the capacity: 37 where 32 workers do the work, and the original 26, with a
fifth of the capacity lost. Not good at: a limit of 1 or 2; finding half the capacity in a few
updates, which `fast_limit.py` does.

Cost: a logarithm and a few integer divisions an update. Bounds: those of `AdaptiveNumber`, and
`probe_multiplier` from 1.
"""

from __future__ import annotations

from math import log10
from typing import Final, final

from sluicegate.kernels.bounds import within
from sluicegate.kernels.concurrency_limit import LIMIT_MAX, AdaptiveNumber, check_draw

_DRAINING: Final = 1
_MEASURING: Final = 2


@final
class Vegas(AdaptiveNumber):
    """Keeps a small queue: it estimates how many units wait, and holds that between 3g and 6g."""

    __slots__ = (
        "_drain",
        "_estimate",
        "_phase",
        "_probe_multiplier",
        "_probe_share",
        "_unloaded_us",
        "_updates",
    )

    def __init__(
        self,
        *,
        initial: int = 20,
        limit_min: int = 1,
        limit_max: int = 1_000,
        probe_multiplier: int = 2,
        drain: bool = True,
    ) -> None:
        super().__init__(initial, limit_min, limit_max)
        within("probe_multiplier", probe_multiplier, 1, LIMIT_MAX)
        self._probe_multiplier = probe_multiplier
        self._probe_share = 1.0
        self._drain = drain
        self._phase = 0
        self._updates = 0
        self._unloaded_us = 0
        self._estimate = initial

    @property
    def unloaded_us(self) -> int:
        """The latency that is taken for one without a queue; 0 before the first sample."""
        return self._unloaded_us

    def update(self, rtt_us: int, inflight: int, dropped: bool, draw: float) -> int:
        """Take in one sample, or one window of them; the new limit."""
        check_draw(draw)
        if dropped:
            return self._hold(self._estimate - _decade(self._estimate))
        if rtt_us < 1:
            return self.limit
        if self._phase == _DRAINING:
            self._phase = _MEASURING
            return self.limit
        if self._phase == _MEASURING:
            self._unloaded_us = rtt_us
            return self._hold(self._estimate)
        self._updates += 1
        due = self._updates >= self._probe_share * self._probe_multiplier * self._estimate
        if due:
            self._updates = 0
            self._probe_share = 0.5 + draw / 2
            if self._drain and inflight * 2 >= self._estimate:
                self._phase = _DRAINING
                self.limit = max(self._limit_min, self._estimate // 2)
                return self.limit
        if due or self._unloaded_us == 0 or rtt_us < self._unloaded_us:
            if due or self._unloaded_us == 0 or not self._drain:
                self._unloaded_us = rtt_us
            else:  # The least of many windows is luck: a quarter of the way.
                self._unloaded_us += (rtt_us - self._unloaded_us) // 4
            return self.limit
        if inflight * 2 < self._estimate:
            return self.limit
        return self._hold(self._estimate + self._change(rtt_us))

    def _change(self, rtt_us: int) -> int:
        decade = _decade(self._estimate)
        queue = -(-self._estimate * (rtt_us - self._unloaded_us) // rtt_us)
        if queue <= decade:
            return 6 * decade
        if queue < 3 * decade:
            return decade
        return -decade if queue > 6 * decade else 0

    def _hold(self, estimate: int) -> int:
        self._phase = 0
        self._estimate = max(self._limit_min, min(self._limit_max, estimate))
        self.limit = self._estimate
        return self.limit


def _decade(estimate: int) -> int:
    return max(1, int(log10(estimate)))
