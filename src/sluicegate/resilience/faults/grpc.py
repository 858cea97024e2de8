"""gRPC: server interceptors with faults, threaded and asyncio.

    grpc.server(pool, interceptors=[FaultInterceptor(faults)])

A route is a full method name. A status of HTTP becomes the code that gRPC's own mapping has for
it, and a broken connection is UNAVAILABLE, as which a client sees one. The mark is trailing
metadata.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from inspect import isasyncgenfunction, iscoroutinefunction
from threading import Event
from typing import Any, Final, final

from sluicegate.contracts.errors import MissingPackage
from sluicegate.doors.interceptors import behaviour_of, handler_like, looped_handler
from sluicegate.resilience.faults.injector import FIELD, FaultInjector, Injection

try:
    import grpc
    import grpc.aio
except ModuleNotFoundError as error:
    raise MissingPackage(error.name or "grpc", "grpc") from None

_KEY: Final = FIELD.lower()
_CODES: Final = {
    400: grpc.StatusCode.INTERNAL,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.UNIMPLEMENTED,
    429: grpc.StatusCode.UNAVAILABLE,
    502: grpc.StatusCode.UNAVAILABLE,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.UNAVAILABLE,
}


@final
class FaultInterceptor(grpc.ServerInterceptor):
    """For threaded servers."""

    def __init__(self, faults: FaultInjector) -> None:
        self.faults = faults

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Put the faults before the handler."""
        handler, method = continuation(handler_call_details), handler_call_details.method
        return handler if handler is None else self.threaded(handler, method)

    def threaded(self, handler: Any, method: str) -> Any:
        """Return a handler that runs in a thread, with the faults before it."""
        behaviour, faults = behaviour_of(handler), self.faults

        def enter(context: Any) -> Injection | None:
            injection = faults.pick(method, lambda name: _value(context, name))
            if injection is not None:
                _mark(context, injection)
                if injection.delay_us:
                    Event().wait(injection.delay_us / 1_000_000)
                if injection.ends:
                    context.abort(*_end_of(injection))
            return injection

        def one(message: Any, context: Any) -> Any:
            injection = enter(context)
            answer = behaviour(message, context)
            _mark(context, injection)
            return answer

        def many(message: Any, context: Any) -> Iterator[Any]:
            injection = enter(context)
            yield from behaviour(message, context)
            _mark(context, injection)

        return handler_like(handler, many if handler.response_streaming else one)


@final
class AsyncFaultInterceptor(grpc.aio.ServerInterceptor):
    """For asyncio servers."""

    def __init__(self, faults: FaultInjector) -> None:
        self.faults = faults

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        """Put the faults before the handler."""
        handler, method = await continuation(handler_call_details), handler_call_details.method
        if handler is None:
            return handler
        behaviour, faults = behaviour_of(handler), self.faults
        if not (iscoroutinefunction(behaviour) or isasyncgenfunction(behaviour)):
            return FaultInterceptor(faults).threaded(handler, method)

        async def enter(context: Any) -> Injection | None:
            injection = faults.pick(method, lambda name: _value(context, name))
            if injection is not None:
                _mark(context, injection)
                if injection.delay_us:
                    await asyncio.sleep(injection.delay_us / 1_000_000)
                if injection.ends:
                    await context.abort(*_end_of(injection))
            return injection

        return looped_handler(handler, enter, _mark)


def _end_of(injection: Injection) -> tuple[grpc.StatusCode, str]:
    rule, text = injection.rule, f"the fault {injection.name} was injected"
    if rule.status:
        return _CODES.get(rule.status, grpc.StatusCode.UNKNOWN), text
    if rule.error:
        return grpc.StatusCode.UNKNOWN, rule.error
    return grpc.StatusCode.UNAVAILABLE, text


def _mark(context: Any, injection: Injection | None) -> None:
    """Add the mark to what the handler has set."""
    if injection is None:
        return
    have = tuple(context.trailing_metadata() or ()) if hasattr(context, "trailing_metadata") else ()
    if all(key != _KEY for key, _ in have):
        context.set_trailing_metadata((*have, (_KEY, injection.name)))


def _value(context: Any, name: str) -> str | None:
    for key, value in context.invocation_metadata() or ():
        if key == name:
            return value.decode("latin-1") if isinstance(value, bytes) else str(value)
    return None
