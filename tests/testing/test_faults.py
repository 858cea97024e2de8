from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sluicegate import BadValue, Limit, Limiter, Unavailable
from sluicegate.contracts.store import Charge, Store
from sluicegate.stores.memory.store import MemoryStore
from sluicegate.testing import START_US, Faults, FlakyStore, HandClock, hand_limiter
from sluicegate.testing.stores import StoreSuite

ANN = Charge("login", Limit(5, period_us=60_000_000), "ann")


def run_story(
    story: Callable[[Store, Faults, HandClock], Coroutine[Any, Any, None]],
) -> None:
    """Tell it of a flaky store around a memory store, on a hand clock."""
    clock = HandClock()
    faults = Faults(clock)

    async def whole() -> None:
        store = faults.around(lambda: MemoryStore(clock.now_us))()
        async with asyncio.timeout(60):
            await story(store, faults, clock)
        await store.close()

    asyncio.run(whole())


async def remaining(store: Store) -> int:
    assert isinstance(store, FlakyStore)
    ruling = await store.inner.take([ANN._replace(cost=0)], keep=False)
    return ruling.decisions[0].remaining


class TestWithoutFaults(StoreSuite):
    """A flaky store that was told nothing keeps every promise."""

    def open_store(self) -> Store:
        self.clock = HandClock()
        return FlakyStore(MemoryStore(self.clock.now_us), Faults())

    async def pass_time(self, us: int) -> None:
        self.clock.advance(us=us)


def test_a_failing_store_does_nothing_and_says_so() -> None:
    async def story(store: Store, faults: Faults, clock: HandClock) -> None:
        faults.fail()
        for _ in range(3):
            with pytest.raises(Unavailable, match="told to fail"):
                await store.take([ANN])
        assert await remaining(store) == 5
        faults.heal()
        assert (await store.take([ANN])).allowed
        assert faults.calls == 4

    run_story(story)


def test_a_lost_answer_was_carried_out() -> None:
    async def story(store: Store, faults: Faults, clock: HandClock) -> None:
        faults.lose(2)
        for _ in range(2):
            with pytest.raises(Unavailable, match="answer was lost"):
                await store.take([ANN])
        assert await remaining(store) == 3

    run_story(story)


def test_faults_with_times_come_first_come_first() -> None:
    async def story(store: Store, faults: Faults, clock: HandClock) -> None:
        faults.fail(1)
        faults.lose(1)
        faults.slow(7)
        for match in ("told to fail", "answer was lost"):
            with pytest.raises(Unavailable, match=match):
                await store.take([ANN])
        for calls in (1, 2):
            await store.take([ANN])
            assert clock.now_us() == START_US + 7 * calls

    run_story(story)


def test_a_fault_may_be_for_some_operations_only() -> None:
    async def story(store: Store, faults: Faults, clock: HandClock) -> None:
        faults.fail(on="settle")
        faults.lose(on=("take_some", "reset"))
        assert (await store.take([ANN])).allowed
        with pytest.raises(Unavailable, match="told to fail"):
            await store.settle([ANN])
        with pytest.raises(Unavailable, match="answer was lost"):
            await store.take_some(ANN, (2, 1))
        assert await remaining(store) == 2
        with pytest.raises(Unavailable, match="answer was lost"):
            await store.reset([ANN])
        assert await remaining(store) == 5

    run_story(story)


def test_a_failure_may_take_as_long_as_a_time_out() -> None:
    async def story(store: Store, faults: Faults, clock: HandClock) -> None:
        faults.fail(after_us=10_000)
        with pytest.raises(Unavailable):
            await store.take([ANN])
        faults.heal()
        faults.lose(after_us=5)
        with pytest.raises(Unavailable):
            await store.take([ANN])
        assert clock.now_us() == START_US + 10_005

    run_story(story)


def test_without_a_hand_clock_a_slow_store_really_waits() -> None:
    async def story() -> None:
        faults = Faults()
        faults.slow(2_000)
        store = FlakyStore(MemoryStore(HandClock().now_us), faults)
        time = asyncio.get_running_loop().time
        began = time()
        await store.take([ANN])
        assert time() - began >= 0.0019

    asyncio.run(story())


def test_what_hangs_goes_on_when_the_store_is_healed() -> None:
    async def story(store: Store, faults: Faults, clock: HandClock) -> None:
        faults.hang()
        tasks = [asyncio.create_task(store.take([ANN])) for _ in range(3)]
        await asyncio.sleep(0)
        assert faults.hanging() == 3
        assert not any(task.done() for task in tasks)
        tasks[0].cancel()
        await asyncio.wait(tasks[:1])
        assert faults.hanging() == 2
        faults.heal()
        assert all(ruling.allowed for ruling in await asyncio.gather(*tasks[1:]))
        assert faults.hanging() == 0
        assert await remaining(store) == 3

    run_story(story)


def test_a_store_may_be_healed_when_the_loop_that_hung_is_gone() -> None:
    faults = Faults()
    faults.hang()
    store = FlakyStore(MemoryStore(HandClock().now_us), faults)
    loop = asyncio.new_event_loop()
    hung = store.take([ANN])
    loop.run_until_complete(_begin(hung))
    loop.close()
    faults.heal()
    assert faults.hanging() == 0
    hung.close()


async def _begin(story: Coroutine[Any, Any, object]) -> None:
    story.send(None)


@pytest.mark.parametrize(
    ("tell", "field"),
    [
        (lambda faults: faults.fail(0), "times"),
        (lambda faults: faults.fail(on="close"), "on"),
        (lambda faults: faults.fail(on=()), "on"),
        (lambda faults: faults.slow(-1), "after_us"),
        (lambda faults: [faults.fail(1) for _ in range(10_001)], "faults"),
    ],
)
def test_what_cannot_be_told_is_a_bad_value(tell: Callable[[Faults], object], field: str) -> None:
    with pytest.raises(BadValue, match=f"^{field}: "):
        tell(Faults())


@pytest.mark.parametrize(("failure", "allowed"), [("open", True), ("closed", False)])
def test_a_limiter_whose_store_fails_decides_by_its_policy(failure: str, allowed: bool) -> None:
    faults = Faults()
    limiter, _ = hand_limiter("1/day", faults=faults, failure=failure)
    with limiter:
        faults.fail(1)
        decision = limiter.take("ann")
        assert (decision.allowed, decision.degraded) == (allowed, True)
        assert not limiter.take("ann").degraded
        assert not limiter.take("ann")


def test_the_loops_and_threads_of_a_limiter_share_the_faults_and_the_counts() -> None:
    faults = Faults()
    limiter, clock = hand_limiter("3/day", faults=faults)

    async def story() -> None:
        assert (await limiter.atake("ann")).remaining == 1
        faults.fail()
        assert (await limiter.atake("ann")).degraded

    with limiter:
        assert limiter.take("ann").remaining == 2
        asyncio.run(story())
        assert limiter.take("ann").degraded
        faults.heal()
        assert limiter.take("ann").remaining == 0
        assert not limiter.take("ann")
        clock.advance(s=86_400)
        assert limiter.take("ann")


def test_a_thread_that_hangs_goes_on_when_the_store_is_healed() -> None:
    faults = Faults()
    limiter, _ = hand_limiter("3/day", faults=faults)

    async def story(limiter: Limiter) -> None:
        call = asyncio.create_task(asyncio.to_thread(limiter.take, "ann"))
        while not faults.hanging():
            await asyncio.sleep(0.001)
        assert not call.done()
        faults.heal()
        assert (await call).remaining == 2

    with limiter:
        faults.hang()
        asyncio.run(story(limiter))
