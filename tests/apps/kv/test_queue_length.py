"""The queue of a dispatcher holds as many requests as `--queue-length` says."""

from __future__ import annotations

import asyncio

import pytest

from sluicegate.apps.kv.chain import PolicyChain, default_weights
from sluicegate.apps.kv.quotas import Quotas
from sluicegate.apps.kv.settings import KvSettings
from sluicegate.apps.kv.usage import CallerUsage
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.reasons import QUEUE_FULL
from sluicegate.contracts.request import Request
from sluicegate.testing import HandClock, SeededChance


@pytest.mark.parametrize("policy", ["layers", "mussel", "none"])
def test_request_beyond_queue_length_is_rejected(policy: str) -> None:
    async def story() -> None:
        clock, settings = HandClock(), KvSettings(policy=policy, slots=1, queue_length=2)
        quotas = Quotas(settings, 0, clock, SeededChance(1))
        chain = PolicyChain(
            settings, CallerUsage(), budget=quotas.spent_from, weights=default_weights()
        )
        queue = chain.gate or chain.pool
        assert queue is not None
        assert not isinstance(await queue.admit(Request("k"), clock), Decision)
        waiting = [asyncio.ensure_future(queue.admit(Request("k"), clock)) for _ in range(3)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        (decision,) = [one.result() for one in waiting if one.done()]
        assert isinstance(decision, Decision)
        assert decision.reason is QUEUE_FULL
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(story())
