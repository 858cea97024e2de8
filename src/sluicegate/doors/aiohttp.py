"""aiohttp: a guard in front of a server's application.

    setup(app, guard, trust_proxies=1)

`setup` adds a middleware, which judges, and a signal, which puts the headers on every kind of
response while it is prepared: streams, files, WebSocket handshakes, errors. `limit_middleware`
is the middleware alone, for who composes a list of them; it reaches what is not prepared when the
handler returns.

A WebSocket handshake is a request here, and its refusal an ordinary 429.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, TypeAlias, final

from sluicegate.contracts.errors import MissingPackage, Unavailable
from sluicegate.contracts.guard import Guard, Judgement, check_guard
from sluicegate.doors.asgi import WEBSOCKET
from sluicegate.doors.headers import Fields, unavailable
from sluicegate.doors.problem import CONTENT_TYPE, body, status_of
from sluicegate.doors.proxies import Proxies, proxies_of
from sluicegate.doors.wsgi import title_case

try:
    from aiohttp import hdrs, web
    from aiohttp.typedefs import Handler, Middleware
except ModuleNotFoundError as error:
    raise MissingPackage(error.name or "aiohttp", "aiohttp") from None

TitledFields: TypeAlias = "list[tuple[str, str]]"

_FIELDS: Final = web.RequestKey("sluicegate.fields", list[tuple[str, str]])


@final
class _AiohttpArrival:
    """A request as an arrival."""

    __slots__ = ("_proxies", "_request", "_user")

    def __init__(
        self,
        request: web.Request,
        proxies: Proxies,
        user: Callable[[web.Request], str | None] | None,
    ) -> None:
        self._request = request
        self._proxies = proxies
        self._user = user

    @property
    def method(self) -> str:
        """The method; WEBSOCKET for a handshake."""
        request = self._request
        if request.headers.get(hdrs.UPGRADE, "").lower() == "websocket":
            return WEBSOCKET
        return request.method

    @property
    def path(self) -> str:
        """The path, decoded."""
        return self._request.path

    def address(self) -> str:
        """The client's address; empty behind a Unix socket without trusted proxies."""
        request, proxies = self._request, self._proxies
        transport = request.transport
        peer = None if transport is None else transport.get_extra_info("peername")
        host = peer[0] if isinstance(peer, tuple) else ""
        if not proxies.trusted:
            return proxies.client(host)
        return proxies.client(host, request.headers.getall(proxies.header, ()))

    def header(self, name: str) -> str:
        """The first header of that name."""
        return self._request.headers.get(name, "")

    def user(self) -> str:
        """What the `user` function says."""
        return "" if self._user is None else self._user(self._request) or ""


def limit_middleware(
    guard: Guard,
    *,
    trust_proxies: int | Proxies = 0,
    headers: str = "ietf",
    user: Callable[[web.Request], str | None] | None = None,
    exempt: Collection[str] | Callable[[web.Request], bool] = (),
    on_refused: Callable[[web.Request, Judgement], web.StreamResponse] | None = None,
) -> Middleware:
    """A middleware that asks `guard`; the options are those of the ASGI middleware."""
    check_guard(guard, "ajudge")
    proxies, fields = proxies_of(trust_proxies), Fields(headers)
    paths: frozenset[str] = frozenset() if callable(exempt) else frozenset(exempt)
    exempts = exempt if callable(exempt) else None

    @web.middleware
    async def judge_request(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in paths or (exempts is not None and exempts(request)):
            return await handler(request)
        try:
            judgement = await guard.ajudge(_AiohttpArrival(request, proxies, user))
        except Unavailable:
            judgement = unavailable()
        if judgement is None:
            return await handler(request)
        pairs = title_case(fields.of(judgement))
        if not judgement.decision.allowed:
            if on_refused is None:
                response: web.StreamResponse = _refusal_response(judgement)
            else:
                response = on_refused(request, judgement)
            add_missing(response, pairs)
            return response
        request[_FIELDS] = pairs
        try:
            response = await handler(request)
        except web.HTTPException as raised:
            add_missing(raised, pairs)
            raise
        if not response.prepared:
            add_missing(response, pairs)
        return response

    return judge_request


def setup(
    app: web.Application,
    guard: Guard,
    *,
    trust_proxies: int | Proxies = 0,
    headers: str = "ietf",
    user: Callable[[web.Request], str | None] | None = None,
    exempt: Collection[str] | Callable[[web.Request], bool] = (),
    on_refused: Callable[[web.Request, Judgement], web.StreamResponse] | None = None,
) -> None:
    """Put the guard in front of `app`, and the headers on all it sends."""
    app.middlewares.append(
        limit_middleware(
            guard,
            trust_proxies=trust_proxies,
            headers=headers,
            user=user,
            exempt=exempt,
            on_refused=on_refused,
        )
    )
    app.on_response_prepare.append(_preparing)


async def _preparing(request: web.Request, response: web.StreamResponse) -> None:
    add_missing(response, request.get(_FIELDS, []))


def add_missing(response: web.StreamResponse, fields: TitledFields) -> None:
    """Add these headers, but none that stands there."""
    for name, value in fields:
        if name not in response.headers:
            response.headers[name] = value


def _refusal_response(judgement: Judgement) -> web.Response:
    return web.Response(
        body=body(judgement), status=status_of(judgement), content_type=CONTENT_TYPE
    )
