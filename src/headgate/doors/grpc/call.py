"""Call: what a method is, and how an error becomes a status. Shared by both servers.

A method takes the bytes of a message and the identity of who speaks, and answers with bytes, at
once or later. That is all a server needs to know of it, so the same methods are served by our own
HTTP/2 and by grpcio.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from headgate.contracts.access import Identity
from headgate.contracts.checks import Soon
from headgate.contracts.errors import (
    BadValue,
    Forbidden,
    HeadgateError,
    Refused,
    Unauthenticated,
    Unavailable,
)


class Status(IntEnum):
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


Unary: TypeAlias = "Callable[[bytes, Identity], Soon[bytes]]"
Stream: TypeAlias = "Callable[[AsyncIterator[bytes], Identity], AsyncIterator[bytes]]"


class Methods(NamedTuple):
    """What a server serves, by path (`/package.Service/Method`).

    `open` are those that need no identity: health, for whoever looks after us.
    """

    unary: Mapping[str, Unary]
    streams: Mapping[str, Stream]
    open: frozenset[str] = frozenset()


class GrpcError(HeadgateError):
    """A call that ends with this status."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def status_of(error: BaseException) -> tuple[Status, str]:
    """The status and message that an error ends a call with. What is our own bug says little."""
    if isinstance(error, GrpcError):
        return error.status, error.message
    if isinstance(error, Refused):
        reason = error.decision.reason
        return Status(8 if reason is None else int(reason.grpc_code)), str(error)
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            return status, str(error)
    return Status.INTERNAL, "the service failed to answer; its log says why"


_STATUSES: Final[tuple[tuple[type[BaseException], Status], ...]] = (
    (BadValue, Status.INVALID_ARGUMENT),
    (Unauthenticated, Status.UNAUTHENTICATED),
    (Forbidden, Status.PERMISSION_DENIED),
    (Unavailable, Status.UNAVAILABLE),
    (HeadgateError, Status.FAILED_PRECONDITION),
)
