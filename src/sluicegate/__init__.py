"""Sluicegate stands where work enters a service and decides, for every unit, whether it may enter.

    from sluicegate import Limiter

    limiter = Limiter("100/minute")
    decision = limiter.take("user:42")

The names below are the light ones, and a few that are imported when they are first asked for;
everything else is imported from the module that owns it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, Refused, SluicegateError, Unavailable
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.limits.claims import Claim
from sluicegate.limits.limiter import Limiter
from sluicegate.limits.permits import Permits
from sluicegate.limits.reservation import Reservation, Reservations
from sluicegate.limits.rule import Rule

if TYPE_CHECKING:
    from sluicegate.client import Client, SyncClient
    from sluicegate.doors.endpoint_limit import LimiterGuard
    from sluicegate.doors.headers import response_headers
    from sluicegate.rules.web.guard import RulesGuard

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "BadValue",
    "Claim",
    "Client",
    "Criticality",
    "Decision",
    "Limit",
    "Limiter",
    "LimiterGuard",
    "Permits",
    "Refused",
    "Reservation",
    "Reservations",
    "Rule",
    "RulesGuard",
    "SluicegateError",
    "SyncClient",
    "Unavailable",
    "response_headers",
]

# What needs a package of its own, or much to import.
_LATER: Final = {
    "Client": "sluicegate.client",
    "LimiterGuard": "sluicegate.doors.endpoint_limit",
    "RulesGuard": "sluicegate.rules.web.guard",
    "SyncClient": "sluicegate.client",
    "response_headers": "sluicegate.doors.headers",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'sluicegate' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_LATER[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
