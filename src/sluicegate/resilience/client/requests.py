"""requests: an adapter that sends each request as a call of a client.

    session.mount("https://", ResilientAdapter(client))

What the transports of httpx promise holds here too. The time of an attempt bounds its connecting
and each of its reads, as requests does it, up to the head of the response.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final
from urllib.parse import urlsplit

from sluicegate.contracts.errors import MissingPackage
from sluicegate.policies.call_result import CallResult, ResultKind
from sluicegate.resilience.client.calls import Call, ResilientClient
from sluicegate.resilience.client.claims import claims_of
from sluicegate.resilience.client.http_results import (
    FieldValues,
    answer_of,
    is_idempotent,
    refuse_hosts,
    request_of,
    result_of_response,
)

try:
    import requests
    from requests.adapters import BaseAdapter, HTTPAdapter
    from urllib3.exceptions import NewConnectionError
except ModuleNotFoundError as error:
    raise MissingPackage(error.name or "requests", "requests") from None


@final
class ResilientAdapter(BaseAdapter):
    """For `requests.Session.mount`."""

    def __init__(self, client: ResilientClient, inner: BaseAdapter | None = None) -> None:
        super().__init__()
        refuse_hosts(client.hosts, "requests")
        self._client = client
        self._inner = HTTPAdapter() if inner is None else inner

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
        last: requests.Response | None = None
        request = request.copy()  # the caller may send it again, and its claims are of this call

        def attempt(call: Call) -> CallResult[requests.Response]:
            nonlocal last
            if last is not None:
                last.close()
                last = None
            limits = _bounded(timeout, call.left_us / 1_000_000)
            request.headers.update(claims_of(call))
            try:
                last = self._inner.send(request, stream, limits, verify, cert, proxies)
            except requests.RequestException as error:
                result = _result_of_error(error)
                if result is None:
                    raise
                return result
            return result_of_response(last, last.status_code, _values_of(last.headers))

        url = urlsplit(request.url or "")
        method = request.method or "GET"
        host, port, values = url.hostname or "", url.port or url.scheme, _values_of(request.headers)
        try:
            result = self._client.call_now(
                attempt,
                request_of(self._client, method, host, port, url.path, values),
                idempotent=is_idempotent(method, request.headers),
                repeatable=request.body is None or isinstance(request.body, bytes | str),
            )
        except BaseException:
            if last is not None:
                last.close()
            raise
        return answer_of(result)

    def close(self) -> None:
        """Close the adapter below."""
        self._inner.close()


def _values_of(headers: Mapping[str, str | bytes]) -> FieldValues:
    """Return the fields; one that came twice is joined here, which is the form of none we read."""

    def values(name: str) -> list[str]:
        value = headers.get(name)
        if value is None:
            return []
        return [value.decode("latin-1") if isinstance(value, bytes) else value]

    return values


def _bounded(timeout: Any, left_s: float) -> tuple[float, float]:
    """The caller's own limits for connecting and for each read, held to what is left."""
    connect, read = timeout if isinstance(timeout, tuple) else (timeout, timeout)
    # requests refuses a limit of zero.
    left_s = max(left_s, 0.000_001)
    return (
        left_s if connect is None else min(connect, left_s),
        left_s if read is None else min(read, left_s),
    )


def _result_of_error(error: requests.RequestException) -> CallResult[requests.Response] | None:
    """The result; None if the request itself cannot be sent, which is the caller's bug."""
    if isinstance(error, requests.Timeout):
        reached = not isinstance(error, requests.ConnectTimeout)
        return CallResult(ResultKind.TIMED_OUT if reached else ResultKind.UNREACHED, error=error)
    if isinstance(error, requests.ConnectionError):
        cause = getattr(error.args[0], "reason", None) if error.args else None
        unreached = isinstance(cause, NewConnectionError)
        return CallResult(ResultKind.UNREACHED if unreached else ResultKind.FAILED, error=error)
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return CallResult(ResultKind.FAILED, error=error)
    return None
