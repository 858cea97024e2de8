"""Waiting: a limiter whose waiters hold up those who have nothing to wait for.

In pyrate-limiter's asyncio limiter a task that waits on one key holds a lock, so that a task on an
idle key waited a second for it. Before, the same was true of its threads.
"""

from __future__ import annotations

import asyncio
import threading

from sluicegate import Limiter

RATE = "1/5s"
SOON_S = 1.0  # against the five seconds of whoever waits


def test_a_task_on_an_idle_key_does_not_wait_for_a_task_on_a_busy_one() -> None:
    # https://github.com/vutran1710/PyrateLimiter/issues/191
    async def story() -> None:
        limiter = Limiter(RATE)
        assert limiter.take("slow")
        waiting = [asyncio.create_task(limiter.await_("slow")) for _ in range(20)]
        await asyncio.sleep(0.01)
        async with asyncio.timeout(SOON_S):
            assert await limiter.await_("fast")
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(story())


def test_a_thread_on_an_idle_key_does_not_wait_for_a_thread_on_a_busy_one() -> None:
    # https://github.com/vutran1710/PyrateLimiter/issues/301
    limiter = Limiter("20/minute burst 1")
    answers: list[bool] = []
    assert limiter.take("slow")
    waiter = threading.Thread(target=lambda: answers.append(limiter.wait("slow").allowed))
    waiter.start()
    try:
        assert limiter.wait("fast")
        assert answers == []
    finally:
        waiter.join(60)
    assert answers == [True]


def test_a_take_is_answered_at_once_while_others_wait_for_the_same_key() -> None:
    async def story() -> None:
        limiter = Limiter(RATE)
        assert limiter.take("slow")
        waiting = asyncio.create_task(limiter.await_("slow"))
        await asyncio.sleep(0.01)
        assert not await limiter.atake("slow")
        assert not waiting.done()
        waiting.cancel()

    asyncio.run(story())


def test_a_waiter_that_is_cancelled_holds_up_nobody_behind_it() -> None:
    async def story() -> list[int]:
        limiter, order = Limiter("50/s burst 1"), list[int]()
        assert limiter.take("slow")

        async def wait(number: int) -> None:
            assert await limiter.await_("slow")
            order.append(number)

        tasks = [asyncio.create_task(wait(number)) for number in range(6)]
        await asyncio.sleep(0.001)
        for number in (0, 3):
            tasks[number].cancel()
        async with asyncio.timeout(60):
            await asyncio.gather(*tasks, return_exceptions=True)
        return order

    order = asyncio.run(story())
    # On a slow machine those that were to be cancelled may have been admitted before.
    assert [number for number in order if number not in (0, 3)] == [1, 2, 4, 5]
    assert order == sorted(order)
