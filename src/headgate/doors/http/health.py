"""Health: what every service answers to the machines that watch it."""

from __future__ import annotations

from typing import Final, Protocol

from headgate.contracts.access import Grant, Identity
from headgate.contracts.checks import Soon
from headgate.doors.http.message import Reply, Request, json_reply, problem
from headgate.doors.http.routes import Route, Said

METRICS_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"

HEALTHY: Final = json_reply({"status": "ok"})
RESERVED: Final = problem(
    503,
    "Capacity is reduced for the moment",
    "too many connections are open here; only health is answered on this one",
    headers=((b"retry-after", b"1"),),
    close=True,
)
_READY: Final = json_reply({"ready": True, "reason": ""})


def ready_reply(why: str) -> Reply:
    """Whether this instance should get traffic; `why` not, empty if it should."""
    return json_reply({"ready": False, "reason": why}, 503) if why else _READY


def metrics_reply(text: str) -> Reply:
    """All metrics as Prometheus text."""
    return Reply(200, text.encode(), METRICS_TYPE)


class Watched(Protocol):
    """A door whose health can be asked."""

    def metrics(self, request: Request, by: Identity, body: bytes, /) -> Soon[Reply]:
        """All metrics."""
        ...

    def healthz(self, request: Request, by: Identity, body: bytes, /) -> Reply:
        """It answers."""
        ...

    def readyz(self, request: Request, by: Identity, body: bytes, /) -> Reply:
        """It should get traffic, or why not."""
        ...


def health_routes(to: Watched, *, metrics_open: bool) -> tuple[Route, ...]:
    """Where machines look."""
    return (
        Route(
            "GET",
            "/metrics",
            to.metrics,
            "All metrics, for Prometheus.",
            {200: Said("Prometheus text.", "", "text/plain")},
            grant=None if metrics_open else Grant.AUDIT,
            open=metrics_open,
        ),
        Route(
            "GET",
            "/healthz",
            to.healthz,
            "Whether this process answers.",
            {200: Said("It does.", "Health")},
            health=True,
        ),
        Route(
            "GET",
            "/readyz",
            to.readyz,
            "Whether it should get traffic.",
            {200: Said("It should.", "Ready"), 503: Said("It should not.", "Ready")},
            health=True,
        ),
    )
