"""gRPC: protected servers of grpcio, threaded and asyncio.

    grpc.server(pool, interceptors=[ProtectInterceptor(Resilience())])
    grpc.aio.server(interceptors=[AsyncProtectInterceptor(Resilience())])

The endpoint of a call is its full method name, its deadline that of `grpc-timeout`, and its claims
are metadata with the names of `doors/claims.py`. A refusal ends with the status of its reason;
where we are overloaded, the mark is in its trailers. Threads have no queue (`protection.py` says
why), and the handlers of an asyncio server have one. What an asyncio server would run in threads of
its own is not protected there: a queue belongs to a loop.

grpcio has read a message, whole, before a handler is called: a call that waits weighs as many bytes
as arrived, and one that streams `STREAM_BYTES`. A thread that is rejected releases its message at
once. grpcio cancels the handler of a caller that has hung up, so a waiting call leaves the queue.

A call that fails after a backend of its own has said that it has too much hands that on in its
trailers. What a handler returns after the time of its caller is not serialised.

A slot is held until the handler has ended; of an asyncio handler that streams its answer, until its
first message (`hold_streams`: its last).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any, Final, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, MissingPackage
from sluicegate.contracts.guard import Judgement
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import DEADLINE
from sluicegate.contracts.request import Request
from sluicegate.doors.claims import CRITICALITY, criticality_of
from sluicegate.doors.interceptors import (
    add_trailing,
    behaviour_of,
    code_of,
    handler_like,
    message_of,
)
from sluicegate.policies.admission.gate import GatePermit
from sluicegate.policies.stack import outcome_of
from sluicegate.resilience.context import serve
from sluicegate.resilience.overload_mark import HANDED_ON
from sluicegate.resilience.server.protection import Protection, protection_of
from sluicegate.resilience.settings import Resilience

try:
    import grpc
    import grpc.aio
except ModuleNotFoundError as error:
    raise MissingPackage(error.name or "grpc", "grpc") from None

HEALTH: Final = ("/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch")
STREAM_BYTES: Final = 65_536  # of a call that streams its request: the window of HTTP/2
_NO_END_S: Final = 1e9
_MESSAGE_BYTES: Final[ContextVar[int]] = ContextVar("message_bytes")
_IN_VAIN: Final = (grpc.StatusCode.DEADLINE_EXCEEDED, DEADLINE.sentence)
_HANDED_ON: Final = tuple(HANDED_ON.grpc_trailers())
_DROPPED: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class _Door:
    """What both interceptors are: a protection in front of handlers, of whatever kind they are."""

    def __init__(self, protection: Protection, caller: Callable[[Any], str | None] | None) -> None:
        self.protection = protection
        self._caller = caller

    def bypasses(self, method: str) -> bool:
        return method in HEALTH or method in self.protection.bypass

    def begin(self, method: str, context: Any) -> Request:
        """Return the call as a request; a claim that cannot be understood raises `BadValue`."""
        left_s = _left_s(context)
        metadata = context.invocation_metadata() or ()
        name = CRITICALITY.decode("ascii")
        claims = [_raw(value) for key, value in metadata if key == name]
        return self.protection.begin(
            method,
            self.protection.clock.now_us(),
            left_us=-1 if left_s is None else int(left_s * 1e6),
            left_now=True,  # the library's own threads read the socket, and count from there
            criticality=criticality_of(claims),
            caller="" if self._caller is None else self._caller(context) or "",
        )

    def refusal(
        self, decision: Decision, request: Request
    ) -> tuple[Sequence[tuple[str, str]], grpc.StatusCode, str]:
        """Return the trailers, the status and the message."""
        judgement = Judgement(decision, ())
        mark = self.protection.mark_of(decision, request)
        trailers = [] if mark is None else mark.grpc_trailers()
        return trailers, code_of(judgement), message_of(judgement)

    @contextmanager
    def at_work(self, permit: GatePermit, request: Request, context: Any) -> Iterator[None]:
        """Let the handler work with the request's context; its slot ends with the block."""
        outcome = Outcome.IGNORE
        served = self.protection.served(request)
        # An abort of an asyncio server is sent at once, so the trailers are set as soon as the
        # overload is known. They say nothing beside a success.
        served.on_overload = lambda: add_trailing(context, _HANDED_ON)
        try:
            with serve(served):
                yield
            served.release_deadline()
            if served.overload_us < 0:
                outcome = _outcome_of(context)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                self.protection.record_hung_up(permit)
            if served.overload_us < 0:
                outcome = Outcome.DROPPED if context.code() in _DROPPED else outcome_of(error)
            raise
        finally:
            self.protection.end(permit, outcome)

    @contextmanager
    def streaming(self, permit: GatePermit) -> Iterator[Callable[[], object]]:
        """Count a stream, from its first message on; call what is given after each."""
        protection = self.protection
        began = False

        def release() -> None:
            nonlocal began
            if not began:
                began = True
                protection.streams += 1
                if not protection.settings.hold_streams:
                    protection.end(permit, Outcome.SUCCESS)

        try:
            yield release
        finally:
            protection.streams -= began


