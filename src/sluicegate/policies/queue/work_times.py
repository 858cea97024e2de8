"""Work times: what a queue knows of how long its work takes, and what it asks of a deadline.

Three spans, and two quantiles. `service_us` is the work as it is now, however loaded; `mean_us` the
mean of the last hundred or so, by which the queue knows how many it can serve: one long work among
the last eight halved a line. `unloaded_us` is what work takes while at most half of the places are
taken, the measure of all spans of the queue. It is never more than the mean of all work. What an
overload begins with is some sixteen works that had nothing in their way, and then none: those of 10
ms took 17 by chance (seed 2 of `lab run overload`), and for as long as it lasted the queue bore a
delay of 18 ms, and not of 10.

`slack_us` is what a deadline has to leave, the `slack_quantile` of all work; what a unit costs may
say less, once costs differ (`slack_of`).

Work that stood still says nothing of how long it takes. Where `_STALLED_MIN` others were at work
and nothing ended for 100 ms, and for eight times what work takes, all that had begun by then is
void. It takes 32 more that end before another stall may be found, so what has become slow for good
is learned with the second one. Work of 10 ms that had stood still for 5 s was taken to need 4.4 s
unloaded (600 a second, 64 places): the queue bore a delay of 1 s, and was wrong for another 1.3 s.

Cost: three additions and a bucket for each piece of work; quantiles are read ten times a second.
Bounds: those of two `kernels/windowed_quantile.py`.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.contracts.request import Request
from sluicegate.kernels.windowed_quantile import Scale, WindowedQuantile

_FIT_EVERY: Final = 32
_UNLOADED: Final = 32  # works that the mean is of
_ALL: Final = 128
_STALL_US_MIN: Final = 100_000
_STALL_TIMES: Final = 8
_STALLED_MIN: Final = 3
_LONG_AGO_US: Final = -(1 << 60)
_SLACK_EVERY_US: Final = 100_000
_BY_COST: Final = 0.99  # of all work takes no longer for its cost
_NS_MAX: Final = 3.6e15  # of an hour, a thousand of them


@final
class WorkTimes:
    """How long the work takes."""

    __slots__ = (
        "_alone_us",
        "_ended_us",
        "_ends",
        "_learned",
        "_learned_unloaded",
        "_slack_due_us",
        "_slack_quantile",
        "_times",
        "_unit_ns",
        "_unit_times",
        "_void_us",
        "mean_us",
        "service_us",
        "slack_us",
        "unloaded_us",
    )

    def __init__(self, slack_quantile: float) -> None:
        self._slack_quantile = slack_quantile  # 0: a deadline has to leave nothing
        self._times = WindowedQuantile()
        self._unit_times: WindowedQuantile | None = None  # of a unit of cost, once costs differ
        self._unit_ns = 0
        self._slack_due_us = 0
        self.mean_us = self._learned = 0  # of all work
        self._alone_us = self._learned_unloaded = 0  # of work that had nothing in its way
        self._ended_us = 0  # the last time that work ended
        self._ends = 0  # of work, since the last stall
        self._void_us = _LONG_AGO_US  # what had begun before says nothing
        self.service_us = self.unloaded_us = self.slack_us = 0

    def stood_still(self, service_us: int, beside: int, now_us: int) -> bool:
        """Whether work that ends now was held up by a stall, `beside` others still being at work.

        To be asked once of each that ends.
        """
        begun_us = now_us - service_us
        silence_us = now_us - self._ended_us
        self._ended_us = now_us
        if now_us < self._void_us:  # The clock went back.
            self._void_us = _LONG_AGO_US
        if (
            silence_us > _STALL_US_MIN
            and service_us > _STALL_US_MIN
            and min(silence_us, service_us) > self._silence_us_max()
            and beside >= _STALLED_MIN
            and self._ends >= _FIT_EVERY
        ):
            self._ends = 0
            self._void_us = now_us
        if begun_us < self._void_us:
            return True
        self._ends += 1
        return False

    def stands_still(self, now_us: int) -> bool:
        """Whether no work has ended for so long that it is a stall, if places are taken."""
        return now_us - self._ended_us > self._silence_us_max()

    def _silence_us_max(self) -> int:
        return max(_STALL_US_MIN, _STALL_TIMES * max(self.service_us, self.unloaded_us))

    def learn(self, service_us: int, unloaded: bool, now_us: int, cost: int) -> bool:
        """Record how long the work took that cost so much; whether to fit spans to it now."""
        if self._slack_quantile > 0.0:
            self._learn_slack(service_us, now_us, cost)
        self.service_us += (service_us - self.service_us) // 8
        # The first is a part of them soon enough: until then each counts as much.
        known = self._learned
        self.mean_us += (service_us - self.mean_us) // (known + 1 if known < _ALL else _ALL)
        self._learned = known + 1
        fits = known % _FIT_EVERY == 0
        if unloaded:
            known = self._learned_unloaded
            weight = known + 1 if known < _UNLOADED else _UNLOADED
            self._alone_us += (service_us - self._alone_us) // weight
            self._learned_unloaded = known + 1
            fits = fits or known < _FIT_EVERY
        alone_us, mean_us = self._alone_us, self.mean_us
        self.unloaded_us = alone_us if alone_us < mean_us else mean_us
        return fits

    def slack_of(self, request: Request) -> int:
        """What the work takes, by its cost if that says less."""
        if self._unit_ns == 0:
            return self.slack_us
        return min(self.slack_us, self._unit_ns * max(1, request.cost_ru) // 1_000)

    def _learn_slack(self, service_us: int, now_us: int, cost: int) -> None:
        self._times.add(service_us, now_us)
        if cost > 1 and self._unit_times is None:
            self._unit_times = WindowedQuantile(scale=Scale(value_max=_NS_MAX))
        unit_times = self._unit_times
        if unit_times is not None:
            unit_times.add(service_us * 1_000 // (cost if cost > 1 else 1), now_us)
        if now_us >= self._slack_due_us or now_us < self._slack_due_us - _SLACK_EVERY_US:
            self._slack_due_us = now_us + _SLACK_EVERY_US
            self.slack_us = int(self._times.quantile(self._slack_quantile, now_us) or 0)
            if unit_times is not None:
                self._unit_ns = int(unit_times.quantile(_BY_COST, now_us) or 0)
