"""Taking: one charge at a time, looks, refusals that count, and ladders."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from sluicegate.contracts.rule import Limit
from sluicegate.kernels.verdict import NEVER
from sluicegate.testing.chance import SeededChance
from sluicegate.testing.stores.cases import DAILY, each_algorithm, each_limit
from sluicegate.testing.stores.stage import StoreStage, StoreTrial


def cost_drawn(chance: SeededChance, limit: Limit) -> int:
    """Mostly little, sometimes all there is, sometimes more than there can be."""
    most = limit.burst
    costs = (0, 1, 1, 1, 1, 2, 3, max(most // 2, 1), most, most + 1)
    return costs[int(chance.draw() * len(costs))]


class Takes(StoreStage):
    """Stories of `take` and `take_some` on one charge."""

    @each_limit
    def test_a_walk_of_asks_is_decided_as_the_kernel_decides(self, limit: Limit) -> None:
        async def story(trial: StoreTrial) -> None:
            chance, gap_us = SeededChance(1), self.gap_us(limit)
            for _ in range(self.walk_asks):
                if chance.draw() < 0.5:
                    await trial.pass_time(int(chance.draw() * gap_us))
                charge = trial.charge(
                    limit, "ab"[int(chance.draw() * 2)], cost_drawn(chance, limit)
                )
                await trial.take(charge, keep=chance.draw() < 0.8)

        self.tell(story)

    @each_limit
    def test_a_walk_in_which_refusals_count_is_decided_as_the_kernel_decides(
        self, limit: Limit
    ) -> None:
        async def story(trial: StoreTrial) -> None:
            chance, gap_us = SeededChance(2), self.gap_us(limit)
            for _ in range(self.walk_asks):
                if chance.draw() < 0.5:
                    await trial.pass_time(int(chance.draw() * gap_us))
                charge = trial.charge(limit, cost=cost_drawn(chance, limit))
                await trial.take(
                    charge, keep=chance.draw() < 0.9, count_refused=chance.draw() < 0.5
                )

        self.tell(story)

    @each_limit
    def test_a_walk_on_ladders_finds_the_rungs_that_the_kernel_finds(self, limit: Limit) -> None:
        async def story(trial: StoreTrial) -> None:
            chance, gap_us, most = SeededChance(3), self.gap_us(limit), limit.burst
            ladders = (
                (most + 1, most, max(most // 2, 1), 1),
                (3, 2, 1),
                (1,),
                (most,),
                (most + 2, most + 1),
            )
            for _ in range(self.walk_asks):
                if chance.draw() < 0.5:
                    await trial.pass_time(int(chance.draw() * gap_us))
                ladder = ladders[int(chance.draw() * len(ladders))]
                await trial.take_some(trial.charge(limit, cost=9), *ladder)

        self.tell(story)

    @each_limit
    def test_what_was_refused_is_admitted_when_the_refusal_said(self, limit: Limit) -> None:
        async def story(trial: StoreTrial) -> None:
            charge = trial.charge(limit, cost=limit.burst)
            await trial.take(charge)
            ruling = await trial.take(charge)
            for _ in range(100):
                if ruling.allowed or ruling.decisions[0].retry_after_us > 100_000:
                    break
                # Where time is moved by hand this is the last microsecond that is too early.
                await trial.pass_time(ruling.decisions[0].retry_after_us - 1)
                await trial.take(charge, keep=False)
                await trial.pass_time(1)
                ruling = await trial.take(charge)

        self.tell(story)

    @each_algorithm
    def test_looks_take_nothing(self, limit: Limit) -> None:
        async def story(trial: StoreTrial) -> None:
            charge, dear = trial.charge(limit), trial.charge(limit, cost=9)
            group = (charge, trial.charge(limit, name="other"))
            for _ in range(3):
                for asked in ((charge,), (dear,), group, (dear, *group)):
                    await trial.take(*asked, keep=False)
                    await trial.take(*asked, keep=False, count_refused=True)
            first = await trial.take(charge)
            assert first.allowed
            assert first.decisions[0].remaining == 4, "a look has taken something"

        self.tell(story)

    @each_algorithm
    def test_a_cost_of_nothing_is_admitted_and_takes_nothing(self, limit: Limit) -> None:
        async def story(trial: StoreTrial) -> None:
            free, all_of_it = trial.charge(limit, cost=0), trial.charge(limit, cost=5)
            for _ in range(3):
                assert (await trial.take(free)).allowed
            assert (await trial.take(all_of_it)).allowed
            assert (await trial.take(free)).allowed
            assert not (await trial.take(trial.charge(limit))).allowed

        self.tell(story)

    @each_algorithm
    def test_a_cost_above_the_limit_is_never_admitted_and_takes_nothing(self, limit: Limit) -> None:
        async def story(trial: StoreTrial) -> None:
            for cost in (6, 1_000_000, 1 << 53):
                ruling = await trial.take(trial.charge(limit, cost=cost))
                assert ruling.decisions[0].retry_after_us == NEVER
            assert (await trial.take(trial.charge(limit, cost=5))).allowed
            ruling = await trial.take(trial.charge(limit, cost=6))
            assert ruling.decisions[0].retry_after_us == NEVER

        self.tell(story)

    @each_algorithm
    def test_a_refusal_takes_nothing_unless_it_is_to_be_counted(self, limit: Limit) -> None:
        async def story(trial: StoreTrial) -> None:
            await trial.take(trial.charge(limit, cost=3))
            for _ in range(4):
                assert not (await trial.take(trial.charge(limit, cost=4))).allowed
            left = await trial.look(trial.charge(limit, cost=0))
            assert left.decisions[0].remaining == 2, "a refusal has taken something"
            assert not (await trial.take(trial.charge(limit, cost=4), count_refused=True)).allowed
            left = await trial.look(trial.charge(limit))
            assert not left.allowed, "a refusal that counts has taken nothing"
            assert left.decisions[0].remaining == 0

        self.tell(story)

    def test_limits_of_one_key_know_nothing_of_each_other(self) -> None:
        async def story(trial: StoreTrial) -> None:
            for limit in DAILY:
                assert (await trial.take(trial.charge(limit, cost=5))).allowed
            first, second = (trial.charge(DAILY[0], cost=5, name=name) for name in "xy")
            assert (await trial.take(first)).allowed
            assert (await trial.take(second)).allowed

        self.tell(story)
