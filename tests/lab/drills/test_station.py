"""The drill of a station: real processes, real sockets, real time; so bounds are loose."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.backend import Backend
from sluicegate.lab.drills import station
from sluicegate.lab.measures import figures
from sluicegate.lab.retries import NAIVE
from sluicegate.lab.rig import Rig, WorkKind
from sluicegate.lab.scenarios import loopback
from sluicegate.lab.speed_profile import SpeedProfile
from sluicegate.lab.station_candidates import BASELINES
from sluicegate.lab.world import World, run

RIG = Rig(
    kinds=(WorkKind(name="get", arrivals=Poisson(400), timeout_us=200_000),),
    workers=2,
    span_us=1_500_000,
    warm_us=500_000,
)


def test_at_twice_the_load_the_queue_answers_in_time_and_a_plain_pool_answers_nobody() -> None:
    ours = figures(RIG, station.play(RIG, "queue", 1).ledger)
    assert ours["goodput"] > 0.3
    assert 0.1 < ours["success.get"] < 0.7
    plain = figures(RIG, station.play(RIG, "fifo-pool", 1).ledger)
    assert plain["goodput"] < ours["goodput"] / 2
    assert plain["queue_peak"] > ours["queue_peak"]


def test_what_is_sent_is_accounted_for() -> None:
    ledger, late_us = station.play(replace(RIG, span_us=800_000, warm_us=0), "queue", 2)
    assert late_us >= 0
    row = ledger.by_kind[0]
    assert row.offered == pytest.approx(320, rel=0.25)
    assert 0.5 * row.offered < row.good + row.late + row.refused <= row.offered


def test_the_next_to_begin_takes_as_long_as_in_the_simulation() -> None:
    async def simulated(world: World) -> list[int]:
        backend = Backend(world, RIG.service, workers=RIG.workers)
        return [backend.draw_us() for _ in range(20)]

    assert station.works_us(RIG, 7)[:20] == run(simulated, 7).value


def test_the_work_of_who_is_served_is_what_was_drawn() -> None:
    ledger, _ = station.play(replace(RIG, span_us=800_000, warm_us=0), "fifo-pool", 3)
    row = ledger.by_kind[0]
    done = station.works_us(RIG, 3)[: row.good + row.late]
    # A long one that is under way when the span is over has begun before others that have ended.
    assert ledger.work_us == pytest.approx(sum(done), rel=0.2)


def test_what_a_drill_cannot_do_is_refused() -> None:
    with pytest.raises(BadValue, match="steady rig"):
        station.play(replace(RIG, retries=NAIVE), "queue", 1)
    with pytest.raises(BadValue, match="steady rig"):
        station.play(replace(RIG, speed_profile=SpeedProfile(((1, 0.5),))), "queue", 1)


def test_a_policy_that_is_none_is_named_and_the_drill_says_that_nobody_listens(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(BadValue, match="fifo-pool"):
        station.policy_of("nothing", 1)
    with pytest.raises(Unavailable, match="did not print its port"):
        station.play(RIG, "nothing", 1)
    assert "give one of queue, fifo-pool" in capfd.readouterr().err


def test_a_drill_is_as_far_from_its_simulation_as_the_worse_of_two_shares() -> None:
    rig = loopback.SCENARIO.rigs["2x"]
    simulated = loopback.SCENARIO.candidate("queue").run(rig, 1)
    found = loopback.measure(rig, simulated)
    assert (found["apart"], found["late_ms"]) == (0.0, 0.0)
    worse = simulated._replace(ledger=BASELINES["fifo-pool"].run(rig, 1), late_us=6_000)
    found = loopback.measure(rig, worse)
    assert found["apart"] > 90
    assert found["late_ms"] == 6.0
