"""Forms: what the limiter's routes read of a request, and write of an answer. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sluicegate.contracts.checks import (
    CheckRequest,
    CheckResponse,
    MeshResponse,
    is_unmatched_check,
    is_unmatched_mesh,
)
from sluicegate.contracts.criticality import parse_criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.reasons import STORE_UNAVAILABLE
from sluicegate.doors.headers import (
    ERROR,
    INTEGER_MAX,
    NO_RULE,
    POLICY,
    RATELIMIT,
    RETRY_AFTER,
    RULE,
    quote,
    retry_after_s,
)
from sluicegate.doors.http.fields import query_of, whole_of
from sluicegate.doors.http.message import JSON, Headers, HttpReply, HttpRequest
from sluicegate.wire import check_json, mesh_json
from sluicegate.wire.rate_limiter_messages import CheckBounds
from sluicegate.wire.text import shorten, text_of

USER: Final = b"x-sluicegate-user"
RESOURCE: Final = b"x-sluicegate-resource"
WEIGHT: Final = b"x-sluicegate-weight"
PRIORITY: Final = b"x-sluicegate-priority"
# What a check never needs to know.
_SECRET: Final = frozenset((b"authorization", b"cookie", b"proxy-authorization"))
_DEGRADED: Final = (ERROR.encode(), STORE_UNAVAILABLE.name.encode())
_UNMATCHED: Final = (RULE.encode(), NO_RULE.encode())


# Writing.


def status_writer(request: HttpRequest) -> Callable[[CheckResponse], HttpReply]:
    """How the answer is to be written: as `?status=` asks."""
    if not request.query:
        return _plain
    status = query_of(request, ("status",)).get("status", "json")
    writer = _WRITERS.get(status)
    if writer is None:
        raise BadValue("status", status, f"give one of {', '.join(_WRITERS)}")
    return writer


def _plain(answer: CheckResponse) -> HttpReply:
    body = check_json.check_response_to_json(answer)
    if answer.decision.degraded:
        return HttpReply(200, body, JSON, (_DEGRADED,))
    if is_unmatched_check(answer):
        return HttpReply(200, body, JSON, (_UNMATCHED,))
    return HttpReply(200, body)


def _as_http(answer: CheckResponse) -> HttpReply:
    reason = answer.decision.reason
    status = 200 if answer.decision.allowed else 429 if reason is None else reason.http_status
    return HttpReply(status, check_json.check_response_to_json(answer), JSON, _fields_of(answer))


def _as_auth(answer: CheckResponse) -> HttpReply:
    reply = _as_http(answer)
    return reply if answer.decision.allowed else reply._replace(status=403)


_WRITERS: Final = {"json": _plain, "http": _as_http, "auth": _as_auth}


def _fields_of(answer: CheckResponse) -> Headers:
    """What a gateway passes on to who asked it."""
    decision = answer.decision
    fields: list[tuple[bytes, bytes]] = []
    if decision.rule_id and answer.limit >= 0:
        name = quote(decision.rule_id)
        limit = min(answer.limit, INTEGER_MAX)
        fields.append((POLICY.encode(), f"{name};q={limit}".encode()))
        if not decision.degraded:
            remaining = min(max(decision.remaining, 0), INTEGER_MAX)
            after_us = decision.reset_after_us if decision.allowed else decision.retry_after_us
            after = f";t={-(-after_us // 1_000_000)}" if after_us > 0 else ""
            fields.append((RATELIMIT.encode(), f"{name};r={remaining}{after}".encode()))
    if decision.degraded:
        fields.append(_DEGRADED)
    elif is_unmatched_check(answer):
        fields.append(_UNMATCHED)
    if not decision.allowed:
        seconds = retry_after_s(decision)
        if seconds > 0:
            fields.append((RETRY_AFTER.encode(), str(seconds).encode()))
    return tuple(fields)


def batch_reply(answers: Sequence[CheckResponse]) -> HttpReply:
    """Several answers."""
    return HttpReply(200, check_json.check_batch_to_json(answers))


def mesh_reply(answer: MeshResponse) -> HttpReply:
    """200 or 429, as a mesh reads it."""
    body = mesh_json.mesh_response_to_json(answer)
    if is_unmatched_mesh(answer):
        return HttpReply(200, body, JSON, (_UNMATCHED,))
    return HttpReply(429 if answer.over else 200, body)


# Reading.


def ask_from_headers(request: HttpRequest, bounds: CheckBounds) -> CheckRequest:
    """The question as a gateway puts it that can send headers alone."""
    user = _text_header(request, USER, bounds)
    if not user:
        # Also what tells us from a picture in somebody's page.
        raise BadValue(USER.decode(), user, "send it with the user's name; or POST the question")
    headers: dict[str, str] = {}
    for name, value in request.headers:
        withheld = name.startswith(b"x-sluicegate-") or name in _SECRET
        if not withheld and len(headers) < bounds.headers_max:
            headers.setdefault(text_of(name), shorten(text_of(value), bounds.text_bytes_max))
    priority = _text_header(request, PRIORITY, bounds)
    return CheckRequest(
        user,
        _text_header(request, RESOURCE, bounds),
        headers=headers,
        cost=whole_of(WEIGHT.decode(), _text_header(request, WEIGHT, bounds) or "1", 1, 2**32 - 1),
        priority=parse_criticality(priority, field=PRIORITY.decode()) if priority else None,
    )


def _text_header(request: HttpRequest, name: bytes, bounds: CheckBounds) -> str:
    value = request.header(name)
    if request.count(name) > 1:
        raise BadValue(name.decode(), "two values", "send it once")
    return shorten(text_of(value), bounds.text_bytes_max)
