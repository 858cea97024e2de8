from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.request import Request
from sluicegate.kernels.verdict import NEVER
from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.policies.client.hedge import Hedge, HedgeSettings
from sluicegate.policies.client.retry import Retry
from sluicegate.policies.client.retry_budget import RetryBudgets, RetryBudgetSettings
from sluicegate.testing import SeededChance
from tests.policies.virtual import START_US, VirtualLoop, pause_us, run

MS = 1_000
S = 1_000_000
RICH = RetryBudgetSettings(reserve_milli_per_s=1_000_000)
GET = Request("k", operation="get")


class Backend:
    """Each attempt takes its time and answers its kind; what has ended, and how, is noted."""

    def __init__(self, *attempts: tuple[int, ResultKind]) -> None:
        self.attempts = attempts
        self.calls = 0
        self.cancelled: list[int] = []
        self.ended: list[int] = []

    async def work(self, attempt: int) -> CallResult[int]:
        assert attempt == self.calls
        self.calls += 1
        took_us, kind = self.attempts[min(attempt, len(self.attempts) - 1)]
        try:
            await pause_us(took_us)
        except asyncio.CancelledError:
            self.cancelled.append(attempt)
            raise
        self.ended.append(attempt)
        return CallResult(kind, attempt)


async def warm(policy: Hedge, loop: VirtualLoop, took_us: int = 10 * MS, calls: int = 60) -> None:
    await asyncio.gather(
        *(policy.call(Backend((took_us, ResultKind.OK)).work, GET, loop) for _ in range(calls))
    )
    await pause_us(policy.settings.refresh_us)


def hedge(budget: RetryBudgetSettings = RICH, **settings: object) -> Hedge:
    return Hedge(RetryBudgets(budget), HedgeSettings(**settings))  # type: ignore[arg-type]


def test_a_late_call_is_sent_once_more_and_the_first_answer_wins() -> None:
    async def story(loop: VirtualLoop) -> None:
        policy = hedge()
        await warm(policy, loop)
        backend = Backend((10 * S, ResultKind.OK), (5 * MS, ResultKind.OK))
        began_us = loop.now_us()
        answer = await policy.call(backend.work, GET, loop, idempotent=True)
        took_us = loop.now_us() - began_us
        assert answer.unwrap() == 1
        assert 14 * MS < took_us < 16 * MS, "the p95 of 10 ms and the hedge's 5 ms"
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert backend.cancelled == [0], "the loser does not run on"
        assert policy.stats()[:5] == (61, 1, 1, 0, 0)

    run(story)


def test_a_call_in_time_is_not_hedged_and_the_first_may_still_win() -> None:
    async def story(loop: VirtualLoop) -> None:
        policy = hedge()
        await warm(policy, loop)
        quick = Backend((5 * MS, ResultKind.OK))
        assert (await policy.call(quick.work, GET, loop, idempotent=True)).unwrap() == 0
        assert quick.calls == 1
        close = Backend((12 * MS, ResultKind.OK), (50 * MS, ResultKind.OK))
        assert (await policy.call(close.work, GET, loop, idempotent=True)).unwrap() == 0
        await pause_us(1)
        assert close.cancelled == [1]
        assert policy.stats().won == 0
        assert policy.stats().running == 0

    run(story)


@pytest.mark.parametrize(
    ("request_", "idempotent"),
    [
        (GET, False),
        (Request("k", operation="get", criticality=Criticality.BULK), True),
        (Request("k", operation="other"), True),
    ],
    ids=["not idempotent", "bulk", "too few samples"],
)
def test_what_is_never_sent_twice(request_: Request, idempotent: bool) -> None:
    async def story(loop: VirtualLoop) -> None:
        policy = hedge()
        await warm(policy, loop)
        backend = Backend((S, ResultKind.OK))
        await policy.call(backend.work, request_, loop, idempotent=idempotent)
        assert backend.calls == 1

    run(story)


def test_a_hedge_that_could_not_be_sent_before_the_deadline_is_not_waited_for() -> None:
    async def story(loop: VirtualLoop) -> None:
        policy = hedge()
        await warm(policy, loop)
        soon = Request("k", operation="get", deadline_us=loop.now_us() + 5 * MS)
        assert policy.delay_us(soon, loop.now_us(), idempotent=True) == NEVER
        later = Request("k", operation="get", deadline_us=loop.now_us() + 50 * MS)
        assert 9 * MS < policy.delay_us(later, loop.now_us(), idempotent=True) < 11 * MS

    run(story)


def test_when_everything_slows_down_the_budget_holds_the_hedges_to_its_share() -> None:
    async def story(loop: VirtualLoop) -> None:
        budget = RetryBudgetSettings(reserve_milli_per_s=0)
        policy = hedge(budget)
        await warm(policy, loop)
        retry = Retry(SeededChance(1), None, policy.budgets)
        backends = [Backend((100 * MS, ResultKind.OK)) for _ in range(500)]

        async def call(backend: Backend) -> None:
            async def hedged(_: int) -> CallResult[int]:
                return await policy.call(backend.work, GET, loop, idempotent=True)

            await retry.call(hedged, GET, loop, idempotent=True)

        await asyncio.gather(*(call(backend) for backend in backends))
        assert sum(backend.calls for backend in backends) == 550
        assert policy.stats().budget_spent == 450

    run(story)


