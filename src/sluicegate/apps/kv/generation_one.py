"""Generation one: a caller's requests a second, counted in the store by the minute.

The limiter that Mussel began with, as a baseline: every request counts one, whatever it costs, on
one counter a caller a minute; beyond the quota it is 429. Counting is the store's fixed window
(`kernels/fixed_window.py`), so a caller may spend its whole minute in the first second, and two of
them across an edge. Each request costs a round trip, shared by those of one tick of the loop;
without a store it counts here. When the store does not answer, `failure` decides: `local` counts
here against the whole quota, `open` admits, `closed` refuses; such a decision is marked degraded.

Bound: `callers_max` counted here; what the store counts expires with its minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, final

from sluicegate.apps.kv.store_watch import StoreWatch
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.policy import NOTHING_HELD, Admission
from sluicegate.contracts.reasons import STORE_UNAVAILABLE
from sluicegate.contracts.request import Request
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.contracts.store import Charge, Store
from sluicegate.policies.settings import within
from sluicegate.stores.memory.store import MemoryStore

NAME: Final = "generation_one"
WATCHED: Final = "minute quota"  # as the store's watch knows this
MINUTE_S: Final = 60
MINUTE_US: Final = 60_000_000
FAILURES: Final = ("local", "open", "closed")
QPS_MAX: Final = 1 << 40
CALLERS_MAX: Final = 1 << 24
NO_QUOTAS: Final[Mapping[str, int]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationOneSettings:
    """Requests a second, each; a minute's worth is what is counted."""

    qps: int = 1_000  # of whoever is not named
    qps_by_caller: Mapping[str, int] = field(default_factory=lambda: NO_QUOTAS)
    failure: str = "local"
    callers_max: int = 100_000

    def __post_init__(self) -> None:
        within("generation_one.qps", self.qps, 1, QPS_MAX)
        within("generation_one.callers_max", self.callers_max, 1, CALLERS_MAX)
        if self.failure not in FAILURES:
            raise BadValue(
                "generation_one.failure", self.failure, f"give one of {', '.join(FAILURES)}"
            )
        if len(self.qps_by_caller) > self.callers_max:
            raise BadValue(
                "generation_one.qps_by_caller",
                len(self.qps_by_caller),
                f"name at most callers_max ({self.callers_max:,})",
            )
        for caller, qps in self.qps_by_caller.items():
            within(f"generation_one.qps_by_caller.{caller}", qps, 1, QPS_MAX)


class GenerationOneStats(NamedTuple):
    """Counts since the beginning."""

    admitted: int
    refused: int
    unanswered: int


@final
class GenerationOne:
    """Counts requests; a `WaitingPolicy`."""

    def __init__(
        self, settings: GenerationOneSettings, clock: Clock, *, store: Store | None = None
    ) -> None:
        self.settings = settings
        self.watch: StoreWatch | None = None  # who hears whether the store answers
        self._here = MemoryStore(clock.now_us, keys_max=settings.callers_max)
        self._store: Store = self._here if store is None else store
        self._default = _limit(settings.qps)
        self._limits = {caller: _limit(qps) for caller, qps in settings.qps_by_caller.items()}
        self._admitted = self._refused = self._unanswered = 0

    async def admit(self, request: Request, clock: Clock) -> Admission:
        """Count one."""
        limit = self._limits.get(request.caller, self._default)
        charge = Charge(f"{NAME}-{limit.count}", limit, request.caller, 1)
        degraded = False
        try:
            decision = (await self._store.take([charge])).decisions[0]
        except Unavailable as error:
            self._unanswered += 1
            degraded = True
            if self.watch is not None:
                self.watch.failed(WATCHED, error)
            decision = await self._without_store(charge)
        else:
            if self.watch is not None:
                self.watch.answered(WATCHED)
        if decision.allowed:
            self._admitted += 1
            return NOTHING_HELD
        self._refused += 1
        return Decision(
            False,
            decision.remaining,
            decision.retry_after_us,
            decision.reset_after_us,
            decision.reason,
            NAME,
            degraded,
        )

    async def connect(self) -> None:
        """Connect to the store, or find out that it cannot be now."""
        connect = getattr(self._store, "connect", None)
        if connect is not None:
            await connect()

    async def close(self) -> None:
        """Give the store back."""
        await self._store.close()

    def stats(self) -> GenerationOneStats:
        """What has been decided so far."""
        return GenerationOneStats(self._admitted, self._refused, self._unanswered)

    async def _without_store(self, charge: Charge) -> Decision:
        if self.settings.failure == "local":
            return (await self._here.take([charge])).decisions[0]
        reason = STORE_UNAVAILABLE if self.settings.failure == "closed" else None
        return Decision(reason is None, 0, 0, 0, reason, NAME)


def _limit(qps: int) -> Limit:
    return Limit(qps * MINUTE_S, period_us=MINUTE_US, algorithm=Algorithm.FIXED_WINDOW)
