"""httpx: transports that send each request as a call of a client.

    httpx.Client(transport=ResilientTransport(client))
    httpx.AsyncClient(transport=AsyncResilientTransport(client))

The backend is the host and port of the URL, the operation its method. A response that tells of a
failure is repeated where that is safe, and handed over as it is in the end; what is refused here,
unsent, raises `Refused`. A body that can be read once only is sent once only.

The time of an attempt ends with the head of the response. Reading the body has httpx's own limit.
"""

from __future__ import annotations

from typing import Any, Final, cast, final

from sluicegate.contracts.errors import MissingPackage
from sluicegate.contracts.request import Request
from sluicegate.policies.call_result import CallResult, ResultKind
from sluicegate.resilience.client.calls import Call, ResilientClient

try:
    import httpx
except ModuleNotFoundError as error:
    raise MissingPackage(error.name or "httpx", "httpx") from None

IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
_NOT_REACHED: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@final
class ResilientTransport(httpx.BaseTransport):
    """For `httpx.Client`."""

    def __init__(self, client: ResilientClient, inner: httpx.BaseTransport | None = None) -> None:
        self._client = client
        self._inner = httpx.HTTPTransport() if inner is None else inner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send it, within the client's judgement."""
        last: httpx.Response | None = None

        def attempt(call: Call) -> CallResult[httpx.Response]:
            nonlocal last
            if last is not None:
                last.close()
                last = None
            _bound_time(request, call)
            try:
                last = self._inner.handle_request(request)
            except httpx.TransportError as error:
                return _result_of_error(error)
            return result_of_response(last)

        idempotent, repeatable = _safety(request)
        try:
            result = self._client.call_now(
                attempt, _claims(request), idempotent=idempotent, repeatable=repeatable
            )
        except BaseException:
            if last is not None:
                last.close()
            raise
        return _answer(result)

    def close(self) -> None:
        """Close the transport below."""
        self._inner.close()


@final
class AsyncResilientTransport(httpx.AsyncBaseTransport):
    """For `httpx.AsyncClient`."""

    def __init__(
        self, client: ResilientClient, inner: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._client = client
        self._inner = httpx.AsyncHTTPTransport() if inner is None else inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send it, within the client's judgement."""
        last: httpx.Response | None = None

        async def attempt(call: Call) -> CallResult[httpx.Response]:
            nonlocal last
            if last is not None:
                await last.aclose()
                last = None
            _bound_time(request, call)
            try:
                last = await self._inner.handle_async_request(request)
            except httpx.TransportError as error:
                return _result_of_error(error)
            return result_of_response(last)

        idempotent, repeatable = _safety(request)
        try:
            result = await self._client.call(
                attempt, _claims(request), idempotent=idempotent, repeatable=repeatable
            )
        except BaseException:
            if last is not None:
                await last.aclose()
            raise
        return _answer(result)

    async def aclose(self) -> None:
        """Close the transport below."""
        await self._inner.aclose()


def result_of_response(response: httpx.Response) -> CallResult[httpx.Response]:
    """What the head of a response says of the call; a Retry-After counts if it is in seconds."""
    status = response.status_code
    kind = ResultKind.OK
    if status == httpx.codes.TOO_MANY_REQUESTS:
        kind = ResultKind.LIMITED
    elif status >= 500:
        kind = ResultKind.FAILED
    elif status >= 400:
        kind = ResultKind.REJECTED
    hint = response.headers.get("retry-after", "").strip()
    hint_us = int(hint) * 1_000_000 if hint.isascii() and hint.isdigit() and len(hint) < 10 else 0
    return CallResult(kind, response, retry_after_us=hint_us)


def _result_of_error(error: httpx.TransportError) -> CallResult[httpx.Response]:
    kind = ResultKind.FAILED
    if isinstance(error, _NOT_REACHED):
        kind = ResultKind.UNREACHED
    elif isinstance(error, httpx.TimeoutException):
        kind = ResultKind.TIMED_OUT
    return CallResult(kind, error=error)


def _answer(result: CallResult[httpx.Response]) -> httpx.Response:
    """A response that came is handed over, whatever it says."""
    return result.unwrap() if result.value is None else result.value


def _claims(request: httpx.Request) -> Request:
    backend = f"{request.url.host}:{request.url.port or request.url.scheme}"
    return Request(request.url.path, shard=backend, operation=request.method)


def _safety(request: httpx.Request) -> tuple[bool, bool]:
    """Whether it may be carried out twice, and whether its body can be sent twice."""
    idempotent = request.method in IDEMPOTENT or "idempotency-key" in request.headers
    return idempotent, isinstance(request.stream, httpx.ByteStream)


def _bound_time(request: httpx.Request, call: Call) -> None:
    """Hold each of httpx's own limits to what is left."""
    left_s = call.left_us / 1_000_000
    limits = cast("dict[str, Any]", request.extensions.get("timeout", {}))
    request.extensions["timeout"] = {
        name: left_s if limits.get(name) is None else min(limits[name], left_s)
        for name in ("connect", "read", "write", "pool")
    }
