"""Headgate stands where work enters a service and decides, for every unit, whether it may enter.

    from headgate import Limiter

    limiter = Limiter("100/minute")
    decision = limiter.take("user:42")

The names below are the light ones; everything else is imported from the module that owns it.
"""

from headgate.contracts.criticality import Criticality
from headgate.contracts.decision import Decision
from headgate.contracts.errors import BadValue, HeadgateError, Refused, Unavailable
from headgate.contracts.rule import Algorithm, Limit
from headgate.limits.claims import Claim
from headgate.limits.limiter import Limiter
from headgate.limits.permits import Permits
from headgate.limits.reservation import Reservation
from headgate.limits.rule import Rule

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "BadValue",
    "Claim",
    "Criticality",
    "Decision",
    "HeadgateError",
    "Limit",
    "Limiter",
    "Permits",
    "Refused",
    "Reservation",
    "Rule",
    "Unavailable",
]
