"""Handler: the pages, their live parts, and who may see them. It decides nothing.

A browser shows a cookie where a program shows a token; one that has neither is sent to `/login`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, final
from urllib.parse import quote

from sluicegate.apps.console.attempts import LoginAttempts
from sluicegate.apps.console.changes import ChangeRoutes
from sluicegate.apps.console.emergency import EmergencyRoutes
from sluicegate.apps.console.forms import FormGuard, go_to, html
from sluicegate.apps.console.live import Live, PageView
from sluicegate.apps.console.login import LoginRoutes
from sluicegate.apps.console.oidc import OidcLogins
from sluicegate.apps.console.pages import frame, rules, tables
from sluicegate.apps.console.pages.images import images
from sluicegate.apps.console.pages.overview import overview
from sluicegate.apps.console.pages.trouble import trouble
from sluicegate.apps.console.pages.why import AuditAnswer, why
from sluicegate.apps.console.picture import DISPATCHER, LIMITER, FleetPicture
from sluicegate.apps.console.readings import FleetReadings
from sluicegate.apps.console.rulebook import RulebookAccess
from sluicegate.apps.console.script import RULE_SCRIPT, WORK_SCRIPT
from sluicegate.apps.console.sentence import sentence_of
from sluicegate.apps.console.sessions import Sessions
from sluicegate.contracts.access import Access, Grant, Identity
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue
from sluicegate.doors.http.audit import user_of
from sluicegate.doors.http.fields import query_of, raw_query_of, whole_of
from sluicegate.doors.http.handler import HttpHandler
from sluicegate.doors.http.message import EVENTS, HttpReply, HttpRequest
from sluicegate.doors.http.routes import Parameter, Route, RouteResponse
from sluicegate.doors.http.schemas import TEXT
from sluicegate.limits.glass.sources import GlassSource

CALLER_BYTES_MAX: Final = 4_096
PAGE_BYTES_MAX: Final = 32 << 20  # a page shows answers of 4 MiB, and marks up each line
LETTERS_MAX: Final = 256
LIVE_PAGES: Final = (
    "overview", "callers", "hot-keys", "queues", "accounts", "images", "dead-letters",
    "nodes",
)  # fmt: skip
_TABLES: Final[Mapping[str, Callable[[FleetPicture], dict[str, str]]]] = {
    "hot-keys": tables.hot_keys,
    "queues": tables.queues,
    "accounts": tables.accounts,
    "images": images,
    "dead-letters": tables.dead_letters,
    "nodes": tables.nodes,
}
AskEach = Callable[..., Awaitable[list[tuple[str, object, str]]]]


@final
class Board:
    """What pages are made of: the picture of the last round, and the readings."""

    __slots__ = ("may_change", "picture", "readings")

    def __init__(self, readings: FleetReadings, *, may_change: bool = False) -> None:
        self.readings = readings
        self.may_change = may_change  # so that a proposed quota leads to the editor
        self.picture = FleetPicture(0)

    def add(self, picture: FleetPicture) -> None:
        """Show this one from now on."""
        self.picture = picture
        self.readings.add(picture)

    def parts(self, view: PageView) -> dict[str, str]:
        """Return the parts of a page that is live."""
        top = {frame.SENTENCE: frame.going_on(sentence_of(self.picture))}
        if view.page == "overview":
            return top | overview(self.picture, self.readings, view.span_s)
        if view.page == "callers":
            return top | tables.callers(self.picture, self.readings, may_change=self.may_change)
        return top | _TABLES[view.page](self.picture)


@final
class ConsoleHandler(HttpHandler):
    """The routes of the console."""

    reply_bytes_max = PAGE_BYTES_MAX

    def __init__(
        self,
        board: Board,
        live: Live,
        ask_each: AskEach,
        access: Access,
        sessions: Sessions[Identity],
        clock: Clock,
        hosts: frozenset[str] | None,
        *,
        rulebook: RulebookAccess | None = None,
        read_only: bool = False,
        glass: GlassSource | None = None,
        oidc: OidcLogins | None = None,
    ) -> None:
        super().__init__(access, hosts)
        self._board = board
        self._live = live
        self._ask_each = ask_each
        self._sessions = sessions
        self.error_page = self._error_page
        self._clock = clock
        guard = FormGuard(
            lambda cookies: (
                sessions.name_in(cookies)
                + ("" if rulebook is None else "." + rulebook.sessions.name_in(cookies))
            )
        )
        attempts = LoginAttempts(clock)
        self._more = LoginRoutes(sessions, clock, oidc, attempts).routes()
        if rulebook is not None:
            changes = ChangeRoutes(
                rulebook, guard, self._render, clock, attempts, read_only=read_only
            )
            self._more += changes.routes()
        if glass is not None:
            self._more += EmergencyRoutes(glass, guard, self._render, access).routes()
        self._optional = [
            *(["changes"] if rulebook is not None else []),
            *(["emergency"] if glass is not None else []),
        ]

    def routes(self) -> tuple[Route, ...]:
        """The rows."""
        page = {200: RouteResponse("The page.", "", "text/html")}
        minutes = Parameter("span", "Seconds that charts show.", TEXT)
        pages = [
            Route(
                "GET",
                "/" if name == "overview" else f"/{name}",
                self._page,
                f"{frame.PAGES[name]}.",
                page,
                grant=Grant.AUDIT,
                parameters=(minutes,),
                name=f"page_{name}",
            )
            for name in LIVE_PAGES
        ]
        return (
            *pages,
            *self._more,
            Route(
                "GET",
                "/why",
                self._why,
                "The last decisions about a caller.",
                page,
                grant=Grant.AUDIT,
                parameters=(Parameter("caller", "Whose decisions.", TEXT),),
            ),
            Route(
                "GET",
                "/rules",
                self._rules,
                "Rules in force, by letters of their names or paths.",
                page,
                grant=Grant.AUDIT,
                parameters=(
                    Parameter("q", "Letters.", TEXT),
                    Parameter("after", "Where an earlier page ended.", TEXT),
                    Parameter("rule", "One rule, with what each limiter counts.", TEXT),
                ),
            ),
            Route(
                "GET",
                "/live/{page}",
                self._events,
                "The parts of a page that change, as they do, as server-sent events.",
                {200: RouteResponse("Events.", "", "text/event-stream")},
                grant=Grant.AUDIT,
                parameters=(Parameter("page", "Which.", TEXT, "path", required=True), minutes),
            ),
        )

    def identify(self, request: HttpRequest) -> Identity | HttpReply:
        """A session, else as everywhere; a browser without either may log in."""
        found = self._sessions.find(request.header(b"cookie"), self._clock.now_us())
        end = self._sessions.end_of(request.header(b"cookie"))
        if found is not None and end is not None:
            return found.until(end.until_us, end.standing)
        identity = super().identify(request)
        asks = isinstance(identity, HttpReply) and identity.status == 401
        if asks and request.method == "GET" and _reads_pages(request):
            return go_to(f"/login?next={quote(request.raw_path)}")
        return identity

    def _error_page(self, request: HttpRequest, reply: HttpReply) -> HttpReply:
        """An error as a page, for a person; a program is told it as everywhere."""
        if not _reads_pages(request):
            return reply
        found = self._sessions.find(request.header(b"cookie"), self._clock.now_us())
        page = trouble(
            json.loads(reply.body),
            request.path,
            method=request.method,
            who="" if found is None else self._who(found),
            optional=self._optional,
        )
        shown = html(page, reply.status)
        return shown._replace(headers=shown.headers + reply.headers, close=reply.close)

    def _page(self, request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        view = PageView(request.path[1:] or "overview", _span_s(request))
        parts = self._board.parts(view)
        who, optional = self._who(by), self._optional
        return html(frame.render(view.page, parts, who=who, optional=optional))

    def _events(self, request: HttpRequest, _by: Identity, _body: bytes) -> HttpReply:
        page = self.table.values_in(request.path)["page"]
        if page not in LIVE_PAGES:
            raise BadValue("page", page, f"there are {', '.join(LIVE_PAGES)}")
        pieces = self._live.events(PageView(page, _span_s(request)))
        return HttpReply(200, b"", EVENTS, pieces=pieces)

    async def _why(self, request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        raw = raw_query_of(request, ("caller",)).get("caller", b"")  # callers are any bytes
        if len(raw) > CALLER_BYTES_MAX:
            raise BadValue("caller", raw[:40], f"give at most {CALLER_BYTES_MAX:,} bytes")
        caller = user_of(raw)
        answers: list[AuditAnswer] = []
        if caller:
            path = f"/v1/audit?user={quote(raw, safe='')}&count=100"
            asked = await self._ask_each(path, (LIMITER, DISPATCHER))
            answers = [_answer(*one) for one in asked]
        parts = why(caller, answers, self._clock.now_us())
        return html(self._render("why", parts, by))

    async def _rules(self, request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        fields = query_of(request, ("q", "after", "rule"))
        rule, letters = fields.get("rule", ""), fields.get("q", "")
        for name, text in (("q", letters), ("rule", rule)):
            if len(text) > LETTERS_MAX:
                raise BadValue(name, text, f"give at most {LETTERS_MAX} letters")
        if rule:
            path = f"/v1/rules?name={quote(rule, safe='')}"
            answers = await self._ask_each(path, (LIMITER,))
            changes = "changes" in self._optional
            return html(self._render("rules", rules.detail(rule, answers, changes=changes), by))
        after = whole_of("after", fields.get("after", "0"), 0, 1 << 53)
        path = f"/v1/rules?q={quote(letters, safe='')}&after={after}"
        answers = await self._ask_each(path, (LIMITER,), 1)
        return html(self._render("rules", rules.found(letters, answers, self._limiters()), by))

    def _limiters(self) -> int:
        return sum(node.app == LIMITER for node in self._board.picture.nodes)

    def _who(self, by: Identity) -> str:
        return by.name if self.access.anonymous is None else ""

    def _render(self, page: str, parts: Mapping[str, str], by: Identity, *, title: str = "") -> str:
        """A page that is not live; some have a script of their own."""
        script = {"changes": WORK_SCRIPT, "rules": RULE_SCRIPT}.get(page, "")
        who, optional = self._who(by), self._optional
        return frame.render(
            page, parts, who=who, live=False, title=title, script=script, optional=optional
        )


def _reads_pages(request: HttpRequest) -> bool:
    """Whether a person asks, and not a program."""
    return b"text/html" in request.header(b"accept")


def _answer(url: str, body: object, error: str) -> AuditAnswer:
    decisions = body.get("decisions") if isinstance(body, dict) else None
    if not isinstance(decisions, list):
        return AuditAnswer(url, (), error or "its answer cannot be understood")
    return AuditAnswer(url, [one for one in decisions if isinstance(one, dict)], error)


def _span_s(request: HttpRequest) -> int:
    text = query_of(request, ("span",)).get("span", "")
    if not text:
        return frame.SPANS_S[0]
    for span_s in frame.SPANS_S:
        if text == str(span_s):
            return span_s
    raise BadValue("span", text, f"give one of {', '.join(map(str, frame.SPANS_S))}")
