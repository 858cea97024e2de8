"""Four classes and an excess of the lowest; the lines that shed by class."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.baselines.admission_levels import Cohorts, Dagor, Pid, dagor
from sluicegate.lab.rig import Rig, WorkKind
from sluicegate.lab.rigs.server_chain import clamp, server_chain
from sluicegate.lab.scenarios.priority import SCENARIO, rig
from sluicegate.lab.work_queue import WorkUnit
from sluicegate.lab.world import World, run
from tests.lab.scenarios.trials import met

MS = 1_000
SECOND = 1_000_000
SMALL = {"5x": replace(rig(5), span_us=1_200 * MS, warm_us=400 * MS)}
BY_CLASS = Rig(
    kinds=tuple(
        WorkKind(name=each.name.lower(), arrivals=Poisson(1), criticality=each, callers=1_000)
        for each in Criticality
    ),
    workers=10,
)


def unit(criticality: Criticality, caller: int, now_us: int) -> WorkUnit:
    return WorkUnit(int(criticality), caller, now_us, now_us + 500 * MS, 0)


@pytest.mark.prove
def test_the_chain_serves_what_matters_and_wastes_no_worker() -> None:
    assert met(SCENARIO, "protect", SMALL)


@pytest.mark.prove
@pytest.mark.parametrize("name", SCENARIO.must_fail)
def test_whoever_has_no_classes_or_no_queue_fails(name: str) -> None:
    assert not met(SCENARIO, name, SMALL)


def test_the_chain_has_its_stages_in_order_and_only_critical_callers_may_say_so() -> None:
    async def main(world: World) -> list[str]:
        stack = server_chain(rig(2), world)
        stages = stack.stats().stages
        assert stages[-1].own.limit == rig(2).workers
        return [stage.name for stage in stages]

    assert run(main, 1).value == ["criticality", "queue"]
    assert clamp(BY_CLASS).callers == {
        f"critical-{caller}": Criticality.CRITICAL for caller in range(1_000)
    }


def test_cohorts_go_class_by_class_and_change_with_the_hour() -> None:
    cohorts = Cohorts(BY_CLASS, SECOND)
    first = [cohorts.level(unit(Criticality.BULK, caller, 0), 0) for caller in range(200)]
    assert {level // 128 for level in first} == {3}
    assert len(set(first)) > 80
    again = [cohorts.level(unit(Criticality.BULK, caller, 0), 0) for caller in range(200)]
    later = [cohorts.level(unit(Criticality.BULK, caller, 0), SECOND) for caller in range(200)]
    assert again == first
    assert later != first


def crowd(line: Dagor | Pid, begin_us: int, count: int) -> dict[Criticality, int]:
    """One of each class in turn, half a millisecond apart; who is let in is served at once."""
    lost: list[WorkUnit] = []
    entered = dict.fromkeys(Criticality, 0)
    for number in range(count):
        now_us = begin_us + number * 500
        each = Criticality(number % 4)
        line.arrive(unit(each, number, now_us), now_us, lost)
        if not lost:
            entered[each] += 1
            line.take(now_us + 30 * MS if isinstance(line, Dagor) else now_us, lost)
        lost.clear()
    return entered


def test_dagor_comes_down_by_a_twentieth_a_window_from_the_lowest_class_up() -> None:
    line = dagor(BY_CLASS)
    assert set(crowd(line, 0, 2_000).values()) == {500}  # its first window admits all
    for window in range(1, 5):
        crowd(line, window * SECOND, 2_000)
    entered = crowd(line, 5 * SECOND, 2_000)
    assert entered[Criticality.BEST_EFFORT] == 500
    assert 0 < entered[Criticality.BULK] < 100


def test_dagor_serves_in_order_and_ends_a_window_after_2000_units_too() -> None:
    line = dagor(BY_CLASS)
    lost: list[WorkUnit] = []
    first, second = unit(Criticality.BULK, 1, 0), unit(Criticality.CRITICAL, 2, 0)
    line.arrive(first, 0, lost)
    line.arrive(second, 0, lost)
    assert line.take(30 * MS, lost) is first
    assert line.take(30 * MS, lost) is second
    for number in range(4_000):  # all within a second
        now_us = 40 * MS + number * 200
        line.arrive(unit(Criticality(number % 4), number, now_us), now_us, lost)
        line.take(now_us + 30 * MS, [])
        assert not (lost and number < 1_990)
    assert lost
    assert {each.kind for each in lost} == {int(Criticality.BULK)}


def test_dagor_opens_again_by_a_hundredth_and_bounds_what_waits() -> None:
    line = dagor(BY_CLASS)
    for window in range(4):
        crowd(line, window * SECOND, 2_000)
    lost: list[WorkUnit] = []
    begin_us = 10 * SECOND
    for number in range(400):
        line.arrive(unit(Criticality.CRITICAL, number, begin_us), begin_us, lost)
    assert line.waiting() == 100  # a tenth of a second of ten workers
    assert len(lost) == 300
    while line.take(begin_us, lost):
        pass
    before = sum(crowd_quick(line, begin_us).values())
    assert sum(crowd_quick(line, 40 * SECOND).values()) > before


def crowd_quick(line: Dagor, begin_us: int) -> dict[Criticality, int]:
    """The same, and nobody waits."""
    lost: list[WorkUnit] = []
    entered = dict.fromkeys(Criticality, 0)
    for number in range(6_000):
        now_us = begin_us + number * 500
        each = Criticality(number % 4)
        line.arrive(unit(each, number, now_us), now_us, lost)
        if not lost:
            entered[each] += 1
            line.take(now_us, lost)
        lost.clear()
    return entered


def test_pid_refuses_the_lowest_when_more_comes_in_than_goes_out() -> None:
    line = Pid(Cohorts(BY_CLASS, SECOND), 50.0)
    lost: list[WorkUnit] = []
    for number in range(1_000):
        now_us = number * 500
        line.arrive(unit(Criticality(number % 4), number, now_us), now_us, lost)
        if number % 4 == 0:
            assert line.take(now_us, []) is not None
    assert lost
    assert sum(each.kind == Criticality.BULK for each in lost) > len(lost) / 3


def test_pid_serves_class_by_class_and_gives_up_what_waited_too_long() -> None:
    line = Pid(Cohorts(BY_CLASS, SECOND), 50.0)
    lost: list[WorkUnit] = []
    bulk, critical = unit(Criticality.BULK, 1, 0), unit(Criticality.CRITICAL, 2, 10 * MS)
    line.arrive(bulk, 0, lost)
    line.arrive(critical, 10 * MS, lost)
    assert line.waiting() == 2
    assert line.take(20 * MS, lost) is critical
    assert line.take(101 * MS, lost) is None
    assert lost == [bulk]


def test_pid_does_not_refuse_while_there_are_free_slots() -> None:
    line = Pid(Cohorts(BY_CLASS, SECOND), 50.0)
    lost: list[WorkUnit] = []
    for number in range(200):
        now_us = number * 10 * MS
        line.arrive(unit(Criticality.BULK, number, now_us), now_us, lost)
        assert line.take(now_us, lost) is not None
    assert lost == []
