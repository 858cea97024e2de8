"""Handler: the rulebook's door in HTTP, under `/v1/rules`. It translates; the admin decides.

Reads may be anonymous, where the access allows that. A change needs a name: a token or a client
certificate, whatever an anonymous caller may do otherwise. A console with the grant speak-for asks
in the name of a person who has logged in there. So no page of another site can change
anything through a browser, and each change has its author.

The order of checks: health, which nothing refuses; the bound on connections; Host; the route;
another site's page; the type of the body; the identity. A caller with a name is left to the admin,
which audits what it refuses; one without is refused here, or anybody could fill the audit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple, final

from sluicegate.contracts.access import Grant, Identity, PeopleAccess
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import SluicegateError
from sluicegate.contracts.rule_admin import OPERATIONS, RuleAdmin
from sluicegate.doors.binding import Address
from sluicegate.doors.http.fields import not_json
from sluicegate.doors.http.handler import HttpHandler
from sluicegate.doors.http.health import HealthStatus, health_routes
from sluicegate.doors.http.identity import CHALLENGE, reply_to, spoken_for, unauthorized
from sluicegate.doors.http.message import Finish, HttpReply, HttpRequest
from sluicegate.doors.http.openapi import document_route
from sluicegate.doors.http.routes import Route
from sluicegate.doors.http.rules.forms import request_schemas
from sluicegate.doors.http.rules.idempotency import IdempotencyKeys, digest_of, key_of
from sluicegate.doors.http.rules.operations import DOCUMENT, RULES, ReportWriter, RuleRoutes
from sluicegate.doors.http.rules.problems import FULL, OTHER_CALL, rules_reply
from sluicegate.doors.http.rules.schemas import RULES_SCHEMAS
from sluicegate.doors.http.rules.settings import RulesHttpSettings
from sluicegate.doors.http.rules.thread_calls import ThreadCalls
from sluicegate.doors.http.site import hosts_of, other_site

_OF_ADMIN: Final = (Grant.READ_RULES, Grant.PROPOSE, Grant.APPROVE)
_NO_NAME: Final = unauthorized(
    "changes take a name",
    "send Authorization: Bearer and a token, or a client certificate",
    CHALLENGE,
)
_WAITS: Final = {RULES + one.path for one in OPERATIONS.values() if one.waits}
_REPLAYED: Final = (b"idempotent-replayed", b"true")


class RulesHttpStats(NamedTuple):
    """What the door is doing, and has counted since it began."""

    calls: int  # under way, those that wait for a thread among them
    waits: int
    calls_done: int
    calls_refused: int  # beyond the bounds
    keys: int  # remembered
    replayed: int


@final
class RulesHttp(HttpHandler):
    """The handler: `HttpDoor(RulesHttp(...).handle, clock)` serves it. Close it afterwards.

    `reports` write a verdict's figures as `html` and `text`, where somebody can.
    """

    def __init__(
        self,
        admin: RuleAdmin,
        status: HealthStatus,
        access: PeopleAccess,
        clock: Clock,
        settings: RulesHttpSettings | None = None,
        *,
        reports: Mapping[str, ReportWriter] | None = None,
    ) -> None:
        self.settings = RulesHttpSettings() if settings is None else settings
        bounds = self.settings
        super().__init__(access, self.settings.hosts)
        self._people = access
        self._routes = RuleRoutes(admin, bounds, reports or {}, self._parts_of)
        self._calls = ThreadCalls(
            "rules-call",
            threads_max=bounds.calls_max,
            waiting_max=bounds.calls_waiting_max,
            of_caller_max=bounds.calls_of_caller_max,
        )
        self._waits = ThreadCalls(
            "rules-wait",
            threads_max=bounds.waits_max,
            waiting_max=0,
            of_caller_max=bounds.waits_of_caller_max,
        )
        self._repeats = IdempotencyKeys(clock, bounds)
        self._hosts_at: dict[Address, frozenset[str] | None] = {}
        self._keep_field = (b"idempotency-key-kept-s", str(bounds.keys_kept_s).encode())
        self.serve(
            (
                *self._routes.routes(),
                document_route(self.openapi, DOCUMENT),
                *health_routes(status, metrics_open=bounds.metrics_open),
            ),
            {**RULES_SCHEMAS, **request_schemas()},
            title="Sluicegate rulebook",
            summary="Which rules are in force, and how others come into force.",
            version=bounds.version,
            path=DOCUMENT,
        )

    def hosts_for(self, request: HttpRequest) -> frozenset[str] | None:
        """Our own names; where none are set, those of the listener that the request came to."""
        if self.hosts is not None:
            return self.hosts
        at = request.peer.listener
        if at not in self._hosts_at:
            secret = request.peer.tls or self.access.anonymous is None
            self._hosts_at[at] = hosts_of([at], secret=secret)  # as many as there are listeners
        return self._hosts_at[at]

    def check_head(self, route: Route, request: HttpRequest) -> HttpReply | None:
        """The refusal of another site's page, unless a browser only goes to a page of ours."""
        changes = route.method == "POST"
        refusal = None
        if not route.open and (changes or not _navigates(request)):
            refusal = other_site(request)
        return not_json(request) if refusal is None and changes else refusal

    def identify(self, request: HttpRequest) -> Identity | HttpReply:
        """Who asks, or whom a console asks for."""
        found = super().identify(request)
        return spoken_for(request, self._people, found) if isinstance(found, Identity) else found

    def authorize(self, route: Route, request: HttpRequest, identity: Identity) -> HttpReply | None:
        """The refusal of a change without a name, and of what the admin need not audit."""
        anonymous = self.access.anonymous
        nameless = not identity.name or (anonymous is not None and identity.name == anonymous.name)
        if nameless and route.method == "POST":
            return _NO_NAME
        if route.grant in _OF_ADMIN and not nameless:
            return None
        return super().authorize(route, request, identity)

    def accept(self, route: Route, request: HttpRequest, identity: Identity) -> HttpReply | Finish:
        """What is given the body: a thread for what the admin does."""
        if route.grant in _OF_ADMIN:
            return partial(self._start, route, request, identity)
        return super().accept(route, request, identity)

    def stats(self) -> RulesHttpStats:
        """As of now."""
        calls, waits = self._calls, self._waits
        return RulesHttpStats(
            calls=calls.under_way,
            waits=waits.under_way,
            calls_done=calls.done + waits.done,
            calls_refused=calls.refused + waits.refused,
            keys=len(self._repeats),
            replayed=self._repeats.replayed,
        )

    def close(self) -> None:
        """Begin nothing more, and let those that wait for nodes go."""
        self._routes.closed = True
        self._calls.close()
        self._waits.close()

    # Inside.

    def _parts_of(self, path: str) -> Mapping[str, str]:
        return self.table.values_in(path)

    def _start(
        self, route: Route, request: HttpRequest, by: Identity, body: bytes
    ) -> MaybeAwaitable[HttpReply]:
        """In a thread; a call with a key not twice."""
        key = digest = ""
        if route.method == "POST":
            try:
                key = key_of(request)
            except SluicegateError as error:
                return reply_to(error)
        if key:
            digest = digest_of(request, body)
            earlier = self._repeats.find(by.name, key)
            if earlier is not None:
                return self._again(earlier.reply) if earlier.digest == digest else OTHER_CALL
        calls = self._waits if route.path in _WAITS else self._calls
        reply = calls.start(by.name, partial(_run, route, request, by, body))
        if reply is None:
            return FULL
        if not key:
            return reply
        self._repeats.begin(by.name, key, digest, reply)
        return self._first(reply)

    async def _first(self, pending: asyncio.Future[HttpReply]) -> HttpReply:
        # Who asked may give up waiting; who asks again still finds it.
        reply = await asyncio.shield(pending)
        return reply._replace(headers=(*reply.headers, self._keep_field))

    async def _again(self, pending: asyncio.Future[HttpReply]) -> HttpReply:
        reply = await asyncio.shield(pending)
        return reply._replace(headers=(*reply.headers, self._keep_field, _REPLAYED))


def _run(route: Route, request: HttpRequest, by: Identity, body: bytes) -> HttpReply:
    """A route of the admin, in a thread."""
    try:
        reply = route.work(request, by, body)
    except SluicegateError as error:
        return rules_reply(error)
    assert isinstance(reply, HttpReply)
    return reply


def _navigates(request: HttpRequest) -> bool:
    """Whether a browser goes there itself: by a link, and the page it came from sees nothing."""
    return request.header(b"sec-fetch-mode") == b"navigate" and request.path.startswith(RULES)
