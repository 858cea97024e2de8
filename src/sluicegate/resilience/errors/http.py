"""Verdicts on HTTP clients, cloud SDKs and gRPC: a status that was raised is read as a response."""

from __future__ import annotations

from typing import Any, Final

from sluicegate.policies.client.call_result import CallResult
from sluicegate.resilience.client.grpc_results import result_of_code
from sluicegate.resilience.errors.verdicts import (
    FAILED,
    LIMITED,
    REJECTED,
    TIMED_OUT,
    UNREACHED,
    Found,
    Verdict,
    by_response,
    by_status,
    conflict,
    failed_tls,
    named,
    not_trusted,
)

# The codes that botocore itself takes for throttling.
_AWS_THROTTLES: Final = (
    "BandwidthLimitExceeded",
    "EC2ThrottledException",
    "PriorRequestNotComplete",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "SlowDown",
    "ThrottledException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
)


def _reason(error: Any) -> Found:
    """The cause of an error of urllib and urllib3, which only wraps it."""
    reason = error.reason
    return reason if isinstance(reason, Exception) else CallResult(FAILED, error=error)


def _requests(error: Any) -> Found:
    cause = error.args[0] if error.args else None
    cause = getattr(cause, "reason", cause)
    return cause if isinstance(cause, Exception) else CallResult(FAILED, error=error)


def _urllib_status(error: Any) -> Found:
    return by_status(error.code, error.headers, error)


def _connect_error(error: Any) -> Found:
    """A handshake that a certificate has ended is no better the next time."""
    text = str(error)
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return not_trusted(error)
    return CallResult(UNREACHED, error=error)


def _aiohttp_status(error: Any) -> Found:
    """A status that was raised; a reply that is no HTTP has an invented one, and a cause."""
    if type(error.__cause__).__module__ == "aiohttp.http_exceptions":
        return CallResult(FAILED, error=error)
    return by_response(error)


def _grpc(error: Any) -> Found:
    """The status of a call; a channel that is closed, or a bad message, has none."""
    code = getattr(error, "code", None)
    if code is None:
        return CallResult(FAILED, error=error)
    trailers = getattr(error, "trailing_metadata", None)
    found: CallResult[object] = result_of_code(
        None, code().name, None if trailers is None else trailers()
    )
    found.error = error
    return found


def _google(error: Any) -> Found:
    if getattr(error, "code", None) == 504:
        return CallResult(TIMED_OUT, error=error)
    return by_response(error)


def _aws(error: Any) -> Found:
    metadata = error.response.get("ResponseMetadata", {})
    status, fields = metadata.get("HTTPStatusCode"), metadata.get("HTTPHeaders", {})
    if error.response.get("Error", {}).get("Code") in _AWS_THROTTLES:
        status = 429
    return by_status(status, fields, error)


def _elastic(error: Any) -> Found:
    return by_status(error.meta.status, error.meta.headers, error)


def _retries_spent(error: Any) -> Found:
    cause = getattr(error, "cause", None) or error.__cause__
    return cause if isinstance(cause, Exception) else CallResult(TIMED_OUT, error=error)


def _openai(module: str) -> dict[str, Verdict]:
    """The SDKs of one generator."""
    return named(
        module,
        APIConnectionError=FAILED,
        APITimeoutError=TIMED_OUT,
        APIStatusError=by_response,
    )


_HTTPCORE: Final[dict[str, Verdict]] = {
    "ConnectError": _connect_error,
    "ConnectTimeout": UNREACHED,
    "PoolTimeout": UNREACHED,
    "TimeoutException": TIMED_OUT,
    "LocalProtocolError": None,
    "UnsupportedProtocol": None,
    "NetworkError": FAILED,
    "ProtocolError": FAILED,
    "ProxyError": FAILED,
}

_SEARCH: Final[dict[str, Verdict]] = {
    "ConnectionTimeout": TIMED_OUT,
    "ConnectionError": FAILED,
    "TransportError": by_response,
}

