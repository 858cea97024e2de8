"""Groups: several charges at once, all or nothing."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from sluicegate.contracts.rule import Limit
from sluicegate.contracts.store import Charge
from sluicegate.testing.chance import SeededChance
from sluicegate.testing.stores.cases import DAILY, LIMITS, each_algorithm
from sluicegate.testing.stores.stage import StoreStage, StoreTrial
from sluicegate.testing.stores.takes import cost_drawn

GROUP_MAX = 4
WALK_GAP_US_MAX = 3_000


class Groups(StoreStage):
    """Stories of `take` on several charges."""

    def keys(self) -> str:
        """Return the keys that stand in one group."""
        return "ab" if self.one_instant else "a"

    def test_a_walk_of_groups_is_decided_as_the_kernels_decide(self) -> None:
        async def story(trial: StoreTrial) -> None:
            chance, keys = SeededChance(4), self.keys()
            for _ in range(4 * self.walk_asks):
                if chance.draw() < 0.3:
                    await trial.pass_time(int(chance.draw() * WALK_GAP_US_MAX))
                group = [
                    _drawn(trial, chance, keys) for _ in range(1 + int(chance.draw() * GROUP_MAX))
                ]
                await trial.take(
                    *group, keep=chance.draw() < 0.9, count_refused=chance.draw() < 0.2
                )

        self.tell(story)

    @each_algorithm
    def test_a_group_that_one_limit_refuses_takes_nothing_from_the_others(
        self, limit: Limit
    ) -> None:
        async def story(trial: StoreTrial) -> None:
            narrow = trial.charge(limit, name="narrow")
            await trial.take(narrow._replace(cost=5))
            wide = [trial.charge(one, name=f"wide {place}") for place, one in enumerate(DAILY)]
            for place in range(len(wide) + 1):
                ruling = await trial.take(*wide[:place], narrow, *wide[place:])
                assert not ruling.allowed
                assert [bool(one) for one in ruling.decisions].count(False) == 1
            for charge in wide:
                left = (await trial.look(charge._replace(cost=0))).decisions[0].remaining
                assert left == 5, f"{charge.rule_id} has paid for a refused group"

        self.tell(story)

    @each_algorithm
    def test_a_refused_group_is_charged_in_every_limit_if_refusals_count(
        self, limit: Limit
    ) -> None:
        async def story(trial: StoreTrial) -> None:
            narrow, wide = trial.charge(limit, name="narrow"), trial.charge(limit, name="wide")
            await trial.take(narrow._replace(cost=5))
            assert not (await trial.take(narrow, wide, count_refused=True)).allowed
            left = (await trial.look(wide._replace(cost=0))).decisions[0].remaining
            assert left == 4, "what was refused has not been charged where it would fit"
            # A look at a group charges nobody.
            await trial.take(narrow, wide, keep=False, count_refused=True)
            await trial.look(wide)

        self.tell(story)

    @each_algorithm
    def test_a_limit_named_twice_for_one_key_is_one_charge_of_both(self, limit: Limit) -> None:
        async def story(trial: StoreTrial) -> None:
            three, two = trial.charge(limit, cost=3), trial.charge(limit, cost=2)
            assert not (await trial.take(three, three)).allowed, "3 and 3 are more than 5"
            ruling = await trial.take(three, two)
            assert ruling.allowed, "3 and 2 are 5"
            assert [one.remaining for one in ruling.decisions] == [0, 0]
            assert not (await trial.take(trial.charge(limit))).allowed

        self.tell(story)

    def test_the_decisions_of_a_group_stand_in_the_order_of_its_charges(self) -> None:
        async def story(trial: StoreTrial) -> None:
            group = [trial.charge(limit, cost=1 + place % 5) for place, limit in enumerate(DAILY)]
            for one in (group, group[::-1]):
                ruling = await trial.take(*one, keep=False)
                named = [decision.rule_id for decision in ruling.decisions]
                assert named == [charge.rule_id for charge in one]

        self.tell(story)

    def test_charges_of_different_keys_are_all_taken_or_none(self) -> None:
        async def story(trial: StoreTrial) -> None:
            limit = DAILY[0]
            charges = [trial.charge(limit, key, cost=2) for key in ("ann", "ben", "cem", "dee")]
            for _ in range(2):
                ruling = await trial.store.take(charges)
                assert ruling.allowed
            await trial.store.take([trial.charge(limit, "ann")])
            ruling = await trial.store.take([*charges[1:], trial.charge(limit, "ann")])
            assert [bool(decision) for decision in ruling.decisions] == [False] * 4
            # Where keys are kept apart, what is given back may be under way for a moment.
            for key, left in (("ann", 0), ("ben", 1), ("cem", 1), ("dee", 1)):
                await _remains(trial, trial.charge(limit, key, cost=0), left)
            singles = [trial.charge(limit, key) for key in ("ben", "cem", "ann", "dee")]
            ruling = await trial.store.take(singles)
            assert [bool(decision) for decision in ruling.decisions] == [True, True, False, True]
            for key in ("ben", "cem", "dee"):
                await _remains(trial, trial.charge(limit, key, cost=0), 1)

        self.tell(story)


async def _remains(trial: StoreTrial, charge: Charge, left: int, tries: int = 100) -> None:
    for _ in range(1 if trial.stage.one_instant else tries):
        remaining = (await trial.store.take([charge], keep=False)).decisions[0].remaining
        if remaining == left:
            return
        await trial.pass_time(1_000)
    assert remaining == left, f"{charge.key} of {charge.rule_id} has paid for a refused group"


def _drawn(trial: StoreTrial, chance: SeededChance, keys: str) -> Charge:
    limit = LIMITS[int(chance.draw() * len(LIMITS))]
    key = keys[int(chance.draw() * len(keys))]
    cost = cost_drawn(chance, limit) if chance.draw() < 0.5 else 1
    return trial.charge(limit, key, cost)
