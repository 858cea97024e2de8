"""Settling: charging more, giving back, and forgetting, after the fact."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from sluicegate.contracts.rule import Limit
from sluicegate.testing.chance import SeededChance
from sluicegate.testing.stores.cases import DAILY, each_algorithm, each_limit
from sluicegate.testing.stores.stage import StoreStage, StoreTrial


class Settlements(StoreStage):
    """Stories of `settle` and `reset`."""

    @each_limit
    def test_a_walk_with_settlements_is_decided_as_the_kernel_decides(self, limit: Limit) -> None:
        async def story(trial: StoreTrial) -> None:
            chance, gap_us = SeededChance(5), self.gap_us(limit)
            taken: list[tuple[int, int]] = []
            for _ in range(self.walk_asks):
                if chance.draw() < 0.4:
                    await trial.pass_time(int(chance.draw() * gap_us))
                if chance.draw() < 0.6 or not taken:
                    cost = 1 + int(chance.draw() * max(limit.burst // 2, 1))
                    ruling = await trial.take(trial.charge(limit, cost=cost))
                    taken.append((ruling.at_us, cost))
                    continue
                taken_us, cost = taken[int(chance.draw() * len(taken))]
                correction = int((3 * chance.draw() - 2) * cost)
                late = chance.draw() < 0.7
                charge = trial.charge(limit, cost=correction)
                await trial.settle(charge, taken_us=taken_us if late else None)

        self.tell(story)

    @each_algorithm
    def test_what_is_given_back_can_be_taken_again(self, limit: Limit) -> None:
        async def story(trial: StoreTrial) -> None:
            taken = await trial.take(trial.charge(limit, cost=5))
            await trial.settle(trial.charge(limit, cost=-2), taken_us=taken.at_us)
            ruling = await trial.look(trial.charge(limit, cost=2))
            assert ruling.allowed, "what was given back is still taken"
            assert not (await trial.look(trial.charge(limit, cost=3))).allowed

        self.tell(story)

    @each_algorithm
    def test_a_limit_is_never_fuller_than_full(self, limit: Limit) -> None:
        async def story(trial: StoreTrial) -> None:
            await trial.settle(trial.charge(limit, cost=-3))
            taken = await trial.take(trial.charge(limit, cost=2))
            await trial.settle(trial.charge(limit, cost=-50), taken_us=taken.at_us)
            ruling = await trial.take(trial.charge(limit, cost=6))
            assert not ruling.allowed
            assert ruling.decisions[0].remaining == 5

        self.tell(story)

    @each_algorithm
    def test_more_is_charged_as_far_as_the_limit_can_hold_it(self, limit: Limit) -> None:
        async def story(trial: StoreTrial) -> None:
            taken_us = (await trial.take(trial.charge(limit))).at_us
            more = trial.charge(limit, cost=2)
            (looked,) = await trial.settle(more, taken_us=taken_us)
            assert looked.remaining == 2, "more was to be charged"
            for far_too_much in (1_000_000, 1 << 53):
                more = trial.charge(limit, f"by {far_too_much}", far_too_much)
                for known_us in (taken_us, None):
                    (looked,) = await trial.settle(more, taken_us=known_us)
                    assert looked.remaining == 0, "more was to be charged"

        self.tell(story)

    @each_limit
    def test_what_is_settled_later_is_settled_as_the_kernel_settles(self, limit: Limit) -> None:
        async def story(trial: StoreTrial) -> None:
            if limit.period_us > 100_000 and not self.by_hand():
                return  # it would have to be waited for
            corrections = [
                trial.charge(limit, f"by {correction}", correction)
                for correction in (-1, -limit.burst, 1, limit.burst)
            ]
            full = [charge._replace(cost=limit.burst) for charge in corrections]
            taken_us = [(await trial.take(charge)).at_us for charge in full]
            # In the same window or the next, in the one after that, and long after.
            for wait_us in (limit.period_us // 2, limit.period_us, 2 * limit.period_us):
                await trial.pass_time(wait_us)
                for charge, all_of_it, then_us in zip(corrections, full, taken_us, strict=True):
                    await trial.take(all_of_it)
                    await trial.settle(charge, taken_us=then_us)
                    await trial.look(all_of_it)

        self.tell(story)

    def test_several_charges_are_settled_each_by_its_own_cost(self) -> None:
        async def story(trial: StoreTrial) -> None:
            group = [trial.charge(limit, cost=3) for limit in DAILY]
            taken = await trial.take(*group)
            corrections = [
                charge._replace(cost=(-2, -1, 0, 1, 2, -3)[place % 6])
                for place, charge in enumerate(group)
            ]
            looked = await trial.settle(*corrections, taken_us=taken.at_us)
            for charge, decision in zip(corrections, looked, strict=True):
                left = decision.remaining
                assert left == 2 - charge.cost, f"{charge.rule_id} was settled by another cost"

        self.tell(story)

    @each_algorithm
    def test_reset_forgets_one_key_of_one_limit(self, limit: Limit) -> None:
        async def story(trial: StoreTrial) -> None:
            ann, ben = trial.charge(limit, cost=5), trial.charge(limit, "ben", cost=5)
            other = trial.charge(limit, cost=5, name="other")
            for charge in (ann, ben, other):
                await trial.take(charge)
            await trial.reset(ann._replace(cost=0))
            for charge, admitted in ((ann, True), (ben, False), (other, False)):
                ruling = await trial.look(charge)
                assert ruling.allowed is admitted, f"{charge.key} of {charge.rule_id}"
            await trial.reset(ann, ben, other, trial.charge(limit, "never seen"))
            for charge in (ann, ben, other):
                assert (await trial.take(charge)).allowed

        self.tell(story)
