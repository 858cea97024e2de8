"""Quota capture: what callers asked of their budgets, kept so that quotas can be tried on it.

Stands before the budget that request units are charged to, and hands everything on. What was
charged, and what was corrected afterwards, goes as a check into the capture that the limiter has
too (`shadow/capture`): a thread writes it, nothing waits, and what does not fit is counted as lost.

Names of callers and tables are kept as they are, since quotas are set by name; keys and values are
not kept at all.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.apps.kv.settings import KvSettings
from sluicegate.apps.kv.tables.jobs import KEEPER
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT, QUOTA_SPENT
from sluicegate.contracts.request import Request
from sluicegate.kernels.token_bucket import PRICE_ONE_MILLI
from sluicegate.kernels.verdict import Verdict
from sluicegate.policies.quota.budgets import Budget, Pricing
from sluicegate.shadow.capture.recorder import Capture
from sluicegate.shadow.capture.settings import CaptureSettings
from sluicegate.shadow.quota_asks import charge_of, settlement_of
from sluicegate.shadow.traffic import ALL

_FOR_QUOTA: Final = (COST_ABOVE_LIMIT, QUOTA_SPENT)


@final
class CapturedBudget:
    """A budget that is captured.

    It is asked for the penalty of a request just before that is charged, which is how it knows
    what a charge is for. Refusals come from `admission.py`, once they stand: a request may wait
    for a block of its quota and be charged again, and what an earlier estimate left is charged
    with the next that is admitted, so it is no part of what a refused one asks.
    """

    __slots__ = ("_budget", "_capture", "_penalties", "_request")

    def __init__(self, budget: Budget, capture: Capture) -> None:
        self._budget = budget
        self._capture = capture
        self._penalties: Pricing | None = None
        self._request: Request | None = None

    def penalize(self, penalties: Pricing | None) -> None:
        """Multiply prices by these; the request units ask the capture, which asks them."""
        self._penalties = penalties

    def price_milli(self, request: Request, now_us: int) -> int:
        """The penalty of a request that is about to be charged."""
        self._request = request
        if self._penalties is None:
            return PRICE_ONE_MILLI
        return self._penalties.price_milli(request, now_us)

    def charge(self, caller: str, mru: int, now_us: int) -> Verdict:
        """Charge, and note it."""
        verdict = self._budget.charge(caller, mru, now_us)
        request, self._request = self._request, None
        if verdict.allowed and caller != KEEPER:  # which has no quota
            self._capture.note_check(charge_of(caller, mru, request), now_us, False)
        return verdict

    def refuse(self, request: Request, decision: Decision, now_us: int) -> None:
        """Note a refusal for a quota, with what the request was estimated at by itself."""
        if decision.reason in _FOR_QUOTA and request.caller != KEEPER:
            mru = -(-request.cost_mru * request.price_milli // PRICE_ONE_MILLI)
            self._capture.note_check(charge_of(request.caller, mru, request), now_us, True)

    def refuse_cached(self, caller: str, mru: int, now_us: int) -> None:
        """Note one of an answer from memory."""
        if caller != KEEPER:
            self._capture.note_check(charge_of(caller, mru, None), now_us, True)

    def settle(self, caller: str, mru: int, now_us: int) -> int:
        """Correct, and note what was taken."""
        left_mru = self._budget.settle(caller, mru, now_us)
        if caller != KEEPER and mru != left_mru:
            self._capture.note_check(settlement_of(caller, mru - left_mru), now_us, False)
        return left_mru

    def payable_mru(self, caller: str, now_us: int) -> int:
        """As the budget says."""
        return self._budget.payable_mru(caller, now_us)


def open_capture(settings: KvSettings, clock: Clock) -> Capture | None:
    """The capture that is set, if one is."""
    if not settings.capture:
        return None
    bounds = CaptureSettings(
        folder=settings.capture,
        share=round(settings.capture_share * ALL),
        retain_bytes=settings.capture_bytes_max,
        redact=False,  # quotas are set by name, and no key or value is kept
    )
    return Capture(bounds, clock=clock)
