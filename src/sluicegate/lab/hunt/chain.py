"""Chain: the policies of a server, in the order of the guide, and what bounds them.

deadline, criticality, request units (whose budget may be a quota, and whose price may be Mussel's),
shed, queue, bulkhead, with stress as an observer. The knobs choose the form: the queue resized by
an adaptive limit, that limit as a gate with shares, parts that find their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, final

from sluicegate.kernels.verdict import Verdict
from sluicegate.lab.hunt.record import HuntRecord, SpendingLimit
from sluicegate.lab.hunt.setup import Setup
from sluicegate.lab.hunt.stage import MS
from sluicegate.lab.world import World
from sluicegate.policies.budgets import Budget, TokenBudgets
from sluicegate.policies.bulkhead import Bulkhead, BulkheadSettings
from sluicegate.policies.concurrency import AdaptiveSettings, Concurrency, ConcurrencySettings
from sluicegate.policies.criticality import CriticalityClamp, CriticalitySettings
from sluicegate.policies.deadline import Deadline
from sluicegate.policies.forms.mussel import MusselPrices
from sluicegate.policies.leased_budget import LIVE, LeasedBudget, LeasedBudgetSettings
from sluicegate.policies.queue.queue import Queue, QueueSettings
from sluicegate.policies.request_units import RequestUnits, RequestUnitsSettings
from sluicegate.policies.shed import Shed
from sluicegate.policies.stack import Stack, at_once, waits
from sluicegate.policies.stress import Stress

REQUEST_BYTES: Final = 1_000
ALGORITHMS: Final = ("", "vegas", "gradient2", "aimd", "fixed")  # the first: as it is set
CRITICAL_SHARE: Final = 0.5


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
        chance, knob = world.chance, setup.knob
        self.callers = {
            f"{load.name}-{number}": load.allowed
            for load in setup.loads
            for number in range(load.callers)
        }
        self.stress = Stress()
        self.deadline = Deadline()
        self.clamp = CriticalityClamp(CriticalitySettings(callers=self.callers))
        self.shed = Shed(self.stress, chance("shed"))
        self.prices = MusselPrices()
        self.rate_ru, self.epoch_us = knob("rate_ru", 1_000_000), knob("epoch_ms", 0) * MS
        self.budget = _RecordedBudget(self._new_budget(), record)
        rate_ru = self.rate_ru
        self.units = RequestUnits(
            RequestUnitsSettings(rate_ru=rate_ru, burst_ru=rate_ru, debt_ru=rate_ru),
            budget=self.budget,
            pricing=self.prices if knob("priced", 0) else None,
        )
        self.places = knob("places", knob("workers", 8))
        self.length_max = knob("length_max", 1_000)
        self.bytes_max = knob("bytes_max", 16 << 20)
        self.queue = Queue(
            QueueSettings(places=self.places, length_max=self.length_max, bytes_max=self.bytes_max),
            lambda _: REQUEST_BYTES,
        )
        self.pool = knob("pool", 200)
        self.cap = min(knob("cap", 40), self.pool)
        self.parts_adapt = knob("parts_adapt", 0) > 0
        parts = AdaptiveSettings(initial=self.cap, limit_max=self.cap) if self.parts_adapt else None
        self.bulkhead = Bulkhead(
            BulkheadSettings(cap=self.cap, pool=self.pool, adaptive=parts), chance("bulkhead")
        )
        self.adaptive, self.gated = knob("adaptive", 0) > 0, knob("gated", 0) > 0
        self.limit_max = max(4 * self.places, 8)
        number = AdaptiveSettings(initial=self.places, limit_max=self.limit_max)
        algorithm = ALGORITHMS[knob("algorithm", 0) % len(ALGORITHMS)]
        if algorithm:
            number = replace(number, algorithm=algorithm)
        self.gate = Concurrency(
            ConcurrencySettings(
                adaptive=number,
                shares={"CRITICAL": CRITICAL_SHARE},
            ),
            chance("gate"),
        )
        self.stack = self._stack()
        self._bound(record, shards)

    def reshard(self, shards: Sequence[str], cap: int, record: HuntRecord) -> None:
        """Name the parts and their caps anew; what is at work there stays."""
        cap = min(cap, self.pool)
        self.bulkhead.reshard(dict.fromkeys(shards, cap))
        for shard in shards:
            bound = f"work in {shard}"
            record.bounds[bound] = max(record.bounds[bound], cap)

    def _new_budget(self) -> Budget:
        rate_ru = self.rate_ru
        if self.epoch_us:
            return LeasedBudget(
                LeasedBudgetSettings(form=LIVE, quota_ru=rate_ru, epoch_us=self.epoch_us)
            )
        callers_max = RequestUnitsSettings().callers_max
        return TokenBudgets(rate_ru, rate_ru, rate_ru, callers_max=callers_max)

    def _stack(self) -> Stack:
        gates = [at_once("concurrency", self.gate)] if self.gated else []
        return Stack(
            at_once("deadline", self.deadline),
            at_once("criticality", self.clamp),
            at_once("request units", self.units),
            at_once("shed", self.shed),
            waits("queue", self.queue),
            *gates,
            at_once("bulkhead", self.bulkhead),
            observers=[self.stress, self.prices],
        )

    def _bound(self, record: HuntRecord, shards: Sequence[str]) -> None:
        bounds = record.bounds
        bounds["work at once"] = self.limit_max if self.adaptive else self.places
        bounds["places taken"] = bounds["work at once"]
        bounds["past the gate"] = int(self.limit_max * (1 + CRITICAL_SHARE)) + 1
        bounds["units in line"] = self.length_max
        bounds["bytes in line"] = self.bytes_max
        bounds["work in all shards"] = self.pool
        for shard in shards:
            bounds[f"work in {shard}"] = self.cap
        mru = self.rate_ru * 1_000
        limit = SpendingLimit(float(mru), 2.0 * mru)  # the burst, and the debt
        if self.epoch_us:
            limit = SpendingLimit(mru * 1e6 / self.epoch_us, 3.0 * mru)  # and an epoch's edge
        for caller in self.callers:
            record.limits[f"request units of {caller}"] = limit
