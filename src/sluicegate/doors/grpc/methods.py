"""Methods: what a server serves, and how an error becomes a status.

A method takes the bytes of a message and the caller's identity, and returns bytes, at once or
later. One that needs the call's metadata and deadline takes those too. That is all a server knows
of it, so any gRPC server can serve the same methods.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, final

from sluicegate.contracts.access import Grant, Identity, TableGrant
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.errors import (
    BadValue,
    Conflict,
    DataLoss,
    Forbidden,
    OutcomeUnknown,
    Refused,
    SluicegateError,
    Unauthenticated,
    Unavailable,
)
from sluicegate.contracts.reasons import OUTCOME_UNKNOWN
from sluicegate.doors.headers import retry_after_s


class GrpcStatus(IntEnum):
    """The status codes of gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


Field: TypeAlias = "tuple[bytes, bytes]"


@final
class CallMetadata:
    """A call's metadata, names in lower case, and its times.

    `left_us` is how long a response is of use, counted from when the method is called; -1 is for
    ever. `waited_us` is how long ago the call began.
    """

    __slots__ = ("left_us", "metadata", "waited_us")

    def __init__(self, metadata: Sequence[Field], left_us: int, waited_us: int) -> None:
        self.metadata = metadata
        self.left_us = left_us
        self.waited_us = waited_us

    def values(self, name: bytes) -> list[bytes]:
        """Return all values of that name, in order."""
        return [value for key, value in self.metadata if key == name]


UnaryMethod: TypeAlias = "Callable[[bytes, Identity], MaybeAwaitable[bytes]]"
MetadataMethod: TypeAlias = "Callable[[bytes, Identity, CallMetadata], MaybeAwaitable[bytes]]"
StreamMethod: TypeAlias = "Callable[[AsyncIterator[bytes], Identity], AsyncIterator[bytes]]"


_NONE: Final[Mapping[str, MetadataMethod]] = MappingProxyType({})
_NO_GRANTS: Final[Mapping[str, Grant | TableGrant]] = MappingProxyType({})


class Methods(NamedTuple):
    """What a server serves, by path (`/package.Service/Method`).

    `open` are those that need no identity, as health. `with_metadata` are unary methods that take
    the call's metadata and deadline too. `grants` has what each takes, on one table or another if
    it is a table's: who was not given it is refused by the head alone, whatever the message.
    """

    unary: Mapping[str, UnaryMethod]
    streams: Mapping[str, StreamMethod]
    open: frozenset[str] = frozenset()
    with_metadata: Mapping[str, MetadataMethod] = _NONE
    grants: Mapping[str, Grant | TableGrant] = _NO_GRANTS


class GrpcError(SluicegateError):
    """A call that ends with this status."""

    def __init__(self, status: GrpcStatus, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def status_of(error: BaseException) -> tuple[GrpcStatus, str]:
    """Return the status and message of an error. A bug of ours says little."""
    if isinstance(error, GrpcError):
        return error.status, error.message
    if isinstance(error, Refused):
        reason = error.decision.reason
        return GrpcStatus(8 if reason is None else int(reason.grpc_code)), str(error)
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            return status, str(error)
    return GrpcStatus.INTERNAL, "the service failed to answer; its log says why"


def metadata_of(error: BaseException) -> list[Field]:
    """Return the trailing metadata of an error: of a refusal, its reason and when to retry.

    `grpc-retry-pushback-ms` is what gRPC's own retry policies obey: -1 where no retry can help, and
    left out where nobody knows the wait, so that the client's own back-off counts.
    """
    if isinstance(error, OutcomeUnknown):
        return [
            (b"sluicegate-reason", OUTCOME_UNKNOWN.name.encode("ascii")),
            (b"grpc-retry-pushback-ms", b"-1"),
        ]
    if isinstance(error, DataLoss):
        return [(b"sluicegate-reason", b"data_loss"), (b"grpc-retry-pushback-ms", b"-1")]
    if not isinstance(error, Refused):
        return []
    decision = error.decision
    found = []
    if decision.reason is not None:
        found.append((b"sluicegate-reason", decision.reason.name.encode("ascii")))
    if decision.rule_id:
        found.append((b"sluicegate-rule", decision.rule_id.encode("ascii", "backslashreplace")))
    seconds = retry_after_s(decision)
    if seconds <= 0:
        found.append((b"grpc-retry-pushback-ms", b"-1"))
        return found
    found.append((b"retry-after", b"%d" % seconds))
    if decision.retry_after_us > 0:
        after_ms = -(-decision.retry_after_us // 1_000)
        found.append((b"grpc-retry-pushback-ms", b"%d" % after_ms))
    return found


_STATUSES: Final[tuple[tuple[type[BaseException], GrpcStatus], ...]] = (
    (BadValue, GrpcStatus.INVALID_ARGUMENT),
    (Unauthenticated, GrpcStatus.UNAUTHENTICATED),
    (Forbidden, GrpcStatus.PERMISSION_DENIED),
    (OutcomeUnknown, GrpcStatus.UNKNOWN),  # before Unavailable, which it is too
    (Unavailable, GrpcStatus.UNAVAILABLE),
    (Conflict, GrpcStatus.ABORTED),
    (DataLoss, GrpcStatus.DATA_LOSS),
    (SluicegateError, GrpcStatus.FAILED_PRECONDITION),
)
