"""The table of the limiter's routes. Whoever wants to know what it answers begins here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sluicegate.contracts.access import Grant
from sluicegate.doors.http.health import Vitals, health_routes
from sluicegate.doors.http.openapi import document_route
from sluicegate.doors.http.routes import Parameter, Route, Said
from sluicegate.doors.http.schemas import TEXT, whole

if TYPE_CHECKING:
    from sluicegate.doors.http.limiter.handler import LimiterHttp

_STATUS: Final = Parameter(
    "status",
    "json: 200 whatever is decided. http: 429 or 503 for a refusal, with Retry-After and RateLimit "
    "fields. auth: 403 for a refusal.",
    {"type": "string", "enum": ["json", "http", "auth"], "default": "json"},
)
_DECIDED: Final = {
    200: Said("The decision, a refusal included.", "Decision"),
    403: Said("A refusal, with ?status=auth.", "Decision"),
    429: Said("A refusal for asking too much, with ?status=http.", "Decision"),
    503: Said("A refusal for having too little, with ?status=http.", "Decision"),
}
_BY_HEADERS: Final = (
    Parameter("X-Sluicegate-User", "Whose work it is.", TEXT, "header", required=True),
    Parameter("X-Sluicegate-Resource", "What it is for.", TEXT, "header"),
    Parameter("X-Sluicegate-Weight", "How many units.", {"type": "integer"}, "header"),
    Parameter("X-Sluicegate-Priority", "Its claim.", TEXT, "header"),
    _STATUS,
)
_AUDIT: Final = (
    Parameter("user", "Whose decisions.", TEXT, required=True),
    Parameter("since", "How far back: 90s, 10m, 2h, 1d.", TEXT),
    Parameter("count", "At most how many; the newest first.", whole(1)),
)


def routes_of(to: LimiterHttp, vitals: Vitals, *, metrics_open: bool) -> tuple[Route, ...]:
    """All rows."""
    check, lease, audit = Grant.CHECK, Grant.LEASE, Grant.AUDIT
    return (
        Route(
            "POST",
            "/v1/check",
            to.check,
            "Decide, and count.",
            _DECIDED,
            asks="Check",
            grant=check,
            parameters=(_STATUS,),
        ),
        Route(
            "GET",
            "/v1/check",
            to.check_by_headers,
            "Decide and count, for gateways.",
            _DECIDED,
            grant=check,
            parameters=_BY_HEADERS,
        ),
        Route(
            "POST",
            "/v1/check/batch",
            to.check_each,
            "Decide several, each by itself.",
            {200: Said("The decisions, in order.", "Decisions")},
            asks="Checks",
            grant=check,
        ),
        Route(
            "POST",
            "/v1/peek",
            to.peek,
            "What a check would answer; nothing is counted.",
            _DECIDED,
            asks="Check",
            grant=check,
            parameters=(_STATUS,),
        ),
        Route(
            "POST",
            "/v1/reset",
            to.reset,
            "Forget what is counted for this question.",
            {200: Said("How many rules have forgotten.", "Reset")},
            asks="Check",
            grant=Grant.RESET,
        ),
        Route(
            "POST",
            "/v1/lease",
            to.lease,
            "Take units in advance.",
            {200: Said("What was taken.", "Lease")},
            asks="LeaseRequest",
            grant=lease,
        ),
        Route(
            "POST",
            "/v1/give-back",
            to.give_back,
            "Give back what was not spent.",
            {200: Said("How much was accepted.", "GivenBack")},
            asks="GiveBack",
            grant=lease,
        ),
        Route(
            "POST",
            "/json",
            to.mesh,
            "What Envoy asks, as JSON.",
            {
                200: Said("Not over a limit.", "MeshResponse"),
                429: Said("Over a limit.", "MeshResponse"),
                400: Said("Not understood, or not answered.", "", "text/plain"),
            },
            asks="MeshRequest",
            grant=check,
            any_type=True,
        ),
        Route(
            "GET",
            "/v1/rulebook",
            to.rulebook,
            "Which rules are in force.",
            {200: Said("The rulebook.", "Rulebook")},
            grant=audit,
        ),
        Route(
            "GET",
            "/v1/state",
            to.state,
            "What the service is doing.",
            {200: Said("Its state.", "State")},
            grant=audit,
        ),
        Route(
            "GET",
            "/v1/audit",
            to.audit,
            "Why a user was refused.",
            {200: Said("Recent decisions, the newest first.", "Audit")},
            grant=audit,
            parameters=_AUDIT,
        ),
        document_route(to.openapi),
        *health_routes(vitals, metrics_open=metrics_open),
    )
