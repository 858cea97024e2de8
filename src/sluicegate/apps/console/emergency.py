"""Emergency: stop the enforcement of a limit for a while, two clicks away, on the record.

It writes to the glass store that `sluicegate limits glass` writes to; whoever follows it stops and
resumes by itself. It takes the grant `approve` in the console's own access file; who did it and why
is in the store's audit, and shown.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.apps.console.forms import FORM, FormGuard, go_to, html
from sluicegate.apps.console.pages import emergency as pages
from sluicegate.apps.console.pages.frame import Render
from sluicegate.contracts.access import Access, Grant, Identity
from sluicegate.contracts.errors import BadValue, SluicegateError
from sluicegate.doors.http.fields import whole_of
from sluicegate.doors.http.message import HttpReply, HttpRequest
from sluicegate.doors.http.routes import Route, RouteResponse
from sluicegate.limits.glass.break_glass import ALL
from sluicegate.limits.glass.sources import GlassSource

AUDIT_LINES: Final = 50
MINUTES_MAX: Final = 24 * 60


@final
class EmergencyRoutes:
    """The routes below /emergency."""

    def __init__(
        self,
        source: GlassSource,
        guard: FormGuard,
        render: Render,
        access: Access,
    ) -> None:
        self._source = source
        self._guard = guard
        self._render = render
        self._access = access

    def routes(self) -> list[Route]:
        """The rows."""
        done = {303: RouteResponse("To /emergency.", empty=True)}
        page = {200: RouteResponse("The page.", "", "text/html")}
        return [
            Route("GET", "/emergency", self._page, "What is stopped.", page, grant=Grant.AUDIT),
            Route(
                "POST",
                "/emergency/break",
                self._break,
                "Stops enforcement for a while.",
                done,
                grant=Grant.APPROVE,
                content_types=(FORM,),
            ),
            Route(
                "POST",
                "/emergency/mend",
                self._mend,
                "Enforces again.",
                done,
                grant=Grant.APPROVE,
                content_types=(FORM,),
            ),
        ]

    async def _page(self, request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        return await self._shown(request, by)

    async def _shown(
        self, request: HttpRequest, by: Identity, mistake: str = "", status: int = 200
    ) -> HttpReply:
        name = "" if self._nameless(by) else by.name
        mark = self._guard.field(request) if by.may(Grant.APPROVE) else ""
        try:
            view = await self._source.look()
            audit = await self._source.audit(AUDIT_LINES)
        except SluicegateError as error:
            parts = {"mistake": pages.stopped_words(str(error))}
            return html(self._render("emergency", parts, by), 503)
        parts = pages.emergency(view, audit, mark, name, mistake)
        return html(self._render("emergency", parts, by), status)

    async def _break(self, request: HttpRequest, by: Identity, body: bytes) -> HttpReply:
        try:
            fields = self._guard.read(request, body)
            rule, key = fields.get("rule", "").strip(), fields.get("key", "").strip()
            if not (rule or key or fields.get("all") == "yes"):
                raise BadValue("rule", "", "name a rule or a key, or tick every rule")
            await self._source.break_(
                rule=rule or ALL,
                key=key or ALL,
                for_s=60.0 * whole_of("minutes", fields.get("minutes", ""), 1, MINUTES_MAX),
                by=self._name(by, fields.get("by", "")),
                why=fields.get("why", ""),
            )
        except SluicegateError as error:
            return await self._shown(request, by, str(error), 400)
        return go_to("/emergency")

    async def _mend(self, request: HttpRequest, by: Identity, body: bytes) -> HttpReply:
        try:
            fields = self._guard.read(request, body)
            name = self._name(by, fields.get("by", ""))
            await self._source.mend(fields.get("id", ""), by=name, why=fields.get("why", ""))
        except SluicegateError as error:
            return await self._shown(request, by, str(error), 400)
        return go_to("/emergency")

    def _nameless(self, by: Identity) -> bool:
        anonymous = self._access.anonymous
        return anonymous is not None and anonymous.name == by.name

    def _name(self, by: Identity, given: str) -> str:
        """Who did it: whoever logged in; where nobody does, what they say."""
        return given.strip() if self._nameless(by) else by.name
