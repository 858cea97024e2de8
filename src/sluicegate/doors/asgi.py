"""ASGI: a guard in front of an application: Starlette, FastAPI, Litestar, or a bare callable.

    app.add_middleware(LimitMiddleware, guard=guard, trust_proxies=1)

It is a plain ASGI callable. A request is judged before the application sees it; what is admitted
passes through as it is, message by message, and only the first of a response gains headers. A
refusal is answered here. A WebSocket is judged at its handshake: a refusal is a response if the
server can send one, and else a close with code 1008 before the connection is accepted. Nothing else
is touched: neither lifespan, nor bodies, nor the application's exceptions.

Whether to admit when a store is away is the guard's business. A guard that cannot answer at all
(`Unavailable`) is answered with 503; any other exception of a guard is a bug, and passes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any, Final, TypeAlias, final

from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.guard import Guard, Judgement, check_guard
from sluicegate.doors.headers import Fields, add_missing_fields, unavailable
from sluicegate.doors.marks import mark_scope
from sluicegate.doors.problem import CONTENT_TYPE, body, status_of
from sluicegate.doors.proxies import Proxies, proxies_of

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
# Frameworks type these three each in their own way, so from outside they are whatever they are.
App: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]

WEBSOCKET: Final = "WEBSOCKET"
# What a WebSocket close says when a policy is violated (RFC 6455, 7.4.1).
CLOSE_CODE: Final = 1008
_EXTENSION: Final = "websocket.http.response"

RawFields: TypeAlias = "list[tuple[bytes, bytes]]"


@final
class AsgiArrival:
    """A request or a handshake as an arrival; a header is looked for when it is asked for."""

    __slots__ = ("_proxies", "_scope", "_user")

    def __init__(
        self, scope: Scope, proxies: Proxies, user: Callable[[Scope], str | None] | None
    ) -> None:
        self._scope = scope
        self._proxies = proxies
        self._user = user

    @property
    def method(self) -> str:
        """The method; WEBSOCKET for a handshake."""
        scope = self._scope
        return scope["method"] if scope["type"] == "http" else WEBSOCKET

    @property
    def path(self) -> str:
        """The path as the server has decoded it."""
        return self._scope["path"]  # type: ignore[no-any-return]

    def address(self) -> str:
        """The client's address; empty behind a Unix socket without trusted proxies."""
        scope, proxies = self._scope, self._proxies
        client = scope.get("client")
        peer = "" if client is None else client[0]
        if not proxies.trusted:
            return proxies.client(peer)
        name = proxies.header.encode("ascii")
        lines = [value.decode("latin-1") for key, value in scope["headers"] if key == name]
        return proxies.client(peer, lines)

    def header(self, name: str) -> str:
        """The first header of that name."""
        raw = name.encode("latin-1", "replace")
        for key, value in self._scope["headers"]:
            if key == raw:
                return value.decode("latin-1")  # type: ignore[no-any-return]
        return ""

    def user(self) -> str:
        """What the `user` function says."""
        return "" if self._user is None else self._user(self._scope) or ""


