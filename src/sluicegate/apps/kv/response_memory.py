"""Response memory: how much has been read for unfinished responses, and how much may be read next.

The size of a value is unknown before it is read. So a multi-get reads as many places at a time as
its response has room for, by the sizes seen in that table; for an unknown table each place counts
as the largest value. A larger size is believed at once, a smaller one gradually. What exceeds its
estimate is read once, and counted from then on.

Bounds: `RESPONSE_BYTES_MAX` over all scans and multi-gets, `PLACES_AT_ONCE_MAX` places and
`BYTES_AT_ONCE_MAX` at a time, `WEIGHTS_MAX` tables.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.key_values import Row
from sluicegate.contracts.reasons import OVERLOADED

PLACES_AT_ONCE_MAX: Final = 100  # places that enter together
PLACES_OF_PARTITION_MAX: Final = 1_000  # that are read at one instant: the loop waits for them
BYTES_AT_ONCE_MAX: Final = 128 << 20  # of values that may be read before they are counted
VALUES_BYTES_MAX: Final = 16 << 20  # of what a multi-get answers
RESPONSE_BYTES_MAX: Final = 128 << 20  # by all scans and multi-gets together
WEIGHTS_MAX: Final = 10_000  # tables whose weight is known
_UNKNOWN_PART: Final = 16  # most values are far from the largest: so is what is set aside for them
_FORGETTING_BITS: Final = 3  # of what a place weighed less than before, an eighth is believed
_GATHERING: Final = Decision(False, 0, 100_000, 100_000, OVERLOADED, "gathered")


@final
class ResponseMemory:
    """The bytes of unfinished responses, and the size of a place by its table."""

    __slots__ = ("_together", "_value_bytes_max", "_weights", "size_bytes")

    def __init__(self, value_bytes_max: int) -> None:
        self.size_bytes = 0
        self._value_bytes_max = value_bytes_max
        self._weights: dict[str, int] = {}  # what is not there counts with it
        self._together = max(1, min(PLACES_AT_ONCE_MAX, BYTES_AT_ONCE_MAX // value_bytes_max))

    def check(self) -> None:
        """Refuse while what has been gathered for answers is as much as it may be."""
        if self.size_bytes >= RESPONSE_BYTES_MAX:
            raise Refused(_GATHERING)

    def places_at_once(self, table: str, left_bytes: int) -> int:
        """How many places to read at a time, where the answer has so much room left."""
        weight = self._weights.get(table, self._value_bytes_max)
        together = self._together
        if weight * together <= left_bytes:
            return together
        return min(together, max(0, left_bytes) // weight + 1)

    def places_of_partition(self, table: str) -> int:
        """How many places of one partition may be read at a time, whatever room there is."""
        weight = self._weights.get(table, self._value_bytes_max)
        return max(self._together, min(PLACES_OF_PARTITION_MAX, VALUES_BYTES_MAX // max(1, weight)))

    def record_size(self, table: str, bytes_each: int) -> None:
        """So much did each place weigh."""
        weights = self._weights
        before = weights.get(table, -1)
        if bytes_each == before:
            return
        if bytes_each < before:
            bytes_each = before - max(1, (before - bytes_each) >> _FORGETTING_BITS)
        elif before < 0 and len(weights) >= WEIGHTS_MAX:
            weights.clear()
        weights[table] = bytes_each

    def reserve(self, table: str, places: int, until: asyncio.Future[Sequence[Row | None]]) -> None:
        """Keep room for what so many places should weigh until they are here, however it ends."""
        weight = self._weights.get(table, self._value_bytes_max // _UNKNOWN_PART)
        reserved = min(VALUES_BYTES_MAX, weight * places)
        self.size_bytes += reserved
        until.add_done_callback(partial(self._give_back, reserved))

    def _give_back(self, reserved: int, _: asyncio.Future[Sequence[Row | None]]) -> None:
        self.size_bytes -= reserved
