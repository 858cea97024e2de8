from __future__ import annotations

import asyncio

from sluicegate.apps.limiter.namespaced_store import NamespacedStore
from sluicegate.contracts.rule import Limit
from sluicegate.contracts.store import Charge
from sluicegate.stores.memory.store import MemoryStore
from sluicegate.testing import HandClock

LIMIT = Limit(2, period_us=60_000_000)


def test_what_a_remote_limiter_counts_is_never_what_our_own_rules_count() -> None:
    store = MemoryStore(HandClock().now_us)
    remote = NamespacedStore(store)
    ours, theirs = Charge("login", LIMIT, "ann"), Charge("login", LIMIT, "ann")

    async def story() -> None:
        for _ in range(2):
            assert (await remote.take([theirs])).allowed
        refused = await remote.take([theirs])
        assert not refused.allowed
        assert refused.decisions[0].rule_id == "login"
        assert (await store.take([ours])).allowed
        await remote.reset([theirs])
        assert (await store.take([ours])).allowed
        assert not (await store.take([ours])).allowed
        grant = await remote.take_some(theirs, [5, 2, 1])
        assert (grant.units, grant.decision.rule_id) == (2, "login")
        await remote.settle([Charge("login", LIMIT, "ann", -1)])
        assert (await remote.take([theirs])).allowed

    asyncio.run(story())
