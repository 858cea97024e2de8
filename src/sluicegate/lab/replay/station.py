"""What a trace is replayed against: a station with a policy.

The station has workers, and each unit of cost takes one of them the same time; what all of them can
serve a second is the `capacity`. Every candidate is a policy as in production, in a world. A run
fills a ledger, so its figures are those of every other run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple, final
from zlib import crc32

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.request import Request
from sluicegate.lab.arrivals import Even
from sluicegate.lab.baselines.queues import fifo_pool
from sluicegate.lab.durations import Constant
from sluicegate.lab.ledger import RunLedger
from sluicegate.lab.measures import good_quantile_ms, refused_p99_ms
from sluicegate.lab.rig import Rig, WorkKind
from sluicegate.lab.rigs.server_chain import server_chain
from sluicegate.lab.station_candidates import queue
from sluicegate.lab.task_mode import MakePolicy, PolicyServer
from sluicegate.lab.traces import Trace, TraceRow
from sluicegate.lab.world import World, run

ROWS_MAX: Final = 200_000
RUN_US_MAX: Final = 400 * 86_400_000_000
LOAD: Final = 0.8  # of a capacity that nobody has set
CALLERS: Final = 1_000
_US: Final = 1e6
_SLACK: Final = 20

OURS: Final = "chain"
BASELINE: Final = "fifo"
CANDIDATES: Final[Mapping[str, MakePolicy]] = {
    OURS: server_chain,
    "queue": queue,
    BASELINE: fifo_pool,
}


class Survey(NamedTuple):
    """What a trace is like."""

    rows: int
    cost: int
    span_us: int
    peak_per_s: float  # cost of the worst second
    cut: bool  # there is more of it

    @property
    def cost_per_s(self) -> float:
        """On average."""
        return self.cost * _US / max(self.span_us, 1)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """What serves a trace: so many workers, so much cost a second, callers who wait so long."""

    workers: int
    capacity: float
    timeout_us: int
    speed: float = 1.0
    rows_max: int = ROWS_MAX

    def __post_init__(self) -> None:
        if not 0 < self.capacity <= 1e15:
            raise BadValue("--capacity", self.capacity, "give units of cost a second, above 0")
        if not 0 < self.speed <= 1e6:
            raise BadValue("--speed", self.speed, "give a factor above 0, at most 1,000,000")

    def work_us(self, cost: int) -> int:
        """How long a worker has with it."""
        return max(round(cost * self.workers * _US / self.capacity), 1)


def survey_trace(trace: Trace, *, speed: float = 1.0, rows_max: int = ROWS_MAX) -> Survey:
    """Read the trace once."""
    rows = cost = last_us = 0
    second, in_second, peak = -1, 0, 0
    for access in islice(trace.rows(), rows_max + 1):
        if rows == rows_max:
            return Survey(rows, cost, last_us, max(peak, in_second), cut=True)
        last_us = int(access.at_us / speed)
        rows += 1
        cost += access.cost
        if last_us // 1_000_000 != second:
            second, in_second, peak = last_us // 1_000_000, 0, max(peak, in_second)
        in_second += access.cost
    if not rows:
        raise BadValue("trace", trace.name, "give one that has rows")
    return Survey(rows, cost, last_us, max(peak, in_second), cut=False)


def design_station(
    survey: Survey, *, workers: int, capacity: float | None, timeout_us: int | None, speed: float
) -> Station:
    """Build the station: what is not given is chosen so that the mean load is `LOAD`."""
    enough = capacity if capacity is not None else max(survey.cost_per_s, 1e-6) / LOAD
    mean_us = survey.cost / survey.rows * workers * _US / enough
    patience_us = timeout_us if timeout_us is not None else max(round(_SLACK * mean_us), 500_000)
    return Station(
        workers=workers, capacity=enough, timeout_us=patience_us, speed=speed, rows_max=survey.rows
    )


def rig_of(place: Station, survey: Survey) -> Rig:
    """The station as a rig, whose unit of work is a microsecond of a worker."""
    kind = WorkKind(name="trace", arrivals=Even(0), timeout_us=place.timeout_us, callers=CALLERS)
    span_us = survey.span_us + place.timeout_us + 1_000_000
    return Rig(
        kinds=(kind,), workers=place.workers, service=Constant(1), span_us=span_us, warm_us=0
    )


def replay_trace(
    trace: Trace, place: Station, survey: Survey, make_policy: MakePolicy, seed: int
) -> RunLedger:
    """Replay the whole trace against one candidate."""
    rig = rig_of(place, survey)

    async def main(world: World) -> RunLedger:
        ledger = RunLedger(rig.kinds, warm_us=0, span_us=rig.span_us)
        call = PolicyServer(world, rig, make_policy(rig, world), ledger).door(0, rig.kinds[0])

        async def one(number: int, access: TraceRow) -> None:
            await call(_request(number, access, place, world))

        for number, access in enumerate(islice(trace.rows(), place.rows_max)):
            await world.until_us(int(access.at_us / place.speed))
            world.spawn(one(number, access), f"trace-{number}")
        await world.until_us(rig.span_us)
        await world.cancel_others()
        return ledger

    return run(main, seed, span_us_max=RUN_US_MAX).value


def figures_of(place: Station, survey: Survey, ledger: RunLedger) -> dict[str, float]:
    """The figures of a candidate."""
    row = ledger.by_kind[0]
    able_us = place.workers * max(survey.span_us, 1)
    return {
        "success": row.good / max(row.offered, 1),
        "refused": row.refused / max(row.offered, 1),
        "late": row.late / max(row.offered, 1),
        "utilization": ledger.useful_us / able_us,
        "wasted": ledger.wasted_us / able_us,
        "p50_ms": good_quantile_ms(ledger, 0.5),
        "p99_ms": good_quantile_ms(ledger, 0.99),
        "refused_p99_ms": refused_p99_ms(ledger),
        "queue_peak": float(ledger.queue_peak),
    }


def _request(number: int, access: TraceRow, place: Station, world: World) -> Request:
    now_us = world.clock.now_us()
    # A trace does not say who asked. Whoever asks for one key is taken for one caller.
    caller = crc32(access.key.encode()) if access.key else number
    return Request(
        access.key,
        caller=f"trace-{caller % CALLERS}",
        cost=place.work_us(access.cost),
        arrived_us=now_us,
        deadline_us=now_us + place.timeout_us,
    )
