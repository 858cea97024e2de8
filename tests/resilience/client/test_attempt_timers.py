from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sluicegate.contracts.request import Request
from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.resilience import Client
from sluicegate.resilience.client.attempt_timers import LoopTimers

LONG_US = 60_000_000


class CountedLoop(asyncio.SelectorEventLoop):
    """Counts the timers that are set."""

    def __init__(self) -> None:
        super().__init__()
        self.timers = 0

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, **kw: Any
    ) -> Any:
        self.timers += 1
        return super().call_at(when, callback, *args, **kw)


def run(story: Callable[[CountedLoop], Any]) -> Any:
    loop = CountedLoop()
    try:
        return loop.run_until_complete(story(loop))
    finally:
        loop.close()


def test_many_attempts_set_one_timer() -> None:
    async def story(loop: CountedLoop) -> int:
        client = Client()

        async def work() -> int:
            return 1

        for _ in range(50):
            await client.run("a", work)
        return loop.timers

    assert run(story) == 1


def test_earliest_of_running_attempts_ends_first() -> None:
    async def story(loop: CountedLoop) -> list[str]:
        timers, ended = LoopTimers(loop), []

        async def attempt(name: str, left_us: int) -> None:
            timer = timers.start(left_us)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if timer.is_over():
                    ended.append(name)
            finally:
                timer.stop()

        late = asyncio.create_task(attempt("late", LONG_US))
        await asyncio.sleep(0)
        early = asyncio.create_task(attempt("early", 20_000))
        await asyncio.wait_for(early, 30)
        assert early.cancelling() == 0
        assert not late.done()
        loop.call_soon(timers._fire)  # too soon for the other
        await asyncio.sleep(0)
        assert not late.done()
        late.cancel()
        await asyncio.wait([late])
        return ended

    assert run(story) == ["early"]


def test_cancelled_caller_is_not_taken_for_late_attempt() -> None:
    async def story(loop: CountedLoop) -> bool:
        client = Client()

        async def hang() -> None:
            await asyncio.Event().wait()

        task = asyncio.create_task(client.run("a", hang))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return client.retry.stats().inflight == 0

    assert run(story)


def test_attempt_that_is_late_is_timed_out_and_its_task_continues() -> None:
    async def story(loop: CountedLoop) -> CallResult[str]:
        client = Client(attempt_timeout_s=0.02, attempts=1)

        async def hang(_: object) -> CallResult[str]:
            await asyncio.Event().wait()
            return CallResult(ResultKind.OK, "late")

        found = await client.call(hang, Request("", shard="a"))
        await asyncio.sleep(0)
        return found

    assert run(story).kind is ResultKind.TIMED_OUT


def test_client_of_two_loops_has_timers_of_each() -> None:
    client = Client(attempt_timeout_s=0.02, attempts=1)

    async def hang() -> None:
        await asyncio.Event().wait()

    for _ in range(2):
        with pytest.raises(TimeoutError):
            asyncio.run(client.run("a", hang))
