"""Chain: the policies of a server, in the order of the guide, and what bounds them.

Criticality, request units (whose budget may be a quota, and whose price may be Mussel's), and one
queue and one limit for each shard. The limit is set, or found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from sluicegate.kernels.verdict import Verdict
from sluicegate.lab.hunt.record import HuntRecord, SpendingLimit
from sluicegate.lab.hunt.setup import Setup
from sluicegate.lab.hunt.stage import MS
from sluicegate.lab.world import World
from sluicegate.policies.admission.gate import Gate
from sluicegate.policies.admission.settings import GateSettings
from sluicegate.policies.criticality import CriticalityClamp, CriticalitySettings
from sluicegate.policies.forms.mussel import MusselPrices
from sluicegate.policies.quota.budgets import Budget, TokenBudgets
from sluicegate.policies.quota.leased_budget import LIVE, LeasedBudget, LeasedBudgetSettings
from sluicegate.policies.quota.request_units import RequestUnits, RequestUnitsSettings
from sluicegate.policies.stack import Stack, at_once, waits

REQUEST_BYTES: Final = 1_000


@final
class _RecordedBudget:
    """A budget that records what is charged and what is given back."""

    __slots__ = ("_budget", "_record", "paid_mru")

    def __init__(self, budget: Budget, record: HuntRecord) -> None:
        self._budget = budget
        self._record = record
        self.paid_mru: dict[str, int] = {}

    def charge(self, caller: str, mru: int, now_us: int) -> Verdict:
        verdict = self._budget.charge(caller, mru, now_us)
        if verdict.allowed:
            self._record.spend(f"request units of {caller}", now_us, mru)
            self.paid_mru[caller] = self.paid_mru.get(caller, 0) + mru
        return verdict

    def settle(self, caller: str, mru: int, now_us: int) -> int:
        """Correct a charge; what the budget takes late is bounded by its debt."""
        left_mru = self._budget.settle(caller, mru, now_us)
        self.paid_mru[caller] = self.paid_mru.get(caller, 0) + mru - left_mru
        if mru < 0:
            self._record.spend(f"request units of {caller}", now_us, mru)
        return left_mru

    def payable_mru(self, caller: str, now_us: int) -> int:
        return self._budget.payable_mru(caller, now_us)


@final
class HuntChain:
    """The stack, and each of its policies."""

    def __init__(
        self, world: World, setup: Setup, record: HuntRecord, shards: Sequence[str]
    ) -> None:
        knob = setup.knob
        self.callers = {
            f"{load.name}-{number}": load.allowed
            for load in setup.loads
            for number in range(load.callers)
        }
        self.clamp = CriticalityClamp(CriticalitySettings(callers=self.callers))
        self.prices = MusselPrices()
        self.rate_ru, self.epoch_us = knob("rate_ru", 1_000_000), knob("epoch_ms", 0) * MS
        self.budget = _RecordedBudget(self._new_budget(), record)
        rate_ru = self.rate_ru
        self.units = RequestUnits(
            RequestUnitsSettings(rate_ru=rate_ru, burst_ru=rate_ru, debt_ru=rate_ru),
            budget=self.budget,
            pricing=self.prices if knob("priced", 0) else None,
        )
        self.slots = knob("slots", 0)
        self.length_max = knob("length_max", 1_000)
        self.bytes_max = knob("bytes_max", 16 << 20)
        self.gate = Gate(
            GateSettings(slots=self.slots, length_max=self.length_max, bytes_max=self.bytes_max),
            size_bytes=lambda _: REQUEST_BYTES,
        )
        self.stack = self._stack()
        self._bound(record, shards)

    def _new_budget(self) -> Budget:
        rate_ru = self.rate_ru
        if self.epoch_us:
            return LeasedBudget(
                LeasedBudgetSettings(form=LIVE, quota_ru=rate_ru, epoch_us=self.epoch_us)
            )
        callers_max = RequestUnitsSettings().callers_max
        return TokenBudgets(rate_ru, rate_ru, rate_ru, callers_max=callers_max)

    def _stack(self) -> Stack:
        return Stack(
            at_once("criticality", self.clamp),
            at_once("request units", self.units),
            waits("queue", self.gate),
            observers=[self.prices],
        )

    def _bound(self, record: HuntRecord, shards: Sequence[str]) -> None:
        bounds = record.bounds
        bounds["units in line"] = self.length_max
        bounds["bytes in line"] = self.bytes_max
        if self.slots:
            for shard in shards:
                bounds[f"work in {shard}"] = self.slots
        mru = self.rate_ru * 1_000
        limit = SpendingLimit(float(mru), 2.0 * mru)  # the burst, and the debt
        if self.epoch_us:
            limit = SpendingLimit(mru * 1e6 / self.epoch_us, 3.0 * mru)  # and an epoch's edge
        for caller in self.callers:
            record.limits[f"request units of {caller}"] = limit
