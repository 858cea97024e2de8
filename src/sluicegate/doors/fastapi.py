"""FastAPI: limits as dependencies, for one endpoint, a router or the whole application.

    @app.post("/login", dependencies=[Depends(limit(limiter, "5/minute", key=by_address()))])

An endpoint needs no `request` and no `response` argument for it, and a key may be any dependency:
what it asks for, FastAPI brings. What is refused raises `LimitExceeded`, an `HTTPException` with
all headers; `install(app)` makes problem details of it, and brings the headers to endpoints that
return a `Response` of their own, which FastAPI would send without them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, SupportsIndex, cast

from sluicegate.contracts.errors import MissingPackage, Refused, Unavailable
from sluicegate.contracts.guard import Guard, Judgement, check_guard, check_limiter
from sluicegate.doors.asgi import (
    CLOSE_CODE,
    AsgiArrival,
    Message,
    Receive,
    Scope,
    Send,
)
from sluicegate.doors.asgi import App as AsgiApp
from sluicegate.doors.endpoint_limit import EndpointLimiter, ajudge_claim, check_rule, name_of
from sluicegate.doors.headers import POLICY, RATELIMIT, Fields, add_missing_fields, unavailable
from sluicegate.doors.problem import CONTENT_TYPE, body, reason_of, status_of
from sluicegate.doors.proxies import Proxies, proxies_of

try:
    from fastapi import Depends, FastAPI, HTTPException, Response, WebSocketException
    from fastapi.requests import HTTPConnection
except ModuleNotFoundError as error:
    raise MissingPackage(error.name or "fastapi", "fastapi") from None

Dependency = Callable[..., Awaitable[Judgement | None]]
_LATE: Final = "sluicegate.fields"

# For `responses=` of an endpoint, a router or the application: what OpenAPI says of a refusal.
REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    429: {
        "description": "Refused by a limit; `Retry-After` says when to come back.",
        "headers": {
            "Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."},
            "RateLimit": {"schema": {"type": "string"}},
            "RateLimit-Policy": {"schema": {"type": "string"}},
        },
        "content": {
            CONTENT_TYPE: {
                "schema": {
                    "type": "object",
                    "properties": {
                        "type": {"type": "string"},
                        "title": {"type": "string"},
                        "status": {"type": "integer"},
                        "detail": {"type": "string"},
                        "reason": {"type": "string"},
                        "rule": {"type": "string"},
                        "retry_after": {"type": "number"},
                    },
                }
            }
        },
    }
}


class LimitExceeded(HTTPException):
    """A refused request; without `install` it is answered as any `HTTPException`."""

    def __init__(self, judgement: Judgement, headers: dict[str, str]) -> None:
        super().__init__(
            status_code=status_of(judgement),
            detail=reason_of(judgement).sentence,
            # The usual body, {"detail": ...}, is the smallest of problem details.
            headers={**headers, "content-type": CONTENT_TYPE},
        )
        self.judgement = judgement


def by_address(trust_proxies: int | Proxies = 0) -> Callable[..., Awaitable[str]]:
    """A key: the client's address."""
    proxies = proxies_of(trust_proxies)

    async def address(connection: HTTPConnection) -> str:
        return AsgiArrival(connection.scope, proxies, None).address()

    return address


def by_header(name: str, *, trust_proxies: int | Proxies = 0) -> Callable[..., Awaitable[str]]:
    """A key: a header's value; without one, the client's address."""
    proxies = proxies_of(trust_proxies)
    field = name.lower()

    async def value(connection: HTTPConnection) -> str:
        arrival = AsgiArrival(connection.scope, proxies, None)
        text = arrival.header(field)
        return f"{field}={text}" if text else arrival.address()

    return value


