from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.reasons import BULKHEAD_FULL, DEADLINE
from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.policies.client.fallback import Fallback, FallbackSettings
from sluicegate.resilience import gather
from sluicegate.resilience.context import ServedRequest, serve
from sluicegate.resilience.dependencies.dependency import Dependency
from sluicegate.system import now_us

LONG_US = 60_000_000
NOTHING: dict[str, Awaitable[str]] = {}


async def hang() -> str:
    await asyncio.Event().wait()
    return "never"


async def answer() -> str:
    return "fresh"


async def fail() -> str:
    raise ConnectionResetError


def test_hanging_dependency_fills_only_its_own_slots() -> None:
    slow: Dependency[str] = Dependency("slow", slots=3)
    quick: Dependency[str] = Dependency("quick", slots=3)

    async def story() -> None:
        hanging = [asyncio.create_task(slow.call(hang)) for _ in range(3)]
        await asyncio.sleep(0)
        refused = await slow.call(hang)
        assert refused.kind is ResultKind.OVERLOADED
        assert isinstance(refused.error, Refused)
        assert refused.error.decision.reason is BULKHEAD_FULL
        assert (await quick.call(answer)).unwrap() == "fresh"
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)

    asyncio.run(story())
    assert slow.inflight == quick.inflight == 0, "a cancelled call frees its slot"


def test_a_soft_one_that_fails_has_a_stand_in_that_is_marked() -> None:
    soft: Dependency[str] = Dependency("trends", Fallback())

    async def story() -> list[CallResult[str]]:
        return [
            await soft.call(fail, "lamp", default=lambda: "none"),
            await soft.call(answer, "lamp"),
            await soft.call(fail, "lamp", default=lambda: "none"),
            await soft.call(fail, "lamp", criticality=Criticality.CRITICAL),
        ]

    defaulted, good, stale, critical = asyncio.run(story())
    assert (defaulted.unwrap(), defaulted.degraded) == ("none", True)
    assert (good.unwrap(), good.degraded) == ("fresh", False)
    assert (stale.unwrap(), stale.degraded) == ("fresh", True)
    assert critical.kind is ResultKind.FAILED, "what matters most is not glossed over"
    assert soft.inflight == 0


def test_a_soft_one_that_hangs_holds_neither_its_caller_nor_a_place() -> None:
    soft: Dependency[str] = Dependency("trends", Fallback(FallbackSettings(timeout_us=1_000)))

    async def story() -> None:
        for _ in range(5):
            result = await soft.call(hang, default=lambda: "none")
            assert result.unwrap() == "none"
            assert result.stop_reason == "timed_out", "not for want of places"
            await asyncio.sleep(0)

    asyncio.run(story())
    assert soft.inflight == 0


def test_no_call_is_begun_for_a_request_whose_time_is_over() -> None:
    begun: list[str] = []

    async def work() -> str:
        begun.append("task")
        return "late"

    def work_now() -> str:
        begun.append("thread")
        return "late"

    hard: Dependency[str] = Dependency("stock")
    soft: Dependency[str] = Dependency("trends", Fallback())

    async def story() -> list[CallResult[str]]:
        return [
            await hard.call(work),
            hard.call_now(work_now),
            await soft.call(work, default=lambda: "none"),
            soft.call_now(work_now, default=lambda: "none"),
        ]

    with serve(ServedRequest(deadline_us=now_us())):
        *refused, asynced, threaded = asyncio.run(story())
    for one in refused:
        assert one.kind is ResultKind.TIMED_OUT
        assert isinstance(one.error, Refused)
        assert one.error.decision.reason is DEADLINE
    assert asynced.unwrap() == threaded.unwrap() == "none"
    assert asynced.degraded
    assert threaded.degraded
    assert begun == []