@final
class ProtectInterceptor(grpc.ServerInterceptor):
    """For threaded servers. `caller(context)` names the authenticated caller.

    A `protection` that is given instead of settings is made with `threaded=True`.
    """

    def __init__(
        self,
        settings: Resilience | None = None,
        *,
        caller: Callable[[Any], str | None] | None = None,
        protection: Protection | None = None,
    ) -> None:
        self.protection = protection_of(settings, protection, threaded=True)
        self._door = _Door(self.protection, caller)

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Put the protection in front of the handler."""
        handler, method = continuation(handler_call_details), handler_call_details.method
        if handler is None or self._door.bypasses(method):
            return handler
        behaviour, door = behaviour_of(handler), self._door

        def many(message: Any, context: Any) -> Iterator[Any]:
            try:
                request = door.begin(method, context)
            except BadValue as error:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
                return
            admitted = door.protection.admit_now(request, door.protection.clock.now_us())
            if isinstance(admitted, Decision):
                trailers, code, text = door.refusal(admitted, request)
                context.set_trailing_metadata(tuple(trailers))
                context.abort(code, text)
                return
            with door.at_work(admitted, request, context):
                answer = behaviour(message, context)
                if handler.response_streaming:
                    yield from answer
                    return
                if _is_in_vain(context):
                    context.abort(*_IN_VAIN)
                yield answer

        def one(message: Any, context: Any) -> Any:
            (answer,) = many(message, context)
            return answer

        return handler_like(handler, many if handler.response_streaming else one)


@final
class AsyncProtectInterceptor(grpc.aio.ServerInterceptor):
    """For asyncio servers. `caller(context)` names the authenticated caller."""

    def __init__(
        self,
        settings: Resilience | None = None,
        *,
        caller: Callable[[Any], str | None] | None = None,
        protection: Protection | None = None,
    ) -> None:
        self.protection = protection_of(settings, protection, threaded=False)
        self._door = _Door(self.protection, caller)

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        """Put the protection in front of the handler."""
        handler, method = await continuation(handler_call_details), handler_call_details.method
        if handler is None or self._door.bypasses(method):
            return handler
        behaviour, door = behaviour_of(handler), self._door
        if not (iscoroutinefunction(behaviour) or isasyncgenfunction(behaviour)):
            return handler

        def held_bytes() -> int:
            return _MESSAGE_BYTES.get(STREAM_BYTES)

        async def enter(context: Any) -> tuple[GatePermit, Request]:
            try:
                request = door.begin(method, context)
            except BadValue as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            now_us = door.protection.clock.now_us()
            admitted = await door.protection.admit(request, now_us, held_bytes())
            if isinstance(admitted, Decision):
                trailers, code, text = door.refusal(admitted, request)
                context.set_trailing_metadata(tuple(trailers))
                await context.abort(code, text)
            assert not isinstance(admitted, Decision)  # an abort raises
            return admitted, request

        async def one(message: Any, context: Any) -> Any:
            admitted, request = await enter(context)
            with door.at_work(admitted, request, context):
                answer = await behaviour(message, context)
                if _is_in_vain(context):
                    await context.abort(*_IN_VAIN)
                return answer

        async def many(message: Any, context: Any) -> AsyncIterator[Any]:
            admitted, request = await enter(context)
            with door.at_work(admitted, request, context):
                answers = behaviour(message, context)
                if hasattr(answers, "__aiter__"):
                    with door.streaming(admitted) as release:
                        async with aclosing(answers):
                            async for answer in answers:
                                yield answer
                                release()
                else:
                    await answers  # it writes to the context by itself

        return handler_like(
            handler,
            many if handler.response_streaming else one,
            None if handler.request_streaming else _weighing(handler.request_deserializer),
        )


def _weighing(deserialize: Callable[[bytes], Any] | None) -> Callable[[bytes], Any]:
    """Return a deserializer that remembers, for its call, how many bytes it was given."""

    def weigh(message: bytes) -> Any:
        _MESSAGE_BYTES.set(len(message))
        return message if deserialize is None else deserialize(message)

    return weigh


def _left_s(context: Any) -> float | None:
    """How much time the caller grants from now on, never below zero; None if it set no end."""
    left_s = context.time_remaining()
    # Without an end an asyncio server says None, and one of threads says centuries.
    return None if left_s is None or left_s >= _NO_END_S else max(left_s, 0.0)


def _is_in_vain(context: Any) -> bool:
    """Whether the time that the caller granted is over, and it waits no longer."""
    left_s = _left_s(context)
    return left_s is not None and left_s <= 0.0


def _outcome_of(context: Any) -> Outcome:
    """How it ended for a handler that returned; one may set a status and return."""
    return Outcome.DROPPED if context.code() in _DROPPED else Outcome.SUCCESS


def _raw(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("latin-1", "replace")
