"""Resilient: any function, plain or asynchronous, as a call of a client.

    @resilient(attempts=3, idempotent=True)
    async def trends(listing: str) -> list[str]: ...

    @resilient(client, "trends", idempotent=True)  # shares what the client knows of the backend
    def trends_now(listing: str) -> list[str]: ...

The value that the function returns is the result. An exception that `errors/registry.py` or `on`
knows is a failure of the backend. Any other exception passes through, and nothing repeats the call.

A generator is refused when it is decorated: its work begins after the call has ended.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.request import Request, make_request
from sluicegate.policies.client.call_result import CallResult, result_of_value
from sluicegate.policies.settings import check_type
from sluicegate.resilience.client.calls import Call, ResilientClient
from sluicegate.resilience.client.claims import class_of
from sluicegate.resilience.client.client import Client
from sluicegate.resilience.errors.registry import NO_MATCH, ErrorMatch, rules_of

F = TypeVar("F", bound=Callable[..., Any])


def resilient(
    client: ResilientClient | None = None,
    backend: str = "",
    *,
    operation: str = "",
    idempotent: bool = False,
    on: ErrorMatch = NO_MATCH,
    ignore: ErrorMatch = NO_MATCH,
    timeout_s: float | None = None,
    attempt_timeout_s: float | None = None,
    attempts: int | None = None,
) -> Callable[[F], F]:
    """Return a decorator; the breaker goes by backend and operation, or the function's name.

    Without a client each function has its own, with these limits. Only `idempotent` work is
    repeated if it may have run. `on` adds exceptions that are failures, `ignore` those that are
    not.
    """
    if client is not None:
        remedy = "write @resilient(), as @resilient(attempts=3), or give a Client first"
        check_type("resilient", client, ResilientClient, remedy)
    if client is None:
        client = Client(timeout_s=timeout_s, attempt_timeout_s=attempt_timeout_s, attempts=attempts)
    elif not (timeout_s is attempt_timeout_s is attempts is None):
        raise BadValue("resilient", "limits and a client", "give the limits to the client")
    shared, errors = client, rules_of(on, ignore)

    def decorate(function: F) -> F:
        name = operation or getattr(function, "__qualname__", type(function).__qualname__)
        if not callable(function):
            raise BadValue("resilient", function, "decorate a function")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise BadValue("resilient", name, "decorate a function that returns a value")

        def begin() -> Request:
            return make_request("", shard=backend or name, operation=name, criticality=class_of())

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def call(*args: Any, **kwargs: Any) -> Any:
                async def attempt(_: Call) -> CallResult[Any]:
                    awaited: Awaitable[Any] = function(*args, **kwargs)
                    return result_of_value(await awaited)

                result = await shared.call(attempt, begin(), idempotent=idempotent, errors=errors)
                return result.unwrap()

            return cast("F", call)

        @functools.wraps(function)
        def call_now(*args: Any, **kwargs: Any) -> Any:
            def attempt(_: Call) -> CallResult[Any]:
                value = function(*args, **kwargs)
                if inspect.iscoroutine(value):  # of a callable that does not look like one
                    value.close()
                    raise BadValue("resilient", name, "decorate an `async def` that awaits it")
                return result_of_value(value)

            result = shared.call_now(attempt, begin(), idempotent=idempotent, errors=errors)
            return result.unwrap()

        return cast("F", call_now)

    return decorate
