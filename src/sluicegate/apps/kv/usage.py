"""Usage: what each caller has used of this dispatcher since it started.

An observer of the stack, on the way of every request. `rollups.py` stores it for longer. Callers
beyond `callers_max` are counted together, as `OTHERS`.
"""

from __future__ import annotations

from typing import Final, NamedTuple, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request

OTHERS: Final = "(others)"


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
class CallerUsage:
    """Counts by caller, and refusals by reason."""

    __slots__ = ("_accounts", "_engine", "_others", "callers_max", "reasons")

    def __init__(self, callers_max: int = 10_000) -> None:
        self.callers_max = callers_max
        self._accounts: dict[str, CallerAccount] = {}
        self._others = CallerAccount()
        self.reasons: dict[str, int] = {}
        self._engine: dict[str, EngineTotals] = {}

    def record_refusal(self, request: Request, stage: str, decision: Decision, now_us: int) -> None:
        """It may not enter."""
        account = self._account(request.caller)
        account.refused += 1
        account.refused_mru += request.cost_mru
        reason = "" if decision.reason is None else decision.reason.name
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def refuse_cached(self, caller: str, decision: Decision) -> None:
        """It was not even given what is in memory."""
        self._account(caller).refused += 1
        reason = "" if decision.reason is None else decision.reason.name
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def record_end(self, request: Request, outcome: Outcome, now_us: int) -> None:
        """It was done, or was lost on the way."""
        account = self._account(request.caller)
        account.admitted += 1
        account.mru += request.cost_mru
        totals = self._engine.get(request.operation)
        if totals is None:  # there are few operations, all of them ours
            totals = self._engine[request.operation] = EngineTotals()
        if outcome is Outcome.SUCCESS:
            totals.done += 1
            if request.measured is not None:
                totals.service_us += request.measured.service_us
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
