"""Policy chain: the policies of a dispatcher, in the order in which they decide.

    layers           criticality, request units, then one queue and one limit for each shard
    mussel           criticality, request units at prices by class, a CoDel pool
    generation-one   criticality, a counter a minute for each caller, a plain pool
    none             a plain pool: a queue in front of a few slots, and nothing else

The first is the default; the others show the step from one to the next (`sluicegate lab drill`).
Hot keys are served before all of them (`shield/shield.py`). The cost of an operation depends on
its class, rows and bytes: a get, a multi-get, a chunk of a scan, a put, a batch, a chunk of a bulk
upload.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, final

from sluicegate.apps.kv.settings import KvSettings
from sluicegate.apps.kv.usage import CallerUsage
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.policy import WaitingPolicy
from sluicegate.contracts.request import Request
from sluicegate.kernels.cost_model import Weights, read_weights, write_weights
from sluicegate.policies.admission.gate import Gate, GatePermit
from sluicegate.policies.admission.pressure import (
    Pressure,
    SlowResource,
    limit_of,
    pressure_of,
    slow_resources,
)
from sluicegate.policies.admission.settings import GateSettings
from sluicegate.policies.criticality import CriticalityClamp, CriticalitySettings
from sluicegate.policies.forms.mussel.form import MusselChain, MusselSettings
from sluicegate.policies.forms.pool import QueuePool
from sluicegate.policies.quota.budgets import Budget
from sluicegate.policies.quota.request_units import RequestUnits, RequestUnitsSettings
from sluicegate.policies.stack import Stack, StackObserver, StackPermit, StackStage, at_once, waits

GET: Final = "get"
MULTI_GET: Final = "multi-get"
SCAN: Final = "scan"
PUT: Final = "put"
SWAP: Final = "swap"
BULK: Final = "bulk"
OPERATIONS: Final = (GET, MULTI_GET, SCAN, PUT, SWAP, BULK)
ESTIMATES_MAX: Final = 10_000  # of tables, operations and callers
PLAIN_SLOTS: Final = 64  # of the pools that do not find their limit
LAGGING_US: Final = 20_000  # a loop so late is the bottleneck
# RU a byte, a millisecond, a row: until `sluicegate kv calibrate` has measured an engine. A read of
# a KiB adds a quarter of a request; the seed sets the cost of a written page.
_READ: Final = read_weights(0.25 / 1_024, 0.1, 0.1)
_WRITE: Final = write_weights(1.0, 0.1, 0.1)
_PLAIN_WAIT_US: Final = 3_600_000_000  # in a plain pool a request waits as long as its caller


def default_weights() -> dict[str, Weights]:
    """Return the cost of operations before it has been measured."""
    writes = (PUT, SWAP, BULK)
    return {name: _WRITE if name in writes else _READ for name in OPERATIONS}


@final
class PolicyChain:
    """The stack, and the policies in it that others need to know."""

    def __init__(
        self,
        settings: KvSettings,
        usage: CallerUsage,
        *,
        budget: Budget,
        weights: Mapping[str, Weights],
        minute_quota: WaitingPolicy | None = None,
        spans: StackObserver | None = None,
        size_bytes: Callable[[Request], int] | None = None,
    ) -> None:
        self.layered = settings.charges
        self.classed = settings.policy != "none"  # else all are alike
        self.budget = budget
        self.usage = usage
        self.deadline_us = 1_000 * settings.deadline_ms  # of requests that name none; 0: none
        self.lag_us = 0  # how late the event loop was last seen
        self.busy_share = 0.0  # of the event loop
        self.clamp = CriticalityClamp(CriticalitySettings())
        self.gate: Gate | None = None
        self.pool: QueuePool | None = None
        self.mussel: MusselChain | None = None
        slots = settings.slots or PLAIN_SLOTS
        if settings.policy == "layers":
            self.gate = Gate(
                GateSettings(
                    slots=settings.slots,
                    members=max(1, settings.members),
                    length_max=settings.queue_length,
                    bytes_max=settings.queue_bytes,
                ),
                size_bytes=size_bytes,
            )
        elif settings.policy == "mussel":
            pool = MusselSettings(
                slots=slots, length_max=settings.queue_length, bytes_max=settings.queue_bytes
            )
            self.mussel = MusselChain(pool, self.clamp, size_bytes)
            self.pool = self.mussel.pool
        else:
            self.pool = QueuePool(
                name="queue",
                slots=slots,
                timeout_us=_plain_wait_us,
                drop=_never,
                length_max=settings.queue_length,
                bytes_max=settings.queue_bytes,
                size_bytes=size_bytes,
            )
        self.units = RequestUnits(
            RequestUnitsSettings(
                weights=weights[GET],
                operations=weights,
                settle=settings.learn,
                estimates_max=ESTIMATES_MAX if settings.learn else 0,
            ),
            budget=budget,
            pricing=None if self.mussel is None else self.mussel.prices,
            displaces=None if self.gate is None else self.gate.displaces,
        )
        observers: list[StackObserver] = [usage]
        if self.mussel is not None:
            observers += self.mussel.observers()
        if spans is not None:
            observers.append(spans)
        self.stack = Stack(*self._stages(settings.policy, minute_quota), observers=observers)

    def _stages(self, policy: str, minute_quota: WaitingPolicy | None) -> list[StackStage]:
        if self.gate is not None:
            return [
                at_once("criticality", self.clamp),
                at_once("request units", self.units),
                waits("queue", self.gate),
            ]
        if self.mussel is not None:
            return self.mussel.stages(self.units)
        assert self.pool is not None  # one of the three is there
        if policy == "none":
            return [waits("queue", self.pool)]
        assert minute_quota is not None  # `generation-one` is given one
        return [
            at_once("criticality", self.clamp),
            waits("minute quota", minute_quota),
            waits("queue", self.pool),
        ]

    def change(self, settings: KvSettings) -> None:
        """Apply the live settings."""
        self.deadline_us = 1_000 * settings.deadline_ms

    def set_lag(self, lag_us: int) -> None:
        """Set how late the event loop is."""
        self.lag_us = lag_us
        if self.gate is not None:
            self.gate.lagging = lag_us >= LAGGING_US

    @property
    def prices_milli(self) -> tuple[int, ...]:
        """The price of a request unit for each class, in thousandths; empty: there are none."""
        return () if self.mussel is None else self.mussel.prices.prices_milli()

    def pressure(self, now_us: int) -> Pressure:
        """Return how much waits, and how slow the slowest shard is."""
        return pressure_of(self.gate, self.pool, self.lag_us, now_us)

    def slow(self) -> list[SlowResource]:
        """Return the shards that take longer than usual, the slowest first."""
        return [] if self.gate is None else slow_resources(self.gate)

    def limit_of(self, shard: str) -> tuple[int, str]:
        """Return the limit of a shard, 0 for no limit, and its origin."""
        if self.gate is None:
            assert self.pool is not None  # one of them is there
            return self.pool.slots, "set"
        return limit_of(self.gate, shard)

    def requeue(self, request: Request, now_us: int) -> bool:
        """Move a waiting request to the class that it has now; False if it does not wait."""
        return self.gate is not None and self.gate.requeue(request, now_us)

    def record_hung_up(self, permit: StackPermit, now_us: int) -> None:
        """The caller of work in the engine has hung up."""
        if self.gate is not None:
            for held in permit.held:
                if isinstance(held, GatePermit):
                    self.gate.record_hung_up(held, now_us)

    def replace_classes(self, highest: Mapping[str, Criticality]) -> None:
        """The highest class of each caller is another from now on."""
        self.clamp.replace(highest)


def _plain_wait_us(queued: int, now_us: int) -> int:
    return _PLAIN_WAIT_US


def _never(waited_us: int, now_us: int) -> bool:
    return False
