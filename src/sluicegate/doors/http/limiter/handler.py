"""Limiter: the rate-limit service in HTTP. Each route is a few lines: read, ask, write.

A decision is not an HTTP error: `/v1/check` answers 200 and says in JSON whether it is allowed. A
gateway that looks at nothing but the status asks with `?status=http`, and has 429 or 503 with
`Retry-After` and the `RateLimit` fields; or with `?status=auth`, and has 403, for those that know
200, 401 and 403 alone, as nginx's `auth_request`. It may ask by GET, with what it knows in
`X-Sluicegate-...` headers; no page can have a browser send these here.

Order: health, which nothing refuses; a connection beyond the most; Host; the route; another site's
page; the type of the body; who asks, and whether they may. All that is known before the body is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final, final

from sluicegate.contracts.access import Access, Identity
from sluicegate.contracts.checks import MaybeAwaitable, RateLimits, ServiceStatus
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, Forbidden, SluicegateError, Unauthenticated
from sluicegate.doors.http.forms import not_json, query_of, whole_of
from sluicegate.doors.http.health import RESERVED
from sluicegate.doors.http.later import caught, soon
from sluicegate.doors.http.limiter.forms import (
    ask_from_headers,
    batch_reply,
    mesh_reply,
    since_us_of,
    status_writer,
)
from sluicegate.doors.http.limiter.routes import routes_of
from sluicegate.doors.http.limiter.schemas import SCHEMAS
from sluicegate.doors.http.message import (
    TEXT,
    Finish,
    Reply,
    Request,
    json_bytes,
    json_reply,
)
from sluicegate.doors.http.openapi import document
from sluicegate.doors.http.routes import Route, Table
from sluicegate.doors.http.site import other_host, other_site
from sluicegate.doors.http.who import NOBODY, identity_of, reply_to
from sluicegate.wire import check_json, mesh_json
from sluicegate.wire.mesh_messages import MESH_BOUNDS, MeshBounds
from sluicegate.wire.rate_limiter_messages import CHECK_BOUNDS, CheckBounds

AUDIT_COUNT_DEFAULT: Final = 100
AUDIT_COUNT_MAX: Final = 10_000


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LimiterHttpSettings:
    """What the routes allow. `hosts` are the Host values that are ours; None is any."""

    hosts: frozenset[str] | None = None
    metrics_open: bool = False
    check_bounds: CheckBounds = CHECK_BOUNDS
    mesh_bounds: MeshBounds = MESH_BOUNDS
    version: str = "0.1.0"  # as the document tells it


@final
class LimiterHttp:
    """The handler: `HttpDoor(LimiterHttp(...).handle, clock)` serves it."""

    def __init__(
        self,
        limits: RateLimits,
        status: ServiceStatus,
        access: Access,
        clock: Clock,
        settings: LimiterHttpSettings | None = None,
    ) -> None:
        self.settings = LimiterHttpSettings() if settings is None else settings
        self._limits = limits
        self._status = status
        self._access = access
        self._clock = clock
        self.table = Table(routes_of(self, status, metrics_open=self.settings.metrics_open))
        self._document = json_bytes(
            document(
                self.table,
                SCHEMAS,
                title="Sluicegate rate-limit service",
                summary="May a unit of work enter now, later, or not at all?",
                version=self.settings.version,
            )
        )

    def handle(self, request: Request) -> Reply | Finish:
        """A reply to the head alone, or who is to be given the body."""
        found = self.table.find(request)
        if isinstance(found, Route) and found.health:
            # At once, and not among those that wait for a turn.
            answer = self._finish(found, request, NOBODY, b"")
            return answer if isinstance(answer, Reply) else lambda _: answer
        if request.peer.reserved:
            return RESERVED
        refused = other_host(request, self.settings.hosts)
        if refused is not None:
            return refused
        if isinstance(found, Reply):
            return found
        if found.method == "POST":
            refused = other_site(request) or (None if found.any_type else not_json(request))
            if refused is not None:
                return refused
        by = NOBODY if found.open else identity_of(request, self._access)
        if isinstance(by, Reply):
            return by
        if found.grant is not None and not by.may(found.grant):
            return reply_to(Forbidden(by.name, found.grant.value))
        return partial(self._finish, found, request, by)

    def _finish(
        self, route: Route, request: Request, by: Identity, body: bytes
    ) -> MaybeAwaitable[Reply]:
        reply_of = mesh_error if route.path == "/json" else reply_to
        try:
            answer = route.work(request, by, body)
        except SluicegateError as error:
            return reply_of(error)
        if isinstance(answer, Reply):
            return answer
        return caught(answer, reply_of)

    # What the routes do.

    def check(self, request: Request, by: Identity, body: bytes) -> MaybeAwaitable[Reply]:
        """POST /v1/check."""
        ask = check_json.check_request_from_json(body, self.settings.check_bounds)
        return soon(self._limits.check(ask, by), status_writer(request))

    def check_by_headers(
        self, request: Request, by: Identity, _body: bytes
    ) -> MaybeAwaitable[Reply]:
        """GET /v1/check."""
        ask = ask_from_headers(request, self.settings.check_bounds)
        return soon(self._limits.check(ask, by), status_writer(request))

    def check_each(self, _request: Request, by: Identity, body: bytes) -> MaybeAwaitable[Reply]:
        """POST /v1/check/batch."""
        asks = check_json.check_batch_from_json(body, self.settings.check_bounds)
        return soon(self._limits.check_each(asks, by), batch_reply)

    def peek(self, request: Request, by: Identity, body: bytes) -> MaybeAwaitable[Reply]:
        """POST /v1/peek."""
        ask = check_json.check_request_from_json(body, self.settings.check_bounds)
        return soon(self._limits.peek(ask, by), status_writer(request))

    async def reset(self, _request: Request, by: Identity, body: bytes) -> Reply:
        """POST /v1/reset."""
        ask = check_json.check_request_from_json(body, self.settings.check_bounds)
        return Reply(200, check_json.reset_to_json(await self._limits.reset(ask, by)))

    async def lease(self, _request: Request, by: Identity, body: bytes) -> Reply:
        """POST /v1/lease."""
        asked = check_json.lease_from_json(body, self.settings.check_bounds)
        leased = await self._limits.lease(asked.request, asked.units, by)
        return Reply(200, check_json.lease_to_json(leased))

    async def give_back(self, _request: Request, by: Identity, body: bytes) -> Reply:
        """POST /v1/give-back."""
        given = check_json.give_back_from_json(body, self.settings.check_bounds)
        accepted = await self._limits.give_back(given.lease_id, given.units, by)
        return Reply(200, check_json.give_back_to_json(accepted))

    def mesh(self, _request: Request, by: Identity, body: bytes) -> MaybeAwaitable[Reply]:
        """POST /json."""
        ask = mesh_json.mesh_request_from_json(body, self.settings.mesh_bounds)
        return soon(self._limits.should_rate_limit(ask, by), mesh_reply)

    def rulebook(self, _request: Request, by: Identity, _body: bytes) -> Reply:
        """GET /v1/rulebook."""
        return json_reply(self._status.rulebook(by))

    def state(self, _request: Request, by: Identity, _body: bytes) -> Reply:
        """GET /v1/state."""
        return json_reply(self._status.state(by))

    def audit(self, request: Request, by: Identity, _body: bytes) -> MaybeAwaitable[Reply]:
        """GET /v1/audit."""
        fields = query_of(request, ("user", "since", "count"))
        user = fields.get("user", "")
        if not user:
            raise BadValue("user", user, "say whose decisions: /v1/audit?user=...")
        since_us = None
        if "since" in fields:
            since_us = self._clock.now_us() - since_us_of(fields["since"])
        count = whole_of("count", fields.get("count", str(AUDIT_COUNT_DEFAULT)), 1, AUDIT_COUNT_MAX)
        found = self._status.audit(user, since_us=since_us, count_max=count, by=by)
        return soon(found, lambda found: json_reply({"user": user, "decisions": list(found)}))

    def openapi(self, _request: Request, _by: Identity, _body: bytes) -> Reply:
        """GET /openapi.json."""
        return Reply(200, self._document)


def mesh_error(error: SluicegateError) -> Reply:
    """As the peer of that address does: 400 for whatever cannot be answered, and why, in a line."""
    if isinstance(error, Forbidden | Unauthenticated):
        return reply_to(error)
    return Reply(400, f"{error}\n".encode("utf-8", "replace"), TEXT)
