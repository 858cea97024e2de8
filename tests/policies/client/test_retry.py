from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue, OutcomeUnknown
from sluicegate.contracts.request import Request
from sluicegate.kernels.backoff import Backoff
from sluicegate.kernels.verdict import NEVER
from sluicegate.policies.client.call_result import CallResult, ResultKind, result_of
from sluicegate.policies.client.retry import NOT_IDEMPOTENT, Retry, RetryPlan, RetrySettings, decide
from sluicegate.policies.client.retry_budget import RetryBudgets, RetryBudgetSettings
from sluicegate.testing import SeededChance
from tests.policies.virtual import START_US, VirtualLoop, pause_us, run

S = 1_000_000
PLENTY = RetryBudgetSettings(reserve_milli_per_s=1_000_000)


class Backend:
    """Answers from a list, then well; notes when it was asked."""

    def __init__(self, loop: VirtualLoop, *answers: CallResult[str], takes_us: int = 0) -> None:
        self.loop = loop
        self.answers = list(answers)
        self.asked_us: list[int] = []
        self.takes_us = takes_us

    async def work(self, attempt: int) -> CallResult[str]:
        assert attempt >= 0
        self.asked_us.append(self.loop.now_us() - START_US)
        if self.takes_us:
            await pause_us(self.takes_us)
        return self.answers.pop(0) if self.answers else CallResult(ResultKind.OK, "done")


def retry(settings: RetrySettings | None = None, *, poor: bool = False) -> Retry:
    budgets = RetryBudgets(RetryBudgetSettings(reserve_milli_per_s=0) if poor else PLENTY)
    return Retry(SeededChance(1), settings, budgets)


def planned(
    answer: CallResult[str],
    *,
    attempt: int = 0,
    draw: float = 0.5,
    deadline_us: int | None = None,
    idempotent: bool = True,
    level: Criticality = Criticality.DEGRADED,
    **settings: object,
) -> RetryPlan:
    retry_settings = RetrySettings(**settings)  # type: ignore[arg-type]
    request = Request("k", deadline_us=deadline_us, criticality=level)
    return decide(
        retry_settings,
        Backoff(retry_settings),
        request,
        answer,
        attempt,
        0,
        draw,
        idempotent=idempotent,
    )


def test_unknown_outcome_is_repeated_only_if_idempotent() -> None:
    async def lost() -> CallResult[str]:
        raise OutcomeUnknown("the engine", "no answer in 50 ms")

    answer = asyncio.run(result_of(lost()))
    assert planned(answer, idempotent=False) == RetryPlan(NEVER, NOT_IDEMPOTENT)
    assert planned(answer, idempotent=True).wait_us > 0


def test_a_call_that_fails_is_sent_again_after_a_wait() -> None:
    async def story(loop: VirtualLoop) -> None:
        backend = Backend(loop, CallResult(ResultKind.FAILED), CallResult(ResultKind.TIMED_OUT))
        policy = retry()
        answer = await policy.call(backend.work, Request("k"), loop, idempotent=True)
        assert answer.unwrap() == "done"
        assert len(backend.asked_us) == 3
        assert 0 < backend.asked_us[1] <= 100_000
        assert backend.asked_us[1] < backend.asked_us[2] <= 300_000
        assert policy.stats()[:4] == (1, 3, 1, 0)
        assert policy.budgets.stats()[:3] == (1, 2, 0)

    run(story)


def test_work_that_may_have_been_begun_is_repeated_only_if_it_is_idempotent() -> None:
    assert planned(CallResult(ResultKind.FAILED), idempotent=False).stopped == "not_idempotent"
    assert planned(CallResult(ResultKind.TIMED_OUT), idempotent=False).stopped == "not_idempotent"
    assert planned(CallResult(ResultKind.UNREACHED), idempotent=False).wait_us >= 0
    assert planned(CallResult(ResultKind.OVERLOADED), idempotent=False).wait_us >= 0


def test_what_will_not_be_better_next_time_is_not_repeated() -> None:
    for kind in (ResultKind.OK, ResultKind.REJECTED, ResultKind.CANCELLED):
        assert planned(CallResult(kind)) == RetryPlan(NEVER, "not_for_retry")


def test_a_quotas_refusal_waits_for_its_own_hint_and_without_one_is_final() -> None:
    assert planned(CallResult(ResultKind.LIMITED)).stopped == "not_for_retry"
    assert planned(CallResult(ResultKind.LIMITED, retry_after_us=5 * S)).wait_us >= 5 * S


