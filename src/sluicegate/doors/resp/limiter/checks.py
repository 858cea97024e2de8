"""Checks: the rows of the table that request for decisions: CL.THROTTLE, and SG.CHECK and its kin.

CL.THROTTLE answers as redis-cell 0.3 does, in its words; the others are ours. What is decided in
this process is answered at once, the rest by an awaitable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, cast

from sluicegate.contracts.checks import (
    CheckRequest,
    CheckResponse,
    LeaseResponse,
    MaybeAwaitable,
    RateLimits,
    ThrottleRequest,
    ThrottleResponse,
)
from sluicegate.contracts.criticality import Criticality, parse_criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.request import NO_ATTRIBUTES
from sluicegate.doors.resp.errors import reply_to_error
from sluicegate.doors.resp.session import Session, identity_of
from sluicegate.kernels import cell_throttle
from sluicegate.wire.resp import encode_reply, error_line, whole_number
from sluicegate.wire.text import text_of

T = TypeVar("T")

COST_MAX: Final = 1 << 53

_CELL: Final = "Cell error: Store error: "
_USAGE: Final = error_line(
    f"{_CELL}Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]"
)


def throttle(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """CL.THROTTLE key max_burst count period [cost]."""
    size = len(parts)
    if not 5 <= size <= 6:
        return _USAGE
    at = 2
    try:
        max_burst = whole_number(parts[2])
        at = 3
        count = whole_number(parts[3])
        at = 4
        period_s = whole_number(parts[4])
        at = 5
        cost = whole_number(parts[5]) if size == 6 else 1
    except ValueError:
        shown = parts[at].decode("utf-8", "backslashreplace")
        return error_line(f"{_CELL}Couldn't parse as integer: {shown}")
    request = ThrottleRequest(text_of(parts[1]), max_burst, count, period_s, cost)
    try:
        response = _limits(session).throttle(request, identity_of(session))
    except BadValue as error:
        return _no_rate(request, error)
    if isinstance(response, ThrottleResponse):
        return encode_throttle(response)
    return _throttle_later(response, request)


async def _throttle_later(response: Awaitable[ThrottleResponse], request: ThrottleRequest) -> bytes:
    try:
        return encode_throttle(await response)
    except BadValue as error:
        return _no_rate(request, error)
    except Exception as error:
        return reply_to_error(error)


def _no_rate(request: ThrottleRequest, values: BadValue) -> bytes:
    """What redis-cell says to a rate that is none; whatever else is wrong is values as ever."""
    try:
        cell_throttle.quota(request.max_burst, request.count, request.period_s, request.cost)
    except ValueError as error:
        return error_line(f"{_CELL}{error}")
    return reply_to_error(values)


def encode_throttle(response: ThrottleResponse) -> bytes:
    """The encode_throttle numbers."""
    if not response.limited and response.retry_after_s == -1:
        return (
            f"*5\r\n:0\r\n:{response.limit}\r\n:{response.remaining}\r\n:-1\r\n"
            f":{response.reset_after_s}\r\n"
        ).encode("ascii")
    limited = 1 if response.limited else 0
    return (
        f"*5\r\n:{limited}\r\n:{response.limit}\r\n:{response.remaining}\r\n"
        f":{response.retry_after_s}\r\n:{response.reset_after_s}\r\n"
    ).encode()


def check(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """SG.CHECK user resource [WEIGHT n] [PRIORITY name] [HEADER name value]..."""
    response = _limits(session).check(_parse_check(session, parts, 3), identity_of(session))
    if isinstance(response, CheckResponse):
        return encode_check(response)
    return _later(response, encode_check)


def peek(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """SG.PEEK: what SG.CHECK would answer."""
    response = _limits(session).peek(_parse_check(session, parts, 3), identity_of(session))
    if isinstance(response, CheckResponse):
        return encode_check(response)
    return _later(response, encode_check)


def reset(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """SG.RESET: forget; how many rules."""
    request = _parse_check(session, parts, 3)
    return _later(_limits(session).reset(request, identity_of(session)), encode_reply)


def lease(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """SG.LEASE user resource units [as SG.CHECK]: units in advance."""
    units = parse_count("units", parts[3], 1)
    request = _parse_check(session, parts, 4)
    return _later(_limits(session).lease(request, units, identity_of(session)), _encode_lease)


def give_back(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """SG.GIVEBACK lease_id units: what was not spent."""
    units = parse_count("units", parts[2], 0)
    by = identity_of(session)
    return _later(_limits(session).give_back(text_of(parts[1]), units, by), encode_reply)


def encode_check(response: CheckResponse) -> bytes:
    """What SG.CHECK answers: encode_check values."""
    return encode_reply(_check_values(response))


def _check_values(response: CheckResponse) -> list[object]:
    decision = response.decision
    reason = decision.reason
    return [
        1 if decision.allowed else 0,
        decision.remaining,
        _ms(decision.retry_after_us),
        _ms(decision.reset_after_us),
        response.limit,
        decision.rule_id,
        "" if reason is None else reason.name,
        response.status,
        1 if decision.degraded else 0,
    ]


def _encode_lease(response: LeaseResponse) -> bytes:
    # _SetOptions long it is valid is rounded down: a lease is spent too early rather than too late.
    valid_ms = response.valid_us // 1_000
    return encode_reply(
        [response.lease_id, response.units, valid_ms, *_check_values(response.check)]
    )


def _ms(span_us: int) -> int:
    """Rounded up, for a moment earlier is too early; what is never stays."""
    return span_us if span_us <= 0 else -(-span_us // 1_000)


def _parse_check(session: Session, parts: list[bytes], at: int) -> CheckRequest:
    """The request of a user for a resource, and the options from `at` on."""
    cost = 1
    priority: Criticality | None = None
    headers: dict[str, str] = {}
    size = len(parts)
    while at < size:
        word = parts[at].upper()
        if word == b"HEADER" and at + 2 < size:
            if len(headers) < session.state.settings.headers_max:
                headers[text_of(parts[at + 1]).lower()] = text_of(parts[at + 2])
            at += 3
        elif word == b"WEIGHT" and at + 1 < size:
            cost = parse_count("weight", parts[at + 1], 0)
            at += 2
        elif word == b"PRIORITY" and at + 1 < size:
            priority = parse_criticality(text_of(parts[at + 1]), field="priority")
            at += 2
        else:
            raise BadValue(
                "option", text_of(parts[at]), "give WEIGHT n, PRIORITY name or HEADER name value"
            )
    return CheckRequest(
        text_of(parts[1]),
        text_of(parts[2]),
        headers=headers or NO_ATTRIBUTES,
        cost=cost,
        priority=priority,
    )


def parse_count(field: str, part: bytes, least: int) -> int:
    """A whole number from `least` to 2^53."""
    try:
        number = whole_number(part)
    except ValueError:
        number = least - 1
    if not least <= number <= COST_MAX:
        raise BadValue(field, text_of(part), f"give a whole number from {least} to 2^53")
    return number


def _limits(session: Session) -> RateLimits:
    limits: RateLimits = session.state.service
    return limits


async def _later(response: MaybeAwaitable[T], render: Callable[[T], bytes]) -> bytes:
    try:
        return render(await cast("Awaitable[T]", response))
    except Exception as error:
        return reply_to_error(error)
