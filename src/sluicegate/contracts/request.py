"""Request: one unit of work as the policies see it, whatever door it came through.

A plain value. The doors fill it from their protocol; what is not known has a default that claims
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from sluicegate.contracts.criticality import DEFAULT_CRITICALITY, Criticality
from sluicegate.kernels.native import mypyc_attr

NO_ATTRIBUTES: Final[Mapping[str, str]] = {}


@final
@mypyc_attr(acyclic=True, free_list_len=1)
class Measured:
    """What the work turned out to be; set before its permits end, and never changed.

    `service_us` is the time in the backend, without any queue of ours; `rows` were looked at, not
    returned.
    """

    __slots__ = ("from_cache", "rows", "service_us", "size_bytes")

    def __init__(
        self, service_us: int = 0, rows: int = 0, size_bytes: int = 0, from_cache: bool = False
    ) -> None:
        self.service_us = service_us
        self.rows = rows
        self.size_bytes = size_bytes
        self.from_cache = from_cache

    def _fields(self) -> tuple[int, int, int, bool]:
        return self.service_us, self.rows, self.size_bytes, self.from_cache

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Measured) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        return (
            f"Measured(service_us={self.service_us}, rows={self.rows}, "
            f"size_bytes={self.size_bytes}, from_cache={self.from_cache})"
        )


@final
@mypyc_attr(acyclic=True, free_list_len=1)
class Request:
    """Caller, operation, cost, criticality, and until when an answer is of use.

    `operation` is its class (get, scan, put), `shard` the part of the service or the dependency
    that it needs, `table` the data that it is about. `cost_ru` is what it is predicted to cost,
    rounded up, `cost_mru` what its caller is charged in thousandths, `price_milli` the price of
    that, `over_quota` whether it was admitted though its budget is spent, `measured` what it did,
    and `late_us` how late our event loop was meanwhile, which `measured` leaves out.
    """

    __slots__ = (
        "arrived_us",
        "attributes",
        "caller",
        "cost",
        "cost_mru",
        "cost_ru",
        "criticality",
        "deadline_us",
        "key",
        "late_us",
        "measured",
        "operation",
        "over_quota",
        "price_milli",
        "shard",
        "table",
    )

    def __init__(
        self,
        key: str,
        *,
        caller: str = "",
        cost: int = 1,
        criticality: Criticality = DEFAULT_CRITICALITY,
        arrived_us: int = 0,
        deadline_us: int | None = None,
        operation: str = "",
        shard: str = "",
        table: str = "",
        attributes: Mapping[str, str] = NO_ATTRIBUTES,
    ) -> None:
        self.key = key
        self.caller = caller
        self.cost = cost
        self.criticality = criticality
        self.arrived_us = arrived_us
        self.deadline_us = deadline_us
        self.operation = operation
        self.shard = shard
        self.table = table
        self.cost_ru = cost
        self.cost_mru = cost * 1_000
        self.price_milli = 1_000
        self.over_quota = False
        self.late_us = 0
        self.measured: Measured | None = None
        self.attributes = attributes

    def copy(self, attributes: Mapping[str, str] | None = None) -> Request:
        """Return a request with the same claims; nothing is predicted or measured of it."""
        return Request(
            self.key,
            caller=self.caller,
            cost=self.cost,
            criticality=self.criticality,
            arrived_us=self.arrived_us,
            deadline_us=self.deadline_us,
            operation=self.operation,
            shard=self.shard,
            table=self.table,
            attributes=self.attributes if attributes is None else attributes,
        )

    def remaining_us(self, now_us: int) -> int | None:
        """The time left before the deadline, never below zero; None if there is no deadline."""
        if self.deadline_us is None:
            return None
        return max(self.deadline_us - now_us, 0)


def make_request(
    key: str,
    *,
    caller: str = "",
    cost: int = 1,
    criticality: Criticality = DEFAULT_CRITICALITY,
    arrived_us: int = 0,
    deadline_us: int | None = None,
    operation: str = "",
    shard: str = "",
    table: str = "",
    attributes: Mapping[str, str] = NO_ATTRIBUTES,
) -> Request:
    """Return `Request(...)`, for code that is not compiled and makes one for each call.

    A compiled class looks up each of its keywords by its text, which takes a microsecond; a
    compiled function does not.
    """
    return Request(
        key,
        caller=caller,
        cost=cost,
        criticality=criticality,
        arrived_us=arrived_us,
        deadline_us=deadline_us,
        operation=operation,
        shard=shard,
        table=table,
        attributes=attributes,
    )
