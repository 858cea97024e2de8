"""Ends: a closed store, and limits that it cannot keep."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.contracts.store import Charge, Store
from sluicegate.testing.stores.cases import DAILY
from sluicegate.testing.stores.stage import StoreStage, StoreTrial

OPERATIONS: dict[str, Callable[[Store, Charge], Awaitable[object]]] = {
    "take": lambda store, charge: store.take([charge]),
    "look": lambda store, charge: store.take([charge], keep=False),
    "group": lambda store, charge: store.take([charge, charge], count_refused=True),
    "take_some": lambda store, charge: store.take_some(charge, (2, 1)),
    "settle": lambda store, charge: store.settle([charge._replace(cost=-1)]),
    "reset": lambda store, charge: store.reset([charge]),
}
# More than a store may be able to count exactly.
EXTREMES = (
    *(Limit(1 << 53, period_us=1 << 53, algorithm=one) for one in Algorithm),
    *(Limit(1 << 53, period_us=1, algorithm=one) for one in Algorithm),
    *(Limit(1, period_us=1 << 53, algorithm=one) for one in Algorithm),
    Limit((1 << 53) - 1, period_us=86_400_000_000, burst=3),
    Limit(100_000, period_us=1_000_000, algorithm=Algorithm.SLIDING_LOG),
    Limit(1_000, period_us=1_000_000, cells=1_000, algorithm=Algorithm.SLIDING_WINDOW),
)


class Ends(StoreStage):
    """Stories of what a store says when it can no more, or never could."""

    @pytest.mark.parametrize("operation", OPERATIONS)
    def test_a_closed_store_is_unavailable(self, operation: str) -> None:
        async def story(trial: StoreTrial) -> None:
            charge = trial.charge(DAILY[0])
            await trial.take(charge)
            await trial.store.close()
            with pytest.raises(Unavailable):
                await OPERATIONS[operation](trial.store, charge)

        self.tell(story)

    def test_a_store_that_was_never_asked_can_be_closed_twice(self) -> None:
        async def story(trial: StoreTrial) -> None:
            await trial.store.close()

        self.tell(story)

    @pytest.mark.parametrize(
        "limit", EXTREMES, ids=lambda one: f"{one.algorithm.value}-{one.count}-{one.period_us}us"
    )
    def test_an_extreme_limit_is_kept_exactly_or_is_a_bad_value(self, limit: Limit) -> None:
        async def story(trial: StoreTrial) -> None:
            good = trial.charge(DAILY[0])
            try:
                for cost in (1, 2, limit.burst // 2 + 1, limit.burst, 1, 0):
                    await trial.take(trial.charge(limit, cost=cost))
                    await trial.take(trial.charge(limit, cost=cost), count_refused=True)
                await trial.take_some(trial.charge(limit), limit.burst, 3, 1)
                await trial.settle(trial.charge(limit, cost=-limit.burst))
                await trial.settle(trial.charge(limit, cost=limit.burst))
            except BadValue:
                # Then it takes nothing from those that are named beside it.
                with pytest.raises(BadValue):
                    await trial.store.take([good, trial.charge(limit)])
                left = await trial.look(good._replace(cost=0))
                assert left.decisions[0].remaining == good.limit.burst

        self.tell(story)
