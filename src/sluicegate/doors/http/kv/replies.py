"""Replies: values, refusals and errors as the key-value routes write them. Pure."""

from __future__ import annotations

from typing import Final

from sluicegate.contracts.errors import Refused, SluicegateError
from sluicegate.contracts.guard import Judgement
from sluicegate.contracts.key_values import Row, WriteIfResult, tag_of
from sluicegate.contracts.reasons import QUOTA_SPENT
from sluicegate.doors.connection_pace import is_over_quota
from sluicegate.doors.headers import retry_after_s
from sluicegate.doors.http.etags import ANY
from sluicegate.doors.http.identity import reply_to
from sluicegate.doors.http.message import PROBLEM, Headers, HttpReply, json_bytes, problem
from sluicegate.doors.problem import details, reason_of
from sluicegate.wire.key_values_messages import ttl_ms_of

BYTES: Final = b"application/octet-stream"
TTL_MS: Final = b"x-sluicegate-ttl-ms"
DONE: Final = HttpReply(204)
NOT_THERE: Final = problem(404, "Not Found", "nothing is at this place")
_NOT_SO: Final = "what is there is not what the condition says"


def value_reply(
    row: Row | None, now_us: int, match: tuple[str, ...], none_match: tuple[str, ...]
) -> HttpReply:
    """A value as it is, with its tag and what is left of its time."""
    if row is None:
        return NOT_THERE
    tag = tag_of(row.value).hex()
    headers: Headers = ((b"etag", b'"%b"' % tag.encode("ascii")),)
    if row.expires_us:
        headers += ((TTL_MS, b"%d" % ttl_ms_of(row.expires_us, now_us)),)
    if match and ANY not in match and tag not in match:
        return problem(412, "Precondition Failed", _NOT_SO, headers=headers)
    if none_match and (ANY in none_match or tag in none_match):
        return HttpReply(304, headers=headers)
    return HttpReply(200, row.value, BYTES, headers)


def written_reply(value: bytes) -> HttpReply:
    """It is written, and this is its tag."""
    return HttpReply(204, headers=(_etag(value),))


def write_if_reply(outcome: WriteIfResult, value: bytes | None) -> HttpReply:
    """Written or deleted; or not, and the tag of what is there, if it is known."""
    if outcome.done:
        return DONE if value is None else written_reply(value)
    headers: Headers = () if outcome.row is None else (_etag(outcome.row.value),)
    return problem(412, "Precondition Failed", _NOT_SO, headers=headers)


def too_long(bytes_max: int, bound: str) -> HttpReply:
    """A body beyond the bound of its route; `bound` is the setting's name."""
    return problem(413, "Content Too Large", f"the body is longer than {bytes_max:,} ({bound})")


def error_reply(error: SluicegateError, quota_status: int) -> HttpReply:
    """An error that was raised on purpose. A refusal says when to come back, to the millisecond."""
    if not isinstance(error, Refused):
        return reply_to(error)
    decision = error.decision
    judgement = Judgement(decision, ())
    reason = reason_of(judgement)
    members = details(judgement)
    members["retry"] = reason.retry.value
    headers: Headers = ()
    seconds = retry_after_s(decision)
    if seconds > 0:
        after_ms = -(-decision.retry_after_us // 1_000)
        members["retry_after_ms"] = after_ms if after_ms > 0 else seconds * 1_000
        headers = ((b"retry-after", b"%d" % seconds),)
    status = reason.http_status
    if reason is QUOTA_SPENT:
        members["status"] = status = quota_status
    return HttpReply(status, json_bytes(members), PROBLEM, headers, over_quota=is_over_quota(error))


def _etag(value: bytes) -> tuple[bytes, bytes]:
    return b"etag", b'"%b"' % tag_of(value).hex().encode("ascii")
