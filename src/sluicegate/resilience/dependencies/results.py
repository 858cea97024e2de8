"""Results of work: what a value or an exception means to a dependency and to `gather`.

A hard dependency passes bugs through. A part that the answer can do without fails by any exception.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar, cast

from sluicegate.contracts.errors import BadValue
from sluicegate.policies.client.call_result import CallResult, ResultKind, result_of_value
from sluicegate.resilience.errors.registry import result_of_driver_error

T = TypeVar("T")
# Returns the result that an exception stands for; None for one that passes through.
Reading: TypeAlias = Callable[[Exception], CallResult[object] | None]


def any_failure(error: Exception) -> CallResult[object]:
    """Return the result of any exception; the caller's own fault is a failure too."""
    found = result_of_driver_error(error)
    if found is None or found.kind in {ResultKind.REJECTED, ResultKind.CANCELLED}:
        return CallResult(ResultKind.FAILED, error=error)
    return found


async def result_of_work(work: Awaitable[T], reading: Reading) -> CallResult[T]:
    """Await the work, and return what came of it."""
    try:
        return result_of_value(await work)
    except Exception as error:
        return _read(error, reading)


def result_now(work: Callable[[], T], name: str, reading: Reading) -> CallResult[T]:
    """Do work that blocks, and return what came of it."""
    try:
        value = work()
    except Exception as error:
        return _read(error, reading)
    if inspect.iscoroutine(value):
        value.close()
        raise BadValue(name, "a coroutine", "await the form for tasks of an `async def`")
    return result_of_value(value)


def _read(error: Exception, reading: Reading) -> CallResult[T]:
    found = reading(error)
    if found is None:
        raise error
    return cast("CallResult[T]", found)
