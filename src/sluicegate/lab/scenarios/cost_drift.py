"""Cost drift: what work costs becomes three times as much, and one tenant's shapes are wrong.

A quota in request units is worth as much as its predictions. Weights that somebody calibrated are
wrong from the day on which rows, bytes or milliseconds cost more; and a tenant that says one row
and has two hundred looked at has no limit at all. The goal: within 2,000 requests the error is at
most 1.1 times what the noise alone leaves, the bias between 0.9 and 1.1, and neither a million
requests (`make prove`; here it is a tenth of that) nor outliers of a thousand times change that.

The rig: work whose true cost moves away from what its shape says, request after request.

No queue and no workers: what is tried is a prediction. Shapes are drawn, what the work then really
looks at is the shape times what has drifted times noise (lognormal, sigma 0.41), and the policy
charges, settles and learns. The floor is what somebody who knew the drift, but not the noise, would
be off by.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.policy import Policy
from sluicegate.contracts.request import Measured, Request
from sluicegate.kernels.cost_model import Weights
from sluicegate.kernels.verdict import Verdict
from sluicegate.lab.goals import Goal
from sluicegate.lab.random_source import RandomSource
from sluicegate.lab.scenario import (
    KERNELS,
    OVER_CASES,
    OVER_TIME,
    Candidate,
    Curves,
    Figures,
    PlotSpec,
    Scenario,
)
from sluicegate.policies.quota.budgets import CHARGED
from sluicegate.policies.quota.request_units import RequestUnits, RequestUnitsSettings
from sluicegate.testing import START_US

SIGMA: Final = 0.41
ROWS_MAX: Final = 300
WINDOW: Final = 500  # requests
SHOWN_EVERY: Final = 50
NEAR: Final = 1.1
LIAR: Final = "liar"
ENDLESS_MRU: Final = 1 << 50


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """What costs how many times as much from `at` on, and who declares a wrong shape.

    Of every `liar_every` requests one is of a tenant that declares 1 row and has `liar_rows` looked
    at; 0 is none. In `storms` of all requests it is a thousand times what it should be, or nothing.
    """

    requests: int = 6_000
    at: int = 2_000
    rows: float = 1.0
    size_bytes: float = 1.0
    ms: float = 1.0
    tenants: int = 9
    liar_every: int = 0
    liar_rows: int = 200
    storms: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.at < self.requests - 2 * WINDOW:
            raise BadValue("at", self.at, f"leave {2 * WINDOW} requests after it")


class _CostPolicy(Policy, Protocol):
    """`request_units`, or a form of it."""

    def predict_mru(self, request: Request) -> int: ...


class DriftEntry(NamedTuple):
    """One request, in thousandths of a request unit."""

    actual: float
    expected: float
    floor: float
    paid: int
    liar: bool


MakeCostPolicy: TypeAlias = "Callable[[Drift, CountingBudget], _CostPolicy]"


@final
class CountingBudget:
    """A budget that refuses nothing, and adds up what was paid."""

    __slots__ = ("mru",)

    def __init__(self) -> None:
        self.mru = 0

    def charge(self, caller: str, mru: int, now_us: int) -> Verdict:
        """Charge before the work."""
        self.mru += mru
        return CHARGED

    def settle(self, caller: str, mru: int, now_us: int) -> int:
        """Correct the charge after the work."""
        self.mru += mru
        return 0

    def payable_mru(self, caller: str, now_us: int) -> int:
        """There is no bound."""
        return ENDLESS_MRU


@final
class DriftSource:
    """Draws shapes, and what they turn out to be."""

    def __init__(self, rig: Drift, seed: int) -> None:
        self._rig = rig
        self._draw = RandomSource(seed).of("drift").draw
        self._spare: float | None = None
        self._count = 0

    def next(self, now_us: int, weights: Weights) -> tuple[Request, Measured, float, bool]:
        """Return a request, what it looks at, its cost without noise, and if it is a liar's."""
        rig, drifted = self._rig, self._count >= self._rig.at
        liar = rig.liar_every > 0 and self._count % rig.liar_every == 0
        caller = LIAR if liar else f"tenant-{self._count % rig.tenants}"
        self._count += 1
        declared_rows, declared_bytes = 1, 0
        rows = float(rig.liar_rows)
        size_bytes = 0.0
        if not liar:
            declared_rows = int(math.exp(self._draw() * math.log(ROWS_MAX)))
            declared_bytes = int(math.exp(8.0 + self._normal()))
            rows, size_bytes = float(declared_rows), float(declared_bytes)
        ms = 1.0 + 0.05 * rows
        if drifted:
            rows, size_bytes, ms = rows * rig.rows, size_bytes * rig.size_bytes, ms * rig.ms
        floor = weights.base_ru + weights.row_ru * rows
        floor += weights.byte_ru * size_bytes + weights.ms_ru * ms
        times = self._noise()
        if rig.storms and self._draw() < rig.storms:
            times = 1_000.0 if self._draw() < 0.5 else 0.0
        measured = Measured(
            max(1, round(ms * 1000 * self._noise())),
            rows=max(1, round(rows * times)),
            size_bytes=round(size_bytes * self._noise()),
        )
        shape = {"rows": str(declared_rows), "size_bytes": str(declared_bytes)}
        request = Request("k", caller=caller, operation="scan", arrived_us=now_us, attributes=shape)
        return request, measured, 1000 * floor, liar

    def _noise(self) -> float:
        return math.exp(SIGMA * self._normal() - SIGMA * SIGMA / 2)

    def _normal(self) -> float:
        """By Box and Muller, two at a time."""
        if self._spare is not None:
            spare, self._spare = self._spare, None
            return spare
        radius = math.sqrt(-2.0 * math.log(1.0 - self._draw()))
        turn = 2 * math.pi * self._draw()
        self._spare = radius * math.sin(turn)
        return radius * math.cos(turn)


