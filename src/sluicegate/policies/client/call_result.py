"""CallResult: how a call to a backend went, as the policies of a client read it.

An outcome has three words, which is enough for a limiter that adapts. A client must know more: a
refusal is no failure, a quota's refusal is no overload, and what was never begun may be sent again.
Each policy takes from the result what concerns it; nothing else interprets errors.

    kind          evidence of bad health   may it have run   what an adaptive limit learns
    OK                     no                  yes          SUCCESS
    REJECTED               no                  yes          IGNORE     the caller's own fault
    FAILED                 yes                 yes          IGNORE     an error of the backend
    TIMED_OUT              yes                 yes          DROPPED
    UNREACHED              yes                 no           DROPPED    no connection
    OVERLOADED             no                  no           DROPPED    it refused: too little
    LIMITED                no                  no           IGNORE     it refused: a quota is spent
    CANCELLED              no                  yes          IGNORE     given up here

The marks a backend may add (back-pressure): `retry_after_us`, `dont_retry`, and `admits`, the least
class that it serves at present. A refusal is `unproven` where it is but a status of somebody on the
way: then the work may have begun, and what refused may be one of many. The marks that a client's
policies add: `degraded` and `age_us` (a stand-in of a fallback), `stop_reason` (why there was no
further attempt).

`result_of` runs a piece of work and names what came of it. It knows the errors of `contracts`,
time-outs and broken connections. Everything else is a bug, of ours or of the work, and passes
through: no policy may count it, repeat it or hide it.
"""

from __future__ import annotations

from collections.abc import Awaitable
from enum import Enum
from typing import Final, Generic, TypeVar, cast, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Refused, Unavailable
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import DEADLINE, RetryAdvice
from sluicegate.kernels.verdict import NEVER

T = TypeVar("T")

_TOO_MUCH: Final = 429


class ResultKind(Enum):
    """How a call went; the table is above."""

    OK = "ok"
    REJECTED = "rejected"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    UNREACHED = "unreached"
    OVERLOADED = "overloaded"
    LIMITED = "limited"
    CANCELLED = "cancelled"


OK: Final = ResultKind.OK  # asked for with every call; by its class it is looked up each time
FAILURES: Final = (ResultKind.FAILED, ResultKind.TIMED_OUT, ResultKind.UNREACHED)
ADMITS_ALL: Final = 1_000  # permille: what was refused was refused further down
NOT_BEGUN: Final = (ResultKind.UNREACHED, ResultKind.OVERLOADED, ResultKind.LIMITED)

_OUTCOMES: Final = {
    ResultKind.OK: Outcome.SUCCESS,
    ResultKind.REJECTED: Outcome.IGNORE,
    ResultKind.FAILED: Outcome.IGNORE,
    ResultKind.TIMED_OUT: Outcome.DROPPED,
    ResultKind.UNREACHED: Outcome.DROPPED,
    ResultKind.OVERLOADED: Outcome.DROPPED,
    ResultKind.LIMITED: Outcome.IGNORE,
    ResultKind.CANCELLED: Outcome.IGNORE,
}


@final
class CallResult(Generic[T]):
    """What came of a call. `unwrap()` is its value, or raises what went wrong."""

    __slots__ = (
        "admits",
        "admitted_permille",
        "age_us",
        "degraded",
        "dont_retry",
        "error",
        "kind",
        "retry_after_us",
        "stop_reason",
        "unproven",
        "value",
    )

    def __init__(
        self,
        kind: ResultKind,
        value: T | None = None,
        *,
        error: Exception | None = None,
        retry_after_us: int = 0,
        dont_retry: bool = False,
        admits: Criticality | None = None,
        unproven: bool = False,
        admitted_permille: int = 0,
    ) -> None:
        self.kind = kind
        self.value = value
        self.error = error
        self.retry_after_us = retry_after_us  # 0: it said nothing
        self.dont_retry = dont_retry
        self.admits = admits
        self.unproven = unproven
        self.admitted_permille = admitted_permille  # of what comes, though this was refused
        self.degraded = False
        self.age_us = 0
        self.stop_reason = ""

    @property
    def ok(self) -> bool:
        """Whether there is a value: the backend's own, or a stand-in that is marked so."""
        return self.kind is OK

    @property
    def is_failure(self) -> bool:
        """Whether it is evidence that the backend is not well."""
        return self.kind in FAILURES

    @property
    def may_have_run(self) -> bool:
        """Whether the backend may have done the work, or a part of it."""
        return self.unproven or self.kind not in NOT_BEGUN

    @property
    def outcome(self) -> Outcome:
        """The word for permits that need no more."""
        return _OUTCOMES[self.kind]

    def unwrap(self) -> T:
        """The value; if there is none, the error is raised."""
        if self.kind is OK:
            return cast("T", self.value)
        if self.error is not None:
            raise self.error
        raise Unavailable("the backend", self.kind.value)

    def __repr__(self) -> str:
        marks = " degraded" if self.degraded else ""
        return f"<CallResult {self.kind.value}{marks}>"


def result_of_value(value: T) -> CallResult[T]:
    """The result of a call that went well; quicker for plain Python to call than the class."""
    return CallResult(OK, value)


def result_of_error(error: Exception) -> CallResult[object] | None:
    """The result that an error stands for; None if the error is a bug."""
    if isinstance(error, Refused):
        return _result_of_refusal(error, error.decision)
    if isinstance(error, TimeoutError):
        return CallResult(ResultKind.TIMED_OUT, error=error)
    if isinstance(error, ConnectionRefusedError):
        return CallResult(ResultKind.UNREACHED, error=error)
    if isinstance(error, (ConnectionError, Unavailable)):
        return CallResult(ResultKind.FAILED, error=error)
    return None


def _result_of_refusal(error: Exception, decision: Decision) -> CallResult[object]:
    reason = decision.reason
    kind = ResultKind.OVERLOADED
    dont_retry = decision.retry_after_us == NEVER
    if reason is not None:
        dont_retry = dont_retry or reason.retry is RetryAdvice.NEVER
        if reason is DEADLINE:
            kind = ResultKind.TIMED_OUT
        elif reason.http_status == _TOO_MUCH:
            kind = ResultKind.LIMITED
    hint_us = decision.retry_after_us if decision.retry_after_us > 0 else 0
    return CallResult(kind, error=error, retry_after_us=hint_us, dont_retry=dont_retry)


async def result_of(work: Awaitable[CallResult[T]]) -> CallResult[T]:
    """Await the work; an error that tells how the backend is becomes its result."""
    try:
        return await work
    except Exception as error:
        found = result_of_error(error)
        if found is None:
            raise
        return cast("CallResult[T]", found)
