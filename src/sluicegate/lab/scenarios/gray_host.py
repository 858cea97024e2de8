"""Gray host: one of ten hosts answers ten times too slow, or at once with an error.

A health check sees nothing wrong with it. Whoever goes round keeps sending it a tenth of the calls;
whoever looks for the quickest sends it nearly all, once it fails fast. The goal is that callers
hardly notice, that never more than one host in ten is out, and that nobody healthy is left out in
an hour in which one call in a hundred fails somewhere and everything is slow for five minutes.

What keeps callers from a gray host here is the choice between two, with failures entered as seconds
of latency: without ejection as few calls are lost (`penalty-alone`). Ejection is for whoever
chooses without looking at load; here it has to do no harm. By itself it keeps the claim, too, on
some seeds (`ejection-alone`, 30000); with neither it is lost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.durations import Lognormal
from sluicegate.lab.goals import Goal
from sluicegate.lab.measures import quantile
from sluicegate.lab.rigs.hosts import (
    NO_EJECTION,
    NO_PENALTY,
    HostsRig,
    HostsRun,
    balanced,
    candidate,
    round_robin,
)
from sluicegate.lab.scenario import Curves, Figures, PlotSpec, Scenario
from sluicegate.lab.speed_profile import SpeedProfile

SECOND: Final = 1_000_000
HOSTS: Final = 10
WORKERS: Final = 4
LOAD: Final = 0.6

MINUTE: Final = HostsRig(
    arrivals=Poisson(LOAD * HOSTS * WORKERS * 100),  # of 10 ms each
    hosts=HOSTS,
    workers=WORKERS,
    gray_from_us=10 * SECOND,
    span_us=70 * SECOND,
)
HOUR: Final = HostsRig(
    arrivals=Poisson(LOAD * HOSTS * WORKERS * 5),
    hosts=HOSTS,
    workers=WORKERS,
    service=Lognormal(200_000.0, 1.0),
    timeout_us=10 * SECOND,
    gray=0,
    errors=0.01,
    speed_profile=SpeedProfile(((1_200 * SECOND, 0.7), (1_500 * SECOND, 1.0))),
    span_us=3_600 * SECOND,
)


def measure(rig: HostsRig, run: HostsRun) -> Figures:
    """What callers saw from the turn on, and who was left out."""
    return {
        "success": run.success,
        "p99_ms": quantile(run.good_us, 0.99) / 1000,
        "false_ejections": float(run.false_ejections),
        "out_max": run.out_max / rig.hosts,
        "gray_share": sum(run.gray_at) / sum(run.calls_at),
    }


def curves(rig: HostsRig, run: HostsRun) -> Curves:
    """Second by second: calls that failed, and calls that the gray host got, in percent."""
    step = max(len(run.calls_at) // 400, 1)
    calls = [max(sum(run.calls_at[at : at + step]), 1) for at in range(0, len(run.calls_at), step)]

    def percent(counts: list[int]) -> list[tuple[float, float]]:
        sums = [sum(counts[at : at + step]) for at in range(0, len(counts), step)]
        return [(float(at * step), 100 * n / calls[at]) for at, n in enumerate(sums)]

    return {"lost_percent": percent(run.lost_at), "gray_percent": percent(run.gray_at)}


SCENARIO: Final = Scenario(
    number=17,
    name="gray-host",
    title="A gray host among ten: slow, or failing fast",
    why="A host that is half dead must not take the service with it.",
    rigs={
        "slow": replace(MINUTE, slower=10.0),
        "fast-error": replace(MINUTE, fails=1.0),
        "calm-hour": HOUR,
    },
    candidates={
        "balance": candidate(balanced()),
        "ejection-alone": candidate(balanced(settings=NO_PENALTY)),
        "without-both": candidate(balanced(settings=NO_PENALTY, outlier=NO_EJECTION)),
        "penalty-alone": candidate(balanced(outlier=NO_EJECTION)),
        "round-robin": candidate(round_robin),
    },
    ours="balance",
    must_fail=("round-robin", "without-both"),
    goals=(
        Goal(figure="success", at_least=0.999, cases=("slow",)),
        Goal(figure="success", at_least=0.995, cases=("fast-error",)),
        Goal(figure="false_ejections", at_most=0),
        Goal(figure="out_max", at_most=0.1),
    ),
    measure=measure,
    curves=curves,
    columns=("success", "p99_ms", "false_ejections", "out_max", "gray_share"),
    plots=(
        PlotSpec("Calls that failed", "lost_percent", "% of calls"),
        PlotSpec("Calls to the gray host", "gray_percent", "% of calls"),
    ),
    scale="Ten hosts of 4 workers. In the calm hour a call takes 200 ms, not 10, and there are a "
    "twentieth as many: fewer samples make a false ejection likelier.",
)
