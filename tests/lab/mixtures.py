"""Mixtures: shapes of work that a caller mixes to get more than its quota, and a search for them.

A mixture is played against the request units and the budget of a dispatcher, on virtual time and
without an engine: what is admitted takes its time and turns out to weigh what its shape weighs. The
caller asks as fast as it is let, with as many requests under way as it likes. What counts is the
worst minute: what it used by the formula, over what its quota gives.

The search climbs: it changes one thing of the best mixture so far, and keeps what is not worse.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final, NamedTuple, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Measured, Request
from sluicegate.kernels.cost_model import MILLI, read_weights
from sluicegate.kernels.verdict import NEVER
from sluicegate.lab.random_source import RandomSource
from sluicegate.policies.quota.leased_budget import LeasedBudget, LeasedBudgetSettings
from sluicegate.policies.quota.request_units import (
    RequestUnits,
    RequestUnitsPermit,
    RequestUnitsSettings,
)
from sluicegate.policies.quota.work_shape import ROWS
from sluicegate.testing import START_US

SECOND_US: Final = 1_000_000
MINUTE: Final = 60  # seconds
PLACES_MAX: Final = 64  # of a dispatcher: no caller has more under way
CALLER: Final = "player"
TABLE: Final = "t"
RETRY_US: Final = 20_000  # whoever is refused asks again so soon
_WEIGHTS: Final = read_weights(0.25 / 1_024, 0.1, 0.1)  # as those of `sluicegate kv`
# The form that `sluicegate kv` ships.
SHIPPED: Final = RequestUnitsSettings(weights=_WEIGHTS, estimates_max=10_000)


class MixtureShape(NamedTuple):
    """One shape: what is said of it, and what it turns out to be."""

    operation: str
    rows_said: int
    rows: int
    size_bytes: int
    service_us: int = 2_000


KINDS: Final = (
    MixtureShape("get", 1, 1, 50),
    MixtureShape("get", 1, 1, 20_000),
    MixtureShape("get", 1, 1, 900_000, 5_000),
    MixtureShape("multi-get", 100, 100, 10_000),
    MixtureShape("multi-get", 2, 2, 1_800_000, 8_000),
    MixtureShape("scan", 1, 90, 9_000, 3_000),  # of a range that was thought to hold one row
    MixtureShape("scan", 90, 1, 50),
    MixtureShape("scan", 90, 90, 1_000_000, 8_000),
)


@final
@dataclass(frozen=True, slots=True)
class MixturePhase:
    """For so many seconds: how often each kind is asked for, and how many are under way at once."""

    seconds: int
    shares: tuple[int, ...]  # of `KINDS`
    under_way: int


@final
@dataclass(frozen=True, slots=True)
class Mixture:
    """Phases, again and again. In order, or as they are drawn."""

    phases: tuple[MixturePhase, ...]
    drawn: bool = True


def steady(shares: dict[int, int], under_way: int = 8) -> Mixture:
    """One phase of these shares of kinds, for ever."""
    row = tuple(shares.get(number, 0) for number in range(len(KINDS)))
    return Mixture((MixturePhase(MINUTE, row, under_way),))


TINY_AND_HUGE: Final = steady({0: 97, 2: 3})
HALF_AND_HALF: Final = steady({0: 1, 2: 1})
HONEST: Final = {
    "tiny": steady({0: 1}),
    "middling": steady({1: 1}),
    "huge": steady({2: 1}),
    "mixed": steady({0: 80, 1: 15, 3: 5}),
    "rarely huge": steady({0: 99, 2: 1}),
    "scans": steady({6: 1, 7: 1}),
}


class MixtureResult(NamedTuple):
    """What a mixture came to."""

    worst: float  # minute: used over its quota
    used_mru: int
    charged_mru: int
    requests: int

    @property
    def paid(self) -> float:
        """What was charged over what was used."""
        return self.charged_mru / max(1, self.used_mru)


def play(
    mixture: Mixture,
    *,
    seed: int = 0,
    quota_ru: int = 400,
    seconds: int = 130,
    settings: RequestUnitsSettings = SHIPPED,
) -> MixtureResult:
    """Play it."""
    budget = LeasedBudget(LeasedBudgetSettings(quota_ru=quota_ru))
    budget.detach_store(START_US)
    units = RequestUnits(settings, budget=budget)
    draw = RandomSource(seed).of("mixture").draw
    used = [0] * (seconds + 2)
    working: list[tuple[int, int, RequestUnitsPermit, Request]] = []
    charged_mru = number = place = 0
    now_us, until_us = START_US, START_US + seconds * SECOND_US
    cycle = sum(phase.seconds for phase in mixture.phases)
    ends = [*accumulate(phase.seconds for phase in mixture.phases)]
    decks = [_deck(phase) for phase in mixture.phases]
    while now_us < until_us:
        at = (now_us - START_US) // SECOND_US % cycle
        which = next(index for index, end in enumerate(ends) if at < end)
        deck = decks[which]
        while working and working[0][0] <= now_us:
            _, _, permit, request = heapq.heappop(working)
            permit.end(Outcome.SUCCESS, now_us)
            charged_mru += request.cost_mru
        if len(working) >= mixture.phases[which].under_way:
            now_us = working[0][0]
            continue
        place = int(draw() * len(deck)) if mixture.drawn else (place + 1) % len(deck)
        kind = deck[place % len(deck)]
        said = {ROWS: str(kind.rows_said)}
        request = Request(
            "k", caller=CALLER, operation=kind.operation, table=TABLE, attributes=said
        )
        permit_or_refusal = units.admit(request, now_us)
        if isinstance(permit_or_refusal, Decision):
            if permit_or_refusal.retry_after_us == NEVER and not working:
                now_us += SECOND_US
                continue
            wait_us = min(RETRY_US, max(1, permit_or_refusal.retry_after_us))
            now_us = min(now_us + wait_us, working[0][0]) if working else now_us + wait_us
            continue
        number += 1
        request.measured = Measured(kind.service_us, kind.rows, kind.size_bytes)
        cost_mru = _WEIGHTS.cost_mru(kind.rows, kind.size_bytes, kind.service_us / 1_000)
        used[(now_us - START_US) // SECOND_US] += cost_mru
        heapq.heappush(working, (now_us + kind.service_us, number, permit_or_refusal, request))
        now_us += 20  # a decision takes its time
    sums = [0, *accumulate(used)]
    worst = max(sums[end] - sums[max(0, end - MINUTE)] for end in range(MINUTE, len(sums)))
    return MixtureResult(worst / (quota_ru * MINUTE * MILLI), sums[-1], charged_mru, number)


def climb(
    seed: int, steps: int, value: Callable[[Mixture], float], begin: Mixture = TINY_AND_HUGE
) -> tuple[Mixture, float]:
    """The worst mixture that so many steps find, and its value."""
    draw = RandomSource(seed).of("climb").draw
    best, most = begin, value(begin)
    for _ in range(steps):
        tried = _change(best, draw)
        worth = value(tried)
        if worth >= most:
            best, most = tried, worth
    return best, most


def _deck(phase: MixturePhase) -> Sequence[MixtureShape]:
    deck = [kind for kind, share in zip(KINDS, phase.shares, strict=True) for _ in range(share)]
    return deck or KINDS[:1]


def _change(mixture: Mixture, draw: Callable[[], float]) -> Mixture:
    """Another share, number or length; one phase more or less; order instead of chance."""
    phases = [*mixture.phases]
    at = int(draw() * len(phases))
    phase = phases[at]
    what = int(draw() * 8)
    if what == 0:
        return replace(mixture, drawn=not mixture.drawn)
    if what == 1 and len(phases) < 4:
        phases.insert(at, phase)
    elif what == 2 and len(phases) > 1:
        del phases[at]
    elif what == 3:
        phases[at] = replace(phase, seconds=1 + int(draw() * MINUTE))
    elif what == 4:
        phases[at] = replace(phase, under_way=1 + int(draw() * PLACES_MAX))
    else:
        shares = [*phase.shares]
        shares[int(draw() * len(shares))] = (0, 1, 3, 30, 100)[int(draw() * 5)]
        phases[at] = replace(phase, shares=tuple(shares))
    return replace(mixture, phases=tuple(phases))
