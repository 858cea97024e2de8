"""Problem: a refusal as the body of a response, problem details after RFC 9457.

Every word comes from the reasons table. The types of 429 and 503 are those of the draft on rate
limit fields; `violated-policies` are the names that stand in `RateLimit-Policy`.
"""

from __future__ import annotations

import json
from typing import Final

from sluicegate.contracts.guard import Judgement
from sluicegate.contracts.reasons import STORE_UNAVAILABLE, Reason
from sluicegate.doors.headers import retry_after_s

CONTENT_TYPE: Final = "application/problem+json"

# The type and the title of each status; the title is the type's, the detail the reason's.
_TYPES: Final = {
    429: (
        "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "Too many requests",
    ),
    500: ("about:blank", "Internal Server Error"),
    503: (
        "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
        "Capacity is reduced for the moment",
    ),
    504: ("about:blank", "Gateway Timeout"),
}


def reason_of(judgement: Judgement) -> Reason:
    """Why it is refused; a refusal always has a reason, so that none is our own failing."""
    reason = judgement.decision.reason
    return STORE_UNAVAILABLE if reason is None else reason


def status_of(judgement: Judgement) -> int:
    """The status of the response to a refusal."""
    return reason_of(judgement).http_status


def details(judgement: Judgement) -> dict[str, object]:
    """The members of the problem, in the order in which people read them."""
    decision, reason = judgement.decision, reason_of(judgement)
    kind, title = _TYPES[reason.http_status]
    members: dict[str, object] = {
        "type": kind,
        "title": title,
        "status": reason.http_status,
        "detail": reason.sentence,
        "reason": reason.name,
        "rule": decision.rule_id,
    }
    seconds = retry_after_s(decision)
    if seconds > 0:
        # Finer than the header can say, and never too early: whole milliseconds, rounded up.
        after_ms = -(-decision.retry_after_us // 1_000)
        members["retry_after"] = after_ms / 1_000 if after_ms > 0 else seconds
    violated = [one.name for one in judgement.decisions if not one.decision.allowed]
    if violated:
        members["violated-policies"] = violated
    return members


def body(judgement: Judgement) -> bytes:
    """The problem as JSON."""
    return json.dumps(details(judgement)).encode("ascii")
