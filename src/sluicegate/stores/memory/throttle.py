"""Throttle: the keys of CL.THROTTLE in this process; the rate comes with each request.

The keys are kept as those of any rule are (`table.py`): in shards under one turn, swept of what is
at rest, and never forgetting a key that is limited at this moment. Only what a state is differs:
the instant a key's schedule has reached, and the one from which its last rate admits a unit again,
by which the table knows who is limited. A look (a quantity of 0) and a limited request keep
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from sluicegate.contracts.checks import ThrottleRequest, ThrottleResponse
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import Limit
from sluicegate.kernels import cell_throttle
from sluicegate.kernels.pace import product
from sluicegate.stores.memory.table import KeyTable, bounded_key

KEYS_MAX_DEFAULT: Final = 1_000_000

_US_NS: Final = 1_000
_NO_COUNT: Final = -(1 << 70)  # that no protocol can carry
_NO_LIMIT: Final = Limit(1, period_us=1)  # a table wants one; the requests bring theirs


@final
class _ThrottleKeys(KeyTable[tuple[int, int]]):
    """State: the TAT, and the instant from which one unit is admitted; both in nanoseconds.

    Most requests name the rate that the one before named, so what follows from it is kept.
    """

    __slots__ = ("_charge", "_interval", "_rate", "_tolerance")

    def __init__(self, rule_id: str, limit: Limit, keys_max: int) -> None:
        super().__init__(rule_id, limit, keys_max)
        self._rate = ThrottleRequest("", 0, _NO_COUNT, 0, 0)
        self._interval = self._tolerance = self._charge = 0

    def ask(self, ask: ThrottleRequest, now_us: int) -> ThrottleResponse:
        """Decide under the turn that the caller holds."""
        rate = self._rate
        if (
            rate.count != ask.count
            or rate.period_s != ask.period_s
            or rate.max_burst != ask.max_burst
            or rate.cost != ask.cost
        ):
            self._interval, self._tolerance, self._charge = quota_of(ask)
            self._rate = ThrottleRequest("", ask.max_burst, ask.count, ask.period_s, ask.cost)
        interval, tolerance, charge = self._interval, self._tolerance, self._charge
        key, now_ns = bounded_key(ask.key), product(now_us, _US_NS)
        index = self._index(key)
        shard = self._shards[index]
        state = shard.get(key)
        new, tracked = state is None, True
        full = self._keys >= self.keys_max or len(shard) >= self._sweep_at[index]
        if full and state is None and charge > 0:
            tracked = self._make_room(index, now_us)
            if not tracked:
                state = self._overflow
        tat_ns = 0 if state is None else state[0]
        stepped, limited, remaining, retry_ns, reset_ns = cell_throttle.step(
            tat_ns, now_ns, interval, tolerance, charge
        )
        if not limited and charge != 0 and not (new and charge < 0):
            self._keep(index, key, (stepped, stepped - tolerance + interval), new, tracked)
        seconds = cell_throttle.seconds
        return ThrottleResponse(
            limited, ask.max_burst + 1, remaining, seconds(retry_ns), seconds(reset_ns)
        )

    def _step(
        self, state: tuple[int, int] | None, now_us: int, cost: int
    ) -> tuple[tuple[int, int], bool, int, int, int]:
        """What sweeping asks: how far from being limited (the table forgets the farthest first)."""
        now_ns = now_us * _US_NS
        tat_ns, free_ns = (0, 0) if state is None else state
        headroom_ns = now_ns - free_ns + 1
        rest_ns = tat_ns - now_ns
        return (
            (tat_ns, free_ns),
            True,
            headroom_ns if headroom_ns > 0 else 0,
            0,
            rest_ns if rest_ns > 0 else 0,
        )

    def _at_rest(self, state: tuple[int, int], now_us: int) -> bool:
        return state[0] <= now_us * _US_NS

    def _settle(
        self, state: tuple[int, int] | None, now_us: int, correction: int, taken_us: int
    ) -> tuple[int, int]:
        """Nothing: what was not needed comes back as a negative quantity."""
        return (0, 0) if state is None else state


@final
class MemoryThrottle:
    """All keys of CL.THROTTLE in one process; any thread may ask."""

    __slots__ = ("_clock", "_keys")

    def __init__(self, clock: Callable[[], int], *, keys_max: int = KEYS_MAX_DEFAULT) -> None:
        self._clock = clock
        self._keys = _ThrottleKeys("CL.THROTTLE", _NO_LIMIT, keys_max)

    def throttle(self, ask: ThrottleRequest, now_us: int | None = None) -> ThrottleResponse:
        """Decide and count, at `now_us` or at the clock's instant; BadValue for what is no rate."""
        at_us = self._clock() if now_us is None else now_us
        keys = self._keys
        keys.lock.acquire()
        try:
            return keys.ask(ask, at_us)
        finally:
            keys.lock.release()

    def reset(self, key: str) -> None:
        """Forget what `key` has taken."""
        self._keys.reset(key)

    def __len__(self) -> int:
        """Return the number of keys tracked now, those at rest that are not swept yet included."""
        return len(self._keys)


def quota_of(ask: ThrottleRequest) -> tuple[int, int, int]:
    """Interval, tolerance and charge of a request; BadValue where there is no such rate."""
    try:
        return cell_throttle.quota(ask.max_burst, ask.count, ask.period_s, ask.cost)
    except ValueError as error:
        rate = f"{ask.count} every {ask.period_s} s, burst {ask.max_burst}, {ask.cost} at once"
        raise BadValue("throttle", rate, f"ask for a rate that can be counted: {error}") from None
