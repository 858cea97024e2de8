"""Verdicts: how the exceptions of drivers become call results.

A table maps the full name of an exception class to a verdict: the kind of the result, None for an
exception that is the caller's own bug, or a function that reads the exception. A function returns
the result, None, or the exception of another library that its own exception wraps.

An error that a driver may raise after it has repeated a request itself is `unproven`: the work may
have run, so only idempotent work is repeated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.resilience.client.http_results import FieldValues, result_of_response

Found: TypeAlias = CallResult[object] | Exception | None
Verdict: TypeAlias = ResultKind | Callable[[Any], Found] | None
Verdicts: TypeAlias = Mapping[str, Verdict]

FAILED: Final = ResultKind.FAILED
REJECTED: Final = ResultKind.REJECTED
TIMED_OUT: Final = ResultKind.TIMED_OUT
UNREACHED: Final = ResultKind.UNREACHED
LIMITED: Final = ResultKind.LIMITED

_RETRY_AFTER_MS: Final = re.compile(r"retry_after_ms=([0-9]{1,9})")
# Replies of a RESP server that has not begun the command, and is not too busy.
_RESP_NOT_READY: Final = (
    "LOADING",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "READONLY",
    "NOREPLICAS",
)
# OpenSSL's words for a first answer that is no TLS.
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
_RESP_BUSY: Final = ("BUSY", "OOM")


def named(module: str, **verdicts: Verdict) -> dict[str, Verdict]:
    """Return a table of one module's classes."""
    return {f"{module}.{name}": verdict for name, verdict in verdicts.items()}


def conflict(error: Exception) -> CallResult[object]:
    """Return the result of work that was rolled back: repeat it; the backend is well."""
    return CallResult(LIMITED, error=error, retry_after_us=1)


def overloaded(error: Exception) -> CallResult[object]:
    """Return the result of a backend that has too many connections or too much to do."""
    return CallResult(ResultKind.OVERLOADED, error=error, unproven=True)


def not_proven(error: Exception) -> CallResult[object]:
    """Return the result of a lost connection, where an earlier try of the driver may have run."""
    return CallResult(UNREACHED, error=error, unproven=True)


def failed_tls(error: Exception) -> CallResult[object]:
    """Return the result of TLS that failed, perhaps after a request was sent.

    Not after: where the port speaks no TLS. And no retry gives the server another certificate.
    """
    text = str(error)
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return not_trusted(error)
    if any(one in text for one in _NO_TLS):
        return CallResult(UNREACHED, error=error)
    return CallResult(FAILED, error=error)


def not_trusted(error: Exception) -> CallResult[object]:
    """Return the result of a certificate that does not verify; a retry cannot help."""
    return CallResult(UNREACHED, error=error, dont_retry=True)


def by_status(status: object, headers: object, error: Exception) -> CallResult[object]:
    """Return the result of an HTTP status that was raised as an exception."""
    if not isinstance(status, int):
        return CallResult(FAILED, error=error)
    found: CallResult[object] = result_of_response(None, status, field_values(headers))
    found.error = error
    if found.kind is ResultKind.OK:  # a redirect, or a body of the wrong form
        found.kind = REJECTED
    return found


def by_response(error: Any) -> CallResult[object]:
    """Return the result of an exception that carries a response or a status."""
    response = getattr(error, "response", None)
    source = error if response is None else response
    status = None
    for name in ("status_code", "status", "http_status", "code"):
        status = getattr(source, name, None)
        if isinstance(status, int):
            break
    return by_status(status, getattr(source, "headers", None), error)


def field_values(headers: object) -> FieldValues:
    """Return how to read the header fields of any driver."""
    for name in ("get_list", "getlist", "getall", "get_all"):
        read = getattr(headers, name, None)
        if read is not None:
            many = name in {"getall", "get_all"}  # those take a default
            return lambda field: list((read(field, ()) if many else read(field)) or ())

    def values(field: str) -> Sequence[str]:
        if not isinstance(headers, Mapping):
            return ()
        value = headers.get(field) or headers.get(field.lower())
        return () if value is None else (str(value),)

    return values


def by_sqlstate(state: str, error: Exception) -> CallResult[object]:
    """Return the result of an SQLSTATE, as PostgreSQL and ODBC have it."""
    kind = REJECTED
    if state in {"40001", "40P01", "55P03"}:  # serialization, deadlock, lock
        return conflict(error)
    if state[:2] == "53":  # no room: connections, memory, disk
        return overloaded(error)
    if state in {"57014", "HYT00", "HYT01", "57P05", "25P03"}:
        kind = TIMED_OUT
    elif state in {"08001", "08004", "57P03", "25006"}:  # no connection, starting, read-only
        kind = UNREACHED
    elif state[:2] in {"08", "57", "58", "XX", "F0"}:
        kind = FAILED
    return CallResult(kind, error=error)


def by_mysql_code(code: object, error: Exception) -> CallResult[object]:
    """Return the result of an error number of MySQL or MariaDB."""
    kind = REJECTED
    if code in {1205, 1213}:  # lock wait, deadlock
        return conflict(error)
    if code in {1040, 1203, 1041}:  # connections, memory
        return overloaded(error)
    if code in {2002, 2003, 2005, 1290, 1836}:  # no connection, read-only
        kind = UNREACHED
    elif code in {1317, 1969, 3024}:
        kind = TIMED_OUT
    elif not isinstance(code, int) or code in {0, 1053, 1077, 1079, 1080, 1927} or code >= 2_000:
        kind = FAILED
    return CallResult(kind, error=error)


def by_resp_error(error: Exception) -> CallResult[object]:
    """Return the result of an error reply of Redis, or of a server that speaks its protocol."""
    text = str(error)
    word = text.partition(" ")[0]
    if word in _RESP_NOT_READY:
        return not_proven(error)
    if word not in _RESP_BUSY:
        return CallResult(REJECTED, error=error)
    after_ms = _RETRY_AFTER_MS.search(text)
    found = overloaded(error)
    found.retry_after_us = 0 if after_ms is None else 1_000 * int(after_ms[1])
    return found


def when_closed(error: Exception) -> CallResult[object] | None:
    """Return a failure if a connection has been closed; any other misuse is a bug."""
    text = str(error).lower()
    return CallResult(FAILED, error=error) if "closed" in text or "lost" in text else None
