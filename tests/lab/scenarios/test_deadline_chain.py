"""Three services in a row, and what each of them works for in vain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome, Permit
from sluicegate.contracts.policy import NOTHING_HELD
from sluicegate.contracts.reasons import DEADLINE
from sluicegate.contracts.request import Measured, Request
from sluicegate.lab.baselines.queues import FifoPool
from sluicegate.lab.durations import Constant
from sluicegate.lab.scenarios.deadline_chain import (
    SCENARIO,
    HopGate,
    Hops,
    HopsRun,
    alike,
    guarded,
    measure,
    nothing,
    play,
)
from tests.lab.scenarios.trials import met

MS = 1_000
SECOND = 1_000_000
NOW = 1_000 * SECOND
CASE = "500 ms"
SMALL = {CASE: replace(SCENARIO.rigs[CASE], span_us=2_500 * MS, warm_us=1_500 * MS)}
CALM = Hops(workers=8, load=0.3, span_us=2 * SECOND, warm_us=500 * MS)


def test_the_chain_refuses_at_the_first_hop_and_finishes_what_was_begun() -> None:
    assert met(SCENARIO, "chain", SMALL)


@pytest.mark.parametrize("name", SCENARIO.must_fail)
def test_whoever_works_for_the_dead_fails(name: str) -> None:
    short = {CASE: replace(SMALL[CASE], workers=8)}
    assert not met(SCENARIO, name, short)


def test_refusing_the_same_at_every_hop_loses_what_was_done_before() -> None:
    rig = replace(SMALL[CASE], workers=8)
    ours, same = (measure(rig, play(rig, gate, 0)) for gate in (guarded, alike))
    assert ours["wasted"] < same["wasted"]
    assert ours["goodput"] > same["goodput"] + 0.02
    assert ours["refused.api"] + ours["refused.store"] < same["refused.api"]


def test_in_a_calm_chain_all_are_answered_after_the_sum_of_the_work() -> None:
    rig = replace(CALM, service=Constant(10_000))
    ended = play(rig, guarded, 1)
    assert (ended.late, ended.wasted_us, sum(ended.refused.values())) == (0, 0, 0)
    assert min(ended.good_us) == 30_000
    assert ended.useful_us == 30_000 * len(ended.good_us)
    figures = measure(rig, ended)
    assert 0.2 < figures["goodput"] < 0.4
    assert figures["p50_ms"] < 40


def test_work_for_whoever_is_late_is_wasted_at_every_hop() -> None:
    rig = replace(CALM, service=Constant(10_000), timeout_us=29_999)
    ended = play(rig, nothing, 1)
    assert ended.good_us == []
    assert ended.late > 0
    assert ended.wasted_us == 30_000 * ended.late == ended.worked_us
    assert measure(rig, ended)["p99_ms"] == float("inf")


def test_goodput_is_a_share_of_what_the_slowest_hop_allows() -> None:
    third_us = CALM.capacity_us / 3
    ended = HopsRun([1], 0, {}, int(2 * third_us), int(third_us / 2), 0, [10e3, 10e3, 10e3])
    assert measure(CALM, ended)["goodput"] == pytest.approx(2 / 3)
    # The second hop needs twice as long: the others can be busy for half of the time.
    slow = measure(CALM, ended._replace(means_us=[10e3, 20e3, 10e3]))
    assert slow["goodput"] == pytest.approx(1.0)
    assert slow["wasted"] == pytest.approx(1 / 6)


def test_what_a_unit_took_is_known_of_each_hop() -> None:
    ended = play(replace(CALM, service=Constant(10_000)), guarded, 1)
    assert ended.means_us == [10_000.0] * 3


class RecordingGate(HopGate):
    """A gate that records the time left, and refuses at the look if told to."""

    def __init__(self, left_us: list[int | None], refuses: bool) -> None:
        super().__init__(None, FifoPool(1))
        self.left_us = left_us
        self.refuses = refuses

    def door(self, request: Request, now_us: int) -> Permit | Decision:
        self.left_us.append(request.remaining_us(now_us))
        return NOTHING_HELD

    async def place(self, request: Request, clock: Clock) -> Permit | Decision:
        return NOTHING_HELD

    def look(self, request: Request, now_us: int) -> Decision | None:
        return Decision(False, 0, 1, 1, DEADLINE, "test") if self.refuses else None


def test_the_time_that_is_left_goes_with_the_request() -> None:
    rig = replace(CALM, service=Constant(10_000), timeout_us=50_000, load=0.05)
    left_us: list[int | None] = []
    ended = play(rig, lambda rig, first: RecordingGate(left_us, False), 1)
    assert len(ended.good_us) > 20
    assert set(left_us) == {50_000, 40_000, 30_000}


def test_who_is_refused_at_the_look_is_not_worked_for() -> None:
    left_us: list[int | None] = []
    ended = play(CALM, lambda rig, first: RecordingGate(left_us, not first), 1)
    assert ended.good_us == []
    assert ended.refused["edge"] == ended.refused["store"] == 0
    assert ended.refused["api"] > 200
    assert 0 < ended.wasted_us < 20_000 * ended.refused["api"]  # the first hop's part


def admits(left_us: int, *, first: bool) -> bool:
    """Whether a hop whose way takes 1 to 100 ms, all equally often, lets it in."""
    gate = guarded(CALM, first)
    for number in range(1_000):
        request = Request("k", operation="get", deadline_us=NOW + 10 * SECOND)
        permit = gate.door(request, NOW)
        assert not isinstance(permit, Decision)
        request.measured = Measured(service_us=(number % 100 + 1) * MS)
        permit.end(Outcome.SUCCESS, NOW)
    now_us = NOW + SECOND
    gate.door(Request("k", operation="get", deadline_us=now_us + 10 * SECOND), now_us)  # no probe
    ask = Request("k", operation="get", deadline_us=now_us + left_us)
    return not isinstance(gate.door(ask, now_us), Decision)


def test_the_first_hop_asks_for_the_p99_of_the_way_and_those_behind_for_the_median() -> None:
    assert not admits(90 * MS, first=True)
    assert admits(110 * MS, first=True)
    assert admits(60 * MS, first=False)
    assert not admits(40 * MS, first=False)


def test_a_run_is_a_function_of_its_seed() -> None:
    assert play(CALM, guarded, 5) == play(CALM, guarded, 5)
    assert play(CALM, guarded, 5) != play(CALM, guarded, 6)


def test_a_chain_of_nothing_is_refused() -> None:
    with pytest.raises(BadValue, match="hops"):
        Hops(hops=())
    with pytest.raises(BadValue, match="warm_us"):
        Hops(span_us=10, warm_us=10)
