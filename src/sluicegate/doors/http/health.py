"""Health: what every service answers to the machines that watch it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol, final

from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.doors.http.message import HttpReply, HttpRequest, json_reply, problem, render_reply
from sluicegate.doors.http.routes import Route, RouteResponse

# The longest response that another worker or a command of ours reads.
STATE_BYTES_MAX: Final = 64 << 20
METRICS_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"

RESERVED: Final = problem(
    503,
    "Capacity is reduced for the moment",
    "too many connections are open here; only health is answered on this one",
    headers=((b"retry-after", b"1"),),
    close=True,
)
_HEALTHY: Final = json_reply({"status": "ok"})
_READY: Final = json_reply({"ready": True, "reason": ""})


class HealthStatus(Protocol):
    """How a service fares, for the machines that watch it."""

    def metrics(self) -> MaybeAwaitable[str]:
        """All metrics as Prometheus text."""
        ...

    def not_ready(self) -> str:
        """Why this instance should get no traffic; empty if it should."""
        ...

    def not_alive(self) -> str:
        """Why only a restart can help this process; empty if it works."""
        ...


@final
class Health:
    """What the routes below do, for any service."""

    def __init__(self, status: HealthStatus) -> None:
        self._status: Final = status

    def metrics(
        self, _request: HttpRequest, _by: Identity, _body: bytes
    ) -> MaybeAwaitable[HttpReply]:
        """GET /metrics."""
        return render_reply(self._status.metrics(), _metrics_reply)

    def healthz(self, _request: HttpRequest, _by: Identity, _body: bytes) -> HttpReply:
        """GET /healthz: this process answers, or why only a restart can help."""
        why = self._status.not_alive()
        return json_reply({"status": "failed", "reason": why}, 503) if why else _HEALTHY

    def readyz(self, _request: HttpRequest, _by: Identity, _body: bytes) -> HttpReply:
        """GET /readyz: it should get traffic, or why not."""
        why = self._status.not_ready()
        return json_reply({"ready": False, "reason": why}, 503) if why else _READY


def _metrics_reply(text: str) -> HttpReply:
    return HttpReply(200, text.encode(), METRICS_TYPE)


def health_routes(status: HealthStatus, *, metrics_open: bool) -> tuple[Route, ...]:
    """Where machines look."""
    to = Health(status)
    return (
        Route(
            "GET",
            "/metrics",
            to.metrics,
            "All metrics, for Prometheus.",
            {200: RouteResponse("Prometheus text.", "", "text/plain")},
            grant=None if metrics_open else Grant.AUDIT,
            open=metrics_open,
            reply_bytes_max=STATE_BYTES_MAX,
        ),
        Route(
            "GET",
            "/healthz",
            to.healthz,
            "Whether this process answers.",
            {
                200: RouteResponse("It does.", "Health"),
                503: RouteResponse("Only a restart can help it.", "Health"),
            },
            health=True,
        ),
        Route(
            "GET",
            "/readyz",
            to.readyz,
            "Whether it should get traffic.",
            {
                200: RouteResponse("It should.", "Ready"),
                503: RouteResponse("It should not.", "Ready"),
            },
            health=True,
        ),
    )


class WorkerState(HealthStatus, Protocol):
    """How a service fares, and what it is doing."""

    def state(self, by: Identity) -> Mapping[str, object]:
        """What this worker is doing now. Needs AUDIT."""
        ...


def status_routes(status: WorkerState, *, metrics_open: bool) -> tuple[Route, ...]:
    """Where people and machines look: the state, and health."""

    def state(_request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        return json_reply(status.state(by))

    responses = {200: RouteResponse("Its state.", "State")}
    return (
        Route(
            "GET",
            "/v1/state",
            state,
            "What the service is doing.",
            responses,
            grant=Grant.AUDIT,
            reply_bytes_max=STATE_BYTES_MAX,
        ),
        *health_routes(status, metrics_open=metrics_open),
    )