def candidate(make_policy: MakeCostPolicy, weights: Weights) -> Candidate[Drift, list[DriftEntry]]:
    """A form of request units as a candidate; no task and no loop."""
    return Candidate(lambda rig, seed: play(rig, make_policy, weights, seed), KERNELS)


def play(rig: Drift, make_policy: MakeCostPolicy, weights: Weights, seed: int) -> list[DriftEntry]:
    """One run: every request after the drift began."""
    budget = CountingBudget()
    policy, source = make_policy(rig, budget), DriftSource(rig, seed)
    entries: list[DriftEntry] = []
    now_us = START_US
    for number in range(rig.requests):
        now_us += 1_000
        request, measured, floor_mru, liar = source.next(now_us, weights)
        begun_mru = budget.mru
        counted = number >= rig.at
        expected_mru = policy.predict_mru(request) if counted else 0
        permit = policy.admit(request, now_us)
        assert not isinstance(permit, Decision)  # this budget refuses nothing
        request.measured = measured
        permit.end(Outcome.SUCCESS, now_us + measured.service_us)
        if counted:
            ms = measured.service_us / 1000
            actual_mru = weights.cost_mru(measured.rows, measured.size_bytes, ms)
            paid_mru = budget.mru - begun_mru
            entries.append(DriftEntry(actual_mru, expected_mru, floor_mru, paid_mru, liar))
    return entries


def measure(rig: Drift, entries: list[DriftEntry]) -> Figures:
    """How far off predictions are over the floor, how soon, and what was paid for what it cost."""
    late = entries[2_000:] if len(entries) > 2_000 + WINDOW else entries[-WINDOW:]
    liar = [entry for entry in entries if entry.liar]
    honest = [entry for entry in late if not entry.liar]
    return {
        "wape": _wape([entry.expected for entry in late], late),
        "wape_over_floor": _wape([entry.expected for entry in late], late)
        / _wape([entry.floor for entry in late], late),
        "settled_requests": _settled(entries),
        "bias": sum(entry.expected for entry in late) / sum(entry.actual for entry in late),
        "bias.honest": sum(entry.expected for entry in honest)
        / sum(entry.actual for entry in honest),
        "paid": sum(entry.paid for entry in entries) / sum(entry.actual for entry in entries),
        "paid.liar": sum(entry.paid for entry in liar) / sum(entry.actual for entry in liar)
        if liar
        else 1.0,
        "farthest": max(
            max(entry.expected / entry.floor, entry.floor / max(entry.expected, 1e-9))
            for entry in late
        ),
    }


