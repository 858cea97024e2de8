"""Registry: the call result that an exception stands for, and the rules of one client on top.

    rules = ErrorRules(on=MyDriverError, ignore=lambda error: "expired" in str(error))
    rules.result_of(error)  # None: a bug, which is neither counted nor repeated

The exceptions of about forty drivers are known by the names of their classes and of their base
classes, so that no driver is imported. Below them come the errors of `contracts`, time-outs, broken
connections, and what a socket, a resolver and TLS raise. An exception in no table is a bug.

Cost: a look-up for each class in the exception's line of descent; nothing for a call that succeeds.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, Final, TypeAlias, final

from sluicegate.contracts.errors import BadValue
from sluicegate.policies.client.call_result import CallResult, ResultKind, result_of_error
from sluicegate.resilience.errors.brokers import BROKERS
from sluicegate.resilience.errors.databases import DATABASES
from sluicegate.resilience.errors.http import HTTP
from sluicegate.resilience.errors.verdicts import (
    FAILED,
    UNREACHED,
    Found,
    Verdict,
    failed_tls,
    named,
    not_trusted,
)

# A type, several, or a function of the exception, as stamina takes them.
ErrorMatch: TypeAlias = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]

NO_MATCH: Final[ErrorMatch] = ()
_DEPTH_MAX: Final = 8  # of exceptions that wrap each other
_UNREACHABLE: Final = (
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
    errno.ENETDOWN,
    errno.EADDRNOTAVAIL,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOBUFS,
)
_BROKEN: Final = (errno.ENETRESET, errno.ENOTCONN, errno.ESHUTDOWN)
# How asyncio joins the errors of all addresses of a name, without a number.
_MANY: Final = "Multiple exceptions: [Errno"


def _os_error(error: OSError) -> Found:
    """An established connection may end with these too, so the work may have run."""
    if error.errno in _UNREACHABLE or str(error).startswith(_MANY):
        return CallResult(UNREACHED, error=error, unproven=True)
    return CallResult(FAILED, error=error) if error.errno in _BROKEN else None


def _group(error: ExceptionGroup) -> Found:
    """The first of its errors, as of a task group, if all are failures of backends."""
    errors = error.exceptions
    if any(result_of_driver_error(one, 1) is None for one in errors):
        return None
    return errors[0]


_STANDARD: Final[dict[str, Verdict]] = {
    **named("socket", gaierror=UNREACHED, herror=UNREACHED),
    **named("ssl", SSLCertVerificationError=not_trusted, SSLError=failed_tls),
    **named("builtins", ExceptionGroup=_group),
    **named("asyncio.exceptions", IncompleteReadError=FAILED),
}
_VERDICTS: Final[dict[str, Verdict]] = {**_STANDARD, **HTTP, **DATABASES, **BROKERS}


def result_of_driver_error(error: Exception, depth: int = 0) -> CallResult[object] | None:
    """Return the result that an exception stands for; None if it is a bug."""
    for base in type(error).__mro__:
        name = f"{base.__module__}.{base.__qualname__}"
        if name in _VERDICTS:
            return _judged(_VERDICTS[name], error, depth)
    found = result_of_error(error)
    if found is None and isinstance(error, OSError):
        return _judged(_os_error, error, depth)
    return found


def _judged(verdict: Verdict, error: Exception, depth: int) -> CallResult[object] | None:
    if verdict is None:
        return None
    if isinstance(verdict, ResultKind):
        return CallResult(verdict, error=error)
    found = verdict(error)
    if not isinstance(found, Exception):
        return found
    inner = result_of_driver_error(found, depth + 1) if depth < _DEPTH_MAX else None
    if inner is None:
        return CallResult(FAILED, error=error)
    inner.error = error
    return inner


@final
class ErrorRules:
    """Exceptions that a user names; `ignore` comes before `on`, and `on` before the tables."""

    __slots__ = ("_ignore", "_on")

    def __init__(self, on: ErrorMatch = NO_MATCH, ignore: ErrorMatch = NO_MATCH) -> None:
        self._on = _predicate("on", on)
        self._ignore = _predicate("ignore", ignore)

    def result_of(self, error: Exception) -> CallResult[object] | None:
        """Return the result that an exception stands for; None if it passes through uncounted."""
        if self._ignore is not None and self._ignore(error):
            return None
        found = result_of_driver_error(error)
        if self._on is None or not self._on(error):
            return found
        if found is None or found.kind is ResultKind.REJECTED:
            return CallResult(FAILED, error=error)
        return found


def _predicate(field: str, match: ErrorMatch) -> Callable[[Exception], bool] | None:
    if match == ():
        return None
    types: tuple[Any, ...] = match if isinstance(match, tuple) else (match,)
    if all(isinstance(one, type) and issubclass(one, Exception) for one in types):
        return lambda error: isinstance(error, types)
    if isinstance(match, type | tuple) or not callable(match):
        raise BadValue(field, match, "give an exception class, a tuple of them, or a function")
    return match


KNOWN_ERRORS: Final = ErrorRules()


def rules_of(on: ErrorMatch, ignore: ErrorMatch) -> ErrorRules | None:
    """Return the rules of one call; None if neither is given."""
    return None if on == () and ignore == () else ErrorRules(on, ignore)
