"""AIMD: a concurrency limit by failures and timeouts alone.

Source: Chiu and Jain, "Analysis of the Increase and Decrease Algorithms" (1989), which congestion
control in TCP is made of, in the form of Netflix's concurrency-limits (2018):

    a drop, or a latency above `timeout_us`    limit * backoff, at least one less
    at least half of the limit at work         limit + 1

Additive increase and multiplicative decrease is the one simple rule by which many who do not know
each other come to equal shares. It needs no idea of what a latency without a queue would be, so
there is nothing to probe for, and it holds whatever queue its timeout allows: with one of three
service times it held 82 where 32 workers do the work (`concurrency_limit.py` has the table).

Good where latency says nothing and failures do. Not good at: a timeout near the service time (it
collapses when that doubles) or far above it (it holds that much queue).

Cost: a comparison and an addition an update. Bounds: those of `AdaptiveNumber`, and `timeout_us`
up to an hour.
"""

from __future__ import annotations

from typing import final

from sluicegate.kernels.bounds import within
from sluicegate.kernels.concurrency_limit import SPAN_US_MAX, AdaptiveNumber, check_draw


@final
class Aimd(AdaptiveNumber):
    """Additive increase, multiplicative decrease: it reacts to failures and timeouts only."""

    __slots__ = ("_backoff", "_timeout_us")

    def __init__(
        self,
        *,
        initial: int = 20,
        limit_min: int = 1,
        limit_max: int = 1_000,
        backoff: float = 0.9,
        timeout_us: int = 5_000_000,
    ) -> None:
        super().__init__(initial, limit_min, limit_max)
        if not 0.5 <= backoff < 1.0:
            raise ValueError(f"backoff must be from 0.5 to below 1, not {backoff}")
        within("timeout_us", timeout_us, 1, SPAN_US_MAX)
        self._backoff = backoff
        self._timeout_us = timeout_us

    def update(self, rtt_us: int, inflight: int, dropped: bool, draw: float) -> int:
        """Take in one sample, or one window of them; the new limit. The draw is not used."""
        check_draw(draw)
        limit = self.limit
        if dropped or rtt_us > self._timeout_us:
            limit = max(self._limit_min, int(limit * self._backoff))
        elif rtt_us >= 1 and inflight * 2 >= limit:
            limit = min(self._limit_max, limit + 1)
        self.limit = limit
        return limit
