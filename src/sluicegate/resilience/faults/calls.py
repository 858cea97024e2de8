"""Calls: any function with faults before it, for clients that have no transport here.

    @resilient(client, "prices", idempotent=True)
    @faulty(faults, "/price")
    async def price(item): ...

Below `resilient`, so that its retries and its breaker meet them. What fails is a `ConnectionError`,
as a network's failure is. Sync and async.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from threading import Event
from typing import Any, TypeVar, cast

from sluicegate.resilience.faults.injector import FaultInjector, Injection

F = TypeVar("F", bound=Callable[..., Any])


def faulty(faults: FaultInjector, route: str) -> Callable[[F], F]:
    """Return a decorator; the faults of this route come before each call."""

    def decorate(function: F) -> F:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def call(*args: Any, **kwargs: Any) -> Any:
                injection = faults.pick(route, _no_headers)
                if injection is not None:
                    await asyncio.sleep(injection.delay_us / 1_000_000)
                    _end(injection)
                return await function(*args, **kwargs)

            return cast("F", call)

        @functools.wraps(function)
        def call_now(*args: Any, **kwargs: Any) -> Any:
            injection = faults.pick(route, _no_headers)
            if injection is not None:
                if injection.delay_us:
                    Event().wait(injection.delay_us / 1_000_000)
                _end(injection)
            return function(*args, **kwargs)

        return cast("F", call_now)

    return decorate


def _end(injection: Injection) -> None:
    if injection.rule.abort:
        raise ConnectionResetError(f"the fault {injection.name} was injected")
    if injection.ends:
        what = injection.rule.error or injection.rule.status
        raise ConnectionError(f"the fault {injection.name} was injected: {what}")


def _no_headers(name: str) -> None:
    """A call has none."""