def test_an_error_does_not_win_while_another_attempt_runs() -> None:
    async def story(loop: VirtualLoop) -> None:
        policy = hedge()
        await warm(policy, loop)
        backend = Backend((20 * MS, ResultKind.FAILED), (20 * MS, ResultKind.OK))
        assert (await policy.call(backend.work, GET, loop, idempotent=True)).unwrap() == 1
        both = Backend((20 * MS, ResultKind.FAILED), (20 * MS, ResultKind.OVERLOADED))
        answer = await policy.call(both.work, GET, loop, idempotent=True)
        assert not answer.ok
        no_more = hedge(hedges_max=3)
        await warm(no_more, loop)
        failed = Backend((15 * MS, ResultKind.FAILED), (S, ResultKind.OK))
        await no_more.call(failed.work, GET, loop, idempotent=True)
        assert failed.calls == 2, "after an error no further hedge is sent"
        fast = Backend((MS, ResultKind.FAILED))
        assert (await policy.call(fast.work, GET, loop, idempotent=True)).kind is ResultKind.FAILED
        assert fast.calls == 1, "an early error is the retry's business"

    run(story)


def test_the_p95_does_not_shrink_by_what_loses() -> None:
    async def story(loop: VirtualLoop) -> None:
        policy = hedge(windows=60)
        await warm(policy, loop)
        for n in range(300):
            first_us = 10 * MS if n % 2 else 500 * MS
            backend = Backend((first_us, ResultKind.OK), (MS, ResultKind.OK))
            await policy.call(backend.work, GET, loop, idempotent=True)
        delay_us = policy.delay_us(GET, loop.now_us(), idempotent=True)
        assert delay_us >= 10 * MS, "late calls are entered with the time they had taken"

    run(story)


def test_fast_failures_do_not_make_good_calls_look_late() -> None:
    async def story(loop: VirtualLoop) -> None:
        policy = hedge()
        await warm(policy, loop)
        for _ in range(1500):
            await policy.call(Backend((100, ResultKind.FAILED)).work, GET, loop)
        await pause_us(S)
        assert policy.delay_us(GET, loop.now_us(), idempotent=True) > 9 * MS

    run(story)


def test_a_cancelled_call_cancels_all_its_attempts() -> None:
    async def story(loop: VirtualLoop) -> None:
        policy = hedge(hedges_max=2)
        await warm(policy, loop)
        backend = Backend((S, ResultKind.OK))
        call = asyncio.ensure_future(policy.call(backend.work, GET, loop, idempotent=True))
        await pause_us(35 * MS)
        assert policy.stats().running == 3
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await pause_us(1)
        assert sorted(backend.cancelled) == [0, 1, 2]
        assert policy.stats().running == 0

    run(story)


def test_the_winner_does_not_wait_for_a_loser_that_will_not_go() -> None:
    async def story(loop: VirtualLoop) -> None:
        policy = hedge()
        await warm(policy, loop)
        errors: list[object] = []
        loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))

        async def work(attempt: int) -> CallResult[int]:
            if attempt == 1:
                await pause_us(MS)
                return CallResult(ResultKind.OK, 1)
            try:
                await pause_us(S)
            except asyncio.CancelledError:
                await pause_us(S)
                raise ValueError("a bug of the loser") from None
            return CallResult(ResultKind.OK, 0)

        began_us = loop.now_us()
        assert (await policy.call(work, GET, loop, idempotent=True)).unwrap() == 1
        assert loop.now_us() - began_us < 20 * MS
        assert policy.stats().running == 1
        await pause_us(2 * S)
        assert policy.stats().running == 0
        assert [type(error) for error in errors] == [ValueError]

    run(story)


def test_a_bug_passes_through() -> None:
    async def story(loop: VirtualLoop) -> None:
        async def bug(_: int) -> CallResult[int]:
            raise KeyError("x")

        policy = hedge()
        with pytest.raises(KeyError):
            await policy.call(bug, GET, loop)
        assert policy.stats().running == 0

    run(story)


def test_sketches_are_bounded() -> None:
    async def story(loop: VirtualLoop) -> None:
        policy = hedge(keys_max=2, samples_min=1)
        for name in "abc":
            await policy.call(Backend((MS, ResultKind.OK)).work, Request("k", operation=name), loop)
        assert policy.stats().keys == 2
        assert policy.stats().untracked > 0
        await pause_us(20 * S)
        await policy.call(Backend((MS, ResultKind.OK)).work, Request("k", operation="c"), loop)
        assert policy.delay_us(Request("k", operation="c"), loop.now_us(), idempotent=True) >= 0

    run(story)


@pytest.mark.parametrize(
    ("field", "value"), [("quantile", 1.0), ("hedges_max", 11), ("delay_us_max", 1)]
)
def test_a_wrong_setting_is_named(field: str, value: object) -> None:
    with pytest.raises(BadValue, match=rf"hedge\.{field}"):
        hedge(RICH, **{field: value})


attempts = st.lists(
    st.tuples(st.integers(1, 40_000), st.sampled_from(list(ResultKind))), min_size=1, max_size=4
)


@given(attempts, st.integers(0, 3), st.integers(0, 60_000))
def test_nothing_leaks_however_it_ends(
    plan: list[tuple[int, ResultKind]], hedges_max: int, cancel_after_us: int
) -> None:
    async def story(loop: VirtualLoop) -> None:
        policy = hedge(hedges_max=hedges_max, samples_min=5)
        await warm(policy, loop, 2 * MS, 10)
        backend = Backend(*plan)
        call = asyncio.ensure_future(policy.call(backend.work, GET, loop, idempotent=True))
        await pause_us(cancel_after_us)
        if call.cancel():
            with pytest.raises(asyncio.CancelledError):
                await call
        else:
            answer = call.result()
            kinds = {plan[min(n, len(plan) - 1)][1] for n in range(backend.calls)}
            assert answer.kind in kinds
        await pause_us(1)
        assert policy.stats().running == 0
        assert backend.calls <= 1 + hedges_max
        assert sorted(backend.ended + backend.cancelled) == list(range(backend.calls))
        assert loop.now_us() > START_US

    run(story)
