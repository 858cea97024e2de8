"""Reasons: why work is refused, in one table that every face reads.

Doors, headers, logs, metrics, the console and the documentation take their words and codes from
here. A new way to refuse is a new row; a refusal without a row does not exist.

The codes follow two questions. Has the caller asked for too much (429, RESOURCE_EXHAUSTED), or have
we too little (503, UNAVAILABLE)? And would it help to ask again: later, somewhere else, or never?
A client that reads `retry` needs to know nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, IntEnum
from typing import Final, final


class RetryAdvice(Enum):
    """What a refused caller may do."""

    LATER = "later"  # here again, after `retry_after`
    ELSEWHERE = "elsewhere"  # another instance at once; here only after a back-off
    NEVER = "never"  # the same request would be refused again
    IF_IDEMPOTENT = "if_idempotent"  # only where a second execution does no harm


class GrpcCode(IntEnum):
    """The gRPC status codes that a refusal can have."""

    UNKNOWN = 2
    DEADLINE_EXCEEDED = 4
    RESOURCE_EXHAUSTED = 8
    UNAVAILABLE = 14


@final
class Reason:
    """One row: a name for machines, a sentence for people, a code for each door."""

    __slots__ = ("grpc_code", "http_status", "name", "resp_error", "retry", "sentence")

    def __init__(
        self,
        name: str,
        sentence: str,
        *,
        http_status: int,
        grpc_code: GrpcCode,
        resp_error: str,
        retry: RetryAdvice,
    ) -> None:
        self.name = name
        self.sentence = sentence
        self.http_status = http_status
        self.grpc_code = grpc_code
        self.resp_error = resp_error
        self.retry = retry

    @property
    def retryable(self) -> bool:
        """Whether asking again, later or elsewhere, can help and does no harm."""
        return self.retry in (RetryAdvice.LATER, RetryAdvice.ELSEWHERE)

    def __repr__(self) -> str:
        return f"<Reason {self.name}>"

    def __reduce__(self) -> tuple[Callable[[str], Reason], tuple[str]]:
        # A reason stays the one row of its name across processes.
        return find_reason, (self.name,)


REASONS: Final[dict[str, Reason]] = {}


def _row(reason: Reason) -> Reason:
    REASONS[reason.name] = reason
    return reason


def _too_much(name: str, sentence: str, retry: RetryAdvice = RetryAdvice.LATER) -> Reason:
    code = GrpcCode.RESOURCE_EXHAUSTED
    return _row(
        Reason(name, sentence, http_status=429, grpc_code=code, resp_error="LIMITED", retry=retry)
    )


def _too_little(name: str, sentence: str, retry: RetryAdvice = RetryAdvice.ELSEWHERE) -> Reason:
    code = GrpcCode.UNAVAILABLE
    return _row(
        Reason(name, sentence, http_status=503, grpc_code=code, resp_error="BUSY", retry=retry)
    )


# The caller asked for too much.
RATE_LIMITED: Final = _too_much("rate_limited", "The limit for this key is spent.")
COST_ABOVE_LIMIT: Final = _too_much(
    "cost_above_limit", "This request costs more than its limit can ever hold.", RetryAdvice.NEVER
)
KEYS_EXHAUSTED: Final = _too_much(
    "keys_exhausted", "More keys are limited at once than may be tracked; new ones share one limit."
)
LINE_FULL: Final = _too_much("line_full", "Too many already wait in line for this limit.")
WAIT_TIMEOUT: Final = _too_much("wait_timeout", "Its turn in the line did not come in time.")
QUOTA_SPENT: Final = _too_much("quota_spent", "The caller's request units for now are spent.")
CONCURRENCY_LIMITED: Final = _too_much(
    "concurrency_limited", "The caller has as many requests under way as it may have."
)
SUPPRESSED: Final = _too_much(
    "suppressed", "The account is over its rate; a share of its operations is refused."
)
CHANNEL_LIMITED: Final = _too_much("channel_limited", "The channel is over its rate of messages.")
CHANNELS_FULL: Final = _too_much(
    "channels_full", "As many channels are in use as may be; new ones must wait."
)
CONNECTIONS_FULL: Final = _too_much(
    "connections_full", "The account has as many connections as it may have."
)
HOURLY_LIMIT: Final = _too_much(
    "hourly_limit", "The account has used far more messages than it may in this hour."
)
MONTHLY_LIMIT: Final = _too_much(
    "monthly_limit", "The account has used far more messages than it may in this month."
)
PRESENCE_FULL: Final = _too_much(
    "presence_full", "As many members are present as may be; new ones must wait."
)
SUBSCRIPTIONS_FULL: Final = _too_much(
    "subscriptions_full",
    "The connection has as many subscriptions as it may have.",
    RetryAdvice.NEVER,
)

# We have too little.
SHED: Final = _too_little("shed", "The service is under stress and serves what matters more.")
QUEUE_FULL: Final = _too_little("queue_full", "The queue is full.")
QUEUE_TIMEOUT: Final = _too_little(
    "queue_timeout", "The request waited longer than a queue under pressure allows."
)
OVERLOADED: Final = _too_little("overloaded", "The service has as much under way as it can do.")
BULKHEAD_FULL: Final = _too_little(
    "bulkhead_full", "The part of the service that this request needs is full."
)
BREAKER_OPEN: Final = _too_little(
    "breaker_open", "What this request needs has been failing; it is given time to recover."
)
NO_HOST: Final = _too_little(
    "no_host", "No host is known that could do this work.", RetryAdvice.LATER
)
HOME_UNAVAILABLE: Final = _too_little(
    "home_unavailable",
    "The node that is this channel's home does not answer; nothing was accepted.",
    RetryAdvice.LATER,
)
WAITERS_FULL: Final = _too_little(
    "waiters_full", "Too many requests already wait for the same answer."
)
STORE_UNAVAILABLE: Final = _too_little(
    "store_unavailable", "The limit cannot be counted at the moment, and its rule says to refuse."
)
DRAINING: Final = _too_little("draining", "This instance is going away.")
CLIENT_THROTTLED: Final = _too_little(
    "client_throttled",
    "The client holds back: its recent requests were mostly refused.",
    RetryAdvice.LATER,
)
RETRIES_SPENT: Final = _too_little(
    "retries_spent",
    "The budget for retries is spent; another would add to the overload.",
    RetryAdvice.NEVER,
)

# Too late, whoever's fault it is.
DEADLINE: Final = _row(
    Reason(
        "deadline",
        "Too little time is left to do the work before its deadline.",
        http_status=504,
        grpc_code=GrpcCode.DEADLINE_EXCEEDED,
        resp_error="TOOLATE",
        retry=RetryAdvice.NEVER,
    )
)

# Not a rejection: the work was begun, and may be done.
OUTCOME_UNKNOWN: Final = _row(
    Reason(
        "outcome_unknown",
        "The change may have been made or not; read before you repeat it.",
        http_status=500,
        grpc_code=GrpcCode.UNKNOWN,
        resp_error="UNKNOWN",
        retry=RetryAdvice.IF_IDEMPOTENT,
    )
)


def find_reason(name: str) -> Reason:
    """Return the row of that name; a reason crosses processes by its name."""
    return REASONS[name]
