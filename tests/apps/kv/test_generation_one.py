"""Generation one: requests by the minute, whatever they cost."""

from __future__ import annotations

import asyncio

import pytest

from sluicegate.apps.kv.generation_one import GenerationOne, GenerationOneSettings
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.policy import Admission
from sluicegate.contracts.reasons import RATE_LIMITED, STORE_UNAVAILABLE
from sluicegate.contracts.request import Request
from sluicegate.policies.stack import Stack, waits
from sluicegate.stores.memory.store import MemoryStore
from sluicegate.testing import HandClock
from tests.apps.kv.fleet import FarStore


def count_admitted(
    these: GenerationOne, clock: HandClock, caller: str = "a", times: int = 1
) -> int:
    async def story() -> int:
        answers = [
            await these.admit(Request("k", caller=caller, cost=9), clock) for _ in range(times)
        ]
        return sum(not isinstance(one, Decision) for one in answers)

    return asyncio.run(story())


def refusal(these: GenerationOne, clock: HandClock) -> Decision:
    async def story() -> Admission:
        return await these.admit(Request("k", caller="a"), clock)

    decision = asyncio.run(story())
    assert isinstance(decision, Decision)
    return decision


def test_a_minute_admits_sixty_times_the_quota_and_every_request_counts_one() -> None:
    clock = HandClock()
    clock.advance(s=20)  # HandClock starts 40 s into a minute
    these = GenerationOne(GenerationOneSettings(qps=2, qps_by_caller={"b": 1}), clock)
    assert count_admitted(these, clock, times=200) == 120
    assert count_admitted(these, clock, "b", times=200) == 60
    clock.advance(s=59)
    refused = refusal(these, clock)
    assert refused.reason is RATE_LIMITED
    assert refused.reason.http_status == 429
    assert refused.retry_after_us == 1_000_000
    assert not refused.degraded
    clock.advance(s=1)
    assert count_admitted(these, clock, times=200) == 120
    assert these.stats().admitted == 300


def test_dispatchers_count_in_one_store() -> None:
    clock = HandClock()
    store = MemoryStore(clock.now_us)
    settings = GenerationOneSettings(qps=1)
    fleet = [GenerationOne(settings, clock, store=store) for _ in range(3)]
    assert sum(count_admitted(one, clock, times=50) for one in fleet) == 60


@pytest.mark.parametrize(("failure", "admits"), [("local", 60), ("open", 100), ("closed", 0)])
def test_what_happens_without_the_store_is_said(failure: str, admits: int) -> None:
    clock = HandClock()
    store = FarStore(clock.now_us, trip_us=0)
    store.down = True
    these = GenerationOne(GenerationOneSettings(qps=1, failure=failure), clock, store=store)
    assert count_admitted(these, clock, times=100) == admits
    assert these.stats().unanswered == 100
    if failure != "open":
        refused = refusal(these, clock)
        assert refused.degraded
        assert refused.reason is (RATE_LIMITED if failure == "local" else STORE_UNAVAILABLE)


def test_it_is_a_stage_of_a_stack() -> None:
    async def story() -> None:
        clock = HandClock()
        stack = Stack(waits("generation one", GenerationOne(GenerationOneSettings(), clock)))
        assert await stack.admit(Request("k", caller="a"), clock)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("some", "field"),
    [
        ({"qps": 0}, "generation_one.qps"),
        ({"failure": "shrug"}, "generation_one.failure"),
        ({"qps_by_caller": {"a": 0}}, "generation_one.qps_by_caller.a"),
        ({"qps_by_caller": {"a": 1, "b": 1}, "callers_max": 1}, "generation_one.qps_by_caller"),
    ],
)
def test_wrong_settings_are_refused_by_name(some: dict[str, object], field: str) -> None:
    with pytest.raises(BadValue) as caught:
        GenerationOneSettings(**some)  # type: ignore[arg-type]
    assert caught.value.field == field
