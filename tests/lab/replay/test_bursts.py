"""A trace in long bursts: what could still be in time is not refused, and the small goes first."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest

from sluicegate.lab.replay.station import (
    CANDIDATES,
    design_station,
    figures_of,
    replay_trace,
    survey_trace,
)
from sluicegate.lab.rig import Rig
from sluicegate.lab.traces import Trace, TraceRow
from sluicegate.lab.world import World
from sluicegate.policies.forms.facebook import FacebookForm, FacebookSettings
from sluicegate.policies.stack import Stack

SECOND = 1_000_000
ON_US, OFF_US = 4 * SECOND, 8 * SECOND
PER_S = 96  # in a burst; eight workers can do 40 a second of the mean


def bursts(seed: int, times: int = 1, rounds: int = 5) -> Trace:
    """Four seconds at 2.4 times the capacity, and eight seconds of rest; or so many times that."""
    random, rows = Random(seed), list[TraceRow]()
    for begin_us in range(0, rounds * (ON_US + OFF_US), ON_US + OFF_US):
        at_us = begin_us
        while at_us < begin_us + ON_US:
            tokens = 1 + int(random.lognormvariate(5, 0.8))
            rows.append(TraceRow(times * at_us, "", 0, tokens))
            at_us += round(random.expovariate(PER_S) * SECOND)
    return Trace("bursts", rows=lambda: iter(rows))


def impatient(rig: Rig, _world: World) -> Stack:
    """A queue whose timeouts are for quick work."""
    return Stack(*FacebookForm(FacebookSettings(slots=rig.workers)).stages())


def useful(figures: Mapping[str, float]) -> float:
    """Return the work that was answered in time, as a share of the capacity."""
    return figures["utilization"] * (1 - figures["wasted"])


@pytest.mark.prove
@pytest.mark.parametrize("times", [1, 5])
def test_slow_work_that_would_be_in_time_is_served_behind_a_burst(times: int) -> None:
    trace = bursts(1, times)
    survey = survey_trace(trace)
    place = design_station(survey, workers=8, capacity=None, timeout_us=None, speed=1.0)
    makers = {"ours": CANDIDATES["chain"], "fifo": CANDIDATES["fifo"], "control": impatient}
    found = {
        name: figures_of(place, survey, replay_trace(trace, place, survey, make, seed=1))
        for name, make in makers.items()
    }
    assert useful(found["ours"]) >= 1.15 * useful(found["fifo"]), found
    assert found["ours"]["success"] >= 0.95 * found["fifo"]["success"], found
    assert useful(found["control"]) < useful(found["fifo"]), found
