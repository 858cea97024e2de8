"""Django: a guard for the whole project, and limits on single views.

    MIDDLEWARE = [..., "sluicegate.doors.django.LimitMiddleware"]
    SLUICEGATE_GUARD = "project.limits.guard"      # a guard, or its dotted path
    SLUICEGATE_LIMITER = "project.limits.limiter"  # for views decorated by `ratelimit`

| setting | default | what it is |
|---|---|---|
| `SLUICEGATE_TRUST_PROXIES` | 0 | how many proxies of yours are in front, or a `Proxies` |
| `SLUICEGATE_HEADERS` | "ietf" | ietf, legacy, both or none |
| `SLUICEGATE_USER` | "auth" | "auth": Django's user; None: nobody; or a function of the request |
| `SLUICEGATE_EXEMPT` | () | paths that are not judged |

Middleware and decorator serve synchronous and asynchronous projects. Who wants rules about users
puts the middleware below Django's `AuthenticationMiddleware`. In an asynchronous project the user
is loaded before the guard is asked, and only for requests that bring a session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Final, SupportsIndex, TypeAlias, TypeVar, cast

from sluicegate.contracts.errors import BadValue, MissingPackage, Unavailable
from sluicegate.contracts.guard import Guard, Judgement, check_guard, check_limiter
from sluicegate.doors.endpoint_limit import (
    EndpointLimiter,
    ajudge_claim,
    check_rule,
    judge_claim,
    name_of,
)
from sluicegate.doors.headers import Fields, unavailable
from sluicegate.doors.problem import CONTENT_TYPE, body, status_of
from sluicegate.doors.proxies import Proxies, proxies_of
from sluicegate.doors.wsgi import title_case

try:
    from asgiref.sync import iscoroutinefunction, markcoroutinefunction
    from django.conf import settings
    from django.http import HttpRequest, HttpResponse, HttpResponseBase
    from django.utils.module_loading import import_string
except ModuleNotFoundError as error:
    raise MissingPackage(error.name or "django", "django") from None

View = TypeVar("View", bound=Callable[..., Any])
Key: TypeAlias = str | Callable[[HttpRequest], str]
Cost: TypeAlias = SupportsIndex | Callable[[HttpRequest], SupportsIndex]
TitledFields: TypeAlias = "list[tuple[str, str]]"

_NOT_LOADED: Final = object()


class _DjangoArrival:
    """A request as an arrival; the user is looked up when a rule asks for one."""

    def __init__(self, request: HttpRequest, proxies: Proxies, user: Any) -> None:
        self._request = request
        self._proxies = proxies
        self._user = user
        self.loaded: object = _NOT_LOADED

    @property
    def method(self) -> str:
        """The method."""
        return self._request.method or ""

    @property
    def path(self) -> str:
        """The path, decoded."""
        return self._request.path

    def address(self) -> str:
        """The client's address; empty behind a Unix socket without trusted proxies."""
        proxies = self._proxies
        peer = self._request.META.get("REMOTE_ADDR") or ""
        if not proxies.trusted:
            return proxies.client(peer)
        line = self.header(proxies.header)  # Django joins several lines by commas
        return proxies.client(peer, (line,) if line else ())

    def header(self, name: str) -> str:
        """The header of that name."""
        return self._request.headers.get(name) or ""

    def user(self) -> str:
        """The primary key of Django's user, or what the setting's function says."""
        if callable(self._user):
            return self._user(self._request) or ""
        if self._user is None:
            return ""
        user = self.loaded
        if user is _NOT_LOADED:
            user = getattr(self._request, "user", None)
        return str(user.pk) if getattr(user, "is_authenticated", False) else ""  # type: ignore[attr-defined]

    async def load_user(self) -> None:
        """Have the user at hand, where looking it up later would block the event loop."""
        if self._user != "auth":
            return
        request = self._request
        auser = getattr(request, "auser", None)
        if auser is None or settings.SESSION_COOKIE_NAME not in request.COOKIES:
            self.loaded = None
        else:
            self.loaded = await auser()


class _Settings:
    """The settings, read once for each middleware and decorator."""

    def __init__(self) -> None:
        for name in dir(settings):
            if name.startswith("SLUICEGATE_") and name not in _NAMES:
                raise BadValue(f"settings.{name}", ..., f"give one of {', '.join(_NAMES)}")
        self.proxies = proxies_of(getattr(settings, "SLUICEGATE_TRUST_PROXIES", 0))
        self.fields = Fields(getattr(settings, "SLUICEGATE_HEADERS", "ietf"))
        user = getattr(settings, "SLUICEGATE_USER", "auth")
        self.user = user if user in {None, "auth"} else _object(user)
        self.exempt = frozenset(getattr(settings, "SLUICEGATE_EXEMPT", ()))

    def is_exempt(self, request: HttpRequest) -> bool:
        return request.path in self.exempt or request.path_info in self.exempt


