from __future__ import annotations

import asyncio
import threading

import pytest

from sluicegate import BadValue, Limiter, Refused
from sluicegate.limits.task_ticket import TaskTicket
from sluicegate.testing import HandClock

SECOND = 1_000_000


def until(ready: object, what: str) -> None:
    """Spin until `ready()`; the threads of a test are a moment late, never long."""
    assert callable(ready)
    barrier = threading.Event()
    for _ in range(5_000):
        if ready():
            return
        barrier.wait(0.001)
    raise AssertionError(what)


def test_who_waits_is_admitted_at_the_instant_that_a_refusal_would_have_named() -> None:
    clock = HandClock()
    limiter = Limiter("1/minute", clock=clock)
    began = clock.now_us()
    assert limiter.wait("a")
    assert clock.now_us() == began
    assert limiter.wait("a")
    assert clock.now_us() == began + 60 * SECOND


def test_a_wait_that_would_be_too_long_is_refused_without_waiting() -> None:
    clock = HandClock()
    limiter = Limiter("1/minute", clock=clock)
    limiter.take("a")
    began = clock.now_us()
    refused = limiter.wait("a", timeout_s=59.9)
    assert not refused
    assert refused.retry_after_us == 60 * SECOND
    assert clock.now_us() == began
    assert limiter.wait("a", timeout_s=60)


def test_no_wait_helps_a_cost_above_the_limit() -> None:
    limiter = Limiter("3/minute", clock=HandClock())
    refused = limiter.wait("a", 4)
    assert refused.reason is not None
    assert refused.reason.name == "cost_above_limit"


@pytest.mark.parametrize("timeout_s", [-1, float("nan")])
def test_a_timeout_that_is_no_time_is_refused(timeout_s: float) -> None:
    with pytest.raises(BadValue, match="timeout_s"):
        Limiter("1/s").wait("a", timeout_s=timeout_s)


def test_tasks_are_admitted_in_the_order_in_which_they_came() -> None:
    limiter = Limiter("200/s burst 1")
    admitted: list[int] = []

    async def one(number: int) -> None:
        assert await limiter.await_("a", timeout_s=5)
        admitted.append(number)

    async def story() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(12):
                group.create_task(one(number))

    asyncio.run(story())
    assert admitted == list(range(12))


def test_a_task_that_waits_on_one_key_holds_up_nobody_on_another() -> None:
    limiter = Limiter("1/hour")

    async def story() -> None:
        await limiter.await_("slow")
        waiting = asyncio.create_task(limiter.await_("slow"))
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            assert await limiter.await_("fast")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(story())


def test_when_the_first_of_a_line_gives_up_the_next_one_is_asked() -> None:
    limiter = Limiter("20/s burst 1")

    async def story() -> None:
        await limiter.await_("a")
        first = asyncio.create_task(limiter.await_("a"))
        second = asyncio.create_task(limiter.await_("a"))
        await asyncio.sleep(0)
        first.cancel()
        async with asyncio.timeout(60):
            assert await second

    asyncio.run(story())


def test_a_waiter_behind_others_is_refused_when_its_own_time_is_over() -> None:
    limiter = Limiter("1/hour")

    async def story() -> None:
        await limiter.await_("a")
        first = asyncio.create_task(limiter.await_("a"))
        await asyncio.sleep(0)
        refused = await limiter.await_("a", timeout_s=0.01)
        assert refused.reason is not None
        assert refused.reason.name == "wait_timeout"
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first

    asyncio.run(story())


def test_a_full_line_takes_no_more() -> None:
    limiter = Limiter("1/hour", waiters_max=1)

    async def story() -> None:
        await limiter.await_("a")
        first = asyncio.create_task(limiter.await_("a"))
        await asyncio.sleep(0)
        refused = await limiter.await_("a")
        assert refused.reason is not None
        assert refused.reason.name == "line_full"
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first

    asyncio.run(story())


def test_threads_and_tasks_stand_in_one_line() -> None:
    limiter = Limiter("50/s burst 1")
    admitted: list[str] = []
    limiter.take("a")

    def thread() -> None:
        assert limiter.wait("a", timeout_s=5)
        admitted.append("thread")

    async def story() -> None:
        waiter = threading.Thread(target=thread)
        waiter.start()
        until(lambda: limiter._lines.waiting() == 1, "the thread never waits")
        assert await limiter.await_("a", timeout_s=5)
        admitted.append("task")
        waiter.join()

    asyncio.run(story())
    assert admitted == ["thread", "task"]
    assert limiter._lines.waiting() == 0


def test_a_task_woken_before_it_pauses_does_not_pause() -> None:
    async def story() -> bool:
        ticket = TaskTicket()
        ticket.wake()
        async with asyncio.timeout(60):
            await ticket.pause(None)
        return True

    assert asyncio.run(story())


def test_a_function_may_wait_for_its_turn_instead_of_being_refused() -> None:
    clock = HandClock()
    limiter = Limiter("1/s", clock=clock)

    @limiter.limit(key="everyone", wait_s=1)
    def work() -> int:
        return clock.now_us()

    @limiter.limit(key="everyone", wait_s=0.5)
    async def hasty() -> None:
        raise AssertionError("it must not run")

    assert work() + SECOND == work()
    with pytest.raises(Refused):
        asyncio.run(hasty())
