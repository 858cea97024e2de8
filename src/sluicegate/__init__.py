"""Sluicegate stands where work enters a service and decides, for every unit, whether it may enter.

    from sluicegate import Limiter

    limiter = Limiter("100/minute")
    decision = limiter.take("user:42")

The names below are the light ones; everything else is imported from the module that owns it.
"""

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, Refused, SluicegateError, Unavailable
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.limits.claims import Claim
from sluicegate.limits.limiter import Limiter
from sluicegate.limits.permits import Permits
from sluicegate.limits.reservation import Reservation
from sluicegate.limits.rule import Rule

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "BadValue",
    "Claim",
    "Criticality",
    "Decision",
    "Limit",
    "Limiter",
    "Permits",
    "Refused",
    "Reservation",
    "Rule",
    "SluicegateError",
    "Unavailable",
]