def limit(
    limiter: EndpointLimiter,
    rule: Any = None,
    *,
    key: str | Callable[..., Any],
    cost: SupportsIndex | Callable[..., Any] = 1,
    scope: str | None = None,
    headers: str = "ietf",
) -> Dependency:
    """A dependency that takes `cost` from `rule` for `key`.

    `rule`, `key` and `cost` may be dependencies themselves, as for limits by plan; a rule that is
    None then lets the request pass and counts nothing. Each endpoint counts by itself; those that
    give the same `scope` count together.
    """
    check_limiter(limiter)
    check_rule(limiter, rule)
    fields = Fields(headers)
    rule_of = Depends(rule if callable(rule) else _always(rule))
    key_of = Depends(key if callable(key) else _always(key))
    cost_of = Depends(cost if callable(cost) else _always(cost))

    async def ask(
        connection: HTTPConnection,
        response: Response,
        rule_value: Any = rule_of,
        key_value: str = key_of,
        cost_value: Any = cost_of,
    ) -> Judgement | None:
        if rule_value is None and callable(rule):
            return None
        where = name_of(connection.scope.get("endpoint")) if scope is None else scope
        judgement = await ajudge_claim(limiter, where, key_value, rule_value, cost_value)
        return _apply_judgement(connection, response, judgement, fields)

    return ask


def limited(
    guard: Guard,
    *,
    trust_proxies: int | Proxies = 0,
    headers: str = "ietf",
    user: Callable[[Scope], str | None] | None = None,
) -> Dependency:
    """A dependency that asks a guard, as the middleware does for a whole application."""
    check_guard(guard, "ajudge")
    fields = Fields(headers)
    proxies = proxies_of(trust_proxies)

    async def ask(connection: HTTPConnection, response: Response) -> Judgement | None:
        arrival = AsgiArrival(connection.scope, proxies, user)
        try:
            judgement = await guard.ajudge(arrival)
        except Unavailable:
            judgement = unavailable()
        return (
            None if judgement is None else _apply_judgement(connection, response, judgement, fields)
        )

    return ask


def install(app: FastAPI, *, headers: str = "ietf") -> None:
    """Answer refusals with problem details, and have headers on every kind of response.

    `Refused`, as `limiter.limit` raises it in an endpoint, is answered in the same way.
    """
    fields = Fields(headers)

    async def exceeded(_: object, error: Exception) -> Response:
        limit_error = cast("LimitExceeded", error)
        return Response(
            body(limit_error.judgement),
            limit_error.status_code,
            cast("dict[str, str]", limit_error.headers),
        )

    async def refused(_: object, error: Exception) -> Response:
        judgement = Judgement(cast("Refused", error).decision, ())
        text = {**dict(fields.of(judgement)), "content-type": CONTENT_TYPE}
        return Response(body(judgement), status_of(judgement), text)

    app.add_exception_handler(LimitExceeded, exceeded)
    app.add_exception_handler(Refused, refused)
    app.add_middleware(_LateFields)


class _LateFields:
    """Brings what a dependency has judged to a response that was made without it."""

    def __init__(self, app: AsgiApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Look at the start of a response."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        late: dict[str, str] = {}
        scope[_LATE] = late

        def sending(message: Message) -> Awaitable[None]:
            if late and message["type"] in {"http.response.start", "websocket.accept"}:
                raw = [
                    (name.encode("ascii"), value.encode("ascii")) for name, value in late.items()
                ]
                message = {
                    **message,
                    "headers": add_missing_fields(message.get("headers") or (), raw),
                }
            return send(message)

        return await self.app(scope, receive, sending)


def _apply_judgement(
    connection: HTTPConnection, response: Response, judgement: Judgement, fields: Fields
) -> Judgement:
    """Set the headers where the response will find them, or raise the refusal."""
    headers = dict(fields.of(judgement))
    late: dict[str, str] = connection.scope.get(_LATE, {})
    if judgement.decision.allowed:
        for name, value in headers.items():
            text = value
            if name in {RATELIMIT, POLICY} and name in response.headers:
                # Of several limits on one endpoint, each is text.
                text = f"{response.headers[name]}, {value}"
            response.headers[name] = late[name] = text
        return judgement
    late.clear()
    late.update(headers)  # whoever answers a refusal by himself has its headers too
    if connection.scope["type"] == "websocket":
        extensions = connection.scope.get("extensions") or {}
        if "websocket.http.response" not in extensions:
            raise WebSocketException(CLOSE_CODE, reason_of(judgement).name)
    raise LimitExceeded(judgement, headers)


def _always(value: Any) -> Callable[[], Awaitable[Any]]:
    # Async, because FastAPI runs a plain function in a thread.
    async def always() -> Any:
        return value

    return always
