"""Audit: the route that shows why a user was refused, the same for every service."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue
from sluicegate.doors.http.fields import raw_query_of, whole_of
from sluicegate.doors.http.message import HttpReply, HttpRequest, json_reply, render_reply
from sluicegate.doors.http.routes import Parameter, Route, RouteResponse
from sluicegate.doors.http.schemas import FREE, TEXT, fields, several, whole
from sluicegate.wire.text import text_of

COUNT_DEFAULT: Final = 100
COUNT_MAX: Final = 10_000
SINCE_US_MAX: Final = 366 * 86_400 * 1_000_000
AUDIT_SCHEMA: Final[Mapping[str, object]] = fields(
    {"user": TEXT, "decisions": several(FREE)}, ["user", "decisions"]
)
_AGE: Final = re.compile(r"([0-9]{1,12})(us|ms|s|m|h|d)", re.ASCII)
_UNITS_US: Final = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_PARAMETERS: Final = (
    Parameter("user", "Whose decisions.", TEXT, required=True),
    Parameter("since", "How far back: 90s, 10m, 2h, 1d.", TEXT),
    Parameter("count", "At most how many; the newest first.", whole(1)),
)


class AuditStatus(Protocol):
    """A service that keeps its recent decisions."""

    def audit(
        self, user: str, *, since_us: int | None, count_max: int, by: Identity
    ) -> MaybeAwaitable[Sequence[Mapping[str, object]]]:
        """Return recent decisions about a user, newest first. Needs AUDIT."""
        ...


def audit_route(status: AuditStatus, clock: Clock) -> Route:
    """GET /v1/audit."""

    def audit(request: HttpRequest, by: Identity, _body: bytes) -> MaybeAwaitable[HttpReply]:
        query = raw_query_of(request, ("user", "since", "count"))
        user = user_of(query.get("user", b""))
        if not user:
            raise BadValue("user", user, "say whose decisions: /v1/audit?user=...")
        since_us = None
        if "since" in query:
            since_us = clock.now_us() - since_us_of(text_of(query["since"]))
        count = COUNT_DEFAULT
        if "count" in query:
            count = whole_of("count", text_of(query["count"]), 1, COUNT_MAX)
        records = status.audit(user, since_us=since_us, count_max=count, by=by)
        return render_reply(
            records, lambda found: json_reply({"user": user, "decisions": list(found)})
        )

    return Route(
        "GET",
        "/v1/audit",
        audit,
        "Why a user was refused.",
        {200: RouteResponse("Recent decisions, the newest first.", "Audit")},
        grant=Grant.AUDIT,
        parameters=_PARAMETERS,
    )


def user_of(value: bytes) -> str:
    """Whose decisions are wanted: by the user's bytes, or by the text that we show of them."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return text_of(value)


def since_us_of(text: str) -> int:
    """How long ago, as a text says it."""
    match = _AGE.fullmatch(text)
    since_us = 0 if match is None else int(match[1]) * _UNITS_US[match[2]]
    if match is None or since_us > SINCE_US_MAX:
        raise BadValue("since", text, "write it as 90s, 10m, 2h or 1d, up to a year")
    return since_us
