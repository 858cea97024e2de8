"""Rejections: results of calls that this process rejects, and overloads that it hands on."""

from __future__ import annotations

from typing import TypeVar, cast

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.reasons import BREAKER_OPEN, CLIENT_THROTTLED, NO_HOST
from sluicegate.contracts.request import Request
from sluicegate.policies.client.breaker import PRESSURE
from sluicegate.policies.client.call_result import CallResult, ResultKind, result_of_error
from sluicegate.resilience.context import served_request

T = TypeVar("T")


def last_word(result: CallResult[T] | None, refused: CallResult[object]) -> CallResult[T]:
    """Return the last result of the backend, if there is one, with why the call ended."""
    if result is None:
        return cast("CallResult[T]", refused)
    result.dont_retry = True
    result.stop_reason = refused.stop_reason
    return result


def handed_on(result: CallResult[T]) -> CallResult[T]:
    """Record an overload that is not to be repeated with the request that is being served.

    A breaker that failures have opened is no overload: the fault may be in this process alone, so
    its caller should retry at another one.
    """
    if result.kind is not ResultKind.OVERLOADED or not result.dont_retry or result.unproven:
        return result
    served = served_request()
    if served is None:
        return result
    if isinstance(result.error, Refused):
        decision = result.error.decision
        if decision.reason in (BREAKER_OPEN, NO_HOST) and decision.cause != PRESSURE:
            return result
    served.record_overload(result.retry_after_us)
    return result


def at_host(request: Request, host: str) -> Request:
    """Return the same request to one host, which has its own breaker and throttle."""
    found = request.copy()
    found.shard = host
    return found


def rejection(decision: Decision) -> CallResult[object]:
    """Return the result of a rejection by this process, which is not worth repeating here."""
    found = result_of_error(Refused(decision))
    assert found is not None  # a refusal always is a result
    found.dont_retry = True
    found.stop_reason = CLIENT_THROTTLED.name if decision.reason is None else decision.reason.name
    return found
