"""Client: calls of named backends that know when to stop, and adapters of HTTP and gRPC drivers.

    client = Client(timeout_s=2.0, attempts=3)
    price = await client.run("prices", lambda: fetch_price(item), idempotent=True)
    stock = client.run_now("stock", lambda: count(item))
    web = httpx.Client(transport=client.httpx_transport())

Make one client for a process and share it between threads and event loops: its retry budgets,
throttles and breakers are kept by backend. A method imports the driver that it is for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.request import Request, make_request
from sluicegate.policies.client.call_result import CallResult, result_of_value
from sluicegate.policies.client.hedge import HedgeSettings
from sluicegate.policies.settings import micros_of, part_of
from sluicegate.resilience.client.calls import Call, CallObserver, ResilientClient
from sluicegate.resilience.client.claims import class_of
from sluicegate.resilience.client.settings import ClientSettings
from sluicegate.resilience.errors.registry import NO_MATCH, ErrorMatch, ErrorRules, rules_of
from sluicegate.resilience.hosts.group import HostGroup
from sluicegate.resilience.hosts.sources import HostSource, list_source

if TYPE_CHECKING:
    import grpc
    import httpx
    from requests.adapters import BaseAdapter

    from sluicegate.resilience.client.aiohttp import ResilientMiddleware
    from sluicegate.resilience.client.grpc import ResilientInterceptor
    from sluicegate.resilience.client.httpx import AsyncResilientTransport, ResilientTransport
    from sluicegate.resilience.client.requests import ResilientAdapter

T = TypeVar("T")


@final
class Client(ResilientClient):
    """A resilient client.

    `timeout_s` bounds a call with its retries, `attempt_timeout_s` one attempt. A call is repeated
    up to `attempts` in all, while repeats are at most `retry_share` of the calls. `hedge` sends an
    idempotent call that is late once more. `hosts` are `address:port` of one service, a function
    that returns them, or a `HostGroup`. `on` adds exceptions that are failures of a backend,
    `ignore` exceptions that are not. `settings` has everything else.
    """

    __slots__ = ()

    def __init__(
        self,
        *,
        timeout_s: float | None = None,
        attempt_timeout_s: float | None = None,
        attempts: int | None = None,
        retry_share: float | None = None,
        hedge: bool = False,
        hosts: HostGroup | Sequence[str] | HostSource | None = None,
        on: ErrorMatch = NO_MATCH,
        ignore: ErrorMatch = NO_MATCH,
        settings: ClientSettings | None = None,
        observer: CallObserver | None = None,
        clock: Clock | None = None,
        chance: Chance | None = None,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        found = ClientSettings() if settings is None else settings
        if timeout_s is not None:
            found = replace(found, timeout_us=micros_of("timeout_s", timeout_s))
        if attempt_timeout_s is not None:
            found = replace(found, attempt_us=micros_of("attempt_timeout_s", attempt_timeout_s))
        if attempts is not None:
            # Bulk work has time, and is not repeated.
            retry = replace(found.retry, attempts=(attempts, attempts, attempts, 1))
            found = replace(found, retry=retry)
        if retry_share is not None:
            part_of("retry_share", retry_share, 0.0, 1.0)
            budget = replace(found.retry_budget, deposit_milli=int(retry_share * 1_000))
            found = replace(found, retry_budget=budget)
        if hedge and found.hedge is None:
            found = replace(found, hedge=HedgeSettings())
        super().__init__(
            found,
            _group_of(hosts),
            clock=clock,
            chance=chance,
            pause=pause,
            observer=observer,
            errors=ErrorRules(on, ignore),
        )

    async def run(
        self,
        backend: str,
        work: Callable[[], Awaitable[T]],
        *,
        operation: str = "",
        idempotent: bool = False,
        on: ErrorMatch = NO_MATCH,
        ignore: ErrorMatch = NO_MATCH,
    ) -> T:
        """Await the work, and repeat it where that helps; its last error is raised.

        Only `idempotent` work is repeated if it may have run. A breaker goes by backend and
        operation. `on` and `ignore` replace those of the client.
        """

        async def attempt(_: Call) -> CallResult[T]:
            return result_of_value(await work())

        result = await self.call(
            attempt,
            _request(backend, operation),
            idempotent=idempotent,
            errors=rules_of(on, ignore),
        )
        return result.unwrap()

    def run_now(
        self,
        backend: str,
        work: Callable[[], T],
        *,
        operation: str = "",
        idempotent: bool = False,
        on: ErrorMatch = NO_MATCH,
        ignore: ErrorMatch = NO_MATCH,
    ) -> T:
        """Like `run`, for work that blocks."""

        def attempt(_: Call) -> CallResult[T]:
            return result_of_value(work())

        result = self.call_now(
            attempt,
            _request(backend, operation),
            idempotent=idempotent,
            errors=rules_of(on, ignore),
        )
        return result.unwrap()

    def httpx_transport(self, inner: httpx.BaseTransport | None = None) -> ResilientTransport:
        """Return a transport for `httpx.Client`; `inner` has the settings of connections."""
        from sluicegate.resilience.client.httpx import ResilientTransport  # noqa: PLC0415

        return ResilientTransport(self, inner)

    def async_httpx_transport(
        self, inner: httpx.AsyncBaseTransport | None = None
    ) -> AsyncResilientTransport:
        """Return a transport for `httpx.AsyncClient`."""
        from sluicegate.resilience.client.httpx import AsyncResilientTransport  # noqa: PLC0415

        return AsyncResilientTransport(self, inner)

    def requests_adapter(self, inner: BaseAdapter | None = None) -> ResilientAdapter:
        """Return an adapter for `requests.Session.mount`."""
        from sluicegate.resilience.client.requests import ResilientAdapter  # noqa: PLC0415

        return ResilientAdapter(self, inner)

    def aiohttp_middleware(self) -> ResilientMiddleware:
        """Return a middleware for `aiohttp.ClientSession`."""
        from sluicegate.resilience.client.aiohttp import ResilientMiddleware  # noqa: PLC0415

        return ResilientMiddleware(self)

    def grpc_interceptor(
        self, backend: str, *, idempotent: Collection[str] = ()
    ) -> ResilientInterceptor:
        """Return an interceptor for `grpc.intercept_channel`; name the idempotent methods."""
        from sluicegate.resilience.client.grpc import ResilientInterceptor  # noqa: PLC0415

        return ResilientInterceptor(self, backend, idempotent=idempotent)

    def async_grpc_interceptors(
        self, backend: str, *, idempotent: Collection[str] = ()
    ) -> Sequence[grpc.aio.ClientInterceptor]:
        """Return the interceptors for a channel of `grpc.aio`."""
        from sluicegate.resilience.client.grpc import AsyncResilientInterceptor  # noqa: PLC0415

        return AsyncResilientInterceptor(self, backend, idempotent=idempotent).all

    def grpc_channel(
        self, backend: str, connect: Callable[[str], Any], *, idempotent: Collection[str] = ()
    ) -> Any:
        """Return a channel to all `hosts`; `connect` opens one of `grpc` to an address."""
        from sluicegate.resilience.client.grpc_hosts import host_channel  # noqa: PLC0415

        return host_channel(self, backend, connect, idempotent=idempotent)

    def async_grpc_channel(
        self, backend: str, connect: Callable[[str], Any], *, idempotent: Collection[str] = ()
    ) -> Any:
        """Return a channel to all `hosts`; `connect` opens one of `grpc.aio` to an address."""
        from sluicegate.resilience.client.grpc_hosts import async_host_channel  # noqa: PLC0415

        return async_host_channel(self, backend, connect, idempotent=idempotent)


def _request(backend: str, operation: str) -> Request:
    return make_request("", shard=backend, operation=operation, criticality=class_of())


def _group_of(hosts: HostGroup | Sequence[str] | HostSource | None) -> HostGroup | None:
    if hosts is None or isinstance(hosts, HostGroup):
        return hosts
    return HostGroup(hosts if callable(hosts) else list_source(hosts))
