"""Three services in a row, and what each of them works for in vain."""

from __future__ import annotations

from dataclasses import replace
from typing import final

import pytest

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.policy import NOTHING_HELD, Admission
from sluicegate.contracts.reasons import DEADLINE
from sluicegate.contracts.request import Request
from sluicegate.lab.durations import Constant
from sluicegate.lab.scenarios.deadline_chain import (
    SCENARIO,
    Hops,
    HopsRun,
    measure,
    nothing,
    play,
    protect,
)
from tests.lab.scenarios.trials import met

MS = 1_000
SECOND = 1_000_000
CASE = "500 ms"
SMALL = {CASE: replace(SCENARIO.rigs[CASE], span_us=2_500 * MS, warm_us=1_500 * MS)}
CALM = Hops(workers=8, load=0.3, span_us=2 * SECOND, warm_us=500 * MS)


@pytest.mark.prove
def test_the_chain_refuses_at_the_first_hop_and_finishes_what_was_begun() -> None:
    assert met(SCENARIO, "protect", SMALL)


@pytest.mark.prove
@pytest.mark.parametrize("name", SCENARIO.must_fail)
def test_whoever_works_for_the_dead_fails(name: str) -> None:
    short = {CASE: replace(SMALL[CASE], workers=8)}
    assert not met(SCENARIO, name, short)


@pytest.mark.prove
def test_places_kept_until_the_answer_bound_the_lines_behind() -> None:
    """Chance makes the last hop the slowest: with places for its own part the first fed a line."""
    rig = replace(SCENARIO.rigs[CASE], span_us=12 * SECOND)
    figures = measure(rig, play(rig, protect, 52050))
    assert figures["wasted"] == 0.0
    assert figures["refused.api"] + figures["refused.store"] == 0
    assert figures["p50_ms"] < 200
    assert figures["goodput"] > 0.98


@pytest.mark.prove
def test_too_many_places_for_short_deadlines_leave_no_worker_idle() -> None:
    """32 slots before four workers of 10 ms hide 80 ms of work in a queue without an order.

    Without protection nothing is answered in time.
    """
    rig = Hops(hops=("one",), workers=4, timeout_us=60 * MS, span_us=8 * SECOND, warm_us=2 * SECOND)
    figures = measure(rig, play(rig, protect, 1))
    assert figures["goodput"] > 0.1
    assert figures["goodput"] + figures["wasted"] > 0.95


def test_in_a_calm_chain_all_are_answered_after_the_sum_of_the_work() -> None:
    rig = replace(CALM, service=Constant(10_000))
    ended = play(rig, protect, 1)
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
    ended = play(replace(CALM, service=Constant(10_000)), protect, 1)
    assert ended.means_us == [10_000.0] * 3


@final
class RecordingHop:
    """Admits at once, or refuses, and records the time that was left."""

    def __init__(self, left_us: list[int | None], refuses: bool) -> None:
        self.left_us = left_us
        self.refuses = refuses

    async def admit(self, request: Request, clock: Clock) -> Admission:
        self.left_us.append(request.remaining_us(clock.now_us()))
        return Decision(False, 0, 1, 1, DEADLINE, "test") if self.refuses else NOTHING_HELD


def test_the_time_that_is_left_goes_with_the_request() -> None:
    rig = replace(CALM, service=Constant(10_000), timeout_us=50_000, load=0.05)
    left_us: list[int | None] = []
    ended = play(rig, lambda rig, world: RecordingHop(left_us, False), 1)
    assert len(ended.good_us) > 20
    assert set(left_us) == {50_000, 40_000, 30_000}


def test_what_a_later_hop_refuses_is_no_answer_and_its_work_is_wasted() -> None:
    left_us: list[int | None] = []
    refuses = iter([False, True, False])  # they are made from the last to the first
    ended = play(CALM, lambda rig, world: RecordingHop(left_us, next(refuses)), 1)
    assert ended.good_us == []
    assert ended.refused["edge"] == ended.refused["store"] == 0
    assert ended.refused["api"] > 200
    assert 0 < ended.wasted_us < 20_000 * ended.refused["api"]  # the first hop's part


def test_a_run_is_a_function_of_its_seed() -> None:
    assert play(CALM, protect, 5) == play(CALM, protect, 5)
    assert play(CALM, protect, 5) != play(CALM, protect, 6)


def test_a_chain_of_nothing_is_refused() -> None:
    with pytest.raises(BadValue, match="hops"):
        Hops(hops=())
    with pytest.raises(BadValue, match="warm_us"):
        Hops(span_us=10, warm_us=10)
