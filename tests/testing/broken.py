"""Stores that break one promise each, as their authors might; the suite must tell them all.

Each is the memory store with one thing changed. Each says which stories must tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.contracts.store import Charge, Key, PartialTake, Ruling, Store
from sluicegate.stores.memory.store import MemoryStore
from sluicegate.system import SystemClock
from sluicegate.testing import HandClock
from sluicegate.testing.stores import StoreSuite
from sluicegate.testing.stores.crowds import Crowds
from sluicegate.testing.stores.ends import Ends
from sluicegate.testing.stores.groups import Groups
from sluicegate.testing.stores.keys import Keys
from sluicegate.testing.stores.settlements import Settlements
from sluicegate.testing.stores.stage import StoreStage
from sluicegate.testing.stores.takes import Takes


class Whole:
    """The memory store, keeping its promises; what a class below changes is all that is wrong."""

    # Who must tell.
    stories: type[StoreStage] = StoreSuite

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.closed = False
        self.memory = MemoryStore(clock.now_us)

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        return await self.memory.take(charges, keep=keep, count_refused=count_refused)

    async def take_some(self, charge: Charge, ladder: Sequence[int]) -> PartialTake:
        return await self.memory.take_some(charge, ladder)

    async def settle(self, charges: Sequence[Charge], taken_us: int | None = None) -> None:
        await self.memory.settle(charges, taken_us)

    async def reset(self, charges: Sequence[Charge]) -> None:
        if self.closed:
            raise Unavailable("the store", "it is closed")
        await self.memory.reset(charges)

    async def close(self) -> None:
        self.closed = True
        await self.memory.close()


class OnRealTime(StoreStage):
    """How those are opened that break a promise on any clock."""

    kind: type[Whole] = Whole

    def open_store(self) -> Store:
        return self.kind(SystemClock())


class OnHand(StoreStage):
    """How any of them is opened."""

    kind: type[Whole] = Whole

    def open_store(self) -> Store:
        self.clock = HandClock()
        return self.kind(self.clock)

    async def pass_time(self, us: int) -> None:
        self.clock.advance(us=us)


def changed(decision: Decision, **fields: int) -> Decision:
    return Decision(
        decision.allowed,
        fields.get("remaining", decision.remaining),
        fields.get("retry_after_us", decision.retry_after_us),
        fields.get("reset_after_us", decision.reset_after_us),
        decision.reason,
        decision.rule_id,
    )


class OneTooMany(Whole):
    """Limits of three units and more have one unit more."""

    stories = Takes

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        wider = []
        for charge in charges:
            limit = charge.limit
            if limit.algorithm is Algorithm.FIXED_WINDOW and limit.count >= 3:
                limit = Limit(limit.count + 1, period_us=limit.period_us, algorithm=limit.algorithm)
            wider.append(charge._replace(limit=limit))
        return await super().take(wider, keep=keep, count_refused=count_refused)


class PartialGroups(Whole):
    """A group is taken one by one, up to the first that refuses."""

    stories = Groups

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        ruling = await super().take(charges, keep=False)
        if keep:
            for charge in charges:
                if not (await super().take([charge], count_refused=count_refused)).allowed:
                    break
        return ruling


class ForgetsCost(Whole):
    """What is taken beside others is taken once, whatever it costs."""

    stories = Groups

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        if len(charges) > 1:
            charges = [charge._replace(cost=min(charge.cost, 1)) for charge in charges]
        return await super().take(charges, keep=keep, count_refused=count_refused)


class AMicrosecondEarly(Whole):
    """Decides as it will a microsecond later."""

    stories = Takes

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        assert isinstance(self.clock, HandClock)
        self.clock.advance(us=1)
        ruling = await super().take(charges, keep=keep, count_refused=count_refused)
        self.clock.go_back(us=1)
        return ruling._replace(at_us=ruling.at_us - 1)


class LooksTake(Whole):
    """A look takes what it looks for."""

    stories = Takes

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        return await super().take(charges, count_refused=count_refused)


class LooksCountRefusals(Whole):
    """A refused look is charged, if refusals are."""

    stories = Takes

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        ruling = await super().take(charges, keep=keep, count_refused=count_refused)
        if not keep and count_refused and not ruling.allowed:
            await super().settle(charges)
        return ruling


class RefusalsAreFree(Whole):
    """What is refused is never counted."""

    stories = Takes

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        return await super().take(charges, keep=keep)


class RefusalsCostTheRefuser(Whole):
    """Of a refused group, only who refused is charged."""

    stories = Groups

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        ruling = await super().take(charges, keep=keep)
        if keep and count_refused:
            pairs = zip(charges, ruling.decisions, strict=True)
            await super().settle([charge for charge, decision in pairs if not decision])
        return ruling


class TwiceIsEach(Whole):
    """A limit named twice is asked twice, each time for its own cost."""

    stories = Groups

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        if len({charge[::2] for charge in charges}) == len(charges):
            return await super().take(charges, keep=keep, count_refused=count_refused)
        decisions: list[Decision] = []
        for charge in charges:
            ruling = await super().take([charge], keep=keep, count_refused=count_refused)
            decisions += ruling.decisions
        return ruling._replace(decisions=decisions)


class TwiceIsTheLast(Whole):
    """Of a limit named twice, the last cost is taken."""

    stories = Groups

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        last = {(charge.rule_id, charge.key): charge for charge in charges}
        ruling = await super().take([*last.values()], keep=keep, count_refused=count_refused)
        by_charge = dict(zip(last, ruling.decisions, strict=True))
        return ruling._replace(decisions=[by_charge[one.rule_id, one.key] for one in charges])


class OutOfOrder(Whole):
    """The decisions of a group stand in the order of their limits' names."""

    stories = Groups

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        return await super().take(
            sorted(charges, key=lambda charge: charge.rule_id),
            keep=keep,
            count_refused=count_refused,
        )


