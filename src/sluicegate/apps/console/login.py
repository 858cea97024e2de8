"""Login: asks a browser who it is, by a token or at a provider, and gives it a session."""

from __future__ import annotations

from typing import Final, final
from urllib.parse import parse_qsl

from sluicegate.apps.console.attempts import LoginAttempts
from sluicegate.apps.console.forms import FORM, fields_in, go_to, html, own_path
from sluicegate.apps.console.oidc import CALLBACK, LoginRefused, OidcLogins
from sluicegate.apps.console.pages import frame
from sluicegate.apps.console.sessions import Sessions
from sluicegate.contracts.access import Identity
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import SluicegateError
from sluicegate.doors.http.fields import FIELDS_MAX, query_of
from sluicegate.doors.http.message import HttpReply, HttpRequest
from sluicegate.doors.http.routes import Parameter, Route, RouteResponse
from sluicegate.doors.http.schemas import TEXT

_WRONG_TOKEN: Final = "Unknown token."


@final
class LoginRoutes:
    """The routes that anybody may ask for."""

    def __init__(
        self,
        sessions: Sessions[Identity],
        clock: Clock,
        oidc: OidcLogins | None,
        attempts: LoginAttempts,
    ) -> None:
        self._sessions = sessions
        self._attempts = attempts
        self._clock = clock
        self._oidc = oidc

    def routes(self) -> list[Route]:
        """The rows."""
        page = {200: RouteResponse("The page.", "", "text/html")}
        go_on = {303: RouteResponse("To the page that was asked for.", empty=True)}
        next_page = Parameter("next", "Where to go then.", TEXT)
        rows = [
            Route(
                "GET",
                "/login",
                self._ask,
                "Asks who one is.",
                page,
                open=True,
                parameters=(next_page,),
                name="login_page",
            ),
            Route(
                "POST",
                "/login",
                self._by_token,
                "Begins a session, with a token.",
                go_on,
                open=True,
                content_types=(FORM,),
                name="login",
            ),
            Route(
                "POST",
                "/logout",
                self._end,
                "Ends a session.",
                {303: RouteResponse("To /login.", empty=True)},
                open=True,
                any_type=True,
                name="logout",
            ),
        ]
        if self._oidc is not None:
            rows += [
                Route(
                    "GET",
                    "/login/oidc",
                    self._at_provider,
                    "Sends the browser to the provider.",
                    {303: RouteResponse("To the provider.", empty=True)},
                    open=True,
                    parameters=(next_page,),
                    name="login_at_provider",
                ),
                Route(
                    "GET",
                    CALLBACK,
                    self._from_provider,
                    "Begins a session, with what the provider says.",
                    page,
                    open=True,
                    parameters=(
                        Parameter("state", "Of the login that was begun.", TEXT),
                        Parameter("code", "What the provider gives for it.", TEXT),
                    ),
                    name="login_from_provider",
                ),
            ]
        return rows

    def _ask(self, request: HttpRequest, _by: Identity, _body: bytes) -> HttpReply:
        return self._page(_next(request))

    def _by_token(self, request: HttpRequest, _by: Identity, body: bytes) -> HttpReply:
        fields = fields_in(body)
        path, token = own_path(fields.get("next", "")), fields.get("token", "")
        again_s = self._attempts.rejected(request)
        if again_s:
            return self._too_many(path, again_s)
        now_us = self._clock.now_us()
        cookie = self._sessions.begin(token, now_us)
        if cookie is None:
            self._attempts.failed(request, "token", "unknown token")
            return self._page(path, _WRONG_TOKEN, 403)
        person = self._sessions.find(cookie.partition(b";")[0], now_us)
        self._attempts.succeeded(request, "token", "" if person is None else person.name)
        return go_to(path, cookie)

    def _end(self, request: HttpRequest, _by: Identity, _body: bytes) -> HttpReply:
        cookies = request.header(b"cookie")
        person = self._sessions.find(cookies, self._clock.now_us())
        if person is not None:
            self._attempts.ended(request, person.name)
        return go_to("/login", self._sessions.end(cookies))

    async def _at_provider(self, request: HttpRequest, _by: Identity, _body: bytes) -> HttpReply:
        assert self._oidc is not None
        path = _next(request)
        try:
            return go_to(*await self._oidc.begin(path))
        except SluicegateError as error:
            return self._page(path, str(error), 502)

    async def _from_provider(self, request: HttpRequest, _by: Identity, _body: bytes) -> HttpReply:
        assert self._oidc is not None
        try:  # a provider may say more than it is asked for
            answer = dict(parse_qsl(request.query.decode("ascii"), max_num_fields=FIELDS_MAX))
        except ValueError:
            answer = {}
        again_s = self._attempts.rejected(request)
        if again_s:  # each attempt is a request to the provider
            return self._too_many("/", again_s)
        try:
            key, path, spent = await self._oidc.end(answer, request.header(b"cookie"))
        except LoginRefused as error:
            self._attempts.failed(request, self._oidc.host, str(error))
            return self._page("/", str(error), 403)
        except SluicegateError as error:
            return self._page("/", str(error), 502)
        session = self._sessions.begin(key, self._clock.now_us())
        person = self._oidc.person(key)
        assert session is not None, "the key was sealed here"
        assert person is not None
        self._attempts.succeeded(request, self._oidc.host, person.name)
        # From a page of ours: the session's cookie is not shown when another site leads here.
        return html(frame.logged_in(path), cookies=(session, spent))

    def _too_many(self, path: str, again_s: int) -> HttpReply:
        reply = self._page(path, f"Too many failed logins. Try again in {again_s} s.", 429)
        return reply._replace(headers=(*reply.headers, (b"retry-after", b"%d" % again_s)))

    def _page(self, path: str, mistake: str = "", status: int = 200) -> HttpReply:
        provider = "" if self._oidc is None else self._oidc.host
        return html(frame.login(path, mistake, provider=provider), status)


def _next(request: HttpRequest) -> str:
    return own_path(query_of(request, ("next",)).get("next", ""))