@final
class LimitMiddleware:
    """Asks `guard` before `app`.

    `trust_proxies`: how many proxies of yours are in front, or a `Proxies`. `headers`: ietf,
    legacy, both or none. `user` names the authenticated user of a scope. `exempt`: paths, whole
    or below a mount, or a function of the scope, that are not judged. `on_refused(scope,
    judgement)` makes an application that answers a refused request in place of the problem details;
    it gains the same headers. With `mark_upstream` the application sees which requests were not
    counted (`doors.marks`).
    """

    def __init__(
        self,
        app: App,
        guard: Guard,
        *,
        trust_proxies: int | Proxies = 0,
        headers: str = "ietf",
        user: Callable[[Scope], str | None] | None = None,
        exempt: Collection[str] | Callable[[Scope], bool] = (),
        on_refused: Callable[[Scope, Judgement], App] | None = None,
        mark_upstream: bool = False,
    ) -> None:
        check_guard(guard, "ajudge")
        self.app = app
        self.guard = guard
        self._proxies = proxies_of(trust_proxies)
        self._fields = Fields(headers)
        self._user = user
        self._exempt: frozenset[str] = frozenset() if callable(exempt) else frozenset(exempt)
        self._exempts = exempt if callable(exempt) else None
        self._on_refused = on_refused
        self._mark = mark_upstream

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Judge a request or a handshake; pass everything else."""
        if scope["type"] not in _JUDGED_TYPES:
            return await self.app(scope, receive, send)
        if self._is_exempt(scope):
            return await self.app(self._scope_for_app(scope, None), receive, send)
        try:
            judgement = await self.guard.ajudge(AsgiArrival(scope, self._proxies, self._user))
        except Unavailable:
            judgement = unavailable()
        if judgement is None:
            return await self.app(self._scope_for_app(scope, None), receive, send)
        if judgement.decision.allowed:
            scope = self._scope_for_app(scope, judgement)
            raw = self._fields.raw(judgement)
            return await self.app(scope, receive, with_fields(send, raw) if raw else send)
        return await self._refuse(judgement, scope, receive, send)

    def _is_exempt(self, scope: Scope) -> bool:
        paths = self._exempt
        if paths and (scope["path"] in paths or path_in_app(scope) in paths):
            return True
        return self._exempts is not None and self._exempts(scope)

    def _scope_for_app(self, scope: Scope, judgement: Judgement | None) -> Scope:
        """Return the scope for the application, marked where that is wanted."""
        return mark_scope(scope, judgement, self._proxies) if self._mark else scope

    async def _refuse(
        self, judgement: Judgement, scope: Scope, receive: Receive, send: Send
    ) -> None:
        raw = self._fields.raw(judgement)
        if scope["type"] == "http":
            if self._on_refused is not None:
                answer = self._on_refused(scope, judgement)
                await answer(scope, receive, with_fields(send, raw))
            else:
                await respond(judgement, raw, send, "http", head=scope["method"] == "HEAD")
            return
        await receive()  # the handshake itself; it may be answered now
        if _EXTENSION in (scope.get("extensions") or {}):
            await respond(judgement, raw, send, _EXTENSION.removesuffix(".response"), head=False)
        else:
            await send({"type": "websocket.close", "code": CLOSE_CODE, "reason": ""})


def path_in_app(scope: Scope) -> str:
    """Return the path below the one that a server or a mount puts before the application.

    `path` begins with `root_path`, except from servers that cut it off themselves.
    """
    path: str = scope["path"]
    root = (scope.get("root_path") or "").rstrip("/")
    if root and path.startswith(root) and path[len(root) : len(root) + 1] in ("", "/"):
        return path[len(root) :] or "/"
    return path


_JUDGED_TYPES: Final = frozenset({"http", "websocket"})
# The first message of each kind of answer, which carries the headers.
_STARTS: Final = frozenset(
    {"http.response.start", "websocket.accept", "websocket.http.response.start"}
)


def with_fields(send: Send, raw: RawFields) -> Send:
    """A `send` that adds these fields to the start of a response, but none that stands there."""

    def send_with_fields(message: Message) -> Awaitable[None]:
        # No coroutine of its own: every other message passes at the price of a call.
        if message["type"] in _STARTS:
            # The application's message and list stay as they are; it may send them again.
            message = {**message, "headers": add_missing_fields(message.get("headers") or (), raw)}
        return send(message)

    return send_with_fields


async def respond(
    judgement: Judgement, raw: RawFields, send: Send, prefix: str, *, head: bool
) -> None:
    """Answer a refusal with problem details."""
    text = body(judgement)
    await send(
        {
            "type": f"{prefix}.response.start",
            "status": status_of(judgement),
            "headers": [
                (b"content-type", CONTENT_TYPE.encode("ascii")),
                (b"content-length", str(len(text)).encode("ascii")),
                *raw,
            ],
        }
    )
    await send({"type": f"{prefix}.response.body", "body": b"" if head else text})
