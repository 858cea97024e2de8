"""Leases under asyncio: who fills a block may be cancelled, stuck, or of a loop that has ended."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Sequence

import pytest

from sluicegate import Limiter, Rule
from sluicegate.contracts.store import Charge, PartialTake, Ruling
from sluicegate.limits.lease import FILL_US_MAX
from sluicegate.limits.remote_keys import RemoteKeys
from sluicegate.limits.stores import SWEEP_S
from sluicegate.limits.task_ticket import TaskTicket
from sluicegate.stores.memory.store import MemoryStore
from sluicegate.system import now_us
from sluicegate.testing import HandClock


class GatedStore:
    """One store for all loops; a fill waits at the gate while it is shut."""

    def __init__(self) -> None:
        self.inner = MemoryStore(now_us)
        self.gate: asyncio.Event | None = None
        self.fills = 0
        self.settled: list[int] = []

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        return await self.inner.take(charges, keep=keep, count_refused=count_refused)

    async def take_some(self, charge: Charge, ladder: Sequence[int]) -> PartialTake:
        self.fills += 1
        if self.gate is not None:
            await self.gate.wait()
        return await self.inner.take_some(charge, ladder)

    async def settle(self, charges: Sequence[Charge], taken_us: int | None = None) -> None:
        self.settled += [charge.cost for charge in charges]
        await self.inner.settle(charges, taken_us)

    async def reset(self, charges: Sequence[Charge]) -> None:
        await self.inner.reset(charges)

    async def close(self) -> None:
        """It is shared: the test ends it."""


def leasing(store: GatedStore, **settings: object) -> Limiter:
    rule = Rule("1000/hour", lease=100, failure="closed")
    return Limiter(rule, open_store=lambda: store, **settings)  # type: ignore[arg-type]


def test_one_who_fills_and_is_cancelled_degrades_nobody() -> None:
    store = GatedStore()
    limiter = leasing(store)

    async def story() -> None:
        store.gate = asyncio.Event()
        first = asyncio.create_task(limiter.atake("a"))
        await asyncio.sleep(0)
        others = [asyncio.create_task(limiter.atake("a")) for _ in range(5)]
        await asyncio.sleep(0)
        first.cancel()
        store.gate.set()
        decisions = await asyncio.gather(*others)
        assert all(decision.allowed and not decision.degraded for decision in decisions)
        with pytest.raises(asyncio.CancelledError):
            await first
        await limiter.aclose()

    asyncio.run(story())
    assert store.fills == 2


def test_one_who_fills_and_never_ends_is_given_up() -> None:
    store = GatedStore()
    clock = HandClock()
    limiter = leasing(store, clock=clock)

    async def story() -> None:
        store.gate = asyncio.Event()
        stuck = asyncio.create_task(limiter.atake("a"))
        await asyncio.sleep(0)
        store.gate = None
        clock.advance(us=FILL_US_MAX)
        async with asyncio.timeout(60):
            assert await limiter.atake("a")
        stuck.cancel()

    asyncio.run(story())


def test_waking_the_task_of_a_loop_that_has_ended_harms_nobody() -> None:
    async def stand() -> tuple[TaskTicket, asyncio.AbstractEventLoop]:
        return TaskTicket(), asyncio.get_running_loop()

    ticket, loop = asyncio.run(stand())
    ticket.wake()
    assert loop.is_closed()


def test_idle_blocks_go_back_in_a_second_loop_as_in_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sluicegate.limits.stores.SWEEP_S", 0.01)
    store = GatedStore()
    limiter = leasing(store)

    async def story() -> None:
        assert await limiter.atake("a")

    async def patient() -> None:
        assert await limiter.atake("b")
        async with asyncio.timeout(60):
            while not store.settled:
                await asyncio.sleep(0.01)

    asyncio.run(story())  # it ends before its sweep is due, and nobody closes the limiter
    assert not store.settled
    asyncio.run(patient())
    assert store.settled


def test_a_loop_that_ends_when_a_sweep_is_due_leaves_nothing_behind() -> None:
    limiter = leasing(GatedStore())
    loop = asyncio.new_event_loop()
    ahead_s = [0.0]
    real_time = loop.time
    loop.time = lambda: real_time() + ahead_s[0]  # type: ignore[method-assign]

    async def story() -> None:
        assert await limiter.atake("a")

    async def late() -> None:
        ahead_s[0] = 10 * SWEEP_S

    async def cancel_others() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    loop.run_until_complete(story())
    loop.run_until_complete(cancel_others())
    loop.run_until_complete(late())
    loop.close()
    # A coroutine that was begun and never run is a warning, and so an error.
    gc.collect()


def test_a_thread_that_waits_for_a_fill_waits_a_bounded_time() -> None:
    store = GatedStore()
    limiter = leasing(store)
    keys = limiter.keys_of(None)
    assert isinstance(keys, RemoteKeys)
    assert keys._leases is not None
    block = keys._leases.block_for("a", now_us())
    assert block is not None
    block.filling = True
    block.filling_us = now_us()  # by somebody who is gone
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(limiter.take("a").allowed), daemon=True)
    thread.start()
    thread.join(60)
    limiter.close()
    assert answers == [True]
