"""gRPC: server interceptors for grpcio, threaded and asyncio.

    grpc.server(pool, interceptors=[LimitInterceptor(guard)])
    grpc.aio.server(interceptors=[AsyncLimitInterceptor(guard)])

A call is judged when its handler would begin: only there its peer is known. What is refused ends
with the status of its reason (RESOURCE_EXHAUSTED, UNAVAILABLE or DEADLINE_EXCEEDED) and trailing
metadata: the fields of HTTP, `sluicegate-reason`, `sluicegate-rule`, and `grpc-retry-pushback-ms`,
which gRPC's own retry policies obey; it is -1 where no retry can help. An admitted call gains the
fields in its trailing metadata, beside those its handler sets.

All four kinds of methods pass: what streams, streams as before.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any, Final, TypeAlias, TypeVar, final
from urllib.parse import unquote

from sluicegate.contracts.errors import MissingPackage, Unavailable
from sluicegate.contracts.guard import Guard, Judgement, check_guard
from sluicegate.doors.headers import Fields, retry_after_s, unavailable
from sluicegate.doors.problem import reason_of
from sluicegate.doors.proxies import Proxies, proxies_of

try:
    import grpc
    import grpc.aio
except ModuleNotFoundError as error:
    raise MissingPackage(error.name or "grpc", "grpc") from None

Metadata: TypeAlias = tuple[tuple[str, str], ...]
T = TypeVar("T")

GRPC: Final = "GRPC"
STATUS_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


@final
class _GrpcArrival:
    """A call as an arrival."""

    __slots__ = ("_context", "_proxies", "_user", "path")

    def __init__(
        self,
        method: str,
        context: Any,
        proxies: Proxies,
        user: Callable[[Any], str | None] | None,
    ) -> None:
        self.path = method
        self._context = context
        self._proxies = proxies
        self._user = user

    @property
    def method(self) -> str:
        """GRPC."""
        return GRPC

    def address(self) -> str:
        """The client's address; empty on a Unix socket without trusted proxies."""
        proxies = self._proxies
        peer = peer_address(self._context.peer())
        if not proxies.trusted:
            return proxies.client(peer)
        return proxies.client(peer, self._all(proxies.header))

    def header(self, name: str) -> str:
        """The first metadata of that name."""
        values = self._all(name)
        return values[0] if values else ""

    def user(self) -> str:
        """What the `user` function says."""
        return "" if self._user is None else self._user(self._context) or ""

    def _all(self, name: str) -> list[str]:
        metadata = self._context.invocation_metadata() or ()
        return [_text(value) for key, value in metadata if key == name]


class _Door:
    """What both interceptors are: a guard in front of handlers, of whatever kind they are."""

    def __init__(
        self,
        guard: Guard,
        trust_proxies: int | Proxies,
        headers: str,
        user: Callable[[Any], str | None] | None,
        exempt: Collection[str],
    ) -> None:
        check_guard(guard)
        self._guard = guard
        self._proxies = proxies_of(trust_proxies)
        self._fields = Fields(headers)
        self._user = user
        self.exempt = frozenset(exempt)

    def threaded(self, handler: Any, method: str) -> Any:
        """A handler that runs in a thread, with the guard in front."""
        behaviour = behaviour_of(handler)

        def enter(context: Any) -> Metadata:
            try:
                judgement = self._guard.judge(self._arrival(method, context))
            except Unavailable:
                judgement = unavailable()
            fields = self._fields_of(judgement)
            if judgement is not None and not judgement.decision.allowed:
                context.set_trailing_metadata(refusal_metadata(judgement, fields))
                context.abort(code_of(judgement), message_of(judgement))
            return fields

        def one(message: Any, context: Any) -> Any:
            fields = enter(context)
            if not hasattr(context, "trailing_metadata"):
                return behaviour(message, _AddingContext(context, fields))
            answer = behaviour(message, context)
            add_trailing(context, fields)
            return answer

        def many(message: Any, context: Any) -> Iterator[Any]:
            fields = enter(context)
            if not hasattr(context, "trailing_metadata"):
                yield from behaviour(message, _AddingContext(context, fields))
                return
            yield from behaviour(message, context)
            add_trailing(context, fields)

        return handler_like(handler, many if handler.response_streaming else one)

    def looped(self, handler: Any, method: str) -> Any:
        """A handler that runs in an event loop, with the guard in front."""

        async def enter(context: Any) -> Metadata:
            try:
                judgement = await self._guard.ajudge(self._arrival(method, context))
            except Unavailable:
                judgement = unavailable()
            fields = self._fields_of(judgement)
            if judgement is not None and not judgement.decision.allowed:
                context.set_trailing_metadata(refusal_metadata(judgement, fields))
                await context.abort(code_of(judgement), message_of(judgement))
            return fields

        return looped_handler(handler, enter, add_trailing)

    def _arrival(self, method: str, context: Any) -> _GrpcArrival:
        return _GrpcArrival(method, context, self._proxies, self._user)

    def _fields_of(self, judgement: Judgement | None) -> Metadata:
        return () if judgement is None else tuple(self._fields.of(judgement))


