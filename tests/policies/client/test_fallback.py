from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.request import Request
from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.policies.client.fallback import Fallback, FallbackSettings, key_of_value
from tests.policies.virtual import START_US, VirtualLoop, pause_us, run

S = 1_000_000
TRENDS = Request("trends", caller="ann", shard="trends")


def fallback(**settings: object) -> Fallback[str]:
    return Fallback(FallbackSettings(**settings))  # type: ignore[arg-type]


def says(kind: ResultKind, value: str | None = None, took_us: int = 0):  # type: ignore[no-untyped-def]
    async def work(_: int) -> CallResult[str]:
        if took_us:
            await pause_us(took_us)
        return CallResult(
            kind, value, error=None if kind is ResultKind.OK else TimeoutError("gone")
        )

    return work


def nothing() -> str:
    return "nothing"


def test_a_stale_value_stands_in_with_its_age_and_its_mark() -> None:
    async def story(loop: VirtualLoop) -> None:
        policy = fallback()
        good = await policy.call(says(ResultKind.OK, "cats"), TRENDS, loop)
        assert (good.unwrap(), good.degraded, good.age_us) == ("cats", False, 0)
        await pause_us(10 * S)
        stale = await policy.call(says(ResultKind.FAILED), TRENDS, loop, default=nothing)
        assert (stale.unwrap(), stale.degraded, stale.age_us) == ("cats", True, 10 * S)
        assert isinstance(stale.error, TimeoutError), "what went wrong is not lost"
        assert stale.stop_reason == "failed"
        assert policy.stats()[:5] == (2, 1, 1, 0, 0)

    run(story)


def test_a_value_that_is_too_old_gives_way_to_the_default_and_that_to_the_failure() -> None:
    async def story(loop: VirtualLoop) -> None:
        policy = fallback(stale_us_max=5 * S)
        await policy.call(says(ResultKind.OK, "cats"), TRENDS, loop)
        await pause_us(5 * S - 1)
        assert (await policy.call(says(ResultKind.FAILED), TRENDS, loop)).unwrap() == "cats"
        await pause_us(1)
        marked = await policy.call(says(ResultKind.FAILED), TRENDS, loop, default=nothing)
        assert (marked.unwrap(), marked.degraded) == ("nothing", True)
        failed = await policy.call(says(ResultKind.FAILED), TRENDS, loop)
        assert failed.kind is ResultKind.FAILED
        assert policy.stats()[:5] == (4, 1, 1, 1, 1)

    run(story)


def test_a_stand_in_is_not_kept_as_if_it_were_fresh() -> None:
    async def story(loop: VirtualLoop) -> None:
        inner, outer = fallback(stale_us_max=10 * S), fallback(stale_us_max=10 * S)
        await inner.call(says(ResultKind.OK, "cats"), TRENDS, loop)
        await pause_us(9 * S)

        async def through(_: int) -> CallResult[str]:
            return await inner.call(says(ResultKind.FAILED), TRENDS, loop)

        assert (await outer.call(through, TRENDS, loop)).degraded
        await pause_us(9 * S)
        assert not (await outer.call(says(ResultKind.FAILED), TRENDS, loop)).ok

    run(story)


def test_a_failure_of_critical_work_is_not_hidden() -> None:
    async def story(loop: VirtualLoop) -> None:
        critical = Request("trends", caller="ann", shard="trends", criticality=Criticality.CRITICAL)
        policy = fallback()
        await policy.call(says(ResultKind.OK, "cats"), critical, loop)
        answer = await policy.call(says(ResultKind.FAILED), critical, loop, default=nothing)
        assert not answer.ok
        with pytest.raises(TimeoutError):
            answer.unwrap()
        marking = fallback(critical="mark")
        answer = await marking.call(says(ResultKind.FAILED), critical, loop, default=nothing)
        assert (answer.unwrap(), answer.degraded) == ("nothing", True)
        assert marking.stats().critical_marked == 1
        assert policy.stats().critical_marked == 0

    run(story)


@pytest.mark.parametrize("kind", [ResultKind.REJECTED, ResultKind.CANCELLED])
def test_what_is_the_callers_own_doing_has_no_stand_in(kind: ResultKind) -> None:
    async def story(loop: VirtualLoop) -> None:
        answer = await fallback().call(says(kind), TRENDS, loop, default=nothing)
        assert answer.kind is kind

    run(story)


@pytest.mark.parametrize(
    "kind",
    [
        ResultKind.FAILED,
        ResultKind.TIMED_OUT,
        ResultKind.UNREACHED,
        ResultKind.OVERLOADED,
        ResultKind.LIMITED,
    ],
)
def test_every_other_failure_has_one(kind: ResultKind) -> None:
    async def story(loop: VirtualLoop) -> None:
        answer = await fallback().call(says(kind), TRENDS, loop, default=nothing)
        assert answer.degraded

    run(story)


