"""Penalty: whoever keeps on slowing the service down pays more for what it asks.

Refuses nobody; it sets a price. Source: the optional latency penalty of Airbnb's Mussel dispatchers
(Gaonkar, Getz and Cho, 2025), which charges more for the queries of callers that persistently
trigger the latency ratio. The seed does not say how such a caller is known; here:

    each window     what every caller had the backend do is summed, in microseconds of its time
    a slow window   callers with more than `blame_times` an even part of that sum get a strike
    strikes_min     strikes in a row, and its price rises by a half a window, to `times_max`
    a calm window   takes a strike from everybody, and prices fall by a fifth

An even part is the sum over those who asked for anything. Who is alone cannot be told from the
service being slow of itself, and is not blamed; nor are the small, whatever their share, below
`floor_us` of the backend's time a window.

The price multiplies what `request_units` charges, before it is known what the work takes, and the
refill never changes. Callers beyond `callers_max` are not told apart, and none of them is blamed.

Cost: a look-up for each end and each charge. Bound: `callers_max`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, final

from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.kernels.bounds import ranged
from sluicegate.policies.settings import check_ranges
from sluicegate.policies.stress import StressSource

ONE_MILLI: Final = 1_000
_DEARER_MILLI: Final = 1_500
_CHEAPER_MILLI: Final = 800


@dataclass(frozen=True, slots=True, kw_only=True)
class PenaltySettings:
    """Who is blamed, and what that costs."""

    window_us: int = ranged(1_000_000, 1_000, 1 << 40)
    blame_times: int = ranged(2, 1, 1_000)
    strikes_min: int = ranged(3, 1, 1_000)
    times_max: int = ranged(4, 1, 1_000)
    floor_us: int = ranged(50_000, 0, 1 << 40)
    callers_max: int = ranged(10_000, 1, 1 << 24)

    def __post_init__(self) -> None:
        check_ranges("penalty", self)


class PenaltyStats(NamedTuple):
    """Who pays more now, in thousandths of the price, and counts since the start."""

    prices_milli: dict[str, int]
    windows: int
    slow_windows: int


@final
class _Account:
    """One caller: what it had done in this window, its strikes, its price."""

    __slots__ = ("price_milli", "strikes", "took_us")

    def __init__(self) -> None:
        self.took_us = 0
        self.strikes = 0
        self.price_milli = ONE_MILLI


@final
class Penalty:
    """The accounts of the callers; an observer of the stack."""

    __slots__ = ("_accounts", "_ends_us", "_slow", "_stress", "_windows", "settings")

    def __init__(self, stress: StressSource, settings: PenaltySettings | None = None) -> None:
        self.settings = PenaltySettings() if settings is None else settings
        self._stress = stress
        self._accounts: dict[str, _Account] = {}
        self._ends_us = 0
        self._windows = self._slow = 0

    def price_milli(self, caller: str, now_us: int) -> int:
        """What a request unit costs this caller now, in thousandths."""
        if now_us >= self._ends_us:
            self._end_window(now_us)
        account = self._accounts.get(caller)
        return ONE_MILLI if account is None else account.price_milli

    def record_end(self, request: Request, outcome: Outcome, now_us: int) -> None:
        """Add what the backend did for this caller."""
        measured = request.measured
        if measured is None or measured.from_cache or measured.service_us <= 0:
            return
        if now_us >= self._ends_us:
            self._end_window(now_us)
        account = self._accounts.get(request.caller)
        if account is None:
            if len(self._accounts) >= self.settings.callers_max:
                return
            account = self._accounts[request.caller] = _Account()
        account.took_us += measured.service_us

    def stats(self) -> PenaltyStats:
        """Who pays more, and how often it was slow."""
        dear = {
            name: one.price_milli
            for name, one in self._accounts.items()
            if one.price_milli > ONE_MILLI
        }
        return PenaltyStats(dear, self._windows, self._slow)

    def _end_window(self, now_us: int) -> None:
        """End a window: count strikes, and move the prices."""
        settings = self.settings
        late = now_us - self._ends_us > settings.window_us  # nothing was asked for a while
        self._ends_us = now_us + settings.window_us
        self._windows += 1
        slow = not late and self._stress.read(now_us).slow
        busy = [one.took_us for one in self._accounts.values() if one.took_us > 0]
        mark_us = settings.blame_times * sum(busy) // max(1, len(busy))
        if mark_us < settings.floor_us:
            mark_us = settings.floor_us
        self._slow += slow
        settled: list[str] = []
        for name, account in self._accounts.items():
            if slow and len(busy) > 1 and account.took_us >= mark_us:
                self._strike(account)
            elif not slow or account.took_us == 0:
                self._relent(account)
            account.took_us = 0
            if account.strikes == 0 and account.price_milli == ONE_MILLI:
                settled.append(name)
        for name in settled:
            del self._accounts[name]

    def _strike(self, account: _Account) -> None:
        if account.strikes < self.settings.strikes_min:
            account.strikes += 1
        if account.strikes >= self.settings.strikes_min:
            dearer = account.price_milli * _DEARER_MILLI // 1_000
            most = self.settings.times_max * ONE_MILLI
            account.price_milli = dearer if dearer < most else most

    def _relent(self, account: _Account) -> None:
        if account.strikes > 0:
            account.strikes -= 1
        cheaper = account.price_milli * _CHEAPER_MILLI // 1_000
        account.price_milli = cheaper if cheaper > ONE_MILLI else ONE_MILLI