HTTP: Final[dict[str, Verdict]] = {
    **named(
        "http.client",
        HTTPException=FAILED,
        InvalidURL=None,
        UnknownProtocol=None,
        ImproperConnectionState=None,
        NotConnected=None,
    ),
    **named("urllib.error", HTTPError=_urllib_status, URLError=_reason),
    **named(
        "urllib3.exceptions",
        MaxRetryError=_reason,
        NewConnectionError=UNREACHED,
        ConnectTimeoutError=UNREACHED,
        EmptyPoolError=UNREACHED,
        TimeoutError=TIMED_OUT,
        ProtocolError=FAILED,
        ProxyError=FAILED,
        ResponseError=FAILED,
        DecodeError=FAILED,
        SSLError=failed_tls,
        HTTPError=None,
    ),
    **named(
        "requests.exceptions",
        HTTPError=by_response,
        ConnectTimeout=UNREACHED,
        Timeout=TIMED_OUT,
        ConnectionError=_requests,
        ChunkedEncodingError=FAILED,
        ContentDecodingError=FAILED,
        RetryError=FAILED,
        TooManyRedirects=REJECTED,
        RequestException=None,
    ),
    **named("httpcore", **_HTTPCORE),
    **named(
        "httpx",
        **_HTTPCORE,
        HTTPStatusError=by_response,
        TransportError=FAILED,
        DecodingError=FAILED,
        TooManyRedirects=REJECTED,
    ),
    **named(
        "aiohttp.client_exceptions",
        ClientConnectorCertificateError=not_trusted,
        ClientConnectorError=_connect_error,
        ConnectionTimeoutError=UNREACHED,
        ServerTimeoutError=TIMED_OUT,
        ClientResponseError=_aiohttp_status,
        ClientConnectionError=FAILED,
        ClientPayloadError=FAILED,
        InvalidURL=None,
        ClientError=FAILED,
    ),
    **named("grpc", RpcError=_grpc),
    **named(
        "google.api_core.exceptions",
        GoogleAPICallError=_google,
        RetryError=_retries_spent,
        Aborted=conflict,
    ),
    **named("google.auth.exceptions", TransportError=FAILED, RefreshError=REJECTED),
    **named(
        "botocore.exceptions",
        ClientError=_aws,
        EndpointConnectionError=UNREACHED,
        ConnectTimeoutError=UNREACHED,
        ProxyConnectionError=UNREACHED,
        SSLError=failed_tls,
        ReadTimeoutError=TIMED_OUT,
        HTTPClientError=FAILED,
        ConnectionError=FAILED,
    ),
    **named(
        "azure.core.exceptions",
        ServiceRequestError=UNREACHED,
        ServiceResponseTimeoutError=TIMED_OUT,
        ServiceResponseError=FAILED,
        HttpResponseError=by_response,
    ),
    **named(
        "elastic_transport",
        ApiError=_elastic,
        ConnectionTimeout=TIMED_OUT,
        TransportError=FAILED,
    ),
    **named("elasticsearch.exceptions", **_SEARCH),
    **named("opensearchpy.exceptions", **_SEARCH),
    **named("kubernetes.client.exceptions", ApiException=by_response),
    **_openai("openai"),
    **_openai("anthropic"),
    **named(
        "stripe._error",
        APIConnectionError=FAILED,
        RateLimitError=LIMITED,
        StripeError=by_response,
    ),
    **named(
        "websockets.exceptions",
        InvalidStatus=by_response,
        ConnectionClosed=FAILED,
        InvalidHandshake=FAILED,
    ),
    **named(
        "websocket._exceptions",
        WebSocketTimeoutException=TIMED_OUT,
        WebSocketAddressException=UNREACHED,
        WebSocketBadStatusException=by_response,
        WebSocketException=FAILED,
    ),
}
