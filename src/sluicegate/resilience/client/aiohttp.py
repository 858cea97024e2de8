"""aiohttp: a middleware of its client that sends each request as a call of a client of ours.

    aiohttp.ClientSession(middlewares=[ResilientMiddleware(client)])

What the transports of httpx promise holds here too, hosts of a group included; but a request of
aiohttp cannot be sent twice at once, so there are no hedges. aiohttp's own time-outs stay as they
are, and nothing is repeated once `total` is over; an attempt that takes longer than `attempt_us` is
cancelled, and what was not connected by then may have run for all we know: a `sock_connect` below
it tells. Middlewares came with aiohttp 3.12.

aiohttp repeats by itself what is idempotent and has lost its connection, with this middleware and
all of its attempts. It does not where a plain `ClientConnectionError` is raised; so that is what a
lost connection ends with, and its cause is the error as aiohttp has it.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.contracts.errors import MissingPackage
from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.resilience.client.calls import Call, ResilientClient
from sluicegate.resilience.client.claims import claims_of, request_of
from sluicegate.resilience.client.http_results import (
    answer_of,
    is_idempotent,
    result_of_response,
)
from sluicegate.resilience.hosts.sources import split_host

try:
    import aiohttp
    from aiohttp import BytesPayload, ClientHandlerType, ClientRequest, ClientResponse
except ModuleNotFoundError as error:
    raise MissingPackage(error.name or "aiohttp", "aiohttp") from None

# What aiohttp sends once more by itself, unless no connection was made.
_REPEATED: Final = (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)


@final
class ResilientMiddleware:
    """For `aiohttp.ClientSession`."""

    def __init__(self, client: ResilientClient) -> None:
        client.refuse_hedges("aiohttp")
        self._client = client

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Send it, within the client's judgement."""
        last: ClientResponse | None = None

        async def attempt(call: Call) -> CallResult[ClientResponse]:
            nonlocal last
            if last is not None:
                last.close()
                last = None
            for name, value in claims_of(call, call.left_us):
                request.headers[name] = value
            if call.host:
                address, port = split_host(call.host)
                request.url = url.with_host(address).with_port(port)
            try:
                last = await handler(request)
            except TimeoutError as error:
                if isinstance(error, aiohttp.ClientError):
                    raise
                # `total` is over, and the caller has left.
                return CallResult(ResultKind.TIMED_OUT, error=error, dont_retry=True)
            headers = last.headers
            return result_of_response(last, last.status, lambda name: headers.getall(name, ()))

        client, url, fields = self._client, request.url, request.headers
        if client.hosts is not None and request.server_hostname is None:
            request.server_hostname = url.raw_host  # what TLS verifies, wherever it connects
        work = request_of(
            client,
            request.method,
            url.host or "",
            url.port or url.scheme,
            url.path,
            fields,
            lambda name: fields.getall(name, ()),
        )
        try:
            result = await client.call(
                attempt,
                work,
                idempotent=is_idempotent(request.method, request.headers),
                repeatable=not request.body or isinstance(request.body, bytes | BytesPayload),
            )
        except BaseException:
            if last is not None:
                last.close()
            raise
        finally:
            request.url = url
        error = result.error
        if isinstance(error, _REPEATED) and not isinstance(error, aiohttp.ClientConnectorError):
            raise aiohttp.ClientConnectionError(str(error)) from error
        return answer_of(result)
