"""Stage: how a story is played on a store, and each decision compared with the oracle.

A store decides at an instant of its own clock and says which; the oracle decides at the same
instant, and the two must agree in every field. So a store on real time is held to the microsecond
without anybody knowing the time beforehand.

A settlement alone says no instant. The oracle settles twice, at the last instant known before it
and the first one after; where the two come to the same, so must the store, and where not, the store
must answer between them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.rule import Limit
from sluicegate.contracts.store import Charge, PartialTake, Ruling, Store
from sluicegate.system import SystemChance
from sluicegate.testing.stores.oracle import Oracle

# What walks leave between two asks at most where time is real.
REAL_GAP_US_MAX = 3_000


class StoreStage:
    """What a subclass says of its store. Only `open_store` must be said."""

    # Whether charges of different keys are decided at one instant. Not so on a cluster, where they
    # are kept apart.
    one_instant = True
    # Each walk has so many asks.
    walk_asks = 60

    def open_store(self) -> Store:
        """A store; it is opened on the event loop that will use it, and closed by the suite."""
        raise NotImplementedError("say how your store is opened: def open_store(self)")

    async def pass_time(self, us: int) -> None:
        """Have the store's clock go on by `us` at least; moves it if it is moved by hand."""
        await asyncio.sleep(us / 1e6)

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop to tell stories on."""
        return asyncio.new_event_loop()

    def tell(self, story: Callable[[StoreTrial], Coroutine[Any, Any, None]]) -> None:
        """Tell it of a new store, on a loop of its own."""

        async def play() -> None:
            store = self.open_store()
            try:
                await story(StoreTrial(store, self))
            finally:
                await store.close()

        with asyncio.Runner(loop_factory=self.loop) as runner:
            runner.run(play())

    def by_hand(self) -> bool:
        """Return whether time is moved by hand, so that it costs nothing."""
        return type(self).pass_time is not StoreStage.pass_time

    def gap_us(self, limit: Limit) -> int:
        """Return how long a walk waits at most between two asks."""
        third_us = limit.period_us // 3
        return third_us if self.by_hand() else min(third_us, REAL_GAP_US_MAX)


@final
class StoreTrial:
    """A store and the oracle beside it: what is asked of the one is asked of the other."""

    def __init__(self, store: Store, stage: StoreStage) -> None:
        self.store = store
        self.stage = stage
        self.oracle = Oracle()
        # A store that lasts may still know what it was asked in the last run.
        self._run = f"{int(SystemChance().draw() * 2**48):012x}"

    def charge(self, limit: Limit, key: str = "ann", cost: int = 1, name: str = "") -> Charge:
        """Return a charge whose limit is known by a name that was never used before this run."""
        name = name or f"{limit.algorithm.value} {limit.count}/{limit.period_us}"
        return Charge(f"{name} #{self._run}", limit, key, cost)

    async def take(
        self, *charges: Charge, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        """Take; the store must say what the oracle says."""
        ruling = await self.store.take(list(charges), keep=keep, count_refused=count_refused)
        expected = self.oracle.take(charges, ruling.at_us, keep=keep, count_refused=count_refused)
        assert plainly(ruling.decisions) == plainly(expected)
        return ruling

    async def look(self, *charges: Charge) -> Ruling:
        """Return what `take` would say."""
        return await self.take(*charges, keep=False)

    async def take_some(self, charge: Charge, *ladder: int) -> PartialTake:
        """Take the first rung that fits; the store must find the same one."""
        grant = await self.store.take_some(charge, ladder)
        units, decision = self.oracle.take_some(charge, ladder, grant.at_us)
        assert (grant.units, plain(grant.decision)) == (units, plain(decision))
        return grant

    async def settle(self, *charges: Charge, taken_us: int | None = None) -> list[Decision]:
        """Settle, and see that it came to what it should; what a look at each says now.

        If the instant was not known well enough, the keys begin anew afterwards.
        """
        before_us = min([(await self.look(charge._replace(cost=0))).at_us for charge in charges])
        await self.store.settle(list(charges), taken_us)
        looked = []
        for charge in dict.fromkeys(charge._replace(cost=0) for charge in charges):
            (decision,), at_us = await self._decide(charge)
            mine = [one for one in charges if one._replace(cost=0) == charge]
            early, late = self.oracle.copy(), self.oracle.copy()
            early.settle(mine, before_us, taken_us)
            late.settle(mine, at_us, taken_us)
            (least,), (most,) = (one.take([charge], at_us, keep=False) for one in (early, late))
            if early.state(charge, at_us) == late.state(charge, at_us):
                assert plain(decision) == plain(most)
                self.oracle = late
            else:
                assert_between(decision, least, most)
                await self.reset(charge)
            looked.append(decision)
        return looked

    async def _decide(self, charge: Charge) -> tuple[Sequence[Decision], int]:
        ruling = await self.store.take([charge], keep=False)
        return ruling.decisions, ruling.at_us

    async def reset(self, *charges: Charge) -> None:
        """Forget."""
        await self.store.reset(list(charges))
        self.oracle.reset(charges)

    async def pass_time(self, us: int) -> None:
        """Have time go on."""
        await self.stage.pass_time(us)


def plain(decision: Decision) -> dict[str, object]:
    """Return a decision with all its fields in sight, for the message of an assert."""
    return {
        "allowed": decision.allowed,
        "remaining": decision.remaining,
        "retry_after_us": decision.retry_after_us,
        "reset_after_us": decision.reset_after_us,
        "reason": None if decision.reason is None else decision.reason.name,
        "rule_id": decision.rule_id,
        "degraded": decision.degraded,
        "shadow": decision.shadow,
    }


def plainly(decisions: Sequence[Decision]) -> list[dict[str, object]]:
    """Return each of them."""
    return [plain(decision) for decision in decisions]


def assert_between(decision: Decision, one: Decision, other: Decision) -> None:
    """The answer lies between these two."""
    assert decision.rule_id == one.rule_id
    for field in ("allowed", "remaining", "reset_after_us", "retry_after_us"):
        value = getattr(decision, field)
        least, most = sorted((getattr(one, field), getattr(other, field)))
        assert least <= value <= most, f"{field} of {plain(decision)}, {plain(one)}, {plain(other)}"
