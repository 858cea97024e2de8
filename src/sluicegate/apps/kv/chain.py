"""Policy chain: the policies of a dispatcher, in the order in which they decide.

    layers           deadline, criticality, request units, shed, heavy lane, queue, bulkhead
    mussel           criticality, priced request units, a CoDel pool (`policies/forms/mussel`)
    generation-one   criticality, a counter a minute for each caller, a plain pool
    none             a plain pool: a queue in front of a few places, and nothing else

The first is what the dispatcher is for; the others show the step from one to the next
(`sluicegate lab drill`). `policies/stack.py` explains the order with numbers. Hot keys are served
before all of them (`shield/shield.py`). The cost of an operation depends on its class, rows and
bytes: a get, a multi-get, a chunk of a scan, a put, a batch, a chunk of a bulk upload.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, final

from sluicegate.apps.kv.settings import KvSettings
from sluicegate.apps.kv.usage import CallerUsage
from sluicegate.contracts.chance import Chance
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.policy import WaitingPolicy
from sluicegate.contracts.request import Request
from sluicegate.kernels.cost_model import Weights, read_weights, write_weights
from sluicegate.kernels.place_search import PLACES_MAX
from sluicegate.kernels.token_bucket import PRICE_ONE_MILLI
from sluicegate.kernels.utilization_shed import RampSettings
from sluicegate.policies.budgets import Budget, Pricing
from sluicegate.policies.bulkhead import Bulkhead, BulkheadSettings
from sluicegate.policies.criticality import CriticalityClamp, CriticalitySettings
from sluicegate.policies.deadline import Deadline, DeadlineSettings
from sluicegate.policies.forms.mussel import MusselChain, MusselSettings
from sluicegate.policies.places import HEAVY_SHARE, Places
from sluicegate.policies.queue.operation_queue import OperationQueue
from sluicegate.policies.queue.queue import Queue, QueueSettings
from sluicegate.policies.request_units import RequestUnits, RequestUnitsSettings
from sluicegate.policies.shed import Shed, ShedSettings
from sluicegate.policies.stack import Stack, StackObserver, StackStage, at_once, waits
from sluicegate.policies.stress import Stress, StressSettings

GET: Final = "get"
MULTI_GET: Final = "multi-get"
SCAN: Final = "scan"
PUT: Final = "put"
SWAP: Final = "swap"
BULK: Final = "bulk"
OPERATIONS: Final = (GET, MULTI_GET, SCAN, PUT, SWAP, BULK)
SHARDS_MAX: Final = 10_000
ESTIMATES_MAX: Final = 10_000  # of tables, operations and callers
NEEDS_MAX: Final = 4_000  # operations and shards whose p99 is known apart
# After a stall everything is let in again within a second, three windows; the queue behind keeps
# what that lets in too much.
RAISE_PERMILLE: Final = 334
_MS: Final = 1_000
# RU a byte, a millisecond, a row: until `sluicegate kv calibrate` has said better of an engine. A
# read of a KiB costs a quarter of a request more, a write's page costs as the seed has it.
_READ: Final = read_weights(0.25 / 1_024, 0.1, 0.1)
_WRITE: Final = write_weights(1.0, 0.1, 0.1)
# Before a short line in the order of classes, and not behind a long one: by the p99 short deadlines
# were refused of DEGRADED while BULK was served.
DEADLINE_QUANTILE: Final = 0.5
# The lane of heavy work has few places where reads take longer beside it, and a burst of scans
# takes some tenths of a second to pass them: that is no line that stands.
_HEAVY_INTERVAL_US: Final = 400_000
_PLACES_GROWTH: Final = 4  # times those at first, at most
# A place in a plain pool is waited for as long as whoever asks waits.
_PLAIN_WAIT_US: Final = 3_600_000_000


def default_weights() -> dict[str, Weights]:
    """What operations cost before anybody has measured it."""
    writes = (PUT, SWAP, BULK)
    return {name: _WRITE if name in writes else _READ for name in OPERATIONS}


@final
class PolicyChain:
    """The stack, and the policies in it that others need to know."""

    def __init__(
        self,
        settings: KvSettings,
        chance: Chance,
        usage: CallerUsage,
        *,
        budget: Budget,
        weights: Mapping[str, Weights],
        shard_places: int,
        minute_quota: WaitingPolicy | None = None,
        spans: StackObserver | None = None,
    ) -> None:
        self.layered = settings.charges
        layers = settings.policy == "layers"
        self.classed = settings.policy != "none"  # else all are alike
        self.budget = budget
        self.usage = usage
        self.clamp = CriticalityClamp(CriticalitySettings())
        self.deadline = Deadline(
            DeadlineSettings(
                default_us=settings.deadline_ms * _MS,
                quantile=DEADLINE_QUANTILE,
                by_shard=True,
                operations_max=NEEDS_MAX,
            )
        )
        self.stress = Stress(StressSettings(queue_standstill=True))
        self._by_levels = settings.shed_form == "levels"
        self.levels = Shed(
            self.stress,
            chance,
            ShedSettings(
                form=settings.shed_form, raise_permille=RAISE_PERMILLE, ramps=settings.ramps
            ),
            self._is_owed,
        )
        self.mussel: MusselChain | None = None
        if settings.policy == "mussel":
            self.mussel = MusselChain(
                MusselSettings(
                    slots=settings.places,
                    length_max=settings.queue_length,
                    bytes_max=settings.queue_bytes,
                ),
                self.clamp,
            )
        pricing: Pricing | None = None if self.mussel is None else self.mussel.prices
        self.units = RequestUnits(
            RequestUnitsSettings(
                weights=weights[GET],
                operations=weights,
                settle=settings.learn,
                estimates_max=ESTIMATES_MAX if settings.learn else 0,
            ),
            budget=budget,
            pricing=pricing,
        )
        self.queue = Queue(_queue(settings, plain=not layers or settings.queue_form == "none"))
        self.heavy = OperationQueue(
            (SCAN, BULK),
            QueueSettings(
                places=max(1, settings.places // HEAVY_SHARE),  # the others are for what is quick
                length_max=settings.queue_length,
                bytes_max=settings.queue_bytes,
                wait_us_max=settings.deadline_ms * _MS,
                interval_us=_HEAVY_INTERVAL_US,
                slack_quantile=0.5,
            ),
        )
        self.bulkhead = Bulkhead(
            BulkheadSettings(pool=settings.places, cap=shard_places, shards_max=SHARDS_MAX), chance
        )
        self.places: Places | None = None
        if layers and settings.find_places:
            self.places = Places(
                self.queue,
                self.heavy,
                self.bulkhead,
                settings.places_max or min(_PLACES_GROWTH * settings.places, PLACES_MAX),
            )
        observers: list[StackObserver] = [usage]
        if layers:
            observers.append(self.stress)
        if self.mussel is not None:
            observers += self.mussel.observers()
        if self.places is not None:
            observers.append(self.places)
        if spans is not None:
            observers.append(spans)
        self.stack = Stack(*self._stages(settings, minute_quota), observers=observers)

    def _stages(self, settings: KvSettings, minute_quota: WaitingPolicy | None) -> list[StackStage]:
        if settings.policy == "none":
            return [waits("queue", self.queue)]
        if settings.policy == "generation-one":
            assert minute_quota is not None  # whoever assembles it makes one
            return [
                at_once("criticality", self.clamp),
                waits("minute quota", minute_quota),
                waits("queue", self.queue),
            ]
        if self.mussel is not None:
            return self.mussel.stages(self.units)
        by_line = settings.queue_form == "codel"
        return [
            at_once("deadline", self.deadline),
            at_once("criticality", self.clamp),
            at_once("request units", self.units),
            *([at_once("shed", self.levels)] if by_line else []),
            waits("heavy", self.heavy, observe=False),
            waits("queue", self.queue),
            at_once("bulkhead", self.bulkhead),
        ]

    def change(self, settings: KvSettings) -> None:
        """Take over what is live of these settings."""
        wait_us = settings.deadline_ms * _MS
        self.deadline.settings = replace(self.deadline.settings, default_us=wait_us)
        layers = settings.policy == "layers"
        if layers and settings.queue_form == "codel":
            self.queue.replace_times(wait_us, settings.queue_ms * _MS)
        if layers:
            self.heavy.replace_wait(wait_us)
        self.levels.replace_ramps(RampSettings(ramps=settings.ramps))

    @property
    def prices_milli(self) -> tuple[int, ...]:
        """The price of a request unit for each class, in thousandths."""
        if self.mussel is None:
            return (PRICE_ONE_MILLI,) * len(Criticality)
        return self.mussel.prices.prices_milli()

    def _is_owed(self, request: Request) -> bool:
        """Whether it is in nobody's way, or its class is owed a place in the line it would join.

        A line that is no longer than what bursts add is served in the pause behind it; and where
        half of the places are idle only the levels are late: a stall is over then, or a burst.
        Neither says anything while the machine is busy: behind a late loop there may be no line.
        """
        if self.heavy.has_line(request):
            return self.heavy.owes(request)
        queue = self.queue
        if queue.owes(request):
            return True
        if self.stress.machine_busy:
            return False
        if queue.queued < queue.burst_units:
            return True
        return self._by_levels and 2 * queue.inflight < queue.places

    def replace_classes(self, highest: Mapping[str, Criticality]) -> None:
        """The highest class of each caller is another from now on."""
        self.clamp.replace(highest)


def _queue(settings: KvSettings, *, plain: bool) -> QueueSettings:
    if plain:
        return QueueSettings(
            places=settings.places,
            length_max=settings.queue_length,
            bytes_max=settings.queue_bytes,
            wait_us_max=_PLAIN_WAIT_US,
            form="none",
            standing_us=None,
            slack_quantile=0.0,
            floor_permille=0,
        )
    return QueueSettings(
        places=settings.places,
        length_max=settings.queue_length,
        bytes_max=settings.queue_bytes,
        wait_us_max=settings.deadline_ms * _MS,
        # A short line, so that who is refused hears so while there is time to go elsewhere.
        line_us=settings.queue_ms * _MS,
        sweep_us=1_000,
        # The p99 is that of all operations and shards together: a slow one is not everybody's.
        slack_quantile=0.5,
        weights={GET: 8, MULTI_GET: 4, SCAN: 2, PUT: 4, SWAP: 4, BULK: 1},
    )