def curves(rig: Drift, entries: list[DriftEntry]) -> Curves:
    """The error over the floor of the last 500 requests, from the drift on."""
    return {"wape_over_floor": _trailing(entries)}


def _wape(guesses: list[float], entries: list[DriftEntry]) -> float:
    off = sum(abs(g - entry.actual) for g, entry in zip(guesses, entries, strict=True))
    return off / sum(entry.actual for entry in entries)


def _settled(entries: list[DriftEntry]) -> float:
    """From which request on the error of a window stays within 1.1 times the floor."""
    points = _trailing(entries)
    far = [at for at, over in points if over > NEAR]
    if not far:
        return float(WINDOW)
    return far[-1] + SHOWN_EVERY if far[-1] < points[-1][0] else math.inf


def _trailing(entries: list[DriftEntry]) -> list[tuple[float, float]]:
    offs = [0.0, *accumulate(abs(entry.expected - entry.actual) for entry in entries)]
    floors = [0.0, *accumulate(abs(entry.floor - entry.actual) for entry in entries)]
    every = max(SHOWN_EVERY, len(entries) // 500)
    return [
        (float(end), (offs[end] - offs[end - WINDOW]) / (floors[end] - floors[end - WINDOW]))
        for end in range(WINDOW, len(entries) + 1, every)
    ]


# In a storm what it cost is mostly outliers, which are neither learned nor charged to the full.
CALM: Final = ("rows", "bytes", "ms", "all", "cheaper", "liar", "long")
WEIGHTS: Final = RequestUnitsSettings().weights


def form(**settings: Any) -> Callable[[Drift, CountingBudget], RequestUnits]:
    """Return a maker of the policy with these settings, the others as by default."""
    return lambda rig, budget: RequestUnits(RequestUnitsSettings(**settings), budget=budget)


SCENARIO: Final = Scenario(
    number=15,
    name="cost-drift",
    title="Costs that become three times as much, and a tenant whose shapes are wrong",
    why="What is charged must be what it costs, for whoever causes it and for nobody else.",
    rigs={
        "rows": Drift(rows=3.0),
        "bytes": Drift(size_bytes=3.0),
        "ms": Drift(ms=3.0),
        "all": Drift(rows=3.0, size_bytes=3.0, ms=3.0),
        "cheaper": Drift(rows=1 / 3, size_bytes=1 / 3, ms=1 / 3),
        "liar": Drift(at=0, liar_every=10),
        "long": Drift(requests=100_000, at=94_000, rows=3.0, liar_every=10),
        "storm": Drift(requests=20_000, at=10_000, storms=0.001),
    },
    candidates={
        "request-units": candidate(form(), WEIGHTS),
        "seed": candidate(form(settle=False), WEIGHTS),
        "without-estimates": candidate(form(estimates_max=0), WEIGHTS),
        "calibrated": candidate(form(estimates_max=0, settle=False), WEIGHTS),
    },
    ours="request-units",
    must_fail=("calibrated", "without-estimates"),
    goals=(
        Goal(figure="wape_over_floor", at_most=1.1),
        # Work that stays quicker is usual after a minute (`cheaper`).
        Goal(figure="settled_requests", at_most=2_500),
        Goal(figure="bias", at_least=0.9, cases=CALM),
        Goal(figure="bias", at_most=1.1, cases=CALM),
        Goal(figure="bias.honest", at_most=1.1),
        Goal(figure="paid.liar", at_least=0.9, cases=("liar", "long")),
        Goal(figure="farthest", at_most=2.0),
    ),
    measure=measure,
    columns=("wape", "wape_over_floor", "settled_requests", "bias", "bias.honest", "paid.liar"),
    curves=curves,
    plots=(
        PlotSpec("Error over the floor", ("wape_over_floor",), OVER_CASES, "times", "", True),
        PlotSpec(
            "After the drift", ("wape_over_floor",), OVER_TIME, "error over floor", "requests"
        ),
    ),
    scale="100,000 requests in a row, not a million; one a millisecond, no queue, no workers.",
)
