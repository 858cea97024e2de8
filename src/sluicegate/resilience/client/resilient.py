"""Resilient: any function, plain or asynchronous, as a call of a client.

    @resilient(client, "trends", idempotent=True)
    async def trends(listing: str) -> list[str]: ...

What the function returns is its result, and what it raises is one if `result_of_error` knows it:
`Refused`, time-outs, broken connections. Any other error passes through, and nothing repeats it.

A generator is refused when it is decorated: its work begins after the call has ended.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.request import Request, make_request
from sluicegate.policies.call_result import CallResult, result_of_value
from sluicegate.resilience.client.calls import Call, ResilientClient
from sluicegate.resilience.client.claims import class_of

F = TypeVar("F", bound=Callable[..., Any])


def resilient(
    client: ResilientClient, backend: str, *, operation: str = "", idempotent: bool = False
) -> Callable[[F], F]:
    """Return a decorator; the breaker goes by backend and operation, or the function's name."""

    def decorate(function: F) -> F:
        name = operation or getattr(function, "__qualname__", type(function).__qualname__)
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise BadValue("resilient", name, "decorate a function that returns a value")

        def begin() -> Request:
            return make_request("", shard=backend, operation=name, criticality=class_of())

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def call(*args: Any, **kwargs: Any) -> Any:
                async def attempt(_: Call) -> CallResult[Any]:
                    awaited: Awaitable[Any] = function(*args, **kwargs)
                    return result_of_value(await awaited)

                return (await client.call(attempt, begin(), idempotent=idempotent)).unwrap()

            return cast("F", call)

        @functools.wraps(function)
        def call_now(*args: Any, **kwargs: Any) -> Any:
            def attempt(_: Call) -> CallResult[Any]:
                value = function(*args, **kwargs)
                if inspect.iscoroutine(value):  # of a callable that does not look like one
                    value.close()
                    raise BadValue("resilient", name, "decorate an `async def` that awaits it")
                return result_of_value(value)

            return client.call_now(attempt, begin(), idempotent=idempotent).unwrap()

        return cast("F", call_now)

    return decorate
