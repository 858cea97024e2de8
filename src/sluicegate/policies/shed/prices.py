"""Prices by class, the form of the seed system: refuse nobody, and have request units cost more.

Source: Mussel (Gaonkar, Getz and Cho, 2025). While the latency ratio is low, the request units of
one class cost more and its buckets drain faster; if stress lasts, more classes are priced. A price
rises by at most a factor of 2 a window, to `price_max_milli`; the next class begins when the one
below stands at `widen_at_milli`. It relaxes in the reverse order, slower than it rose, and only
when the picture is calm, which has its own hysteresis. A price never falls towards the less
important class, and CRITICAL has none. It reacts only as fast as buckets drain: combine it with
`levels`, two stages with one stress, where tenants have quotas. `price_milli` is read by the stage
that charges; reading moves it too, for that stage may refuse all before they come here. It is for
comparison: it harms where work is slow without being too much, and where one part of many is slow;
`policies/prices.py` does not.

Cost: a look-up a charge. Bounds: a price for each class.
"""

from __future__ import annotations

from typing import final

from sluicegate.contracts.criticality import Criticality
from sluicegate.policies.prices import CLASSES, PriceLadder
from sluicegate.policies.shed.form import ShedForm, ShedStanding
from sluicegate.policies.shed.settings import ShedSettings
from sluicegate.policies.stress import StressLevel, StressState


@final
class PricesForm(ShedForm):
    """One ladder for all."""

    __slots__ = ("_prices", "_settings")

    def __init__(self, settings: ShedSettings) -> None:
        super().__init__(CLASSES * settings.cohorts)
        self._settings = settings
        self._prices = PriceLadder(
            settings.widen_at_milli, settings.price_max_milli, settings.dearest
        )

    def price_milli(self, criticality: Criticality) -> int:
        """What its class stands at."""
        return self._prices.milli[criticality]

    def end_window(self, picture: StressState, quiet: int) -> None:
        """Climb while it is slow or crowded, else come down."""
        prices, settings = self._prices, self._settings
        lowered = True
        while quiet > 0 and lowered:
            lowered = prices.lower_first(settings.cheaper_milli)
            quiet -= 1
        if picture.slow or picture.crowded:
            hard = picture.level == StressLevel.HARD
            prices.raise_prices(settings.dearer_hard_milli if hard else settings.dearer_milli)
        else:
            prices.lower_first(settings.cheaper_milli)

    def standing(self) -> ShedStanding:
        """The prices."""
        return ShedStanding(self._levels_max, self._levels_max, tuple(self._prices.milli), 0.0)
