"""Reservation: an estimate that was taken, to be settled once with the true cost.

    with limiter.reserve(caller, cost=800) as tokens:
        ...
        tokens.settle(true_cost)

If the block fails before it was settled, everything is given back. The settlement is charged
against the instant of the take: what counted in a window that has passed makes no room in this one.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, SupportsIndex, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.must_await import must_await
from sluicegate.contracts.store import Key
from sluicegate.stores.memory.table import LimitKeys

COST_MAX = 1 << 53


@final
class Reservation:
    """Settle it once, with what the work truly cost. True in a condition if it was admitted."""

    __slots__ = ("_key", "_keys", "_now_us", "_open", "_reserved", "_taken_us", "decision")

    def __init__(
        self,
        decision: Decision,
        reserved: int,
        keys: LimitKeys,
        key: Key,
        taken_us: int | None,
        now_us: Callable[[], int],
        *,
        charged: bool = True,
    ) -> None:
        self._reserved = reserved
        self._keys = keys
        self._key = key
        self._taken_us = taken_us
        self._now_us = now_us
        # What was admitted without the store has nothing there to settle.
        self._open = charged and decision.allowed and not decision.degraded
        self.decision = decision

    def settle(self, cost: SupportsIndex) -> bool:
        """Charge the true cost in place of the estimate; False if it was settled before."""
        correction = self._close(cost)
        if correction:
            self._keys.settle(self._key, correction, self._now_us(), self._taken_us)
        return correction is not None

    def asettle(self, cost: SupportsIndex) -> Coroutine[Any, Any, bool]:
        """`settle`, for asyncio."""
        return must_await(self._asettle(cost), "Reservation.asettle")

    async def _asettle(self, cost: SupportsIndex) -> bool:
        correction = self._close(cost)
        if correction:
            await self._keys.asettle(self._key, correction, self._now_us(), self._taken_us)
        return correction is not None

    def cancel(self) -> bool:
        """Give the estimate back: the work was not done. False if it was settled before."""
        return self.settle(0)

    def acancel(self) -> Coroutine[Any, Any, bool]:
        """`cancel`, for asyncio."""
        return must_await(self._acancel(), "Reservation.acancel")

    async def _acancel(self) -> bool:
        return await self.asettle(0)

    def _close(self, cost: SupportsIndex) -> int | None:
        units = cost.__index__() if hasattr(cost, "__index__") else -1
        if not 0 <= units <= COST_MAX:
            raise BadValue("cost", cost, "give a whole number from 0 to 2^53")
        if not self._open:
            return None
        self._open = False
        return units - self._reserved

    def __bool__(self) -> bool:
        return self.decision.allowed

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if kind is not None:
            self.cancel()

    async def __aenter__(self) -> Reservation:
        return self

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        if kind is not None:
            await self.acancel()


@final
class Reservations:
    """Estimates that were taken together. True in a condition if they were admitted.

    They are settled together, or each by itself: `parts` has them in the order of the claims.
    """

    __slots__ = ("decision", "parts")

    def __init__(self, decision: Decision, parts: Sequence[Reservation]) -> None:
        self.decision = decision
        self.parts = tuple(parts)

    def settle(self, *costs: SupportsIndex) -> bool:
        """Charge the true costs in place of the estimates; False if all were settled before."""
        settled = [part.settle(cost) for part, cost in self._with(costs)]
        return any(settled)

    def asettle(self, *costs: SupportsIndex) -> Coroutine[Any, Any, bool]:
        """`settle`, for asyncio."""
        return must_await(self._asettle(costs), "Reservations.asettle")

    async def _asettle(self, costs: tuple[SupportsIndex, ...]) -> bool:
        settled = False
        for part, cost in self._with(costs):
            settled = await part.asettle(cost) or settled
        return settled

    def cancel(self) -> bool:
        """Give all estimates back: the work was not done. False if all were settled before."""
        return self.settle(*[0 for _ in self.parts])

    def acancel(self) -> Coroutine[Any, Any, bool]:
        """`cancel`, for asyncio."""
        return must_await(self._asettle(tuple([0 for _ in self.parts])), "Reservations.acancel")

    def _with(self, costs: tuple[SupportsIndex, ...]) -> list[tuple[Reservation, SupportsIndex]]:
        if len(costs) != len(self.parts):
            remedy = f"give the true cost of each of the {len(self.parts)} claims, in their order"
            raise BadValue("costs", costs, remedy)
        return list(zip(self.parts, costs, strict=True))

    def __bool__(self) -> bool:
        return self.decision.allowed

    def __enter__(self) -> Reservations:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if kind is not None:
            self.cancel()

    async def __aenter__(self) -> Reservations:
        return self

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        if kind is not None:
            await self.acancel()
