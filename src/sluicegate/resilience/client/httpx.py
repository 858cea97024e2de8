"""httpx: transports that send each request as a call of a client.

    httpx.Client(transport=ResilientTransport(client))
    httpx.AsyncClient(transport=AsyncResilientTransport(client))

The backend is the host and port of the URL, the operation its method. A response that tells of a
failure is repeated where that is safe, and handed over as it is in the end; what is refused here,
unsent, raises `Refused`. A body that can be read once only is sent once only. A request that cannot
be sent is the caller's own fault: its error passes through, and blames no backend.

The time of an attempt ends with the head of the response. Reading the body has httpx's own limit.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast, final

from sluicegate.contracts.errors import MissingPackage
from sluicegate.contracts.request import Request
from sluicegate.policies.client.call_result import CallResult, result_of_value
from sluicegate.resilience.client.calls import Call, ResilientClient
from sluicegate.resilience.client.claims import claims_of, request_of
from sluicegate.resilience.client.heads import Heads
from sluicegate.resilience.client.http_results import (
    answer_of,
    is_idempotent,
    result_of_response,
)
from sluicegate.resilience.client.httpx_pool import ClosedForSure, LostConnections
from sluicegate.resilience.hosts.sources import split_host

try:
    import httpx
except ModuleNotFoundError as error:
    raise MissingPackage(error.name or "httpx", "httpx") from None

_TOO_LATE: Final = "the time of the attempt is over"
# The parts of an attempt that its steps may take. A connection of the last tenth comes too late for
# an answer, and the timer of the whole does not know that nothing was sent.
_NO_LIMITS: Final = {"connect": None, "read": None, "write": None, "pool": None}
_LIMITS: Final = (("connect", 0.9), ("read", 1.0), ("write", 1.0), ("pool", 0.9))


@final
class ResilientTransport(httpx.BaseTransport):
    """For `httpx.Client`."""

    def __init__(self, client: ResilientClient, inner: httpx.BaseTransport | None = None) -> None:
        self._client = client
        self._inner = httpx.HTTPTransport() if inner is None else inner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send it, within the client's judgement."""
        heads: Heads[httpx.Response] = Heads()

        def attempt(call: Call) -> CallResult[httpx.Response]:
            if heads.kept and not call.is_hedge:
                heads.close()
            own = _attempt_of(request, call)
            head = self._inner.handle_request(own)
            heads.add(head)
            _release_limits(own, request)
            return _result_of(head)

        idempotent, repeatable = _safety(request)
        answer: httpx.Response | None = None
        try:
            answer = answer_of(
                self._client.call_now(
                    attempt,
                    _request_of(self._client, request),
                    idempotent=idempotent,
                    repeatable=repeatable,
                )
            )
            return answer
        finally:
            heads.end(answer)

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
        self._lost = LostConnections(self._inner)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send it, within the client's judgement."""
        heads: list[httpx.Response] = []  # of attempts, two at once where one is a hedge

        async def attempt(call: Call) -> CallResult[httpx.Response]:
            if heads and not call.is_hedge:
                await _close_all(heads)
            own = _attempt_of(request, call)
            try:
                head = await self._inner.handle_async_request(own)
            except BaseException:
                self._lost.reclaim()
                raise
            head.stream = ClosedForSure(cast("httpx.AsyncByteStream", head.stream))
            heads.append(head)
            _release_limits(own, request)
            return _result_of(head)

        idempotent, repeatable = _safety(request)
        answer: httpx.Response | None = None
        try:
            result = await self._client.call(
                attempt,
                _request_of(self._client, request),
                idempotent=idempotent,
                repeatable=repeatable,
            )
            if result.value is None and isinstance(result.error, TimeoutError):
                # Our timer, which bounds the attempt as a whole; httpx bounds each of its steps.
                raise httpx.ReadTimeout(_TOO_LATE, request=request) from result.error
            answer = answer_of(result)
            return answer
        finally:
            if len(heads) > 1 or (heads and heads[0] is not answer):
                await _close_others(heads, answer)

    async def aclose(self) -> None:
        """Close the transport below."""
        await self._inner.aclose()


async def _close_all(heads: list[httpx.Response], but: httpx.Response | None = None) -> None:
    """Give back the connections of responses that are not read."""
    closing = [head.aclose() for head in heads if head is not but]
    heads.clear()
    await asyncio.gather(*closing)


async def _close_others(heads: list[httpx.Response], answer: httpx.Response | None) -> None:
    """Close all but the answer; the answer too, if its caller leaves meanwhile."""
    try:
        await _close_all(heads, answer)
    except asyncio.CancelledError:
        if answer is not None:
            await answer.aclose()
        raise


def _result_of(response: httpx.Response) -> CallResult[httpx.Response]:
    status = response.status_code
    if status < 400:
        return result_of_value(response)
    return result_of_response(response, status, response.headers.get_list)


def _request_of(client: ResilientClient, request: httpx.Request) -> Request:
    url, headers = request.url, request.headers
    port = url.port or url.scheme
    return request_of(client, request.method, url.host, port, url.path, headers, headers.get_list)


def _safety(request: httpx.Request) -> tuple[bool, bool]:
    """Whether it may be carried out twice, and whether its body can be sent twice."""
    idempotent = is_idempotent(request.method, request.headers)
    return idempotent, isinstance(request.stream, httpx.ByteStream)


def _attempt_of(request: httpx.Request, call: Call) -> httpx.Request:
    """Return the request of one attempt: with its claims, held to what is left, to its host.

    What the service is called by stays in the Host header, and in the name that TLS verifies. The
    caller's own request is left as it is.
    """
    left_us = call.left_us
    left_s = left_us / 1_000_000
    given = _limits_of(request)
    limits = {}
    for name, part in _LIMITS:
        own_s, bound_s = given.get(name), left_s * part
        limits[name] = bound_s if own_s is None or own_s > bound_s else own_s
    # As `copy` would: without the checks of a request that is new.
    found = httpx.Request.__new__(httpx.Request)
    found.__dict__.update(request.__dict__)
    found.headers = headers = httpx.Headers(request.headers)
    for name, value in claims_of(call, left_us):
        headers[name] = value
    found.extensions = {**request.extensions, "timeout": limits}
    if call.host:
        address, port = split_host(call.host)
        found.extensions.setdefault("sni_hostname", request.url.host)
        found.url = request.url.copy_with(host=address, port=port)
    return found


def _limits_of(request: httpx.Request) -> dict[str, Any]:
    return cast("dict[str, Any]", request.extensions.get("timeout", {}))


def _release_limits(attempt: httpx.Request, request: httpx.Request) -> None:
    """Leave the rest of the response to the caller's own limits; the head is here."""
    limits = _limits_of(attempt)
    limits.update(_NO_LIMITS)
    limits.update(_limits_of(request))
