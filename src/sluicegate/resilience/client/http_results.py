"""HTTP results: what the head of a response says of a call, whichever driver brought it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, TypeVar

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.request import Request
from sluicegate.policies.call_result import CallResult, ResultKind

T = TypeVar("T")

IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
IDEMPOTENCY_KEY: Final = "Idempotency-Key"
_HINT_CHARS_MAX: Final = 9


def result_of_status(response: T, status: int, retry_after: str | None) -> CallResult[T]:
    """Return the result that has this response; a Retry-After counts if it is in seconds."""
    kind = ResultKind.OK
    if status == 429:
        kind = ResultKind.LIMITED
    elif status >= 500:
        kind = ResultKind.FAILED
    elif status >= 400:
        kind = ResultKind.REJECTED
    hint = (retry_after or "").strip()
    timely = hint.isascii() and hint.isdigit() and len(hint) <= _HINT_CHARS_MAX
    return CallResult(kind, response, retry_after_us=int(hint) * 1_000_000 if timely else 0)


def request_of(method: str, host: str, port: int | str, path: str) -> Request:
    """Return what the policies judge by: the backend is host and port, the operation the method."""
    return Request(path, shard=f"{host}:{port}", operation=method)


def is_idempotent(method: str, headers: Collection[str]) -> bool:
    """Whether it may be carried out twice; `headers` find names in any case."""
    return method in IDEMPOTENT or IDEMPOTENCY_KEY in headers


def answer_of(result: CallResult[T]) -> T:
    """Return a response that came, whatever it says; else raise what went wrong."""
    return result.unwrap() if result.value is None else result.value


def refuse_hosts(hosts: object, driver: str) -> None:
    """Refuse a client with a group: the driver connects where the URL says, and only there."""
    if hosts is not None:
        raise BadValue("client.hosts", hosts, f"give {driver} a client without hosts")
