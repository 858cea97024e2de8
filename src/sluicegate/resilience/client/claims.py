"""Claims of a client: what its requests say of themselves, and what they take from the request that
is being served, so that a chain of calls keeps one deadline and one class.

A class that a call states itself stands; else it is that of the served request. `ResilientClient`
binds the deadline; here is what an attempt has of it, in the form of `doors/claims.py`: the backend
need not work for longer than its caller waits.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

from sluicegate.contracts.criticality import DEFAULT_CRITICALITY, Criticality
from sluicegate.contracts.request import Request, make_request
from sluicegate.doors.claims import (
    CRITICALITY,
    DEADLINE_MS,
    LEFT_MS_MAX,
    criticality_of,
    left_us_of,
)
from sluicegate.resilience.client.calls import Call, ResilientClient
from sluicegate.resilience.client.http_results import FieldValues
from sluicegate.resilience.context import served_request

CRITICALITY_FIELD: Final = CRITICALITY.decode("ascii")
DEADLINE_FIELD: Final = DEADLINE_MS.decode("ascii")
NO_CLAIMS: Final[Sequence[tuple[str, str]]] = ()


def class_of(own: Criticality | None = None) -> Criticality:
    """Return the class of a call: its own, that of what is being served, or the default."""
    if own is not None:
        return own
    served = served_request()
    return DEFAULT_CRITICALITY if served is None else served.criticality


def claims_of(call: Call, left_us: int) -> Sequence[tuple[str, str]]:
    """Return the fields of this attempt, each to replace what a request has of that name."""
    if not call.makes_claims:
        return NO_CLAIMS
    left = (DEADLINE_FIELD, str(min(left_us // 1_000, LEFT_MS_MAX)))
    criticality = call.request.criticality
    return (left,) if criticality is DEFAULT_CRITICALITY else (left, *class_claims(criticality))


def class_claims(criticality: Criticality) -> Sequence[tuple[str, str]]:
    """Return the field of a class; silence is the default's."""
    if criticality is DEFAULT_CRITICALITY:
        return NO_CLAIMS
    return ((CRITICALITY_FIELD, criticality.name.lower().replace("_", "-")),)


def request_of(
    client: ResilientClient,
    method: str,
    host: str,
    port: int | str,
    path: str,
    names: Container[str],
    values: FieldValues,
) -> Request:
    """Return what the policies judge by: the backend is host and port, the operation the method.

    Claims of the request itself bind it; one that cannot be understood raises `BadValue`. `names`
    are those of its fields, found in any case.
    """
    own: Criticality | None = None
    deadline_us: int | None = None
    if CRITICALITY_FIELD in names:
        own = criticality_of(_raw(values(CRITICALITY_FIELD)))
    if DEADLINE_FIELD in names:
        deadline_us = client.deadline_us(left_us_of(_raw(values(DEADLINE_FIELD))))
    return make_request(
        path,
        shard=f"{host}:{port}",
        operation=method,
        criticality=class_of(own),
        deadline_us=deadline_us,
    )


def _raw(values: Sequence[str]) -> list[bytes]:
    return [value.encode("latin-1", "replace") for value in values]
