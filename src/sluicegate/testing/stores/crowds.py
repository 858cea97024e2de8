"""Crowds: many tasks at once; whatever order they are heard in, no unit is given out twice."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

import asyncio

from sluicegate.contracts.rule import Limit
from sluicegate.contracts.store import Ruling, Store
from sluicegate.testing.stores.cases import DAY_US, each_algorithm
from sluicegate.testing.stores.stage import StoreStage, StoreTrial

CROWD = 120
SHARE = 40  # of the crowd that may enter


class Crowds(StoreStage):
    """Stories of many asks under way."""

    @each_algorithm
    def test_a_crowd_never_gets_more_than_the_limit(self, limit: Limit) -> None:
        async def story(trial: StoreTrial) -> None:
            charge = trial.charge(_wide(limit))
            rulings = await asyncio.gather(*(trial.store.take([charge]) for _ in range(CROWD)))
            _each_unit_once(rulings)

        self.tell(story)

    @each_algorithm
    def test_a_crowd_of_all_costs_leaves_less_than_the_least_that_was_refused(
        self, limit: Limit
    ) -> None:
        async def story(trial: StoreTrial) -> None:
            charges = [trial.charge(_wide(limit), cost=1 + place % 5) for place in range(CROWD)]
            rulings = await asyncio.gather(*(trial.store.take([charge]) for charge in charges))
            heard = list(zip(charges, rulings, strict=True))
            spent = sum(charge.cost for charge, ruling in heard if ruling.allowed)
            left = SHARE - spent
            assert left >= 0, f"{spent} of {SHARE} were given out"
            look = await trial.store.take([trial.charge(_wide(limit), cost=0)], keep=False)
            assert look.decisions[0].remaining == left
            refused = [charge.cost for charge, ruling in heard if not ruling.allowed]
            assert all(cost > left for cost in refused), "one was refused that would have fit"

        self.tell(story)

    @each_algorithm
    def test_a_crowd_of_groups_takes_as_much_from_one_limit_as_from_the_other(
        self, limit: Limit
    ) -> None:
        async def story(trial: StoreTrial) -> None:
            narrow = trial.charge(_wide(limit), name="narrow")
            wide = trial.charge(_wide(limit, 3 * SHARE), name="wide")
            asked = [[narrow, wide] if place % 3 else [wide] for place in range(CROWD)]
            rulings = await asyncio.gather(*(trial.store.take(group) for group in asked))
            groups = [
                ruling.allowed
                for group, ruling in zip(asked, rulings, strict=True)
                if len(group) == 2
            ]
            assert groups.count(True) == SHARE, "so many fit into the narrow limit"
            singles = len(asked) - len(groups)
            for charge, left in ((narrow, 0), (wide, 3 * SHARE - SHARE - singles)):
                look = await trial.store.take([charge._replace(cost=0)], keep=False)
                assert look.decisions[0].remaining == left, charge.rule_id

        self.tell(story)

    @each_algorithm
    def test_a_crowd_on_ladders_never_gets_more_than_the_limit(self, limit: Limit) -> None:
        async def story(trial: StoreTrial) -> None:
            charge = trial.charge(_wide(limit))
            grants = await asyncio.gather(
                *(trial.store.take_some(charge, (4, 2, 1)) for _ in range(CROWD))
            )
            assert sum(grant.units for grant in grants) == SHARE

        self.tell(story)

    @each_algorithm
    def test_asks_that_are_cancelled_leave_the_others_as_they_are(self, limit: Limit) -> None:
        async def story(trial: StoreTrial) -> None:
            charge = trial.charge(_wide(limit))
            tasks = [asyncio.create_task(_take(trial.store, trial, limit)) for _ in range(20)]
            for place, task in enumerate(tasks):
                if place % 5 == 0:
                    await asyncio.sleep(0)
                if place % 2:
                    task.cancel()
            heard = await asyncio.gather(*tasks, return_exceptions=True)
            admitted = [one for one in heard if isinstance(one, Ruling) and one.allowed]
            assert len(admitted) >= 10, "one was refused because another was cancelled"
            look = await trial.store.take([charge._replace(cost=0)], keep=False)
            left = look.decisions[0].remaining
            # A cancelled ask may have been counted, and one that was heard was.
            assert SHARE - 20 <= left <= SHARE - len(admitted)
            ruling = await trial.store.take([charge._replace(cost=left)])
            assert ruling.allowed
            assert not (await trial.store.take([charge])).allowed

        self.tell(story)


class Shared(StoreStage):
    """Stories of a store whose counts are shared: two that are opened see the same."""

    @each_algorithm
    def test_two_stores_of_one_place_share_their_counts(self, limit: Limit) -> None:
        async def story(trial: StoreTrial) -> None:
            other = self.open_store()
            try:
                charge = trial.charge(_wide(limit))
                stores = [trial.store, other]
                rulings = await asyncio.gather(
                    *(stores[place % 2].take([charge]) for place in range(CROWD))
                )
                _each_unit_once(rulings)
                await other.reset([charge])
                assert (await trial.store.take([charge])).allowed
            finally:
                await other.close()
            assert (await trial.store.take([charge])).allowed, "one close has closed the other"

        self.tell(story)


def _wide(limit: Limit, count: int = SHARE) -> Limit:
    """Such a limit with room for some of the crowd; nothing comes back in the meantime."""
    return Limit(count, period_us=28 * DAY_US, algorithm=limit.algorithm)


async def _take(store: Store, trial: StoreTrial, limit: Limit) -> Ruling:
    return await store.take([trial.charge(_wide(limit))])


def _each_unit_once(rulings: list[Ruling]) -> None:
    left = [ruling.decisions[0].remaining for ruling in rulings if ruling.allowed]
    assert len(left) == SHARE, f"{len(left)} of {SHARE} entered"
    assert sorted(left) == list(range(SHARE)), "a unit was given out twice"
