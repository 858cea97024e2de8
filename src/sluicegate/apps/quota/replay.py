"""Replay: what callers really asked of a dispatcher, charged again under proposed quotas.

The budget is the one that `sluicegate kv` charges (`policies/quota/leased_budget.py`), as it is
without a store, on the instants of the capture. A correction belongs to the latest charge of its
caller: if that is refused here, it does not count. A request that was refused then and is admitted
here is charged its estimate, as its real cost is unknown; a retry that it caused is not removed.

Callers do not touch one another's budgets, so each is played by itself. Bound: the requests that
were read, at 17 bytes each.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final, NamedTuple, final

from sluicegate.contracts.checks import CheckRequest
from sluicegate.kernels.cost_model import MILLI
from sluicegate.policies.quota.leased_budget import RU_MAX, LeasedBudget, LeasedBudgetSettings
from sluicegate.shadow.quota_asks import read_asked
from sluicegate.shadow.traffic import REFUSED, CapturedTraffic

SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
TIMES_MAX: Final = 60  # seconds with refusals that are told of each caller
_ADMITTED: Final = 0
_REFUSED: Final = 1
_SETTLED: Final = 2


class Busiest(NamedTuple):
    """When most was asked."""

    at_us: int
    mru: int


class Played(NamedTuple):
    """What became of a caller's requests under one quota."""

    admitted: int
    refused: int
    refused_mru: int
    seconds: list[tuple[int, int]]  # that had refusals: when, and how many


class CallerReplay(NamedTuple):
    """One caller, as it was and as it would be."""

    caller: str
    asked: int
    asked_mru: int
    admitted: int  # as captured
    refused: int
    quota: int
    proposed: Played
    busiest_second: Busiest
    busiest_minute: Busiest
    smallest_quota: int | None  # that refuses nothing, in RU/s; None: there is none


@final
class Asks:
    """What one caller asked, in order of time."""

    __slots__ = ("at_us", "kinds", "mru")

    def __init__(self) -> None:
        self.at_us = array("q")
        self.mru = array("q")
        self.kinds = array("b")

    def add(self, at_us: int, mru: int, kind: int) -> None:
        """Add a charge, or a correction."""
        self.at_us.append(at_us)
        self.mru.append(mru)
        self.kinds.append(kind)

    def charges(self) -> Iterable[tuple[int, int]]:
        """When, and how much."""
        for at_us, mru, kind in zip(self.at_us, self.mru, self.kinds, strict=True):
            if kind != _SETTLED:
                yield at_us, mru


def asks_of(traffic: CapturedTraffic) -> dict[str, Asks]:
    """What each caller asked; nothing if a capture is of another service."""
    asked = [read_asked(one) if isinstance(one, CheckRequest) else None for one in traffic.queries]
    found: dict[str, Asks] = {}
    for at_us, number, outcome in zip(traffic.at_us, traffic.which, traffic.outcomes, strict=True):
        one = asked[number]
        if one is None:
            continue
        kind = _SETTLED
        if one.operation:
            kind = _REFUSED if outcome == REFUSED else _ADMITTED
        found.setdefault(one.caller, Asks()).add(at_us, one.mru, kind)
    return found


def play(caller: str, asks: Asks, quota: int, epoch_us: int) -> Played:
    """Charge all of it under this quota, in RU a second."""
    an_epoch = max(1, quota * epoch_us // SECOND_US)
    budget = LeasedBudget(LeasedBudgetSettings(quota_ru=an_epoch, epoch_us=epoch_us))
    if asks.at_us:
        budget.detach_store(asks.at_us[0])
    admitted = refused = refused_mru = 0
    seconds: dict[int, int] = {}
    counts = True  # whether the latest charge was admitted here
    for at_us, mru, kind in zip(asks.at_us, asks.mru, asks.kinds, strict=True):
        if kind == _SETTLED:
            if counts:
                budget.settle(caller, mru, at_us)
            continue
        counts = budget.charge(caller, mru, at_us).allowed
        if counts:
            admitted += 1
            continue
        refused += 1
        refused_mru += mru
        second_us = at_us - at_us % SECOND_US
        if second_us in seconds or len(seconds) < TIMES_MAX:
            seconds[second_us] = seconds.get(second_us, 0) + 1
    return Played(admitted, refused, refused_mru, sorted(seconds.items()))


def smallest_quota(caller: str, asks: Asks, epoch_us: int) -> int | None:
    """The smallest quota under which nothing is refused, in RU a second."""
    most = RU_MAX * SECOND_US // max(epoch_us, SECOND_US)
    high = 1
    while play(caller, asks, high, epoch_us).refused:
        if high >= most:
            return None
        high = min(2 * high, most)
    low = high // 2  # refuses, or is none
    while high - low > 1:
        middle = (low + high) // 2
        if play(caller, asks, middle, epoch_us).refused:
            low = middle
        else:
            high = middle
    return high


def replay_caller(caller: str, asks: Asks, quota: int, epoch_us: int) -> CallerReplay:
    """One caller under a proposed quota, beside what happened."""
    refused = asks.kinds.count(_REFUSED)
    admitted = asks.kinds.count(_ADMITTED)
    return CallerReplay(
        caller,
        admitted + refused,
        sum(mru for _, mru in asks.charges()),
        admitted,
        refused,
        quota,
        play(caller, asks, quota, epoch_us),
        _busiest(asks, SECOND_US),
        _busiest(asks, MINUTE_US),
        smallest_quota(caller, asks, epoch_us),
    )


def ru_text(mru: int) -> str:
    """Milli-RU as they are shown."""
    return f"{mru / MILLI:,.1f} RU"


def _busiest(asks: Asks, span_us: int) -> Busiest:
    best = Busiest(0, 0)
    begin_us = total = 0
    for at_us, mru in asks.charges():
        if at_us - at_us % span_us != begin_us:
            begin_us, total = at_us - at_us % span_us, 0
        total += mru
        if total > best.mru:
            best = Busiest(begin_us, total)
    return best
