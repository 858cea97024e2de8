"""gRPC: interceptors that send each unary call as a call of a client, sync and asyncio.

    grpc.intercept_channel(channel, ResilientInterceptor(client, "search", idempotent=["/T/Get"]))
    grpc.aio.insecure_channel(target, interceptors=AsyncResilientInterceptor(client, "search").all)

The backend is the name given, for an interceptor does not know its channel's target; the operation
is the method. gRPC has no verbs, so what may be carried out twice is named in `idempotent`. Leave
retries out of the channel's service config: one layer retries. `grpc_results.py` reads the status.

The last outcome is handed over as it is; what is refused here, unsent, raises `Refused`. The
deadline travels as `grpc-timeout`, the class as metadata. Streams are not judged: they are given
what is left of the request that is being served, if anything binds it, and its class; where nothing
is left they are refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final, NamedTuple, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue, MissingPackage
from sluicegate.contracts.request import Request, make_request
from sluicegate.doors.claims import criticality_of
from sluicegate.policies.client.call_result import CallResult
from sluicegate.resilience.client.calls import Call, ResilientClient
from sluicegate.resilience.client.claims import CRITICALITY_FIELD, class_claims, class_of
from sluicegate.resilience.client.grpc_results import Metadata, metadata_values, result_of_code
from sluicegate.resilience.client.http_results import answer_of
from sluicegate.resilience.context import remaining_us, require_time

try:
    import grpc
    import grpc.aio
except ModuleNotFoundError as error:
    raise MissingPackage(error.name or "grpc", "grpc") from None

HOST_FIELD: Final = "x-sluicegate-host"  # between an attempt and the channels to hosts
_CODES: Final = grpc.StatusCode


class _Details(NamedTuple):
    """What a channel reads of a call, sync."""

    method: str
    timeout: float | None
    metadata: Sequence[tuple[str, Any]]
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


@final
class _Door:
    """What both interceptors know of their backend."""

    def __init__(
        self, client: ResilientClient, backend: str, idempotent: Collection[str], routed: bool
    ) -> None:
        if client.hosts is not None and not routed:
            # An interceptor cannot say where its channel connects.
            remedy = "open the channel with `host_channel` or `async_host_channel` of grpc_hosts.py"
            raise BadValue("client.hosts", client.hosts, remedy)
        self.client = client
        self._backend = backend
        self._idempotent = frozenset(idempotent)

    def request_of(self, details: Any) -> Request:
        """Return what the policies judge by; the call's own time-out and class bind it."""
        method, timeout = text_of(details.method), details.timeout
        return make_request(
            method,
            shard=self._backend,
            operation=method,
            criticality=_class_of(details.metadata),
            deadline_us=None if timeout is None else self.client.deadline_us(int(timeout * 1e6)),
        )

    def is_idempotent(self, details: Any) -> bool:
        """Whether the call may be carried out twice."""
        return text_of(details.method) in self._idempotent

    def attempt_of(self, details: Any, call: Call) -> _Details:
        """Return the details of one attempt."""
        claims = list(class_claims(call.request.criticality)) if call.makes_claims else []
        if call.host:
            claims.append((HOST_FIELD, call.host))
        return _details(details, call.left_us / 1_000_000, claims)

    def stream_of(self, details: Any) -> _Details:
        """Return the details of a stream: bound by what is served, and by nothing of ours."""
        now_us = self.client.clock.now_us()
        require_time(now_us)
        left_us = remaining_us(now_us)
        timeout = details.timeout
        if left_us is not None:
            timeout = left_us / 1e6 if timeout is None else min(timeout, left_us / 1e6)
        claims = class_claims(_class_of(details.metadata)) if self.client.settings.claims else ()
        return _details(details, timeout, claims)


