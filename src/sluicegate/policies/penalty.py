"""Penalty: whoever asks a shard that has too much to do for more than its share pays more there.

Refuses nobody; it sets a price. Source: the optional latency penalty of Airbnb's Mussel dispatchers
(Gaonkar, Getz and Cho, 2025), which charges more for the queries of callers that persistently
trigger the latency ratio. The seed does not say how such a caller is known; here, for each shard:

    each window      what every caller *asks for* is summed, as it is predicted to cost
    a bad window     the shard is slow and has too much to do (`prices.py`): callers that asked for
                     more than `blame_times` an even part get a strike
    strikes_min      strikes in a row, and its price rises by a half a window, to `times_max`
    another window   takes a strike from everybody, and prices fall by half

What is asked for is blamed and not what was done: where all others are refused, whoever is left has
all of the engine's time, and has done no harm. An even part is the sum over those who asked.
CRITICAL is never blamed, nor who is alone, nor the small, below `floor_ru` a window. A shard that
is slow without having too much to do blames nobody.

The price multiplies what `request_units` charges, before it is known what the work takes, and the
refill never changes. Beyond `accounts_max` callers of shards nobody is told apart or blamed.

Cost: two look-ups each charge. Bound: `accounts_max`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.request import Request
from sluicegate.kernels.bounds import ranged
from sluicegate.policies.settings import check_ranges

ONE_MILLI: Final = 1_000
_DEARER_MILLI: Final = 1_500


class ShardTrouble(Protocol):
    """Which shards have too much to do; `prices.LocalPrices` is one."""

    def is_troubled(self, shard: str, now_us: int) -> bool:
        """Whether it is slow, and there is more to do than gets done."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PenaltySettings:
    """Who is blamed, and what that costs."""

    window_us: int = ranged(1_000_000, 1_000, 1 << 40)
    blame_times: int = ranged(2, 1, 1_000)
    strikes_min: int = ranged(3, 1, 1_000)
    times_max: int = ranged(4, 1, 1_000)
    floor_ru: int = ranged(50, 0, 1 << 40)
    accounts_max: int = ranged(10_000, 1, 1 << 24)

    def __post_init__(self) -> None:
        check_ranges("penalty", self)


class PenaltyStats(NamedTuple):
    """Who pays more now, in thousandths of the price on the dearest shard, and bad windows."""

    prices_milli: dict[str, int]
    windows: int
    bad_windows: int


@final
class _Account:
    """One caller on one shard: what it asked for in this window, its strikes, its price."""

    __slots__ = ("asked_mru", "price_milli", "strikes")

    def __init__(self) -> None:
        self.asked_mru = 0
        self.strikes = 0
        self.price_milli = ONE_MILLI


@final
class _Shard:
    """The accounts of one shard."""

    __slots__ = ("accounts", "ends_us")

    def __init__(self) -> None:
        self.accounts: dict[str, _Account] = {}
        self.ends_us = 0


@final
class Penalty:
    """The accounts of the callers, by shard."""

    __slots__ = ("_bad", "_count", "_shards", "_trouble", "_windows", "settings")

    def __init__(self, trouble: ShardTrouble, settings: PenaltySettings | None = None) -> None:
        self.settings = PenaltySettings() if settings is None else settings
        self._trouble = trouble
        self._shards: dict[str, _Shard] = {}
        self._count = 0
        self._windows = self._bad = 0

    def price_milli(self, request: Request, now_us: int) -> int:
        """What a request unit costs its caller now, in thousandths, for `request.cost_mru`."""
        shard = self._shards.get(request.shard)
        if shard is None:
            if self._count >= self.settings.accounts_max:
                return ONE_MILLI
            shard = self._shards[request.shard] = _Shard()
        if now_us >= shard.ends_us:
            self._end_window(request.shard, shard, now_us)
        account = shard.accounts.get(request.caller)
        if account is None:
            if self._count >= self.settings.accounts_max:
                return ONE_MILLI
            self._count += 1
            account = shard.accounts[request.caller] = _Account()
        account.asked_mru += request.cost_mru
        return ONE_MILLI if request.criticality is Criticality.CRITICAL else account.price_milli

    def stats(self) -> PenaltyStats:
        """Who pays more, and how many windows were bad."""
        dear: dict[str, int] = {}
        for shard in self._shards.values():
            for name, one in shard.accounts.items():
                if one.price_milli > max(ONE_MILLI, dear.get(name, 0)):
                    dear[name] = one.price_milli
        return PenaltyStats(dear, self._windows, self._bad)

    def _end_window(self, name: str, shard: _Shard, now_us: int) -> None:
        """End a window: count strikes, and move the prices."""
        settings = self.settings
        late = now_us - shard.ends_us > settings.window_us  # nothing was asked for a while
        shard.ends_us = now_us + settings.window_us
        self._windows += 1
        bad = not late and self._trouble.is_troubled(name, now_us)
        self._bad += bad
        asked = [one.asked_mru for one in shard.accounts.values() if one.asked_mru > 0]
        mark_mru = settings.blame_times * sum(asked) // max(1, len(asked))
        mark_mru = max(mark_mru, settings.floor_ru * 1_000)
        blames = bad and len(asked) > 1
        settled: list[str] = []
        for caller, account in shard.accounts.items():
            if blames and account.asked_mru >= mark_mru:
                self._strike(account)
            elif not bad or account.asked_mru == 0:
                self._relent(account)
            account.asked_mru = 0
            if account.strikes == 0 and account.price_milli == ONE_MILLI:
                settled.append(caller)
        for caller in settled:
            del shard.accounts[caller]
        self._count -= len(settled)

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
        cheaper = account.price_milli // 2
        account.price_milli = cheaper if cheaper > ONE_MILLI else ONE_MILLI
