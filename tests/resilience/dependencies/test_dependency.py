from __future__ import annotations

import asyncio

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.reasons import BULKHEAD_FULL, DEADLINE
from sluicegate.policies.bulkhead import Bulkhead, BulkheadSettings
from sluicegate.policies.call_result import CallResult, ResultKind
from sluicegate.policies.concurrency import AdaptiveSettings
from sluicegate.policies.fallback import Fallback, FallbackSettings
from sluicegate.resilience.context import ServedRequest, serve
from sluicegate.resilience.dependencies.dependency import Dependency
from sluicegate.resilience.dependencies.gather import gather_within
from sluicegate.system import now_us
from sluicegate.testing import SeededChance

LONG_US = 60_000_000


def places(*, adaptive: bool = False) -> Bulkhead:
    number = AdaptiveSettings() if adaptive else None
    return Bulkhead(BulkheadSettings(cap=3, pool=10, adaptive=number), SeededChance(1))


async def hang() -> str:
    await asyncio.Event().wait()
    return "never"


async def answer() -> str:
    return "fresh"


async def fail() -> str:
    raise ConnectionResetError


@pytest.mark.parametrize("adaptive", [False, True], ids=["fixed", "adaptive"])
def test_one_that_hangs_fills_its_own_places_and_no_others(adaptive: bool) -> None:
    bulkhead = places(adaptive=adaptive)
    slow: Dependency[str] = Dependency("slow", bulkhead)
    quick: Dependency[str] = Dependency("quick", bulkhead)

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
    assert bulkhead.inflight == 0, "who is cancelled gives its place back"


def test_a_soft_one_that_fails_has_a_stand_in_that_is_marked() -> None:
    bulkhead = places()
    soft: Dependency[str] = Dependency("trends", bulkhead, Fallback())

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
    assert bulkhead.inflight == 0


def test_a_soft_one_that_hangs_holds_neither_its_caller_nor_a_place() -> None:
    bulkhead = places()
    soft: Dependency[str] = Dependency(
        "trends", bulkhead, Fallback(FallbackSettings(timeout_us=1_000))
    )

    async def story() -> None:
        for _ in range(5):
            result = await soft.call(hang, default=lambda: "none")
            assert result.unwrap() == "none"
            assert result.stop_reason == "timed_out", "not for want of places"
            await asyncio.sleep(0)

    asyncio.run(story())
    assert bulkhead.inflight == 0


def test_no_call_is_begun_for_a_request_whose_time_is_over() -> None:
    begun: list[str] = []

    async def work() -> str:
        begun.append("task")
        return "late"

    def work_now() -> str:
        begun.append("thread")
        return "late"

    hard: Dependency[str] = Dependency("stock", places())
    soft: Dependency[str] = Dependency("trends", places(), Fallback())

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
    soft: Dependency[str] = Dependency(
        "trends", places(), Fallback(FallbackSettings(timeout_us=LONG_US))
    )
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
        found = await gather_within(now_us() + 50_000, works)
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
    found = asyncio.run(asyncio.wait_for(gather_within(now_us() + LONG_US, works), 10))
    assert [result.unwrap() for result in found.values()] == ["fresh", "fresh"]
    assert asyncio.run(gather_within(now_us() + LONG_US, {})) == {}


def test_after_the_deadline_nothing_is_begun() -> None:
    begun: list[str] = []

    async def work() -> str:
        begun.append("work")
        return "late"

    async def story() -> dict[str, CallResult[str]]:
        task = asyncio.create_task(hang())
        found = await gather_within(now_us() - 1, {"price": work(), "task": task})
        assert task.cancelling() == 1
        return found

    found = asyncio.run(story())
    assert {one.kind for one in found.values()} == {ResultKind.TIMED_OUT}
    assert begun == []


def test_a_bug_in_one_gives_up_the_others_and_passes_through() -> None:
    ended: list[str] = []

    async def hangs() -> str:
        try:
            return await hang()
        finally:
            ended.append("hangs")

    async def broken() -> str:
        await asyncio.sleep(0)
        raise KeyError("a bug")

    async def story() -> None:
        with pytest.raises(KeyError):
            await gather_within(now_us() + LONG_US, {"a": hangs(), "b": broken()})
        await asyncio.sleep(0)

    asyncio.run(story())
    assert ended == ["hangs"]
