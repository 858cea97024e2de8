"""gRPC results: what the status of a call means, by the name of its code. gRPC is not imported.

UNAVAILABLE, an overload mark             OVERLOADED   after its time, unless it says not to
UNAVAILABLE, grpc-retry-pushback-ms       OVERLOADED   after its time, if idempotent; -1: no
those of the next two, a mark handed on   OVERLOADED   no
UNAVAILABLE, UNKNOWN, INTERNAL, DATA_LOSS FAILED       if idempotent
DEADLINE_EXCEEDED                         TIMED_OUT    if idempotent
RESOURCE_EXHAUSTED                        LIMITED      after the time of a mark or a push-back
other codes                               REJECTED, or CANCELLED; no
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.resilience.client.http_results import result_of_mark
from sluicegate.resilience.overload_mark import (
    AFTER_MS_MAX,
    FIELD,
    HANDED_ON,
    PUSHBACK,
    parse_overload_mark,
)

Metadata = Iterable[tuple[str, Any]] | None

_MS: Final = re.compile(r"[0-9]{1,9}")
_KINDS: Final = {
    "OK": ResultKind.OK,
    "UNAVAILABLE": ResultKind.FAILED,
    "UNKNOWN": ResultKind.FAILED,
    "INTERNAL": ResultKind.FAILED,
    "DATA_LOSS": ResultKind.FAILED,
    "DEADLINE_EXCEEDED": ResultKind.TIMED_OUT,
    "RESOURCE_EXHAUSTED": ResultKind.LIMITED,
    "CANCELLED": ResultKind.CANCELLED,
}
_MAY_BE_MARKED: Final = (ResultKind.FAILED, ResultKind.TIMED_OUT, ResultKind.LIMITED)


def result_of_code(outcome: Any, code: str, trailers: Metadata) -> CallResult[Any]:
    """Return the result that has this outcome."""
    kind = _KINDS.get(code, ResultKind.REJECTED)
    if kind not in _MAY_BE_MARKED:
        return CallResult(kind, outcome)
    refusal = kind if kind is ResultKind.LIMITED else ResultKind.OVERLOADED
    mark = parse_overload_mark(metadata_values(trailers, FIELD))
    refuses = code in {"UNAVAILABLE", "RESOURCE_EXHAUSTED"}
    if mark is not None and (refuses or code == "DEADLINE_EXCEEDED" or mark == HANDED_ON):
        return result_of_mark(refusal, outcome, mark)
    if not refuses:
        return CallResult(kind, outcome)
    found = metadata_values(trailers, PUSHBACK)
    if not found:
        return CallResult(kind, outcome)
    # As gRPC has it: what is negative or no number asks for no retry.
    number = _MS.fullmatch(found[0]) if len(found) == 1 else None
    if number is None:
        return CallResult(refusal, outcome, dont_retry=True, unproven=True)
    after_us = min(int(found[0]), AFTER_MS_MAX) * 1_000
    if after_us == 0:
        return CallResult(kind, outcome)
    return CallResult(refusal, outcome, retry_after_us=after_us, unproven=True)


def metadata_values(metadata: Metadata, name: str) -> list[str]:
    """Return the values of a field."""
    found = [value for key, value in metadata or () if key == name]
    return [value.decode("latin-1") if isinstance(value, bytes) else value for value in found]
