"""Noisy neighbour: somebody scans beside point reads, and asks for ten times what there is.

A scan costs 200 reads. Who counts requests lets all of them in, and no read is answered. Who counts
request units, and gives each half, still lets scans hold all workers for half a second at a time.
The goal: the reads do not notice, and the scans get what the reads leave. So scans are cut into
parts of 10 RU that each wait their turn, and reads go first.

A crawler's calls are as small as the reads, so nothing can be cut (`crawler`: it asks for all there
is beside the same scans). Callers of one class have equal shares of the time, so the goals are met
without classes too.
"""

from __future__ import annotations

from typing import Final

from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.goals import Goal
from sluicegate.lab.ledger import BUCKET_US
from sluicegate.lab.measures import quantile, timeline
from sluicegate.lab.rig import WorkKind
from sluicegate.lab.rigs import tenants
from sluicegate.lab.rigs.tenants import Tenants, TenantsRun
from sluicegate.lab.scenario import PLACES, Curves, Figures, PlotSpec, Scenario

WORKERS: Final = 32
READS: Final = 0.3  # of the capacity
SCANS: Final = 10.0
SCAN_RU: Final = 200
CRAWLER: Final = "crawler"


def rig(ru_us: float = 2_000.0, span_us: int = 6_000_000, crawler: float = 0.0) -> Tenants:
    """32 workers, of whom a request unit takes `ru_us`, and a crawler who asks for that share."""
    capacity_ru_per_s = WORKERS * 1e6 / ru_us
    crawls = WorkKind(
        name="crawl",
        arrivals=Poisson(crawler * capacity_ru_per_s),
        criticality=Criticality.BULK,
        timeout_us=500_000,
    )
    return Tenants(
        kinds=(
            WorkKind(
                name="read",
                arrivals=Poisson(READS * capacity_ru_per_s),
                criticality=Criticality.CRITICAL,
                timeout_us=500_000,
            ),
            WorkKind(
                name="scan",
                arrivals=Poisson(SCANS * capacity_ru_per_s / SCAN_RU),
                criticality=Criticality.BULK,
                timeout_us=10_000_000,
                cost=SCAN_RU,
            ),
            *([crawls] if crawler else []),
        ),
        workers=WORKERS,
        ru_us=ru_us,
        span_us=span_us,
    )


def measure(rig: Tenants, run: TenantsRun) -> Figures:
    """How the reads fared against being alone, and what the others got of the rest."""
    read, *bulk = run.accounts
    p99_us = quantile(read.good_us(rig.warm_us), 0.99)
    left_us = rig.capacity_us() - read.worked_us
    return {
        "success.read": read.success(),
        "p99_ms.read": p99_us / 1000,
        "p99_times_alone": p99_us / tenants.alone_p99_us(rig, "read", run.seed),
        "bulk_share": sum(each.worked_us for each in bulk) / left_us,
        "bulk_useful": sum(each.useful_us for each in bulk) / left_us,
    }


def curves(rig: Tenants, run: TenantsRun) -> Curves:
    """The p99 of the reads, for each tenth of a second."""
    buckets = run.accounts[0].good_us_at
    p99_ms = [quantile(us, 0.99) / 1000 if us else 0.0 for us in buckets]
    return timeline({"read_p99_ms": p99_ms}, BUCKET_US, rig.span_us)


SCENARIO: Final = Scenario(
    number=14,
    name="noisy-neighbour",
    title="A noisy neighbour: scans of 200 RU, ten times what there is, beside point reads",
    why="One tenant's batch job is no other tenant's outage, and idle workers help nobody.",
    rigs={"10x": rig(), CRAWLER: rig(ru_us=4_000.0, span_us=4_000_000, crawler=1.0)},
    candidates={
        "chunks": tenants.candidate(tenants.chunked()),
        "without-chunks": tenants.candidate(tenants.chunked(ru=0)),
        "without-classes": tenants.candidate(tenants.chunked(classes=False)),
        "ru-quota": tenants.candidate(tenants.ru_quota),
        "qps-quota": tenants.candidate(tenants.qps_quota),
        "fifo": tenants.candidate(tenants.fifo),
    },
    ours="chunks",
    must_fail=("qps-quota", "ru-quota", "without-chunks"),
    own_settings={
        **PLACES,
        "request_units.rate_ru all that the workers can do": "a quota is for whoever grants it to "
        "say; with half of it the claim holds, too (seed 0)",
        "chunks of 10 RU": "20 ms of one worker, so that no read waits longer for one",
    },
    goals=(
        Goal(figure="success.read", at_least=0.999),
        Goal(figure="p99_times_alone", at_most=1.5),
        Goal(figure="bulk_share", at_least=0.95),
    ),
    measure=measure,
    columns=("success.read", "p99_ms.read", "p99_times_alone", "bulk_share", "bulk_useful"),
    curves=curves,
    plots=(PlotSpec("Reads alongside scans", "read_p99_ms", "p99, ms", log_y=True),),
    scale="16,000 RU a second: a read is 2 ms of one of 32 workers; half of it with the crawler.",
    limits="bulk_useful counts scans that ended: 0.62 at 10x, as newer scans go first. The "
    "dispatcher returns what a scan has read until then, with a token to go on.",
)
