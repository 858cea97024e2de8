"""Checks: the rows of the table that ask for decisions: CL.THROTTLE, and SG.CHECK and its kin.

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
from sluicegate.doors.resp.errors import refusal
from sluicegate.doors.resp.session import Session, identity_of
from sluicegate.kernels import cell_throttle
from sluicegate.wire.resp import encoded, error_line, text_of, whole_number

T = TypeVar("T")

WEIGHT_MAX: Final = 1 << 53

_CELL: Final = "Cell error: Store error: "
_USAGE: Final = error_line(
    f"{_CELL}Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]"
)


def throttle(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """CL.THROTTLE key max_burst count period [quantity]."""
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
        quantity = whole_number(parts[5]) if size == 6 else 1
    except ValueError:
        shown = parts[at].decode("utf-8", "backslashreplace")
        return error_line(f"{_CELL}Couldn't parse as integer: {shown}")
    ask = ThrottleRequest(text_of(parts[1]), max_burst, count, period_s, quantity)
    try:
        answer = _limits(session).throttle(ask, identity_of(session))
    except BadValue as error:
        return _no_rate(ask, error)
    if isinstance(answer, ThrottleResponse):
        return five(answer)
    return _throttled(answer, ask)


async def _throttled(answer: Awaitable[ThrottleResponse], ask: ThrottleRequest) -> bytes:
    try:
        return five(await answer)
    except BadValue as error:
        return _no_rate(ask, error)
    except Exception as error:
        return refusal(error)


def _no_rate(ask: ThrottleRequest, told: BadValue) -> bytes:
    """What redis-cell says to a rate that is none; whatever else is wrong is told as ever."""
    try:
        cell_throttle.quota(ask.max_burst, ask.count, ask.period_s, ask.cost)
    except ValueError as error:
        return error_line(f"{_CELL}{error}")
    return refusal(told)


def five(answer: ThrottleResponse) -> bytes:
    """The five numbers."""
    if not answer.limited and answer.retry_after_s == -1:
        return (
            f"*5\r\n:0\r\n:{answer.limit}\r\n:{answer.remaining}\r\n:-1\r\n"
            f":{answer.reset_after_s}\r\n"
        ).encode("ascii")
    limited = 1 if answer.limited else 0
    return (
        f"*5\r\n:{limited}\r\n:{answer.limit}\r\n:{answer.remaining}\r\n"
        f":{answer.retry_after_s}\r\n:{answer.reset_after_s}\r\n"
    ).encode()


def check(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """SG.CHECK user resource [WEIGHT n] [PRIORITY name] [HEADER name value]..."""
    answer = _limits(session).check(_asked(session, parts, 3), identity_of(session))
    if isinstance(answer, CheckResponse):
        return nine(answer)
    return _later(answer, nine)


def peek(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """SG.PEEK: what SG.CHECK would answer."""
    answer = _limits(session).peek(_asked(session, parts, 3), identity_of(session))
    if isinstance(answer, CheckResponse):
        return nine(answer)
    return _later(answer, nine)


def reset(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """SG.RESET: forget; how many rules."""
    ask = _asked(session, parts, 3)
    return _later(_limits(session).reset(ask, identity_of(session)), encoded)


def lease(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """SG.LEASE user resource units [as SG.CHECK]: units in advance."""
    units = counted("units", parts[3], 1)
    ask = _asked(session, parts, 4)
    return _later(_limits(session).lease(ask, units, identity_of(session)), _twelve)


def give_back(session: Session, parts: list[bytes]) -> MaybeAwaitable[bytes]:
    """SG.GIVEBACK lease_id units: what was not spent."""
    units = counted("units", parts[2], 0)
    by = identity_of(session)
    return _later(_limits(session).give_back(text_of(parts[1]), units, by), encoded)


def nine(answer: CheckResponse) -> bytes:
    """What SG.CHECK answers: nine values."""
    return encoded(_nine(answer))


def _nine(answer: CheckResponse) -> list[object]:
    decision = answer.decision
    reason = decision.reason
    return [
        1 if decision.allowed else 0,
        decision.remaining,
        _ms(decision.retry_after_us),
        _ms(decision.reset_after_us),
        answer.limit,
        decision.rule_id,
        "" if reason is None else reason.name,
        answer.status,
        1 if decision.degraded else 0,
    ]


def _twelve(answer: LeaseResponse) -> bytes:
    # How long it is valid is rounded down: a lease is spent too early rather than too late.
    valid_ms = answer.valid_us // 1_000
    return encoded([answer.lease_id, answer.units, valid_ms, *_nine(answer.check)])


def _ms(span_us: int) -> int:
    """Rounded up, for a moment earlier is too early; what is never stays."""
    return span_us if span_us <= 0 else -(-span_us // 1_000)


def _asked(session: Session, parts: list[bytes], at: int) -> CheckRequest:
    """The ask of a user for a resource, and the options from `at` on."""
    weight = 1
    priority: Criticality | None = None
    headers: dict[str, str] = {}
    size = len(parts)
    while at < size:
        word = parts[at].upper()
        if word == b"HEADER" and at + 2 < size:
            headers[text_of(parts[at + 1]).lower()] = text_of(parts[at + 2])
            if len(headers) > session.shared.settings.headers_max:
                raise BadValue(
                    "headers",
                    f"more than {session.shared.settings.headers_max}",
                    "send only those that rules read (headers_max)",
                )
            at += 3
        elif word == b"WEIGHT" and at + 1 < size:
            weight = counted("weight", parts[at + 1], 0)
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
        cost=weight,
        priority=priority,
    )


def counted(field: str, part: bytes, least: int) -> int:
    """A whole number from `least` to 2^53."""
    try:
        number = whole_number(part)
    except ValueError:
        number = least - 1
    if not least <= number <= WEIGHT_MAX:
        raise BadValue(field, text_of(part), f"give a whole number from {least} to 2^53")
    return number


def _limits(session: Session) -> RateLimits:
    limits: RateLimits = session.shared.service
    return limits


def _later(answer: MaybeAwaitable[T], say: Callable[[T], bytes]) -> Awaitable[bytes]:
    return _said(cast("Awaitable[T]", answer), say)


async def _said(answer: Awaitable[T], say: Callable[[T], bytes]) -> bytes:
    try:
        return say(await answer)
    except Exception as error:
        return refusal(error)
