"""httpx: transports with faults, as a network between a client and what it calls.

    httpx.Client(transport=ResilientTransport(client, FaultTransport(faults)))

Below the resilient transport, so that its retries and breaker meet them. A delay that is longer
than httpx's read timeout is a `ReadTimeout` after that time; an `error` is a `ConnectError`, and a
broken connection a `ReadError`. What ends here is never sent at all.
"""

from __future__ import annotations

import asyncio
from threading import Event
from typing import Final, final

from sluicegate.contracts.errors import MissingPackage
from sluicegate.resilience.faults.injector import FIELD, FaultInjector, Injection

try:
    import httpx
except ModuleNotFoundError as error:
    raise MissingPackage(error.name or "httpx", "httpx") from None

_SECOND_US: Final = 1_000_000


@final
class FaultTransport(httpx.BaseTransport):
    """For `httpx.Client`."""

    def __init__(self, faults: FaultInjector, inner: httpx.BaseTransport | None = None) -> None:
        self.faults = faults
        self._inner = httpx.HTTPTransport() if inner is None else inner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send it, or let it meet its fault."""
        injection = self.faults.pick(request.url.path, request.headers.get)
        if injection is None:
            return self._inner.handle_request(request)
        wait_s, in_time = _wait(request, injection)
        if wait_s > 0:
            Event().wait(wait_s)
        answer = _end(request, injection, in_time=in_time)
        return _marked(self._inner.handle_request(request) if answer is None else answer, injection)

    def close(self) -> None:
        """Close the transport below."""
        self._inner.close()


@final
class AsyncFaultTransport(httpx.AsyncBaseTransport):
    """For `httpx.AsyncClient`."""

    def __init__(
        self, faults: FaultInjector, inner: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self.faults = faults
        self._inner = httpx.AsyncHTTPTransport() if inner is None else inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send it, or let it meet its fault."""
        injection = self.faults.pick(request.url.path, request.headers.get)
        if injection is None:
            return await self._inner.handle_async_request(request)
        wait_s, in_time = _wait(request, injection)
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        answer = _end(request, injection, in_time=in_time)
        if answer is None:
            answer = await self._inner.handle_async_request(request)
        return _marked(answer, injection)

    async def aclose(self) -> None:
        """Close the transport below."""
        await self._inner.aclose()


def _wait(request: httpx.Request, injection: Injection) -> tuple[float, bool]:
    """Return how long to wait, and whether the caller waits as long."""
    delay_s = injection.delay_us / _SECOND_US
    limit_s = request.extensions.get("timeout", {}).get("read")
    if limit_s is None or delay_s < limit_s:
        return delay_s, True
    return limit_s, False


def _end(request: httpx.Request, injection: Injection, *, in_time: bool) -> httpx.Response | None:
    """Return or raise what the request comes to instead of being sent; None sends it."""
    rule, text = injection.rule, f"the fault {injection.name} was injected"
    if not in_time:
        raise httpx.ReadTimeout(text, request=request)
    if rule.abort:
        raise httpx.ReadError(text, request=request)
    if rule.error:
        raise httpx.ConnectError(rule.error, request=request)
    return httpx.Response(rule.status, request=request) if rule.status else None


def _marked(response: httpx.Response, injection: Injection) -> httpx.Response:
    response.headers[FIELD] = injection.name
    return response
