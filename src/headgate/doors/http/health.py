"""Health: what every service answers to the machines that watch it."""

from __future__ import annotations

from typing import Final

from headgate.doors.http.message import Reply, json_reply, problem

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
