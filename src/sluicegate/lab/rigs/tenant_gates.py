"""Gates before shared workers: the production policies as a store would wire them, and baselines.

What is set is what any user sets: the places, how much each tenant may spend, how many scans may be
under way. Everything else is as it comes.
"""

from __future__ import annotations

from functools import partial
from typing import Final, final

from sluicegate.contracts.criticality import DEFAULT_CRITICALITY
from sluicegate.contracts.policy import NOTHING_HELD, NothingHeld
from sluicegate.contracts.request import Request
from sluicegate.lab.baselines.fifo_pool import FifoPool
from sluicegate.lab.baselines.qps_quota import QpsQuota
from sluicegate.lab.rigs.tenants import Gate, MakeGate, Tenants, rows_of, whole
from sluicegate.lab.world import World
from sluicegate.policies.bulkhead import Bulkhead, BulkheadSettings
from sluicegate.policies.operation_cost import WorkShape
from sluicegate.policies.queue.queue import Queue, QueueSettings
from sluicegate.policies.request_units import RequestUnits, RequestUnitsSettings
from sluicegate.policies.shed import Shed, ShedSettings
from sluicegate.policies.stack import Stack, at_once, waits
from sluicegate.policies.stress import Stress

CHUNK_RU: Final = 10
# By the default weights a read of one row costs 1 for the request, 1 for the row, and its time.
READ_RU: Final = 2.2
INFLIGHT_MAX: Final = 1_000


def shape_of(request: Request) -> WorkShape:
    """A request unit of the rig is a row."""
    return WorkShape(rows=rows_of(request))


def units_of(rig: Tenants, share: float = 1.0) -> RequestUnits:
    """A budget for each tenant, filled with that share of what the workers can do."""
    rate_ru = round(share * READ_RU * rig.capacity_ru_per_s)
    return RequestUnits(RequestUnitsSettings(rate_ru=rate_ru), shape_of=shape_of)


def chunked(
    *,
    ru: int = CHUNK_RU,
    share: float = 1.0,
    scans_max: int | None = -1,
    classes: bool = True,
    charged_whole: bool = True,
) -> MakeGate:
    """Request units, a bulkhead for scans, and a queue that parts of `ru` enter one by one.

    Any of it can be left out: `ru=0` cuts nothing, `scans_max=None` has no bulkhead (-1 is as many
    as there are workers), without `classes` all are alike, and what is not `charged_whole` is
    charged part by part.
    """

    def make(rig: Tenants, world: World) -> Gate:
        units = units_of(rig, share)
        charge = at_once("request units", units)
        queue = Queue(QueueSettings(places=rig.workers))
        once = [charge] if charged_whole else []
        if not classes:
            once.append(at_once("no classes", AllAlike()))
        if scans_max is not None:
            cap = rig.workers if scans_max < 0 else scans_max
            settings = BulkheadSettings(cap=INFLIGHT_MAX, pool=INFLIGHT_MAX, caps={"scan": cap})
            once.append(at_once("bulkhead", Bulkhead(settings, world.chance("bulkhead"))))
        return Gate(
            queue if charged_whole else Stack(charge, waits("queue", queue)),
            Stack(*once) if once else None,
            partial(units.chunks, ru=ru) if ru else whole,
        )

    return make


def pooled(settings: RequestUnitsSettings) -> MakeGate:
    """Request units alone, as they are set; then first come, first served."""

    def make(rig: Tenants, world: World) -> Gate:
        units = RequestUnits(settings, shape_of=shape_of)
        return Gate(Stack(at_once("request units", units), waits("pool", FifoPool(rig.workers))))

    return make


def guarded(settings: RequestUnitsSettings, *, ratio: bool = True) -> MakeGate:
    """Budgets that drain faster while the latency ratio is low, and the queue behind them."""

    def make(rig: Tenants, world: World) -> Gate:
        stress = Stress()
        prices = Shed(stress, world.chance("shed"), ShedSettings(form="prices"))
        units = RequestUnits(settings, pricing=prices if ratio else None, shape_of=shape_of)
        queue = Queue(QueueSettings(places=rig.workers))
        stages = at_once("request units", units), waits("queue", queue)
        return Gate(Stack(*stages, observers=[stress]))

    return make


def ru_quota(rig: Tenants, world: World) -> Gate:
    """Request units alone: each tenant may spend half of what there is; then first come."""
    return Gate(FifoPool(rig.workers), Stack(at_once("request units", units_of(rig, 0.5))))


def qps_quota(rig: Tenants, world: World) -> Gate:
    """Each tenant may ask half as often as single reads could be answered; then first come."""
    quota = QpsQuota(round(rig.capacity_ru_per_s / 2))
    return Gate(FifoPool(rig.workers), Stack(at_once("quota", quota)))


def fifo(rig: Tenants, world: World) -> Gate:
    """Nothing but the workers."""
    return Gate(FifoPool(rig.workers))


@final
class AllAlike:
    """Takes the classes out: everything is of the one that is meant when nobody says."""

    __slots__ = ()

    def admit(self, request: Request, now_us: int) -> NothingHeld:
        """Forget what it claims."""
        request.criticality = DEFAULT_CRITICALITY
        return NOTHING_HELD