@final
class ResilientInterceptor(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """For `grpc.intercept_channel`. A `future` of a unary call is returned when it has ended.

    `routed` is for a channel that goes by the host of each attempt, as `grpc_hosts.py` makes it.
    """

    def __init__(
        self,
        client: ResilientClient,
        backend: str,
        *,
        idempotent: Collection[str] = (),
        routed: bool = False,
    ) -> None:
        self._door = _Door(client, backend, idempotent, routed)

    def intercept_unary_unary(
        self, continuation: Callable[[Any, Any], Any], client_call_details: Any, request: Any
    ) -> Any:
        """Send it, within the client's judgement."""
        door = self._door

        def attempt(call: Call) -> CallResult[Any]:
            outcome = continuation(door.attempt_of(client_call_details, call), request)
            error = outcome.exception()
            if error is not None and not isinstance(error, grpc.RpcError):
                raise error  # it was never sent: a bug of whoever made the message
            return result_of_code(outcome, outcome.code().name, outcome.trailing_metadata())

        return answer_of(
            door.client.call_now(
                attempt,
                door.request_of(client_call_details),
                idempotent=door.is_idempotent(client_call_details),
            )
        )

    def _stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(self._door.stream_of(client_call_details), request)

    intercept_unary_stream: Any = _stream
    intercept_stream_unary: Any = _stream
    intercept_stream_stream: Any = _stream


@final
class AsyncResilientInterceptor:
    """For asyncio channels; `all` are the interceptors to hand over, one for each kind of call."""

    def __init__(
        self,
        client: ResilientClient,
        backend: str,
        *,
        idempotent: Collection[str] = (),
        routed: bool = False,
    ) -> None:
        door = _Door(client, backend, idempotent, routed)
        self.all: Sequence[grpc.aio.ClientInterceptor] = (
            _AsyncUnary(door),
            _AsyncUnaryStream(door),
            _AsyncStreamUnary(door),
            _AsyncStreamStream(door),
        )


class _AsyncUnary(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc, unused-ignore]
    def __init__(self, door: _Door) -> None:
        self._door = door

    async def intercept_unary_unary(
        self,
        continuation: Callable[[Any, Any], Awaitable[Any]],
        client_call_details: Any,
        request: Any,
    ) -> Any:
        """Send it, within the client's judgement."""
        door = self._door

        async def attempt(call: Call) -> CallResult[Any]:
            outcome = await continuation(
                _for_asyncio(door.attempt_of(client_call_details, call)), request
            )
            try:
                code = await outcome.code()
                return result_of_code(outcome, code.name, await outcome.trailing_metadata())
            except BaseException:
                outcome.cancel()  # given up: nobody reads it any more
                raise

        result = await door.client.call(
            attempt,
            door.request_of(client_call_details),
            idempotent=door.is_idempotent(client_call_details),
        )
        if result.value is None and isinstance(result.error, TimeoutError):
            # Our timer and that of gRPC end an attempt at the same instant; this was ours.
            none, text = grpc.aio.Metadata(), "the time of the attempt is over"
            raise grpc.aio.AioRpcError(_CODES.DEADLINE_EXCEEDED, none, none, details=text)
        return answer_of(result)


class _AsyncStream:
    def __init__(self, door: _Door) -> None:
        self._door = door

    async def _stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await continuation(_for_asyncio(self._door.stream_of(client_call_details)), request)


class _AsyncUnaryStream(_AsyncStream, grpc.aio.UnaryStreamClientInterceptor):
    intercept_unary_stream: Any = _AsyncStream._stream


class _AsyncStreamUnary(_AsyncStream, grpc.aio.StreamUnaryClientInterceptor):
    intercept_stream_unary: Any = _AsyncStream._stream


class _AsyncStreamStream(_AsyncStream, grpc.aio.StreamStreamClientInterceptor):
    intercept_stream_stream: Any = _AsyncStream._stream


def _details(details: Any, timeout: float | None, claims: Sequence[tuple[str, str]]) -> _Details:
    have = list(details.metadata or ())
    have += [claim for claim in claims if not metadata_values(have, claim[0])]
    return _Details(
        details.method,
        timeout,
        have,
        details.credentials,
        details.wait_for_ready,
        getattr(details, "compression", None),
    )


def _for_asyncio(details: _Details) -> grpc.aio.ClientCallDetails:
    return grpc.aio.ClientCallDetails(
        details.method,
        details.timeout,
        grpc.aio.Metadata(*details.metadata),
        details.credentials,
        details.wait_for_ready,
    )


def _class_of(metadata: Metadata) -> Criticality:
    own = [
        value.encode("latin-1", "replace") for value in metadata_values(metadata, CRITICALITY_FIELD)
    ]
    return class_of(criticality_of(own))


def text_of(method: str | bytes) -> str:
    """Return the name of a method, which asyncio has as bytes."""
    return method.decode("ascii") if isinstance(method, bytes) else method