def test_a_dependency_that_hangs_cannot_hold_its_caller() -> None:
    async def story(loop: VirtualLoop) -> None:
        policy = fallback(timeout_us=300_000)
        began_us = loop.now_us()
        answer = await policy.call(
            says(ResultKind.OK, "x", 3600 * S), TRENDS, loop, default=nothing
        )
        assert answer.degraded
        assert loop.now_us() - began_us == 300_000
        await pause_us(1)
        assert policy.stats().running == 0
        assert policy.stats().timed_out == 1

    run(story)


def test_it_leaves_the_caller_the_rest_of_its_time() -> None:
    policy = fallback(timeout_us=300_000, reserve_us=50_000)
    soon = Request("k", deadline_us=START_US + 100_000)
    assert policy.budget_us(soon, START_US) == 50_000
    assert policy.budget_us(soon, START_US + 60_000) == 0
    assert policy.budget_us(TRENDS, START_US) == 300_000
    assert fallback(timeout_us=0).budget_us(soon, START_US) == 100_000
    assert fallback(timeout_us=0).budget_us(TRENDS, START_US) is None

    async def story(loop: VirtualLoop) -> None:
        calls = 0

        async def work(_: int) -> CallResult[str]:
            nonlocal calls
            calls += 1
            return CallResult(ResultKind.OK, "x")

        over = Request("k", deadline_us=START_US)
        assert (await policy.call(work, over, loop, default=nothing)).degraded
        assert calls == 0
        assert (await fallback(timeout_us=0).call(work, TRENDS, loop)).unwrap() == "x"

    run(story)


def test_a_bug_is_never_hidden() -> None:
    async def story(loop: VirtualLoop) -> None:
        async def bug(_: int) -> CallResult[str]:
            raise KeyError("x")

        policy = fallback()
        with pytest.raises(KeyError):
            await policy.call(bug, TRENDS, loop, default=nothing)
        assert policy.stats().running == 0

    run(story)


def test_a_value_is_nobody_elses() -> None:
    async def story(loop: VirtualLoop) -> None:
        policy = fallback()
        await policy.call(says(ResultKind.OK, "anns"), TRENDS, loop)
        bob = Request("trends", caller="bob", shard="trends")
        assert not (await policy.call(says(ResultKind.FAILED), bob, loop)).ok

    run(story)
    assert key_of_value(Request("c", caller="ab")) != key_of_value(Request("bc", caller="a"))
    assert key_of_value(Request("k", shard="ab")) != key_of_value(
        Request("k", shard="a", operation="b")
    )


def test_after_a_write_neither_what_was_kept_nor_what_was_being_fetched_is_used() -> None:
    async def story(loop: VirtualLoop) -> None:
        policy = fallback()
        await policy.call(says(ResultKind.OK, "old"), TRENDS, loop)
        fetch = asyncio.ensure_future(
            policy.call(says(ResultKind.OK, "old too", 100_000), TRENDS, loop)
        )
        await pause_us(50_000)
        assert policy.forget(TRENDS)
        assert (await fetch).unwrap() == "old too"
        assert not (await policy.call(says(ResultKind.FAILED), TRENDS, loop)).ok

    run(story)


def test_values_are_bounded() -> None:
    async def story(loop: VirtualLoop) -> None:
        policy = fallback(values_max=3)
        for n in range(10):
            await policy.call(says(ResultKind.OK, "x"), Request(f"k{n}"), loop)
        assert policy.stats().values == 3
        none = fallback(stale_us_max=0)
        await none.call(says(ResultKind.OK, "x"), TRENDS, loop)
        assert none.stats().values == 0

    run(story)


@pytest.mark.parametrize(
    ("field", "value"), [("timeout_us", -1), ("values_max", 0), ("critical", "hide")]
)
def test_a_wrong_setting_is_named(field: str, value: object) -> None:
    with pytest.raises(BadValue, match=rf"fallback\.{field}"):
        fallback(**{field: value})


@given(
    st.sampled_from(list(ResultKind)),
    st.integers(0, 600_000),
    st.integers(0, 600_000),
    st.booleans(),
)
def test_nothing_leaks_and_a_stand_in_is_always_marked(
    kind: ResultKind, took_us: int, cancel_us: int, defaulted: bool
) -> None:
    async def story(loop: VirtualLoop) -> None:
        policy = fallback()
        call = asyncio.ensure_future(
            policy.call(
                says(kind, "real", took_us), TRENDS, loop, default=nothing if defaulted else None
            )
        )
        await pause_us(cancel_us)
        if call.cancel():
            with pytest.raises(asyncio.CancelledError):
                await call
        else:
            answer = call.result()
            assert answer.degraded == (answer.ok and answer.unwrap() == "nothing")
        await pause_us(1)
        assert policy.stats().running == 0

    run(story)
