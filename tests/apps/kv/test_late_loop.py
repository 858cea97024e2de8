"""What the loop has no time for is shed, though an engine that answers at once has places free."""

from __future__ import annotations

import asyncio

import pytest

from sluicegate.apps.kv.chain import PolicyChain, default_weights
from sluicegate.apps.kv.settings import KvSettings
from sluicegate.apps.kv.usage import CallerUsage
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import SHED
from sluicegate.contracts.request import Request
from sluicegate.policies.leased_budget import LeasedBudget, LeasedBudgetSettings
from sluicegate.policies.queue.queue import QueuePermit
from sluicegate.testing import HandClock, SeededChance

MS = 1_000
PLACES = 64
WORK_US = 10 * MS


class Dispatcher:
    """A chain whose engine answers at once, and a loop that is late."""

    def __init__(self) -> None:
        self.now_us = HandClock().now_us()
        self.chain = PolicyChain(
            KvSettings(),
            SeededChance(1),
            CallerUsage(),
            budget=LeasedBudget(LeasedBudgetSettings(form="live", quota_ru=1_000_000)),
            weights=default_weights(),
            shard_places=PLACES,
        )

    async def bursts(self, count: int) -> None:
        """Have more come at once than can wait, and a pause behind it, so many times."""
        queue = self.chain.queue
        for _ in range(count):
            taken = [
                queue.enter(self.request(Criticality.BULK), self.now_us) for _ in range(4 * PLACES)
            ]
            under_way = [one for one in taken if isinstance(one, QueuePermit)]
            waiting = [one for one in taken if not isinstance(one, QueuePermit | Decision)]
            while under_way:
                self.now_us += WORK_US
                for permit in under_way:
                    permit.end(Outcome.SUCCESS, self.now_us)
                over = [one.future.result() for one in waiting if one.future.done()]
                waiting = [one for one in waiting if not one.future.done()]
                under_way = [one for one in over if isinstance(one, QueuePermit)]
            self.now_us += 10 * WORK_US

    def request(self, member: Criticality) -> Request:
        deadline_us = self.now_us + 500 * MS
        return Request(
            "k", caller="ann", operation="get", criticality=member, deadline_us=deadline_us
        )

    def shed(self, seconds: int, lag_us: int) -> dict[Criticality, int]:
        """How many are shed of 100 of each class a second, while the loop is so late."""
        shed = dict.fromkeys(Criticality, 0)
        for _ in range(seconds * 100):
            self.now_us += 10 * MS
            self.chain.stress.record_loop_lag(lag_us, self.now_us)
            for member in Criticality:
                verdict = self.chain.levels.admit(self.request(member), self.now_us)
                if isinstance(verdict, Decision):
                    assert verdict.reason is SHED
                    shed[member] += 1
                else:
                    permit = self.chain.queue.enter(self.request(member), self.now_us)
                    assert isinstance(permit, QueuePermit)
                    permit.end(Outcome.SUCCESS, self.now_us)
        return shed


@pytest.mark.parametrize("bursts", [0, 20])
def test_while_the_loop_is_late_what_matters_less_is_shed_also_after_bursts(bursts: int) -> None:
    """Nobody was for six seconds, and then 60% of each class at once."""
    dispatcher = Dispatcher()
    asyncio.run(dispatcher.bursts(bursts))
    assert (dispatcher.chain.queue.burst_units > 0) is (bursts > 0)
    shed = dispatcher.shed(2, 100 * MS)
    assert shed[Criticality.BULK] > 100
    assert shed[Criticality.CRITICAL] == 0


def test_a_loop_that_is_in_time_sheds_nobody() -> None:
    dispatcher = Dispatcher()
    asyncio.run(dispatcher.bursts(20))
    assert not any(dispatcher.shed(5, MS).values())