class RetriesRounded(Whole):
    """Waits are told in whole milliseconds."""

    stories = Takes

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        ruling = await super().take(charges, keep=keep, count_refused=count_refused)
        decisions = [
            changed(one, retry_after_us=-(-one.retry_after_us // 1_000) * 1_000)
            if one.retry_after_us > 0
            else one
            for one in ruling.decisions
        ]
        return ruling._replace(decisions=decisions)


class RemainingOfBefore(Whole):
    """What remains is told as it was before."""

    stories = Takes

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        before = await super().take([charge._replace(cost=0) for charge in charges], keep=False)
        ruling = await super().take(charges, keep=keep, count_refused=count_refused)
        decisions = [
            changed(one, remaining=before.remaining)
            for one, before in zip(ruling.decisions, before.decisions, strict=True)
        ]
        return ruling._replace(decisions=decisions)


class KeysWithoutCase(Whole):
    """Keys are compared as some databases do."""

    stories = Keys

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        folded = [charge._replace(key=str(charge.key).casefold()) for charge in charges]
        return await super().take(folded, keep=keep, count_refused=count_refused)


class KeysCutShort(Whole):
    """Only the beginning of a key is kept."""

    stories = Keys

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        short = [charge._replace(key=str(charge.key)[:4_095]) for charge in charges]
        return await super().take(short, keep=keep, count_refused=count_refused)


class NamesRunTogether(Whole):
    """A limit's name and a key are glued by a colon that either may hold."""

    stories = Keys

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        glued = [one._replace(rule_id="", key=f"{one.rule_id}:{one.key}") for one in charges]
        ruling = await super().take(glued, keep=keep, count_refused=count_refused)
        decisions = [
            Decision(*decision._fields()[:4], decision.reason, charge.rule_id)
            for charge, decision in zip(charges, ruling.decisions, strict=True)
        ]
        return ruling._replace(decisions=decisions)


class LaddersSkipARung(Whole):
    """The second rung is never tried."""

    stories = Takes

    async def take_some(self, charge: Charge, ladder: Sequence[int]) -> PartialTake:
        return await super().take_some(charge, [*ladder[:1], *ladder[2:]])


class LaddersTakeWhatIsLeft(Whole):
    """What no rung asks for is taken."""

    stories = Takes

    async def take_some(self, charge: Charge, ladder: Sequence[int]) -> PartialTake:
        look = await super().take([charge._replace(cost=0)], keep=False)
        left = look.decisions[0].remaining
        return await super().take_some(charge, [left] if left else ladder)


class SettlesForwards(Whole):
    """What is given back is given to whoever counts now."""

    stories = Settlements

    async def settle(self, charges: Sequence[Charge], taken_us: int | None = None) -> None:
        await super().settle(charges)


class SettlesOne(Whole):
    """Only the first of several is settled."""

    stories = Settlements

    async def settle(self, charges: Sequence[Charge], taken_us: int | None = None) -> None:
        await super().settle(charges[:1], taken_us)


class GivesBackOnly(Whole):
    """More is never charged."""

    stories = Settlements

    async def settle(self, charges: Sequence[Charge], taken_us: int | None = None) -> None:
        await super().settle([one for one in charges if one.cost < 0], taken_us)


class ResetsEveryLimit(Whole):
    """A reset forgets the key under every limit."""

    stories = Settlements

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.charges_by_key: dict[Key, set[Charge]] = {}

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        for charge in charges:
            self.charges_by_key.setdefault(charge.key, set()).add(charge)
        return await super().take(charges, keep=keep, count_refused=count_refused)

    async def reset(self, charges: Sequence[Charge]) -> None:
        for charge in charges:
            await super().reset([charge, *self.charges_by_key.get(charge.key, ())])


class LooksThenTakes(Whole):
    """Others may come between the look and the take."""

    stories = Crowds

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        ruling = await super().take(charges, keep=False)
        if not ruling.allowed or not keep:
            return await super().take(charges, keep=keep, count_refused=count_refused)
        await asyncio.sleep(0)
        await super().settle(charges)
        return ruling


class BreaksWhenCancelled(Whole):
    """Who is cancelled takes the whole store along."""

    stories = Crowds

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            await self.close()
            raise
        return await super().take(charges, keep=keep, count_refused=count_refused)


class OpenForEver(Whole):
    """It goes on after it was closed."""

    stories = Ends

    async def close(self) -> None:
        self.memory = MemoryStore(self.clock.now_us)


BROKEN = (
    OneTooMany,
    PartialGroups,
    ForgetsCost,
    AMicrosecondEarly,
    LooksTake,
    LooksCountRefusals,
    RefusalsAreFree,
    RefusalsCostTheRefuser,
    TwiceIsEach,
    TwiceIsTheLast,
    OutOfOrder,
    RetriesRounded,
    RemainingOfBefore,
    KeysWithoutCase,
    KeysCutShort,
    NamesRunTogether,
    LaddersSkipARung,
    LaddersTakeWhatIsLeft,
    SettlesForwards,
    SettlesOne,
    GivesBackOnly,
    ResetsEveryLimit,
    LooksThenTakes,
    BreaksWhenCancelled,
    OpenForEver,
)
BROKEN_ON_REAL_TIME = (OneTooMany, RetriesRounded, SettlesOne, GivesBackOnly, PartialGroups)