class LimitMiddleware:
    """Asks the guard of the settings before every view."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self.guard: Guard = _setting("SLUICEGATE_GUARD")
        check_guard(self.guard)
        self._settings = _Settings()
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        """Judge a request."""
        if self._is_async:
            return self._acall(request)
        if self._settings.is_exempt(request):
            return self.get_response(request)  # type: ignore[no-any-return]
        try:
            judgement = self.guard.judge(self._arrival(request))
        except Unavailable:
            judgement = unavailable()
        fields = self._fields(judgement)
        if judgement is not None and not judgement.decision.allowed:
            return refusal_response(judgement, fields)
        response: HttpResponseBase = self.get_response(request)
        return add_missing(response, fields)

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        if self._settings.is_exempt(request):
            return await self.get_response(request)  # type: ignore[no-any-return]
        arrival = self._arrival(request)
        await arrival.load_user()
        try:
            judgement = await self.guard.ajudge(arrival)
        except Unavailable:
            judgement = unavailable()
        fields = self._fields(judgement)
        if judgement is not None and not judgement.decision.allowed:
            return refusal_response(judgement, fields)
        response: HttpResponseBase = await self.get_response(request)
        return add_missing(response, fields)

    def _arrival(self, request: HttpRequest) -> _DjangoArrival:
        return _DjangoArrival(request, self._settings.proxies, self._settings.user)

    def _fields(self, judgement: Judgement | None) -> TitledFields:
        return [] if judgement is None else title_case(self._settings.fields.of(judgement))


def ratelimit(
    rule: Any = None,
    *,
    key: Key = "ip",
    cost: Cost = 1,
    method: str | tuple[str, ...] = (),
    scope: str | None = None,
    limiter: EndpointLimiter | None = None,
) -> Callable[[View], View]:
    """Limit a view, plain or async; `method_decorator` brings it to views that are classes.

    `rule` and `cost` may be functions of the request; a rule that is None then lets the request
    pass and counts nothing. `key` is `ip`, `user`, `user_or_ip`,
    `header:NAME`, or a function of the request; a request without that user or header counts by
    address. `method` names those that count; all do if it is empty. Each view counts by itself;
    those that give the same `scope` count together. Without `limiter`, the setting
    SLUICEGATE_LIMITER has it.
    """
    methods = {method} if isinstance(method, str) else set(method)
    if isinstance(key, str) and key not in _KEYS and not key.startswith("header:"):
        raise BadValue("key", key, f"give {', '.join(_KEYS)}, header:NAME, or a function")

    if limiter is not None:
        check_limiter(limiter)
        check_rule(limiter, rule)

    def around(view: View) -> View:
        where = name_of(view) if scope is None else scope
        prepared: list[tuple[EndpointLimiter, _Settings]] = []

        def settings_now() -> tuple[EndpointLimiter, _Settings]:
            # Settings are there when a request is, but not always when a view is decorated.
            if not prepared:
                endpoint: EndpointLimiter = (
                    _setting("SLUICEGATE_LIMITER") if limiter is None else limiter
                )
                check_limiter(endpoint)
                check_rule(endpoint, rule)
                prepared.append((endpoint, _Settings()))
            return prepared[0]

        def claim(
            arrival: _DjangoArrival, request: HttpRequest
        ) -> tuple[str, Any, SupportsIndex] | None:
            said = rule(request) if callable(rule) else rule
            if said is None and callable(rule):
                return None
            who = key(request) if callable(key) else _key_of(key, arrival)
            return who, said, cost(request) if callable(cost) else cost

        if iscoroutinefunction(view):

            @wraps(view)
            async def limited_async(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
                if methods and request.method not in methods:
                    return await view(request, *args, **kwargs)
                endpoint, have = settings_now()
                arrival = _DjangoArrival(request, have.proxies, have.user)
                if key in {"user", "user_or_ip"}:
                    await arrival.load_user()
                claimed = claim(arrival, request)
                if claimed is None:
                    return await view(request, *args, **kwargs)
                judgement = await ajudge_claim(endpoint, where, *claimed)
                fields = title_case(have.fields.of(judgement))
                if not judgement.decision.allowed:
                    return refusal_response(judgement, fields)
                return add_missing(await view(request, *args, **kwargs), fields)

            return cast("View", limited_async)

        @wraps(view)
        def limited(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            if methods and request.method not in methods:
                return view(request, *args, **kwargs)
            endpoint, have = settings_now()
            arrival = _DjangoArrival(request, have.proxies, have.user)
            claimed = claim(arrival, request)
            if claimed is None:
                return view(request, *args, **kwargs)
            judgement = judge_claim(endpoint, where, *claimed)
            fields = title_case(have.fields.of(judgement))
            if not judgement.decision.allowed:
                return refusal_response(judgement, fields)
            return add_missing(view(request, *args, **kwargs), fields)

        return cast("View", limited)

    return around


def refusal_response(judgement: Judgement, fields: TitledFields) -> HttpResponse:
    """The response to a refusal; Django leaves the body of a HEAD out by itself."""
    response = HttpResponse(body(judgement), status=status_of(judgement), content_type=CONTENT_TYPE)
    return add_missing(response, fields)


Response = TypeVar("Response", bound=HttpResponseBase)


def add_missing(response: Response, fields: TitledFields) -> Response:
    """Add these headers, but none that stands there."""
    for name, value in fields:
        if name not in response.headers:
            response.headers[name] = value
    return response


_NAMES: Final = (
    "SLUICEGATE_EXEMPT",
    "SLUICEGATE_GUARD",
    "SLUICEGATE_HEADERS",
    "SLUICEGATE_LIMITER",
    "SLUICEGATE_TRUST_PROXIES",
    "SLUICEGATE_USER",
)
_KEYS: Final = ("ip", "user", "user_or_ip")


def _key_of(key: str, arrival: _DjangoArrival) -> str:
    """What the key names; who has no user or no such header is its address, never all one key."""
    value = ""
    if key in {"user", "user_or_ip"}:
        value = arrival.user()
    elif key != "ip":
        value = arrival.header(key.removeprefix("header:"))
    return f"{key}={value}" if value else arrival.address()


def _setting(name: str) -> Any:
    value = getattr(settings, name, None)
    if value is None:
        raise BadValue(f"settings.{name}", value, "give the object, or the dotted path to it")
    return _object(value)


def _object(value: Any) -> Any:
    return import_string(value) if isinstance(value, str) else value
