"""WSGI: a guard in front of an application: Flask, Django as WSGI, or a bare callable.

    app.wsgi_app = LimitMiddleware(app.wsgi_app, guard)

What is admitted is the application's own: its iterable is handed on as it is, with its generator,
its `close` and its `write`; only `start_response` gains headers. A refusal is answered here.

Whether to admit when a store is away is the guard's business. A guard that cannot answer at all
(`Unavailable`) is answered with 503; any other exception of a guard is a bug, and passes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeAlias, final

from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.guard import Guard, Judgement, check_guard
from sluicegate.doors.headers import Fields, unavailable
from sluicegate.doors.marks import mark_environ
from sluicegate.doors.problem import CONTENT_TYPE, body, status_of
from sluicegate.doors.proxies import Proxies, proxies_of

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

Environ: TypeAlias = dict[str, Any]


@final
class WsgiArrival:
    """A request as an arrival."""

    __slots__ = ("_environ", "_proxies", "_user")

    def __init__(
        self, environ: Environ, proxies: Proxies, user: Callable[[Environ], str | None] | None
    ) -> None:
        self._environ = environ
        self._proxies = proxies
        self._user = user

    @property
    def method(self) -> str:
        """The method."""
        return str(self._environ["REQUEST_METHOD"])

    @property
    def path(self) -> str:
        """The path with the part that the server has cut off, as UTF-8."""
        environ = self._environ
        path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
        # WSGI carries bytes as latin-1.
        return path.encode("latin-1").decode("utf-8", "replace") or "/"

    def address(self) -> str:
        """The client's address; empty behind a Unix socket without trusted proxies."""
        proxies = self._proxies
        peer = self._environ.get("REMOTE_ADDR") or ""
        if not proxies.trusted:
            return proxies.client(peer)
        line = self.header(proxies.header)  # a server joins several lines by commas
        return proxies.client(peer, (line,) if line else ())

    def header(self, name: str) -> str:
        """The header of that name; several of one name come as one, with commas."""
        key = name.upper().replace("-", "_")
        if key not in {"CONTENT_TYPE", "CONTENT_LENGTH"}:
            key = f"HTTP_{key}"
        return self._environ.get(key) or ""

    def user(self) -> str:
        """What the `user` function says; else whom the server has authenticated."""
        if self._user is not None:
            return self._user(self._environ) or ""
        return self._environ.get("REMOTE_USER") or ""


@final
class LimitMiddleware:
    """Asks `guard` before `app`.

    `trust_proxies`: how many proxies of yours are in front, or a `Proxies`. `headers`: ietf,
    legacy, both or none. `user` names the authenticated user of an environ. `exempt`: paths, whole
    or below a mount, or a function of the environ, that are not judged. `on_refused(environ,
    judgement)` makes an application that answers a refused request in place of the problem details.
    With `mark_upstream` the application sees which requests were not counted (`doors.marks`).
    """

    def __init__(
        self,
        app: WSGIApplication,
        guard: Guard,
        *,
        trust_proxies: int | Proxies = 0,
        headers: str = "ietf",
        user: Callable[[Environ], str | None] | None = None,
        exempt: Collection[str] | Callable[[Environ], bool] = (),
        on_refused: Callable[[Environ, Judgement], WSGIApplication] | None = None,
        mark_upstream: bool = False,
    ) -> None:
        check_guard(guard)
        self.app = app
        self.guard = guard
        self._proxies = proxies_of(trust_proxies)
        self._fields = Fields(headers)
        self._user = user
        self._exempt: frozenset[str] = frozenset() if callable(exempt) else frozenset(exempt)
        self._exempts = exempt if callable(exempt) else None
        self._on_refused = on_refused
        self._mark = mark_upstream

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Judge a request."""
        arrival = WsgiArrival(environ, self._proxies, self._user)
        paths = self._exempt
        if paths and (arrival.path in paths or path_in_app(environ) in paths):
            return self.app(self._environ_for_app(environ, None), start_response)
        if self._exempts is not None and self._exempts(environ):
            return self.app(self._environ_for_app(environ, None), start_response)
        try:
            judgement = self.guard.judge(arrival)
        except Unavailable:
            judgement = unavailable()
        if judgement is None:
            return self.app(self._environ_for_app(environ, None), start_response)
        fields = title_case(self._fields.of(judgement))
        if judgement.decision.allowed:
            environ = self._environ_for_app(environ, judgement)
            return self.app(environ, with_fields(start_response, fields))
        if self._on_refused is not None:
            answer = self._on_refused(environ, judgement)
            return answer(environ, with_fields(start_response, fields))
        text = body(judgement)
        start_response(
            status_line(status_of(judgement)),
            [("Content-Type", CONTENT_TYPE), ("Content-Length", str(len(text))), *fields],
        )
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [text]

    def _environ_for_app(self, environ: Environ, judgement: Judgement | None) -> Environ:
        """Return the environ for the application, marked where that is wanted."""
        return mark_environ(environ, judgement, self._proxies) if self._mark else environ


def path_in_app(environ: Environ) -> str:
    """Return the path below the one that a server or a mount puts before the application."""
    path: str = environ.get("PATH_INFO", "")
    return path.encode("latin-1").decode("utf-8", "replace") or "/"  # WSGI carries latin-1


def title_case(fields: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Field names as people write them."""
    return [(_TITLES[name], value) for name, value in fields]


_TITLES = {
    "ratelimit-policy": "RateLimit-Policy",
    "ratelimit": "RateLimit",
    "x-ratelimit-limit": "X-RateLimit-Limit",
    "x-ratelimit-remaining": "X-RateLimit-Remaining",
    "x-ratelimit-reset": "X-RateLimit-Reset",
    "x-ratelimit-error": "X-RateLimit-Error",
    "retry-after": "Retry-After",
}


def status_line(status: int) -> str:
    """`429 Too Many Requests`."""
    return f"{status} {HTTPStatus(status).phrase}"


def with_fields(start_response: StartResponse, fields: list[tuple[str, str]]) -> StartResponse:
    """A `start_response` that adds these fields, but none that stands there."""

    def starting(
        status: str, headers: list[tuple[str, str]], exc_info: Any = None, /
    ) -> Callable[[bytes], object]:
        present = {name.lower() for name, _ in headers}
        whole = headers + [field for field in fields if field[0].lower() not in present]
        if exc_info is None:
            return start_response(status, whole)
        return start_response(status, whole, exc_info)

    return starting
