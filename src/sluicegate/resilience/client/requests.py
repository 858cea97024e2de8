"""requests: an adapter that sends each request as a call of a client.

    session.mount("https://", ResilientAdapter(client))

What the transports of httpx promise holds here too, hosts of a group included. The time of an
attempt bounds its connecting and each of its reads, those of the body included, for requests has
one limit for both: a stream that pauses needs an `attempt_us` above its pauses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final
from urllib.parse import urlsplit

from sluicegate.contracts.errors import MissingPackage
from sluicegate.policies.client.call_result import CallResult
from sluicegate.resilience.client.calls import Call, ResilientClient
from sluicegate.resilience.client.claims import claims_of, request_of
from sluicegate.resilience.client.heads import Heads
from sluicegate.resilience.client.http_results import (
    FieldValues,
    answer_of,
    is_idempotent,
    netloc_at,
    result_of_response,
)

try:
    import requests
    from requests.adapters import BaseAdapter, HTTPAdapter
    from urllib3.util import Timeout
except ModuleNotFoundError as error:
    raise MissingPackage(error.name or "requests", "requests") from None


@final
class ResilientAdapter(BaseAdapter):
    """For `requests.Session.mount`."""

    def __init__(self, client: ResilientClient, inner: BaseAdapter | None = None) -> None:
        super().__init__()
        self._client = client
        if inner is None:
            inner = HTTPAdapter() if client.hosts is None else NamedAdapter()
        self._inner = inner

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: bool | str = True,
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """Send it, within the client's judgement."""
        heads: Heads[requests.Response] = Heads()
        url = urlsplit(request.url or "")
        named = self._client.hosts is not None

        def attempt(call: Call) -> CallResult[requests.Response]:
            if heads.kept and not call.is_hedge:
                heads.close()
            # The caller may send its own again, and two attempts may run at once.
            own = request.copy()
            left_us = call.left_us
            own.headers.update(claims_of(call, left_us))
            if named:
                own.headers.setdefault("Host", url.netloc.rpartition("@")[2])
                own.url = url._replace(netloc=netloc_at(url.netloc, call.host)).geturl()
            limits = _bounded(timeout, left_us / 1_000_000)
            head = self._inner.send(own, stream, limits, verify, cert, proxies)
            heads.add(head)
            return result_of_response(head, head.status_code, _values_of(head.headers))

        method = request.method or "GET"
        host, port, values = url.hostname or "", url.port or url.scheme, _values_of(request.headers)
        found: requests.Response | None = None
        try:
            found = answer_of(
                self._client.call_now(
                    attempt,
                    request_of(self._client, method, host, port, url.path, request.headers, values),
                    idempotent=is_idempotent(method, request.headers),
                    repeatable=request.body is None or isinstance(request.body, bytes | str),
                )
            )
        finally:
            heads.end(found)
        if named:
            # Redirects and history go by the service's name.
            found.url, found.request = request.url or "", request
        return found

    def close(self) -> None:
        """Close the adapter below."""
        self._inner.close()


@final
class NamedAdapter(HTTPAdapter):
    """For TLS: whatever host a connection goes to, it is the name in the Host header that counts.

    Give it as `inner` with settings of your own.
    """

    def build_connection_pool_key_attributes(
        self, request: requests.PreparedRequest, verify: Any, cert: Any = None
    ) -> tuple[Any, Any]:
        """Return what connections are shared by, the name included."""
        host, pool = super().build_connection_pool_key_attributes(request, verify, cert)
        name = urlsplit(f"//{request.headers.get('Host', '')}").hostname
        named: dict[str, Any] = {**pool}
        if host["scheme"] == "https" and name:
            named |= {"server_hostname": name, "assert_hostname": name}
        return host, named


def _values_of(headers: Mapping[str, str | bytes]) -> FieldValues:
    """Return the fields; one that came twice is joined here, which is the form of none we read."""

    def values(name: str) -> list[str]:
        value = headers.get(name)
        if value is None:
            return []
        return [value.decode("latin-1") if isinstance(value, bytes) else value]

    return values


def _bounded(timeout: Any, left_s: float) -> Any:
    """The caller's own limits for connecting and for each read, held to what is left."""
    # requests refuses a limit of zero.
    left_s = max(left_s, 0.000_001)
    if isinstance(timeout, Timeout):
        total = timeout.total if isinstance(timeout.total, int | float) else left_s
        bounded = timeout.clone()
        bounded.total = min(total, left_s)
        return bounded
    connect, read = timeout if isinstance(timeout, tuple) else (timeout, timeout)
    return (
        left_s if connect is None else min(connect, left_s),
        left_s if read is None else min(read, left_s),
    )
