"""Bursts: on and off, where the mean can be served or nearly, and the moment cannot.

Real callers come together. A rule that refuses whoever stands too long takes it for granted that
somebody new will come; in the pause behind a burst nobody does, and what was refused could have
been served in it, and in time. A line without a rule serves that, and at more than the capacity
makes everybody wait. Bursts are of 50 ms at a mean of twice the capacity, of 100 ms at the
capacity, and of 20 ms at four times it; callers wait for half a second. `heavy` has bursts and
pauses as long as they come (Pareto, with a tail of 1.5), and work that is lognormal.

The goals: at twice the capacity next to nothing of it is lost, half of the answers come within
three times the work, and CRITICAL goes through; at the capacity no plain line answers more, but for
0.02 of it. Counted is from the sixth second on: what comes before the first pause is an overload
for all that anybody can know, and a pause or two tell.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from sluicegate.contracts.criticality import Criticality
from sluicegate.lab import kernel_mode, measures
from sluicegate.lab.arrivals import Arrivals, OnOff, ParetoOnOff, Poisson
from sluicegate.lab.baselines import TABLE
from sluicegate.lab.durations import Lognormal
from sluicegate.lab.goals import Goal
from sluicegate.lab.ledger import RunLedger
from sluicegate.lab.rig import Rig, WorkKind
from sluicegate.lab.rigs import shipped
from sluicegate.lab.rigs.server_chain import server_chain
from sluicegate.lab.rigs.station import CAPACITY_PER_S, TIMEOUT_US, station
from sluicegate.lab.scenario import (
    AS_BARS,
    PLACES,
    Candidate,
    Curves,
    Figures,
    PlotSpec,
    Scenario,
)
from sluicegate.lab.station_candidates import StationCandidate, kernel_candidate, policy_candidate

MS: Final = 1_000
SPAN_S: Final = 20
WARM_US: Final = 5_000_000
TWICE: Final = "50/50 at 2x"
ONCE: Final = ("100/100 at 1x", "20/60 at 1x", "heavy")
PLAIN: Final = ("fifo", "lifo", "dagor")


def on_off(
    mean: float, on_ms: int, off_ms: int, form: type[OnOff | ParetoOnOff] = OnOff
) -> OnOff | ParetoOnOff:
    """Nothing, and then so much that it is `mean` times the capacity over time."""
    on_per_s = mean * CAPACITY_PER_S * (on_ms + off_ms) / on_ms
    return form(on_per_s=on_per_s, on_us=on_ms * MS, off_us=off_ms * MS)


def once(arrivals: Arrivals, **settings: Any) -> Rig:
    """One kind of work, at the capacity."""
    return replace(station(arrivals, span_s=SPAN_S, **settings), warm_us=WARM_US)


def twice() -> Rig:
    """A fifth of the capacity is CRITICAL and steady, the rest is BULK in bursts."""
    return replace(
        once(Poisson(1)),
        kinds=(
            WorkKind(
                name="critical",
                arrivals=Poisson(0.2 * CAPACITY_PER_S),
                criticality=Criticality.CRITICAL,
                timeout_us=TIMEOUT_US,
                callers=100,
            ),
            WorkKind(
                name="bulk",
                arrivals=on_off(1.8, 50, 50),
                criticality=Criticality.BULK,
                timeout_us=TIMEOUT_US,
                callers=400,
            ),
        ),
    )


class BurstsRun(NamedTuple):
    """A run, and its seed: a plain line plays the same."""

    ledger: RunLedger
    seed: int


BurstsCandidate = Candidate[Rig, BurstsRun]
RIGS: Final = {
    TWICE: twice(),
    "100/100 at 1x": once(on_off(1.0, 100, 100)),
    "20/60 at 1x": once(on_off(1.0, 20, 60)),
    "heavy": once(on_off(1.0, 50, 50, ParetoOnOff), service=Lognormal(10_000.0, 1.0)),
}


@lru_cache(maxsize=64)
def best_plain(rig: Rig, seed: int) -> float:
    """The goodput of the best of the plain lines."""
    runs = [kernel_mode.run_queue(rig, TABLE[name], seed) for name in PLAIN]
    return max(measures.figures(rig, ledger)["goodput"] for ledger in runs)


def measure(rig: Rig, ended: BurstsRun) -> Figures:
    """The usual, and how much a plain line would have answered more, of the capacity."""
    found = measures.figures(rig, ended.ledger)
    if len(rig.kinds) == 1:
        found["behind"] = best_plain(rig, ended.seed) - found["goodput"]
    return found


def curves(rig: Rig, ended: BurstsRun) -> Curves:
    """Return what was answered over time."""
    return measures.curves(rig, ended.ledger)


def candidate(play: StationCandidate) -> BurstsCandidate:
    """Keep the seed beside what a candidate of a station returns."""
    return Candidate(lambda rig, seed: BurstsRun(play.run(rig, seed), seed), play.mode)


SCENARIO: Final = Scenario(
    number=27,
    name="bursts",
    title="Bursts: on and off, at the capacity and at twice of it",
    why="What is refused in a burst could have been served in the pause behind it.",
    rigs=RIGS,
    candidates={
        **{name: candidate(each) for name, each in shipped.SHIPPED.items()},
        "queue-alone": candidate(policy_candidate(server_chain)),
        **{name: candidate(kernel_candidate(TABLE[name])) for name in (*PLAIN, "folly")},
    },
    ours="protect",
    must_fail=("fifo", "folly"),
    own_settings=PLACES,
    goals=(
        Goal(figure="goodput", at_least=0.93, cases=(TWICE,)),
        Goal(figure="p50_ms", at_most=30, cases=(TWICE,)),
        Goal(figure="success.critical", at_least=0.999, cases=(TWICE,)),
        Goal(figure="behind", at_most=0.02, cases=ONCE),
    ),
    measure=measure,
    curves=curves,
    columns=("goodput", "behind", "success.critical", "p50_ms", "p99_ms", "refused_p99_ms"),
    plots=(PlotSpec("Answered in time", ("goodput",), AS_BARS, "of capacity"),),
    limits="Before the first pause a burst is an overload: of the first six seconds of a service "
    "a plain line has up to 0.046 more. At twice the capacity 0.94 is served, as the oldest that "
    "can be expected to finish goes first in a pause, and some are late.",
)
