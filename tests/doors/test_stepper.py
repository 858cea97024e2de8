from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.doors.stepper import Stepper, can_step


class Outcome:
    """What was passed to `finish`, and how often."""

    def __init__(self) -> None:
        self.times = 0
        self.result: Any = None
        self.error: BaseException | None = None
        self.then: Callable[[], object] = lambda: None

    def __call__(self, result: Any, error: BaseException | None) -> None:
        self.times += 1
        self.result, self.error = result, error
        self.then()


@pytest.fixture(params=[True, False], ids=["stepped", "as a task"])
def direct(request: pytest.FixtureRequest) -> bool:
    """Both ways: by what asyncio keeps for task implementations, and without it."""
    return bool(request.param)


def drive(make: Callable[[], Coroutine[Any, Any, Any]], direct: bool = True) -> Outcome:
    """Run one to its end on a loop of its own."""

    async def whole() -> Outcome:
        loop = asyncio.get_running_loop()
        outcome, ended = Outcome(), asyncio.Event()
        outcome.then = ended.set
        # From a callback, as a door does, and not from within this task.
        loop.call_soon(lambda: Stepper(make(), loop, outcome, direct).start())
        async with asyncio.timeout(60):
            await ended.wait()
        assert outcome.times == 1
        return outcome

    return asyncio.run(whole())


def test_what_does_not_wait_is_done_at_once() -> None:
    async def story() -> None:
        async def work() -> int:
            return 5

        outcome = Outcome()
        Stepper(work(), asyncio.get_running_loop(), outcome).start()
        assert (outcome.times, outcome.result) == (1, 5)

    asyncio.run(story())


def test_it_awaits_what_a_task_could_await(direct: bool) -> None:
    async def work() -> list[object]:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        loop.call_later(0.001, future.set_result, "later")
        log: list[object] = [await future]
        await asyncio.sleep(0)
        log += await asyncio.gather(asyncio.sleep(0.001, 1), asyncio.sleep(0, 2))
        log.append(await asyncio.create_task(asyncio.sleep(0.001, 3)))
        try:
            async with asyncio.timeout(0.001):
                await asyncio.sleep(10)
        except TimeoutError:
            log.append("timed out")
        try:
            await asyncio.wait_for(asyncio.sleep(10), 0.001)
        except TimeoutError:
            log.append("again")
        return log

    outcome = drive(work, direct)
    assert outcome.error is None
    assert outcome.result == ["later", 1, 2, 3, "timed out", "again"]


def test_an_error_of_what_it_awaits_is_raised_in_it_and_its_own_is_passed_on(direct: bool) -> None:
    async def work() -> None:
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_exception, KeyError("in"))
        with pytest.raises(KeyError):
            await future
        raise ValueError("out")

    assert isinstance(drive(work, direct).error, ValueError)


@pytest.mark.parametrize("wait", ["future", "turn"])
def test_cancelled_it_ends_where_it_waits_and_cleans_up(wait: str, direct: bool) -> None:
    cleaned: list[str] = []

    async def work() -> None:
        try:
            if wait == "future":
                await asyncio.get_running_loop().create_future()
            else:
                while True:
                    await asyncio.sleep(0)
        finally:
            cleaned.append("up")

    async def story() -> None:
        loop = asyncio.get_running_loop()
        outcome = Outcome()
        stepper = Stepper(work(), loop, outcome, direct)
        stepper.start()
        await asyncio.sleep(0.001)
        assert stepper.cancel()
        await asyncio.sleep(0.001)
        assert isinstance(outcome.error, asyncio.CancelledError)
        assert not stepper.cancel()

    asyncio.run(story())
    assert cleaned == ["up"]


def test_a_cancellation_it_swallows_does_not_end_it(direct: bool) -> None:
    async def work() -> str:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return "went on"

    async def story() -> None:
        outcome = Outcome()
        stepper = Stepper(work(), asyncio.get_running_loop(), outcome, direct)
        stepper.start()
        await asyncio.sleep(0)
        stepper.cancel()
        await asyncio.sleep(0.005)
        assert outcome.result == "went on"

    asyncio.run(story())


def test_started_within_a_task_it_leaves_that_task_as_it_was() -> None:
    async def story() -> None:
        outer = asyncio.current_task()
        inside: list[object] = []

        async def work() -> None:
            inside.append(asyncio.current_task())
            await asyncio.sleep(0)
            inside.append(asyncio.current_task())

        outcome = Outcome()
        stepper = Stepper(work(), asyncio.get_running_loop(), outcome)
        stepper.start()
        assert asyncio.current_task() is outer
        await asyncio.sleep(0.001)
        assert inside == [stepper, stepper]

    asyncio.run(story())


@given(st.lists(st.sampled_from(["turn", "future", "done", "error"]), max_size=12))
def test_whatever_it_waits_for_it_comes_to_the_end_that_a_task_comes_to(waits: list[str]) -> None:
    async def work() -> list[str]:
        loop = asyncio.get_running_loop()
        log: list[str] = []
        for wait in waits:
            if wait == "turn":
                await asyncio.sleep(0)
            else:
                future = loop.create_future()
                if wait == "future":
                    loop.call_soon(future.set_result, wait)
                elif wait == "done":
                    future.set_result(wait)
                else:
                    loop.call_soon(future.set_exception, KeyError(wait))
                try:
                    log.append(await future)
                except KeyError:
                    log.append("raised")
        return log

    expected = asyncio.run(work())
    assert drive(work).result == expected
    assert drive(work, direct=False).result == expected


def test_an_asyncio_without_these_parts_is_noticed() -> None:
    def refuse(_loop: object, _task: object) -> None:
        raise RuntimeError("not the running loop")

    def ignore(_loop: object, _task: object) -> None: ...

    assert can_step(asyncio._enter_task, asyncio._leave_task)
    assert not can_step(None, None)
    assert not can_step(refuse, refuse)
    assert not can_step(ignore, ignore)


def test_a_future_that_awaits_otherwise_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Future:
        def __init__(self, *, loop: object) -> None: ...

        def __await__(self) -> Any:
            yield self

    monkeypatch.setattr(asyncio, "Future", Future)
    assert not can_step(asyncio._enter_task, asyncio._leave_task)
