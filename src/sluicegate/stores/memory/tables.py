"""Tables: one for each way to count; how its kernel's state is packed, stepped and settled.

A state is a single integer where that is possible: the garbage collector does not look at integers,
so a million keys add nothing to its pauses. Nor does it look at bytes, which hold a row of cells.
The log is a flat tuple, which it stops tracking.

Every decision here is the kernel's; nothing else may live in this file than the packing around it.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final, final

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import BURSTING, Algorithm, Limit
from sluicegate.kernels import fixed_window, gcra, sliding_window, token_bucket
from sluicegate.kernels.pace import Pace, in_us, product
from sluicegate.stores.memory.table import KeyTable

_COUNTS: Final = (("B", 8), ("H", 16), ("I", 32), ("Q", 64))  # a count's code in `struct`, its bits


@final
class _PacedTable(KeyTable[int]):
    """GCRA and the token bucket without debt.

    State: the one instant, in ticks, that both keep (the theoretical arrival time; when the bucket
    is full again). They make the same comparison, so one step serves them; the tests hold it
    against both kernels.
    """

    __slots__ = ("_interval", "_per_us", "_tolerance")

    def __init__(self, rule_id: str, limit: Limit, keys_max: int) -> None:
        super().__init__(rule_id, limit, keys_max)
        pace = Pace(limit.count, limit.period_us)
        self._per_us = pace.ticks_per_us
        self._interval = pace.interval
        self._tolerance = limit.burst * pace.interval

    def _step(self, state: int | None, now_us: int, cost: int) -> tuple[int, bool, int, int, int]:
        per_us = self._per_us
        before = 0 if state is None else state
        if per_us == 1:
            return gcra.step(before, now_us, cost, self._interval, self._tolerance)
        stepped, allowed, remaining, retry, reset = gcra.step(
            before, product(now_us, per_us), cost, self._interval, self._tolerance
        )
        return stepped, allowed, remaining, in_us(retry, per_us), in_us(reset, per_us)

    def _at_rest(self, state: int, now_us: int) -> bool:
        return state <= product(now_us, self._per_us)

    def _settle(self, state: int | None, now_us: int, correction: int, taken_us: int) -> int:
        # All three are a bucket that is full at the instant they keep; a debt of one burst at most.
        now, charge = product(now_us, self._per_us), correction * self._interval
        if correction < 0 and taken_us < now_us:
            # What was taken has flowed back by itself one whole burst later, at the latest.
            owed = self._tolerance - product(now_us - taken_us, self._per_us)
            charge = max(charge, -owed) if owed > 0 else 0
        return token_bucket.settle(
            0 if state is None else state, now, charge, self._tolerance, self._tolerance
        )


@final
class _FixedWindowTable(KeyTable[int]):
    """State: window and count in one integer, `window * (limit + 1) + used`."""

    __slots__ = ()

    def _unpack(self, state: int | None) -> tuple[int, int]:
        if state is None:
            return 0, 0
        window = state // (self.limit.count + 1)
        return window, state - product(window, self.limit.count + 1)

    def _settle(self, state: int | None, now_us: int, correction: int, taken_us: int) -> int:
        limit, period_us = self.limit.count, self.limit.period_us
        window, used = self._unpack(state)
        window, used = fixed_window.settle(
            window, used, now_us, correction, taken_us, period_us, limit
        )
        return product(window, limit + 1) + used

    def _step(self, state: int | None, now_us: int, cost: int) -> tuple[int, bool, int, int, int]:
        limit, period_us = self.limit.count, self.limit.period_us
        window, used = self._unpack(state)
        window, used, allowed, retry_us = fixed_window.step(
            window, used, now_us, cost, period_us, limit
        )
        reset_us = (window + 1) * period_us - now_us if used else 0
        return product(window, limit + 1) + used, allowed, limit - used, retry_us, reset_us


@final
class _SlidingWindowTable(KeyTable[int]):
    """One cell a window. State: window and both counts in one integer, to the base `limit + 1`."""

    __slots__ = ()

    def _unpack(self, state: int | None) -> tuple[int, int, int]:
        if state is None:
            return 0, 0, 0
        base = self.limit.count + 1
        upper = state // base
        window = upper // base
        return window, upper - product(window, base), state - product(upper, base)

    def _pack(self, window: int, current: int, previous: int) -> int:
        base = self.limit.count + 1
        return product(product(window, base) + current, base) + previous

    def _settle(self, state: int | None, now_us: int, correction: int, taken_us: int) -> int:
        limit, window_us = self.limit.count, self.limit.period_us
        window, current, previous = self._unpack(state)
        window, current, previous = sliding_window.settle(
            window, current, previous, now_us, correction, taken_us, window_us, limit
        )
        return self._pack(window, current, previous)

    def _step(self, state: int | None, now_us: int, cost: int) -> tuple[int, bool, int, int, int]:
        limit, window_us = self.limit.count, self.limit.period_us
        window, current, previous = self._unpack(state)
        window, current, previous, allowed, remaining, retry_us = sliding_window.step(
            window, current, previous, now_us, cost, window_us, limit
        )
        reset_us = sliding_window.reset_us(window, current, previous, now_us, window_us)
        packed = self._pack(window, current, previous)
        return packed, allowed, remaining, retry_us, reset_us


@final
class _SlidingCellsTable(KeyTable[bytes]):
    """State: the number of the cell and all counts, in as few bytes as the limit fits in."""

    __slots__ = ("_cell_us", "_pack", "_unpack")

    def __init__(self, rule_id: str, limit: Limit, keys_max: int) -> None:
        super().__init__(rule_id, limit, keys_max)
        size = next(code for code, bits in _COUNTS if limit.count >> bits == 0)
        layout = Struct(f"<q{limit.cells + 1}{size}")
        self._pack = layout.pack
        self._unpack = layout.unpack
        self._cell_us = limit.period_us // limit.cells

    def _step(
        self, state: bytes | None, now_us: int, cost: int
    ) -> tuple[bytes, bool, int, int, int]:
        limit = self.limit
        counts, allowed, remaining, retry_us, reset_us = sliding_window.cells_step(
            () if state is None else self._unpack(state),
            now_us,
            cost,
            self._cell_us,
            limit.cells,
            limit.count,
        )
        # A refusal changes nothing, and is not kept.
        packed = self._pack(*counts) if allowed else b""
        return packed, allowed, remaining, retry_us, reset_us

    def _settle(self, state: bytes | None, now_us: int, correction: int, taken_us: int) -> bytes:
        limit = self.limit
        counts = sliding_window.cells_settle(
            () if state is None else self._unpack(state),
            now_us,
            correction,
            taken_us,
            self._cell_us,
            limit.cells,
            limit.count,
        )
        return self._pack(*counts)


@final
class _SlidingLogTable(KeyTable[tuple[int, ...]]):
    """State: the log itself, a flat tuple; time and memory grow with the limit."""

    __slots__ = ()

    def __init__(self, rule_id: str, limit: Limit, keys_max: int) -> None:
        super().__init__(rule_id, limit, keys_max)
        if limit.count > sliding_window.LOG_ENTRIES_MAX:
            raise BadValue(
                "limit.count",
                limit.count,
                f"an exact log holds at most {sliding_window.LOG_ENTRIES_MAX} entries a key; "
                "use sliding_window, whose memory does not grow with the limit",
            )

    def _step(
        self, state: tuple[int, ...] | None, now_us: int, cost: int
    ) -> tuple[tuple[int, ...], bool, int, int, int]:
        return sliding_window.log_step(
            () if state is None else state, now_us, cost, self.limit.period_us, self.limit.count
        )

    def _settle(
        self, state: tuple[int, ...] | None, now_us: int, correction: int, taken_us: int
    ) -> tuple[int, ...]:
        return sliding_window.log_settle(
            () if state is None else state,
            now_us,
            correction,
            taken_us,
            self.limit.period_us,
            self.limit.count,
        )


def table_for(rule_id: str, limit: Limit, keys_max: int) -> KeyTable[Any]:
    """Return a table that counts by the limit's algorithm."""
    if limit.cells > 1:
        return _SlidingCellsTable(rule_id, limit, keys_max)
    if limit.algorithm in BURSTING:
        return _PacedTable(rule_id, limit, keys_max)
    return _TABLES[limit.algorithm](rule_id, limit, keys_max)


_TABLES: Final[dict[Algorithm, Callable[[str, Limit, int], KeyTable[Any]]]] = {
    Algorithm.FIXED_WINDOW: _FixedWindowTable,
    Algorithm.SLIDING_WINDOW: _SlidingWindowTable,
    Algorithm.SLIDING_LOG: _SlidingLogTable,
}
