"""Dependencies of a service whose requests are threads: places, stand-ins, and who is given up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from sluicegate.contracts.errors import BadValue, Refused
from sluicegate.contracts.reasons import BULKHEAD_FULL
from sluicegate.policies.client.call_result import ResultKind
from sluicegate.policies.client.fallback import Fallback, FallbackSettings
from sluicegate.resilience import gather_now
from sluicegate.resilience.context import ServedRequest, reset_served, served_request, set_served
from sluicegate.resilience.dependencies.dependency import Dependency
from sluicegate.system import now_us
from tests.resilience.dependencies.test_dependency import LONG_US


def soft(name: str, timeout_us: int = LONG_US) -> Dependency[str]:
    return Dependency(name, Fallback(FallbackSettings(timeout_us=timeout_us)), slots=3)


def wait_until(true: Callable[[], bool]) -> None:
    until = threading.Event()
    for _ in range(1_000):
        if true():
            return
        until.wait(0.005)
    raise AssertionError("it never was")


def test_hanging_work_has_as_many_threads_as_slots() -> None:
    hangs = threading.Event()
    slow = soft("slow", 20_000)

    def hang() -> str:
        hangs.wait(30)
        return "late"

    late = [slow.call_now(hang, default=lambda: "none") for _ in range(3)]
    assert [(one.unwrap(), one.stop_reason) for one in late] == [("none", "timed_out")] * 3
    full = slow.call_now(hang, default=lambda: "none")
    assert (full.unwrap(), full.degraded) == ("none", True)
    assert isinstance(full.error, Refused)
    assert full.error.decision.reason is BULKHEAD_FULL
    threads = [one for one in threading.enumerate() if one.name == "sluicegate slow"]
    assert len(threads) == slow.inflight == 3
    assert soft("quick").call_now(lambda: "fresh").unwrap() == "fresh"
    hangs.set()
    wait_until(lambda: slow.inflight == 0)
    for one in threads:
        one.join(5)
    assert slow.call_now(lambda: "well").unwrap() == "well"


def test_a_stand_in_is_the_last_good_value_and_then_the_default() -> None:
    trends = soft("trends")

    def fail() -> str:
        raise ConnectionResetError

    found = [trends.call_now(work, "lamp", default=lambda: "none") for work in (fail, good, fail)]
    assert [one.unwrap() for one in found] == ["none", "fresh", "fresh"]
    assert [one.degraded for one in found] == [True, False, True]
    hard: Dependency[str] = Dependency("price")
    assert hard.call_now(fail).kind is ResultKind.FAILED
    never_begun = trends.call_now(fail, "lamp", deadline_us=now_us() - 1)
    assert (never_begun.unwrap(), never_begun.degraded) == ("fresh", True)
    assert trends.inflight == hard.inflight == 0


def good() -> str:
    return "fresh"


def test_work_sees_the_request_it_is_done_for_whatever_thread_does_it() -> None:
    token = set_served(ServedRequest(caller="shop"))

    def caller() -> str:
        served = served_request()
        return "" if served is None else f"{served.caller} {threading.get_ident()}"

    try:
        own, other = f"shop {threading.get_ident()}", soft("soft").call_now(caller)
        hard: Dependency[str] = Dependency("hard")
        assert hard.call_now(caller).unwrap() == own
        assert other.unwrap().startswith("shop ")
        assert other.unwrap() != own
    finally:
        reset_served(token)


def test_bug_of_hard_dependency_passes_through_and_frees_slot() -> None:
    one: Dependency[object] = Dependency("stock")

    def bug() -> object:
        raise KeyError("a bug")

    async def later() -> None:
        return None

    with pytest.raises(KeyError):
        one.call_now(bug)
    with pytest.raises(BadValue, match="await the form for tasks"):
        one.call_now(later)
    assert one.inflight == 0


def test_bug_of_soft_dependency_uses_fallback_and_frees_slot() -> None:
    one = soft("trends")

    def bug() -> str:
        raise KeyError("a bug")

    found = one.call_now(bug, default=lambda: "none")
    assert (found.unwrap(), found.degraded) == ("none", True)
    assert isinstance(found.error, KeyError)
    assert one.inflight == 0


def test_what_arrived_by_the_deadline_is_returned_and_the_rest_is_given_up() -> None:
    hangs = threading.Event()

    def fail() -> str:
        raise ConnectionResetError

    def late() -> str:
        hangs.wait(30)
        return "late"

    def bug() -> str:
        raise KeyError("a bug")

    works = {"good": good, "failed": fail, "late": late, "bug": bug}
    found = gather_now(works, timeout_s=0.05)
    hangs.set()
    assert found["good"].unwrap() == "fresh"
    assert found["failed"].kind is ResultKind.FAILED
    assert found["late"].kind is ResultKind.TIMED_OUT
    assert isinstance(found["bug"].error, KeyError)
    late_ones = gather_now(works, timeout_s=0).values()
    assert {one.kind for one in late_ones} == {ResultKind.TIMED_OUT}, "nothing is begun"


def test_threads_and_tasks_share_the_places_and_never_have_more() -> None:
    shared: Dependency[str] = Dependency("shared", slots=3)
    lock, at_work, most = threading.Lock(), 0, 0

    def count(change: int) -> None:
        nonlocal at_work, most
        with lock:
            at_work += change
            most = max(most, at_work)

    def work() -> str:
        count(1)
        threading.Event().wait(0.0005)
        count(-1)
        return "done"

    async def work_later() -> str:
        count(1)
        await asyncio.sleep(0.0005)
        count(-1)
        return "done"

    async def tasks() -> int:
        found = [await shared.call(work_later) for _ in range(60)]
        return sum(one.ok for one in found)

    with ThreadPoolExecutor(8) as threads:
        found = [threads.submit(shared.call_now, work) for _ in range(160)]
        served = asyncio.run(tasks()) + sum(one.result().ok for one in found)
    assert served > 0
    assert 1 <= most <= 3
    assert shared.inflight == 0