def test_a_hint_is_the_least_wait_and_those_who_had_the_same_one_come_apart() -> None:
    answer: CallResult[str] = CallResult(ResultKind.OVERLOADED, retry_after_us=5 * S)
    waits = [planned(answer, draw=draw / 10).wait_us for draw in range(10)]
    assert min(waits) == 5 * S
    assert len(set(waits)) == 10
    too_long: CallResult[str] = CallResult(ResultKind.OVERLOADED, retry_after_us=301 * S)
    assert planned(too_long) == RetryPlan(NEVER, "dont_retry")


def test_a_mark_of_the_backend_ends_it() -> None:
    assert planned(CallResult(ResultKind.OVERLOADED, dont_retry=True)) == RetryPlan(
        NEVER, "dont_retry"
    )


def test_in_the_seeds_form_an_overload_is_never_repeated() -> None:
    assert planned(CallResult(ResultKind.OVERLOADED), on_overload="never").stopped == "dont_retry"
    assert planned(CallResult(ResultKind.FAILED), on_overload="never").stopped == ""


def test_each_class_has_its_number_and_bulk_work_has_one_attempt() -> None:
    assert planned(CallResult(ResultKind.FAILED), level=Criticality.BULK).stopped == "attempts"
    assert planned(CallResult(ResultKind.FAILED), attempt=1).stopped == ""
    assert planned(CallResult(ResultKind.FAILED), attempt=2).stopped == "attempts"


def test_no_retry_that_would_be_done_for_nobody() -> None:
    late = {"base_us": 100, "wait_us_max": 100, "jitter": "none", "slack_us": 50}
    failed: CallResult[str] = CallResult(ResultKind.FAILED)
    assert planned(failed, deadline_us=150, **late) == RetryPlan(NEVER, "deadline")  # type: ignore[arg-type]
    assert planned(failed, deadline_us=151, **late) == RetryPlan(100, "")  # type: ignore[arg-type]


def test_after_a_busy_loop_the_deadline_is_looked_at_again() -> None:
    async def story(loop: VirtualLoop) -> None:
        class Late:
            """A clock that is 1 s on when it is asked the second time after the failure."""

            calls = 0

            def now_us(self) -> int:
                self.calls += 1
                return loop.now_us() + (S if self.calls > 2 else 0)

        backend = Backend(loop, CallResult(ResultKind.FAILED))
        request = Request("k", deadline_us=START_US + S)
        answer = await retry().call(backend.work, request, Late(), idempotent=True)
        assert answer.stop_reason == "deadline"
        assert len(backend.asked_us) == 1

    run(story)


def test_only_one_layer_retries() -> None:
    async def story(loop: VirtualLoop) -> None:
        calls = 0

        async def lowest(_: int) -> CallResult[str]:
            nonlocal calls
            calls += 1
            return CallResult(ResultKind.FAILED)

        inner, middle, outer = retry(), retry(), retry()
        request = Request("k")

        async def third(_: int) -> CallResult[str]:
            return await inner.call(lowest, request, loop, idempotent=True)

        async def second(_: int) -> CallResult[str]:
            return await middle.call(third, request, loop, idempotent=True)

        answer = await outer.call(second, request, loop, idempotent=True)
        assert calls == 3, "not 27"
        assert answer.dont_retry
        assert answer.stop_reason == "attempts"
        assert outer.stats().marked_final == 1

    run(story)


def test_retries_are_a_share_of_the_traffic_however_much_fails() -> None:
    async def story(loop: VirtualLoop) -> None:
        policy = retry(poor=True)
        calls = 0

        async def fails(_: int) -> CallResult[str]:
            nonlocal calls
            calls += 1
            return CallResult(ResultKind.FAILED)

        for _ in range(1000):
            await policy.call(fails, Request("k"), loop, idempotent=True)
        assert 1090 <= calls <= 1100
        assert policy.stats().budget_spent >= 900

    run(story)


