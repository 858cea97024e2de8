"""Usage: what each caller has used of this dispatcher since it started.

An observer of the stack, on the way of every request; refusals come from `admission.py`, once they
stand: who waits for a block of its quota is not refused. `rollups.py` stores it for longer. Callers
beyond `callers_max` are counted together, as `OTHERS`. Beside it, over all callers: refusals by
reason and class, and how long what was done took by operation and class.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final, NamedTuple, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.policies.stack import BaseEndObserver
from sluicegate.telemetry.snapshot import Histogram

OTHERS: Final = "(others)"
# Upper bounds of the buckets in microseconds.
TOOK_US_BOUNDS: Final[tuple[int, ...]] = (
    200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    5_000_000,
)  # fmt: skip


class CallerTotals(NamedTuple):
    """One caller's counts: thousandths of request units, and requests by what became of them."""

    mru: int  # as charged, what was answered from memory too
    admitted: int
    refused: int
    refused_mru: int  # what the refused would have been charged
    cached: int


@final
class CallerAccount:
    """One caller's counts, while they grow."""

    __slots__ = ("admitted", "cached", "mru", "refused", "refused_mru")

    def __init__(self) -> None:
        self.mru = self.admitted = self.refused = self.refused_mru = self.cached = 0


@final
class EngineTotals:
    """What the engine did of one operation."""

    __slots__ = ("done", "failed", "service_us")

    def __init__(self) -> None:
        self.done = self.failed = self.service_us = 0


@final
class LatencyCounts:
    """How long requests of one operation and class took, from their arrival to their end."""

    __slots__ = ("counts", "total_us")

    def __init__(self) -> None:
        self.counts = [0] * (len(TOOK_US_BOUNDS) + 1)
        self.total_us = 0


@final
class CallerUsage(BaseEndObserver):
    """Counts by caller, and refusals by reason."""

    __slots__ = ("_accounts", "_engine", "_others", "_refusals", "_took", "callers_max", "reasons")

    def __init__(self, callers_max: int = 10_000) -> None:
        self.callers_max = callers_max
        self._accounts: dict[str, CallerAccount] = {}
        self._others = CallerAccount()
        self.reasons: dict[str, int] = {}
        self._engine: dict[str, EngineTotals] = {}
        # Few of each: operations, reasons and classes are ours.
        self._refusals: dict[tuple[str, Criticality], int] = {}
        self._took: dict[tuple[str, Criticality], LatencyCounts] = {}

    def refuse(self, request: Request, decision: Decision) -> None:
        """It may not enter."""
        account = self._account(request.caller)
        account.refused += 1
        account.refused_mru += request.cost_mru
        self._count_refusal(request.criticality, decision)

    def refuse_cached(self, caller: str, member: Criticality, decision: Decision) -> None:
        """It was not even given what is in memory."""
        self._account(caller).refused += 1
        self._count_refusal(member, decision)

    def record_end(self, request: Request, outcome: Outcome, now_us: int) -> None:
        """It was done, or was lost on the way."""
        account = self._accounts.get(request.caller)
        if account is None:
            account = self._account(request.caller)
        account.admitted += 1
        account.mru += request.cost_mru
        totals = self._engine.get(request.operation)
        if totals is None:  # there are few operations, all of them ours
            totals = self._engine[request.operation] = EngineTotals()
        if outcome is Outcome.SUCCESS:
            service_us = 0 if request.measured is None else request.measured.service_us
            totals.done += 1
            totals.service_us += service_us
            # If its arrival is unknown, it took as long as the engine was at it.
            took_us = now_us - request.arrived_us if request.arrived_us else service_us
            of = (request.operation, request.criticality)
            counts = self._took.get(of)
            if counts is None:
                counts = self._took[of] = LatencyCounts()
            counts.counts[bisect_left(TOOK_US_BOUNDS, took_us)] += 1
            counts.total_us += took_us
        else:
            totals.failed += 1

    def cached(self, caller: str, mru: int) -> None:
        """It was answered without the engine, and charged so many thousandths of a unit."""
        account = self._account(caller)
        account.cached += 1
        account.mru += mru

    def now(self) -> dict[str, CallerTotals]:
        """Everybody's counts."""
        totals = {name: _used(account) for name, account in self._accounts.items()}
        if self._others.admitted or self._others.refused or self._others.cached:
            totals[OTHERS] = _used(self._others)
        return totals

    def operations(self) -> dict[str, tuple[int, int, int]]:
        """By operation: done, failed, and for how long the engine was at it, in microseconds."""
        return {
            name: (totals.done, totals.failed, totals.service_us)
            for name, totals in self._engine.items()
        }

    def refusals(self) -> Mapping[tuple[str, Criticality], int]:
        """Refusals by reason and class."""
        return self._refusals

    def took(self) -> dict[tuple[str, Criticality], Histogram]:
        """How long what was done took, in microseconds, by operation and class."""
        return {
            of: Histogram(TOOK_US_BOUNDS, tuple(counts.counts), counts.total_us)
            for of, counts in self._took.items()
        }

    def _count_refusal(self, member: Criticality, decision: Decision) -> None:
        reason = "" if decision.reason is None else decision.reason.name
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        refused = (reason, member)
        self._refusals[refused] = self._refusals.get(refused, 0) + 1

    def _account(self, caller: str) -> CallerAccount:
        account = self._accounts.get(caller)
        if account is None:
            if len(self._accounts) >= self.callers_max:
                return self._others
            account = self._accounts[caller] = CallerAccount()
        return account


def _used(account: CallerAccount) -> CallerTotals:
    return CallerTotals(
        account.mru, account.admitted, account.refused, account.refused_mru, account.cached
    )
