"""Pub/sub messages: what a client of the service receives, as values, and refusals as errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import (
    BadValue,
    Forbidden,
    Refused,
    SluicegateError,
    Unauthenticated,
    Unavailable,
)
from sluicegate.contracts.reasons import OVERLOADED, REASONS

SERVICE: Final = "the pub/sub service"


class PubSubMessage(NamedTuple):
    """One message of a channel. To resume behind it, give `after=position`.

    What a `member` did, and not published, has `presence`: enter, update or leave.
    """

    position: int
    at_us: int
    channel: str
    data: Any
    presence: str | None = None
    member: str | None = None


class PubSubMember(NamedTuple):
    """One who is in a channel, since it last entered or was updated."""

    member: str
    data: Any
    position: int


class PubSubMembersPage(NamedTuple):
    """Some members of a channel, by name; `next` is `after` of the next page, None on the last."""

    members: tuple[PubSubMember, ...]
    next: str | None


class LostContinuity(NamedTuple):
    """What was accepted after `after` and before `before` cannot be read any more.

    `lost` is how many, None where nobody can tell.
    """

    after: int
    before: int
    lost: int | None


class PubSubPage(NamedTuple):
    """Some messages of a channel. `cut` is the last position that may be missing before them.

    `gap` is what is lost to one who knows all up to the position that was asked from.
    """

    messages: tuple[PubSubMessage, ...]
    cut: int
    newest: int  # of any channel of its node
    gap: LostContinuity | None


Received: TypeAlias = "PubSubMessage | LostContinuity"


def message_of(channel: str, one: Mapping[str, Any]) -> PubSubMessage:
    """One that the service sent."""
    return PubSubMessage(
        one["position"],
        one["at_us"],
        channel,
        one["data"],
        one.get("presence"),
        one.get("member"),
    )


def error_of(problem: Mapping[str, Any]) -> SluicegateError:
    """What a refusal of the service is here."""
    status, detail = problem.get("status"), str(problem.get("detail", ""))
    if status in (400, 413):
        return BadValue(
            str(problem.get("field")), problem.get("value"), str(problem.get("remedy", detail))
        )
    if status == 401:
        return Unauthenticated(str(problem.get("remedy", "send a valid token")), detail)
    if status == 403:
        return Forbidden(str(problem.get("who", "")), str(problem.get("grant", "")))
    name = problem.get("reason")
    if isinstance(name, str):
        retry_us = int(float(problem.get("retry_after", 0)) * 1e6)
        reason = REASONS.get(name, OVERLOADED)
        if not reason.retryable:
            retry_us = -1
        rule = str(problem.get("rule", ""))
        return Refused(Decision(False, 0, retry_us, retry_us, reason, rule), detail)
    return Unavailable(SERVICE, detail)


def handshake_error(status: int, problem: str) -> SluicegateError:
    """What an answer to a handshake is here, that another try would get too."""
    if status == 401:
        return Unauthenticated("give the token of an account that the service knows")
    return Unavailable(SERVICE, problem)