def test_a_soft_one_is_given_up_when_the_time_of_the_request_is_over() -> None:
    soft: Dependency[str] = Dependency("trends", Fallback(FallbackSettings(timeout_us=LONG_US)))
    with serve(ServedRequest(deadline_us=now_us() + 20_000)):
        found = asyncio.run(asyncio.wait_for(soft.call(hang, default=lambda: "none"), 10))
    assert found.unwrap() == "none"


def test_what_arrived_by_the_deadline_is_returned_and_the_rest_is_given_up() -> None:
    ended: list[str] = []

    async def hangs() -> str:
        try:
            return await hang()
        finally:
            ended.append("hangs")

    async def story() -> dict[str, CallResult[str]]:
        works = {"price": answer(), "trends": hangs(), "reviews": fail()}
        found = await gather(works, timeout_s=0.05)
        await asyncio.sleep(0)
        return found

    found = asyncio.run(story())
    kinds = {name: result.kind for name, result in found.items()}
    assert kinds == {
        "price": ResultKind.OK,
        "trends": ResultKind.TIMED_OUT,
        "reviews": ResultKind.FAILED,
    }
    assert ended == ["hangs"]


def test_nobody_waits_for_the_deadline_when_all_have_arrived() -> None:
    works = {"price": answer(), "trends": answer()}
    found = asyncio.run(asyncio.wait_for(gather(works, timeout_s=60), 10))
    assert [result.unwrap() for result in found.values()] == ["fresh", "fresh"]
    assert asyncio.run(gather(NOTHING, timeout_s=60)) == {}


def test_after_the_deadline_nothing_is_begun() -> None:
    begun: list[str] = []

    async def work() -> str:
        begun.append("work")
        return "late"

    async def story() -> dict[str, CallResult[str]]:
        task = asyncio.create_task(hang())
        found = await gather({"price": work(), "task": task}, timeout_s=0)
        assert task.cancelling() == 1
        return found

    found = asyncio.run(story())
    assert {one.kind for one in found.values()} == {ResultKind.TIMED_OUT}
    assert begun == []


def test_gather_with_failing_part_keeps_other_parts() -> None:
    async def broken() -> str:
        raise KeyError("a bug")

    async def slow() -> int:
        for _ in range(5):
            await asyncio.sleep(0)
        return 7

    async def story() -> tuple[CallResult[str], CallResult[int], CallResult[str]]:
        cancelled = asyncio.create_task(hang())
        cancelled.cancel()
        return await gather(broken(), slow(), cancelled, timeout_s=60)

    bug, good, cancelled = asyncio.run(story())
    assert isinstance(bug.error, KeyError)
    assert good.unwrap() == 7
    assert cancelled.kind is ResultKind.CANCELLED


def test_gather_of_served_request_ends_with_its_deadline() -> None:
    with serve(ServedRequest(deadline_us=now_us() + 20_000)):
        (found,) = asyncio.run(asyncio.wait_for(gather(hang(), timeout_s=60), 10))
    assert found.kind is ResultKind.TIMED_OUT


@pytest.mark.parametrize("error", [KeyError("bug"), ValueError(), PermissionError(13, "no")])
def test_any_exception_of_soft_dependency_uses_fallback(error: Exception) -> None:
    soft: Dependency[str] = Dependency("trends", Fallback())

    async def fails() -> str:
        raise error

    found = asyncio.run(soft.call(fails, default=lambda: "none"))
    assert (found.unwrap(), found.degraded, found.error) == ("none", True, error)


def test_unknown_error_of_soft_dependency_is_logged_once_in_a_row(
    caplog: pytest.LogCaptureFixture,
) -> None:
    soft: Dependency[str] = Dependency("trends", Fallback(FallbackSettings(stale_us_max=0)))

    async def broken() -> str:
        raise KeyError("a bug")

    async def story() -> None:
        for work in (broken, broken, fail, broken, answer, broken):
            await soft.call(work, default=lambda: "none")

    asyncio.run(story())
    assert [record.message for record in caplog.records] == [
        "trends: replaced after an unknown error"
    ] * 2
