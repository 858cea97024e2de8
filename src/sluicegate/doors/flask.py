"""Flask: a guard for the whole application, and limits on single views.

    limits = SluicegateLimits(app, guard=guard, limiter=limiter)

    @app.post("/login")
    @limits.limit("5/minute")
    def login(): ...

The guard is asked before a request is dispatched; the headers are added to every response that
Flask makes, errors and streams among them. A refused view raises `LimitExceeded`, an
`HTTPException` whose response is problem details, so an error handler of the application's own may
answer it otherwise. The route's decorator stands above the limit's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, ParamSpec, SupportsIndex, TypeVar, cast

from sluicegate.contracts.errors import BadValue, MissingPackage, Unavailable
from sluicegate.contracts.guard import Guard, Judgement, check_guard, check_limiter
from sluicegate.doors.endpoint_limit import EndpointLimiter, check_rule, judge_claim, name_of
from sluicegate.doors.headers import Fields, unavailable
from sluicegate.doors.problem import CONTENT_TYPE, body, reason_of, status_of
from sluicegate.doors.proxies import Proxies, proxies_of
from sluicegate.doors.wsgi import Environ, WsgiArrival, title_case

try:
    from flask import Flask, Response, g, request
    from werkzeug.exceptions import HTTPException
except ModuleNotFoundError as error:
    raise MissingPackage(error.name or "flask", "flask") from None

P = ParamSpec("P")
R = TypeVar("R")

_NAME = "sluicegate"
_JUDGED = "_sluicegate_fields"


class LimitExceeded(HTTPException):
    """A refused request, with problem details as its response."""

    def __init__(self, judgement: Judgement, fields: list[tuple[str, str]]) -> None:
        response = Response(
            body(judgement), status_of(judgement), title_case(fields), content_type=CONTENT_TYPE
        )
        super().__init__(reason_of(judgement).sentence, response)
        self.code = status_of(judgement)
        self.judgement = judgement


class SluicegateLimits:
    """The extension.

    `guard` judges every request but those of `exempt` endpoints; `limiter` is for views decorated
    by `limit`. Either may be left out. `user()` names the authenticated user; `trust_proxies` and
    `headers` are as for the middlewares.
    """

    def __init__(
        self,
        app: Flask | None = None,
        *,
        guard: Guard | None = None,
        limiter: EndpointLimiter | None = None,
        trust_proxies: int | Proxies = 0,
        headers: str = "ietf",
        user: Callable[[], str | None] | None = None,
        exempt: tuple[str, ...] = ("static",),
    ) -> None:
        if guard is not None:
            check_guard(guard)
        if limiter is not None:
            check_limiter(limiter)
        self.guard = guard
        self.limiter = limiter
        self.exempt = frozenset(exempt)
        self._fields = Fields(headers)
        self._proxies = proxies_of(trust_proxies)
        self._user = user
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Stand in front of this application; several may have the same limits."""
        if _NAME in app.extensions:
            raise BadValue(
                "app", app.name, "it has its limits; give it to one SluicegateLimits only"
            )
        app.extensions[_NAME] = self
        app.before_request(self._before)
        app.after_request(self._after)

    def limit(
        self,
        rule: Any = None,
        *,
        key: str | Callable[[], str] | None = None,
        cost: SupportsIndex | Callable[[], SupportsIndex] = 1,
        scope: str | None = None,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Limit a view, plain or async. Without a key, each client's address has its own limit.

        `rule`, `key` and `cost` may be functions: they are called for each request. A function that
        returns None as the rule lets the request pass and counts nothing.

        Each view counts by itself; those that give the same `scope` count together.
        """
        if self.limiter is None:
            raise BadValue("limiter", None, "give one to SluicegateLimits, as limiter=Limiter(...)")
        limiter = self.limiter
        check_rule(limiter, rule)

        def around(view: Callable[P, R]) -> Callable[P, R]:
            where = name_of(view) if scope is None else scope

            def ask() -> None:
                said = rule() if callable(rule) else rule
                if said is None and callable(rule):
                    return
                who = self.address() if key is None else key() if callable(key) else key
                units = cost() if callable(cost) else cost
                self._enter(judge_claim(limiter, where, who, said, units))

            if iscoroutinefunction(view):

                @wraps(view)
                async def limited_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                    ask()  # Flask runs each async view in a loop and a thread of its own
                    return await view(*args, **kwargs)

                return cast("Callable[P, R]", limited_async)

            @wraps(view)
            def limited(*args: P.args, **kwargs: P.kwargs) -> R:
                ask()
                return view(*args, **kwargs)

            return limited

        return around

    def address(self) -> str:
        """The address of the client that is served now."""
        return WsgiArrival(request.environ, self._proxies, None).address()

    def _before(self) -> None:
        if self.guard is None or request.endpoint in self.exempt:
            return
        try:
            judgement = self.guard.judge(WsgiArrival(request.environ, self._proxies, self._who))
        except Unavailable:
            judgement = unavailable()
        if judgement is not None:
            self._enter(judgement)

    def _who(self, environ: Environ) -> str | None:
        return environ.get("REMOTE_USER") if self._user is None else self._user()

    def _enter(self, judgement: Judgement) -> None:
        fields = self._fields.of(judgement)
        # What is asked later is nearer to the work, and stands; and whoever answers a refusal by
        # himself has its headers too.
        setattr(g, _JUDGED, fields)
        if not judgement.decision.allowed:
            raise LimitExceeded(judgement, fields)

    def _after(self, response: Response) -> Response:
        for name, value in title_case(g.pop(_JUDGED, None) or []):
            if name not in response.headers:
                response.headers[name] = value
        return response
