from __future__ import annotations

import asyncio

import pytest

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import OutcomeUnknown, Refused, Unavailable
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import DEADLINE, QUOTA_SPENT, RETRIES_SPENT, SHED, Reason
from sluicegate.kernels.verdict import NEVER
from sluicegate.policies.client.call_result import (
    CallResult,
    ResultKind,
    result_of,
    result_of_error,
)
from tests.policies.virtual import run


def refused(reason: Reason, retry_after_us: int) -> Refused:
    return Refused(Decision(False, 0, retry_after_us, 0, reason, "rule"))


def named(error: Exception) -> CallResult[object]:
    result = result_of_error(error)
    assert result is not None
    return result


def test_a_quota_and_an_overload_are_different_refusals() -> None:
    assert named(refused(QUOTA_SPENT, 7)).kind is ResultKind.LIMITED
    assert named(refused(QUOTA_SPENT, 7)).retry_after_us == 7
    assert named(refused(SHED, 0)).kind is ResultKind.OVERLOADED
    assert named(refused(DEADLINE, 0)).kind is ResultKind.TIMED_OUT


def test_a_refusal_that_no_waiting_turns_is_not_to_be_repeated() -> None:
    assert named(refused(SHED, NEVER)).dont_retry
    assert named(refused(SHED, NEVER)).retry_after_us == 0
    assert named(refused(RETRIES_SPENT, 5)).dont_retry
    assert not named(refused(SHED, 5)).dont_retry


def test_errors_of_the_network_are_failures_and_only_a_refused_connection_was_not_begun() -> None:
    assert named(ConnectionRefusedError()).kind is ResultKind.UNREACHED
    assert named(ConnectionResetError()).kind is ResultKind.FAILED
    assert named(TimeoutError()).kind is ResultKind.TIMED_OUT
    assert named(Unavailable("it", "gone")).kind is ResultKind.FAILED
    unknown = named(OutcomeUnknown("it", "no answer"))
    assert unknown.kind is ResultKind.FAILED
    assert unknown.may_have_run  # so that only an idempotent call is repeated
    assert not named(ConnectionRefusedError()).may_have_run
    assert named(ConnectionResetError()).may_have_run


def test_a_bug_is_nobodys_answer() -> None:
    assert result_of_error(KeyError("x")) is None

    async def bug() -> CallResult[int]:
        raise KeyError("x")

    async def story(_: object) -> None:
        with pytest.raises(KeyError):
            await result_of(bug())

    run(story)


def test_a_cancelled_call_stays_cancelled() -> None:
    async def story(_: object) -> None:
        async def never() -> CallResult[int]:
            await asyncio.Event().wait()
            return CallResult(ResultKind.OK, 1)

        task = asyncio.ensure_future(result_of(never()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(story)


def test_the_result_is_the_value_or_raises_what_went_wrong() -> None:
    assert CallResult(ResultKind.OK, 3).unwrap() == 3
    with pytest.raises(TimeoutError):
        CallResult[int](ResultKind.TIMED_OUT, error=TimeoutError()).unwrap()
    with pytest.raises(Unavailable):
        CallResult[int](ResultKind.FAILED).unwrap()


def test_every_kind_has_an_outcome() -> None:
    outcomes = {kind: CallResult[int](kind).outcome for kind in ResultKind}
    assert outcomes[ResultKind.OK] is Outcome.SUCCESS
    dropped = {kind for kind, outcome in outcomes.items() if outcome is Outcome.DROPPED}
    assert dropped == {ResultKind.TIMED_OUT, ResultKind.UNREACHED, ResultKind.OVERLOADED}
    assert {kind for kind in ResultKind if CallResult[int](kind).is_failure} == {
        ResultKind.FAILED,
        ResultKind.TIMED_OUT,
        ResultKind.UNREACHED,
    }
