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
from typing import Final, final

from sluicegate.contracts.access import Access, Grant, Identity
from sluicegate.contracts.checks import MaybeAwaitable, RateLimits, ServiceStatus
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import Forbidden, SluicegateError, Unauthenticated
from sluicegate.doors.http.audit import audit_route
from sluicegate.doors.http.handler import HttpHandler
from sluicegate.doors.http.health import status_routes
from sluicegate.doors.http.identity import reply_to
from sluicegate.doors.http.limiter.messages import (
    ask_from_headers,
    batch_reply,
    mesh_reply,
    status_writer,
)
from sluicegate.doors.http.limiter.schemas import SCHEMAS
from sluicegate.doors.http.message import (
    TEXT,
    HttpReply,
    HttpRequest,
    json_reply,
    render_reply,
)
from sluicegate.doors.http.openapi import document_route
from sluicegate.doors.http.routes import Parameter, Route, RouteResponse
from sluicegate.doors.http.schemas import TEXT as TEXT_SCHEMA
from sluicegate.wire import check_json, mesh_json
from sluicegate.wire.mesh_messages import MESH_BOUNDS, MeshBounds
from sluicegate.wire.rate_limiter_messages import CHECK_BOUNDS, CheckBounds

MESH_PATH: Final = "/json"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LimiterHttpSettings:
    """What the routes allow. `hosts` are the Host values that are ours; None is any."""

    hosts: frozenset[str] | None = None
    metrics_open: bool = False
    check_bounds: CheckBounds = CHECK_BOUNDS
    mesh_bounds: MeshBounds = MESH_BOUNDS
    version: str = "0.1.0"  # as the document tells it


_STATUS: Final = Parameter(
    "status",
    "json: 200 whatever is decided. http: 429 or 503 for a refusal, with Retry-After and RateLimit "
    "fields. auth: 403 for a refusal.",
    {"type": "string", "enum": ["json", "http", "auth"], "default": "json"},
)
_DECIDED: Final = {
    200: RouteResponse("The decision, a refusal included.", "Decision"),
    403: RouteResponse("A refusal, with ?status=auth.", "Decision"),
    429: RouteResponse("A refusal for asking too much, with ?status=http.", "Decision"),
    503: RouteResponse("A refusal for having too little, with ?status=http.", "Decision"),
}
_BY_HEADERS: Final = (
    Parameter("X-Sluicegate-User", "Whose work it is.", TEXT_SCHEMA, "header", required=True),
    Parameter("X-Sluicegate-Resource", "What it is for.", TEXT_SCHEMA, "header"),
    Parameter("X-Sluicegate-Weight", "How many units.", {"type": "integer"}, "header"),
    Parameter("X-Sluicegate-Priority", "Its claim.", TEXT_SCHEMA, "header"),
    _STATUS,
)


