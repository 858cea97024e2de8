"""Attempts to log in: their log, and a limit on the failed ones of each address.

Each login, failed login and logout is one line of the logger `sluicegate.console`, with the address
and the person; a token is never part of it. An address with `FAILED_RATE` failures is rejected
before its token is checked. Bounds: `ADDRESSES_MAX` addresses.
"""

from __future__ import annotations

import logging
from typing import Final, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.doors.headers import retry_after_s
from sluicegate.doors.http.message import HttpRequest
from sluicegate.limits.limiter import Limiter

FAILED_RATE: Final = "30/minute"
ADDRESSES_MAX: Final = 10_000
_WHY_CHARS_MAX: Final = 200

_log: Final = logging.getLogger("sluicegate.console")


@final
class LoginAttempts:
    """The logins of one console, by any way in."""

    __slots__ = ("_failed",)

    def __init__(self, clock: Clock) -> None:
        self._failed = Limiter(FAILED_RATE, clock=clock, keys_max=ADDRESSES_MAX)

    def rejected(self, request: HttpRequest) -> int:
        """Return the seconds until this address may try again; 0 if it may now."""
        decision: Decision = self._failed.peek(request.peer.host)
        return 0 if decision.allowed else retry_after_s(decision)

    def failed(self, request: HttpRequest, way: str, why: str) -> None:
        """Log a failed login and count it against its address."""
        self._failed.take(request.peer.host)
        shown = ascii(why[:_WHY_CHARS_MAX])[1:-1]
        _log.warning("login failed: by %s, from %s: %s", way, _address(request), shown)

    def succeeded(self, request: HttpRequest, way: str, name: str) -> None:
        """Log a login."""
        _log.info("login: %a by %s, from %s", name, way, _address(request))

    def ended(self, request: HttpRequest, name: str) -> None:
        """Log a logout."""
        _log.info("logout: %a, from %s", name, _address(request))


def _address(request: HttpRequest) -> str:
    return request.peer.host or "a Unix socket"