class LimitInterceptor(grpc.ServerInterceptor):
    """For threaded servers. `exempt` are full method names, as `/grpc.health.v1.Health/Check`.

    `user(context)` names the authenticated user; the other options are those of the middlewares.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        trust_proxies: int | Proxies = 0,
        headers: str = "ietf",
        user: Callable[[Any], str | None] | None = None,
        exempt: Collection[str] = (),
    ) -> None:
        self._door = _Door(guard, trust_proxies, headers, user, exempt)

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Put the guard in front of the handler."""
        handler, method = continuation(handler_call_details), handler_call_details.method
        if handler is None or method in self._door.exempt:
            return handler
        return self._door.threaded(handler, method)


class AsyncLimitInterceptor(grpc.aio.ServerInterceptor):
    """The same for asyncio servers."""

    def __init__(
        self,
        guard: Guard,
        *,
        trust_proxies: int | Proxies = 0,
        headers: str = "ietf",
        user: Callable[[Any], str | None] | None = None,
        exempt: Collection[str] = (),
    ) -> None:
        self._door = _Door(guard, trust_proxies, headers, user, exempt)

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        """Put the guard in front of the handler."""
        handler, method = await continuation(handler_call_details), handler_call_details.method
        if handler is None or method in self._door.exempt:
            return handler
        behaviour = behaviour_of(handler)
        if iscoroutinefunction(behaviour) or isasyncgenfunction(behaviour):
            return self._door.looped(handler, method)
        return self._door.threaded(handler, method)  # an asyncio server runs these in threads


def code_of(judgement: Judgement) -> grpc.StatusCode:
    """The status of a refusal, as its reason says."""
    return STATUS_CODES[int(reason_of(judgement).grpc_code)]


def message_of(judgement: Judgement) -> str:
    """The message of a refusal: the reason's sentence, and the wait."""
    decision, sentence = judgement.decision, reason_of(judgement).sentence
    if retry_after_s(decision) == 0 or decision.retry_after_us <= 0:
        return sentence
    return f"{sentence} Ask again in {decision.retry_after_us / 1e6:.3f} s."


def refusal_metadata(judgement: Judgement, fields: Metadata) -> Metadata:
    """The trailing metadata of a refusal."""
    decision, seconds = judgement.decision, retry_after_s(judgement.decision)
    pushback_ms = max(-(-decision.retry_after_us // 1_000), 1) if seconds > 0 else -1
    return (
        *fields,
        ("grpc-retry-pushback-ms", str(pushback_ms)),
        ("sluicegate-reason", reason_of(judgement).name),
        ("sluicegate-rule", decision.rule_id.encode("ascii", "backslashreplace").decode("ascii")),
    )


def peer_address(peer: str) -> str:
    """The address in what gRPC calls a peer: `ipv4:1.2.3.4:80`, `ipv6:%5B::1%5D:80`, `unix:`."""
    kind, _, rest = peer.partition(":")
    if kind == "ipv4":
        return rest.rpartition(":")[0]
    if kind == "ipv6":
        return unquote(rest).rpartition(":")[0].strip("[]")
    return ""


def behaviour_of(handler: Any) -> Any:
    """Return what serves a call."""
    if handler.response_streaming:
        return handler.stream_stream if handler.request_streaming else handler.unary_stream
    return handler.stream_unary if handler.request_streaming else handler.unary_unary


def looped_handler(
    handler: Any,
    enter: Callable[[Any], Awaitable[T]],
    leave: Callable[[Any, T], None],
) -> Any:
    """A handler of an event loop with `enter` before its work, and `leave` after.

    Both get the context, and `leave` what `enter` returned; who aborts in `enter` ends the call.
    """
    behaviour = behaviour_of(handler)

    async def one(message: Any, context: Any) -> Any:
        entered = await enter(context)
        answer = await behaviour(message, context)
        leave(context, entered)
        return answer

    async def many(message: Any, context: Any) -> AsyncIterator[Any]:
        entered = await enter(context)
        answers = behaviour(message, context)
        if hasattr(answers, "__aiter__"):
            async for answer in answers:
                yield answer
        else:
            await answers  # it writes to the context by itself
        leave(context, entered)

    return handler_like(handler, many if handler.response_streaming else one)


def handler_like(handler: Any, behaviour: Any, deserializer: Any = None) -> Any:
    """A handler of the same kind with another behaviour, and another deserializer if given."""
    if handler.response_streaming:
        made = (
            grpc.stream_stream_rpc_method_handler
            if handler.request_streaming
            else grpc.unary_stream_rpc_method_handler
        )
    elif handler.request_streaming:
        made = grpc.stream_unary_rpc_method_handler
    else:
        made = grpc.unary_unary_rpc_method_handler
    return made(
        behaviour,
        request_deserializer=deserializer or handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )


def add_trailing(context: Any, fields: Metadata) -> None:
    """Add to what the handler has set; what it has set stands."""
    if fields:
        context.set_trailing_metadata(_merged(context.trailing_metadata() or (), fields))


class _AddingContext:
    """The context of a thread in an asyncio server, which does not show what was set.

    So our fields are set first, and again with whatever the handler sets.
    """

    def __init__(self, context: Any, fields: Metadata) -> None:
        self._context = context
        self._fields_of = fields
        if fields:
            context.set_trailing_metadata(fields)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def set_trailing_metadata(self, metadata: Any) -> None:
        self._context.set_trailing_metadata(_merged(metadata or (), self._fields_of))


def _merged(metadata: Iterable[Any], fields: Metadata) -> tuple[Any, ...]:
    have = tuple(metadata)
    present = {pair[0] for pair in have}
    return (*have, *(pair for pair in fields if pair[0] not in present))


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value
