"""Quota asks: what a caller asked of its budget, as a check that a capture can keep.

/charge/OPERATION/TABLE    user: the caller, cost: milli-RU at its price, priority: its class
/charge/cached             the same for an answer from memory
/settle/more, /settle/back what a charge was corrected by afterwards
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sluicegate.contracts.checks import CheckRequest
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.request import Request

_CHARGE: Final = "charge"
_MORE: Final = "/settle/more"
_BACK: Final = "/settle/back"
_CACHED: Final = "/charge/cached"


class Asked(NamedTuple):
    """A charge, or a correction if it has no operation."""

    caller: str
    mru: int
    operation: str
    table: str
    criticality: Criticality | None


def charge_of(caller: str, mru: int, request: Request | None) -> CheckRequest:
    """A charge; without a request it was for an answer from memory."""
    if request is None:
        return CheckRequest(caller, _CACHED, cost=mru)
    path = f"/{_CHARGE}/{request.operation}/{request.table}"
    return CheckRequest(caller, path, cost=mru, priority=request.criticality)


def settlement_of(caller: str, mru: int) -> CheckRequest:
    """A correction; below zero it was given back."""
    return CheckRequest(caller, _MORE if mru > 0 else _BACK, cost=abs(mru))


def read_asked(query: CheckRequest) -> Asked | None:
    """What was captured; None if it is of another service."""
    if query.resource_path in (_MORE, _BACK):
        mru = query.cost if query.resource_path == _MORE else -query.cost
        return Asked(query.user_id, mru, "", "", None)
    parts = query.resource_path.split("/", 3)
    if len(parts) < 3 or parts[0] or parts[1] != _CHARGE:
        return None
    table = parts[3] if len(parts) > 3 else ""
    return Asked(query.user_id, query.cost, parts[2], table, query.priority)
