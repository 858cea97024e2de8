"""Prices and penalty of Mussel: under stress a request unit costs more, by class and by caller.

    prices     below the threshold of the ratio one class pays `PRICE_MILLI`; each window in which
               the ratio has fallen further adds the class above; CRITICAL never pays more. In the
               safe range one class a window is released, the most important first
    penalty    a caller triggers the ratio in a window if more than 5% of its requests take longer
               than the threshold allows. After `STRIKES` such windows in a row it pays
               `PENALTY_MILLI`; a window without takes a strike

Neither rejects a request: the caller's bucket drains faster, and its refill stays the same. Bounds:
`CALLERS_MAX` callers are watched, others never pay a penalty.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.policies.forms.mussel.ratio import NEUTRAL, SECOND_US, P2Ratio

PLAIN_MILLI: Final = 1_000
PRICE_MILLI: Final = 4_000  # a caller that stays within a quarter of its quota never notices
PENALTY_MILLI: Final = 2_000
WINDOW_US: Final = SECOND_US
STRIKES: Final = 3
SLOW_PERMILLE: Final = 50  # of a caller's requests: its own p95 is over the threshold
CALLERS_MAX: Final = 10_000
CLASSES: Final = len(Criticality)


@final
class _Caller:
    """Counts of one caller in this window, and its strikes."""

    __slots__ = ("ended", "slow", "strikes")

    def __init__(self) -> None:
        self.ended = self.slow = self.strikes = 0


@final
class MusselPrices:
    """A `Pricing`, and an observer of a stack."""

    def __init__(self, ratio: P2Ratio | None = None) -> None:
        self.ratio = P2Ratio() if ratio is None else ratio
        self.priced = 0  # classes that pay more, from BULK up
        self._lowest = NEUTRAL  # the ratio when the last class was added
        self._callers: dict[str, _Caller] = {}
        self._end_us = 0

    def price_milli(self, request: Request, now_us: int) -> int:
        """Return the price of a request unit for this request, in thousandths."""
        if now_us >= self._end_us:
            self._end_window(now_us)
        member = request.criticality
        if member is Criticality.CRITICAL:
            return PLAIN_MILLI
        price = PRICE_MILLI if member >= CLASSES - self.priced else PLAIN_MILLI
        caller = self._callers.get(request.caller)
        if caller is not None and caller.strikes >= STRIKES:
            price = price * PENALTY_MILLI // PLAIN_MILLI
        return price

    def record_end(self, request: Request, outcome: Outcome, now_us: int) -> None:
        """Record work that the engine did."""
        measured = request.measured
        if measured is None or measured.from_cache or outcome is Outcome.IGNORE:
            return
        service_us = max(0, measured.service_us)
        self.ratio.add(service_us, now_us)
        caller = self._callers.get(request.caller)
        if caller is None:
            if len(self._callers) >= CALLERS_MAX:
                return
            caller = self._callers[request.caller] = _Caller()
        caller.ended += 1
        slow_us = self.ratio.slow_us()
        if 0.0 < slow_us < service_us:
            caller.slow += 1

    def prices_milli(self) -> tuple[int, ...]:
        """Return the price of each class, without penalties."""
        plain = CLASSES - self.priced
        return (PLAIN_MILLI,) * plain + (PRICE_MILLI,) * self.priced

    def penalized(self) -> list[str]:
        """Callers that pay a penalty now."""
        return [name for name, one in self._callers.items() if one.strikes >= STRIKES]

    def _end_window(self, now_us: int) -> None:
        windows = 1 + (now_us - self._end_us) // WINDOW_US
        self._end_us = now_us + WINDOW_US
        ratio = self.ratio.ratio(now_us)
        stressed = self.ratio.stressed
        if not stressed:
            self.priced = max(0, self.priced - windows)
            self._lowest = NEUTRAL
        elif self.priced < CLASSES - 1 and ratio < self._lowest:
            self.priced += 1
            self._lowest = ratio
        for name, one in [*self._callers.items()]:
            if stressed and 1_000 * one.slow > SLOW_PERMILLE * one.ended:
                one.strikes = min(one.strikes + 1, STRIKES)
            else:
                one.strikes = max(one.strikes - 1, 0)
                if one.strikes == 0:
                    del self._callers[name]
            one.ended = one.slow = 0