@final
class LimiterHttp(HttpHandler):
    """The handler: `HttpDoor(LimiterHttp(...).handle, clock)` serves it."""

    def __init__(
        self,
        limits: RateLimits,
        status: ServiceStatus,
        access: Access,
        clock: Clock,
        settings: LimiterHttpSettings | None = None,
        more: tuple[Route, ...] = (),
    ) -> None:
        self.settings = LimiterHttpSettings() if settings is None else settings
        super().__init__(access, self.settings.hosts)
        self._limits = limits
        self._status = status
        self._clock = clock
        self.serve(
            (*self._routes(status), *more),
            SCHEMAS,
            title="Sluicegate rate-limit service",
            summary="May a unit of work enter now, later, or not at all?",
            version=self.settings.version,
        )

    def error_reply(self, route: Route, error: SluicegateError) -> HttpReply:
        """An error as problem details; of Envoy's question as its peer writes it."""
        return mesh_error(error) if route.path == MESH_PATH else reply_to(error)

    # What the routes do.

    def check(self, request: HttpRequest, by: Identity, body: bytes) -> MaybeAwaitable[HttpReply]:
        """POST /v1/check."""
        ask = check_json.check_request_from_json(body, self.settings.check_bounds)
        return render_reply(self._limits.check(ask, by), status_writer(request))

    def healthcheck(self, _request: HttpRequest, _by: Identity, _body: bytes) -> HttpReply:
        """GET /healthcheck."""
        why = self._status.not_ready()
        return HttpReply(500, why.encode(), TEXT) if why else HttpReply(200, b"OK", TEXT)

    def check_by_headers(
        self, request: HttpRequest, by: Identity, _body: bytes
    ) -> MaybeAwaitable[HttpReply]:
        """GET /v1/check."""
        ask = ask_from_headers(request, self.settings.check_bounds)
        return render_reply(self._limits.check(ask, by), status_writer(request))

    def check_each(
        self, _request: HttpRequest, by: Identity, body: bytes
    ) -> MaybeAwaitable[HttpReply]:
        """POST /v1/check/batch."""
        requests = check_json.check_batch_from_json(body, self.settings.check_bounds)
        return render_reply(self._limits.check_each(requests, by), batch_reply)

    def peek(self, request: HttpRequest, by: Identity, body: bytes) -> MaybeAwaitable[HttpReply]:
        """POST /v1/peek."""
        ask = check_json.check_request_from_json(body, self.settings.check_bounds)
        return render_reply(self._limits.peek(ask, by), status_writer(request))

    async def reset(self, _request: HttpRequest, by: Identity, body: bytes) -> HttpReply:
        """POST /v1/reset."""
        ask = check_json.check_request_from_json(body, self.settings.check_bounds)
        return HttpReply(200, check_json.reset_to_json(await self._limits.reset(ask, by)))

    async def lease(self, _request: HttpRequest, by: Identity, body: bytes) -> HttpReply:
        """POST /v1/lease."""
        ask = check_json.lease_from_json(body, self.settings.check_bounds)
        leased = await self._limits.lease(ask.request, ask.units, by)
        return HttpReply(200, check_json.lease_to_json(leased))

    async def give_back(self, _request: HttpRequest, by: Identity, body: bytes) -> HttpReply:
        """POST /v1/give-back."""
        block = check_json.give_back_from_json(body, self.settings.check_bounds)
        accepted = await self._limits.give_back(block.lease_id, block.units, by)
        return HttpReply(200, check_json.give_back_to_json(accepted))

    def mesh(self, _request: HttpRequest, by: Identity, body: bytes) -> MaybeAwaitable[HttpReply]:
        """POST /json."""
        ask = mesh_json.mesh_request_from_json(body, self.settings.mesh_bounds)
        return render_reply(self._limits.should_rate_limit(ask, by), mesh_reply)

    def rulebook(self, _request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        """GET /v1/rulebook."""
        return json_reply(self._status.rulebook(by))

    def _routes(self, status: ServiceStatus) -> tuple[Route, ...]:
        check, lease, audit = Grant.CHECK, Grant.LEASE, Grant.AUDIT
        return (
            Route(
                "POST",
                "/v1/check",
                self.check,
                "Check, and count it.",
                _DECIDED,
                request_schema="Check",
                grant=check,
                parameters=(_STATUS,),
            ),
            Route(
                "GET",
                "/v1/check",
                self.check_by_headers,
                "The same by headers, for gateways.",
                _DECIDED,
                grant=check,
                parameters=_BY_HEADERS,
            ),
            Route(
                "POST",
                "/v1/check/batch",
                self.check_each,
                "Several checks, each decided alone.",
                {200: RouteResponse("The decisions, in order.", "Decisions")},
                request_schema="Checks",
                grant=check,
            ),
            Route(
                "POST",
                "/v1/peek",
                self.peek,
                "Show what a check would return, without counting it.",
                _DECIDED,
                request_schema="Check",
                grant=check,
                parameters=(_STATUS,),
            ),
            Route(
                "POST",
                "/v1/reset",
                self.reset,
                "Reset the counters behind this check.",
                {200: RouteResponse("How many rules were reset.", "Reset")},
                request_schema="Check",
                grant=Grant.RESET,
            ),
            Route(
                "POST",
                "/v1/lease",
                self.lease,
                "Lease units in advance.",
                {200: RouteResponse("The lease.", "Lease")},
                request_schema="LeaseRequest",
                grant=lease,
            ),
            Route(
                "POST",
                "/v1/give-back",
                self.give_back,
                "Return units that were not spent.",
                {200: RouteResponse("How much was accepted.", "GivenBack")},
                request_schema="GiveBack",
                grant=lease,
            ),
            Route(
                "POST",
                MESH_PATH,
                self.mesh,
                "Envoy's rate limit request, as JSON.",
                {
                    200: RouteResponse("Not over a limit.", "MeshResponse"),
                    429: RouteResponse("Over a limit.", "MeshResponse"),
                    400: RouteResponse("Not understood, or not answered.", "", "text/plain"),
                },
                request_schema="MeshRequest",
                grant=check,
                any_type=True,
            ),
            Route(
                "GET",
                "/v1/rulebook",
                self.rulebook,
                "Which rules are in force.",
                {200: RouteResponse("The rulebook.", "Rulebook")},
                grant=audit,
            ),
            audit_route(status, self._clock),
            document_route(self.openapi),
            *status_routes(status, metrics_open=self.settings.metrics_open),
            Route(
                "GET",
                "/healthcheck",
                self.healthcheck,
                "Whether it should get traffic, as envoyproxy/ratelimit says it.",
                {
                    200: RouteResponse("OK.", "", "text/plain"),
                    500: RouteResponse("It should not.", "", "text/plain"),
                },
                health=True,
            ),
        )


def mesh_error(error: SluicegateError) -> HttpReply:
    """As the peer of that address does: 400 for whatever cannot be answered, and why, in a line."""
    if isinstance(error, Forbidden | Unauthenticated):
        return reply_to(error)
    return HttpReply(400, f"{error}\n".encode("utf-8", "replace"), TEXT)