def test_the_retries_of_bulk_work_spend_nothing_of_what_critical_work_needs() -> None:
    budgets = RetryBudgets(RetryBudgetSettings(reserve_milli_per_s=0))
    bulk, critical = (
        Request("k", shard="a", criticality=level)
        for level in (Criticality.BULK, Criticality.CRITICAL)
    )
    for _ in range(10):
        budgets.deposit(bulk, 0)
        budgets.deposit(critical, 0)
    assert budgets.withdraw(bulk, 0)
    assert not budgets.withdraw(bulk, 0)
    assert budgets.balance(critical, 0) == 1
    assert budgets.withdraw(critical, 0)
    assert not budgets.withdraw(Request("k", shard="b"), 0)
    assert budgets.stats() == (20, 2, 2, 3, 0)


def test_budgets_are_bounded_and_a_key_without_one_is_not_repeated() -> None:
    budgets = RetryBudgets(RetryBudgetSettings(keys_max=2, reserve_milli_per_s=1000))
    for shard in "abc":
        budgets.deposit(Request("k", shard=shard), 0)
    assert budgets.withdraw(Request("k", shard="b"), 0)
    assert not budgets.withdraw(Request("k", shard="c"), 0)
    assert budgets.withdraw(Request("k", shard="c"), 20 * S), "the idle ones have gone"
    assert budgets.stats().keys == 2


def test_a_call_cancelled_while_it_waits_leaves_nothing_behind() -> None:
    async def story(loop: VirtualLoop) -> None:
        policy = retry()
        backend = Backend(loop, *[CallResult[str](ResultKind.FAILED, retry_after_us=60 * S)])
        call = asyncio.ensure_future(policy.call(backend.work, Request("k"), loop, idempotent=True))
        await pause_us(S)
        assert policy.stats().inflight == 1
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert policy.stats().inflight == 0

    run(story)


def test_a_bug_passes_through_and_is_not_repeated() -> None:
    async def story(loop: VirtualLoop) -> None:
        calls = 0

        async def bug(_: int) -> CallResult[str]:
            nonlocal calls
            calls += 1
            raise KeyError("x")

        policy = retry()
        with pytest.raises(KeyError):
            await policy.call(bug, Request("k"), loop, idempotent=True)
        assert calls == 1
        assert policy.stats().inflight == 0

    run(story)


def test_after_an_outage_a_thousand_callers_do_not_come_at_one_instant() -> None:
    async def story(loop: VirtualLoop) -> None:
        policy = retry(RetrySettings(base_us=1 * S, wait_us_max=1 * S))
        again: list[int] = []

        async def work(attempt: int) -> CallResult[str]:
            if attempt == 0:
                return CallResult(ResultKind.OVERLOADED, retry_after_us=2 * S)
            again.append(loop.now_us() - START_US)
            return CallResult(ResultKind.OK, "done")

        await asyncio.gather(*(policy.call(work, Request("k"), loop) for _ in range(500)))
        assert min(again) >= 2 * S
        busiest = max(sum(1 for at in again if n <= at / 100_000 < n + 1) for n in range(20, 31))
        assert busiest < 100, "500 over a second: about 50 in each tenth"

    run(story)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("attempts", (1, 2, 3)),
        ("attempts", (0, 1, 1, 1)),
        ("wait_us_max", 1),
        ("jitter", "some"),
        ("on_overload", "x"),
        ("slack_us", -1),
    ],
)
def test_a_wrong_setting_is_named(field: str, value: object) -> None:
    with pytest.raises(BadValue, match=rf"retry\.{field}"):
        RetrySettings(**{field: value})  # type: ignore[arg-type]
    with pytest.raises(BadValue, match=r"retry_budget\.deposit_milli"):
        RetryBudgetSettings(deposit_milli=-1)


@given(st.lists(st.sampled_from(list(ResultKind)), max_size=6), st.booleans())
def test_there_are_never_more_attempts_than_allowed_nor_one_after_the_deadline(
    kinds: list[ResultKind], idempotent: bool
) -> None:
    async def story(loop: VirtualLoop) -> None:
        backend = Backend(loop, *[CallResult[str](kind) for kind in kinds], takes_us=100_000)
        policy = retry(RetrySettings(attempts=(5, 5, 5, 5)))
        request = Request("k", deadline_us=START_US + 500_000)
        answer = await policy.call(backend.work, request, loop, idempotent=idempotent)
        stats = policy.stats()
        assert stats.attempts == len(backend.asked_us) <= 5
        assert stats.inflight == 0
        assert all(at < 500_000 for at in backend.asked_us)
        assert answer.ok or answer.dont_retry
        assert policy.budgets.stats().granted == len(backend.asked_us) - 1

    run(story)
