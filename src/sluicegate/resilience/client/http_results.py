"""HTTP results: what the head of a response says of a call, whichever driver brought it.

    status, and beside it                 kind         repeated
    503, an overload mark                 OVERLOADED   after its time, unless it says not to
    503, a Retry-After                    OVERLOADED   after its time, if idempotent (`unproven`)
    503, neither                          FAILED       if idempotent
    429, a mark or a Retry-After          LIMITED      after its time
    429, neither                          LIMITED      no
    other 5xx, a mark that is handed on   OVERLOADED   no
    other 5xx, other 4xx                  FAILED, REJECTED

A field that occurs twice, or has another form than the one it should, is as good as absent. The
date of a Retry-After counts from the Date of the same response: both are of one clock, and ours may
be off. A time of zero says nothing, except in a mark.

Bounds: fields of `FIELD_CHARS_MAX`, times of `AFTER_S_MAX`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from email.utils import parsedate_to_datetime
from typing import Final, TypeVar

from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.resilience.overload_mark import (
    FIELD,
    HANDED_ON,
    OverloadMark,
    parse_overload_mark,
)

T = TypeVar("T")
# The values of a field by its name, in any case; each line of it is one.
FieldValues = Callable[[str], Sequence[str]]

IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
IDEMPOTENCY_KEY: Final = "Idempotency-Key"
FIELD_CHARS_MAX: Final = 64
AFTER_S_MAX: Final = 86_400
_SECONDS: Final = re.compile(r"[0-9]+")
_DATE: Final = re.compile(
    r"[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT", re.ASCII
)


def result_of_response(response: T, status: int, values: FieldValues) -> CallResult[T]:
    """Return the result that has this response."""
    if status in {503, 429}:
        return _result_of_refusal(response, status, values)
    kind = ResultKind.OK
    if status >= 500:
        kind = ResultKind.FAILED
        mark = parse_overload_mark(values(FIELD))
        if mark is not None and (status == 504 or mark == HANDED_ON):
            return result_of_mark(ResultKind.OVERLOADED, response, mark)
    elif status >= 400:
        kind = ResultKind.REJECTED
    return CallResult(kind, response)


def _result_of_refusal(response: T, status: int, values: FieldValues) -> CallResult[T]:
    kind = ResultKind.LIMITED if status == 429 else ResultKind.OVERLOADED
    mark = parse_overload_mark(values(FIELD))
    if mark is not None:
        return result_of_mark(kind, response, mark)
    after_us = 1_000_000 * retry_after_s(values)
    if status == 429:
        return CallResult(kind, response, retry_after_us=after_us)
    if after_us == 0:
        return CallResult(ResultKind.FAILED, response)
    return CallResult(kind, response, retry_after_us=after_us, unproven=True)


def result_of_mark(kind: ResultKind, response: T, mark: OverloadMark) -> CallResult[T]:
    """Return the result of a refusal that says when to come back, and how much is admitted."""
    return CallResult(
        kind,
        response,
        retry_after_us=max(mark.after_ms * 1_000, 1),
        dont_retry=not mark.retry,
        admitted_permille=mark.admitted_permille,
    )


def retry_after_s(values: FieldValues) -> int:
    """Return the seconds that a Retry-After asks for; 0 if it says nothing that can be used."""
    text = _only(values("Retry-After"))
    if not text:
        return 0
    if _SECONDS.fullmatch(text):
        return min(int(text), AFTER_S_MAX)
    until, sent = _timestamp(text), _timestamp(_only(values("Date")))
    if until is None or sent is None:
        return 0
    return min(max(int(until - sent), 0), AFTER_S_MAX)


def _only(values: Sequence[str]) -> str:
    if len(values) != 1 or len(values[0]) > FIELD_CHARS_MAX:
        return ""
    return values[0].strip()


def _timestamp(text: str) -> float | None:
    if not _DATE.fullmatch(text):
        return None
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None


def is_idempotent(method: str, headers: Collection[str]) -> bool:
    """Whether it may be carried out twice; `headers` find names in any case."""
    return method in IDEMPOTENT or IDEMPOTENCY_KEY in headers


def answer_of(result: CallResult[T]) -> T:
    """Return a response that came, whatever it says; else raise what went wrong."""
    return result.unwrap() if result.value is None else result.value


def netloc_at(netloc: str, host: str) -> str:
    """Return the place of a URL with another host: whoever logs in there logs in here."""
    user, at, _ = netloc.rpartition("@")
    return f"{user}{at}{host}"
