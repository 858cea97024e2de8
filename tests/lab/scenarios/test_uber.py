"""A tuned bucket and work that costs thrice: what is compared, what a task holds, who misses."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import pytest

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.policy import WaitingPolicy
from sluicegate.contracts.reasons import DEADLINE, QUOTA_SPENT
from sluicegate.contracts.request import Request
from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.baselines.rate_gates import TokenPool
from sluicegate.lab.clients import make_request
from sluicegate.lab.ledger import RunLedger
from sluicegate.lab.rig import Rig, WorkKind
from sluicegate.lab.scenario import run_trials
from sluicegate.lab.scenarios.uber import (
    QUEUE_TASK_BYTES,
    RIG,
    SCENARIO,
    TOKEN_TASK_BYTES,
    UberRun,
    chain,
    curves,
    dear_us,
    kinds,
    measure,
    reference,
)
from sluicegate.lab.speed_profile import SpeedProfile
from sluicegate.lab.task_mode import PolicyServer
from sluicegate.lab.world import World, run
from sluicegate.policies.admission.gate import Gate
from sluicegate.policies.admission.settings import GateSettings
from sluicegate.policies.stack import Stack

SECOND = 1_000_000
SMALL_RIG = replace(
    RIG,
    kinds=kinds(1_200),
    workers=8,
    speed_profile=SpeedProfile(((SECOND, 1 / 3),)),
    span_us=9 * SECOND,
    warm_us=SECOND // 2,
)
SMALL = replace(SCENARIO, rigs={"tripled": SMALL_RIG})


def met(candidate: str) -> bool:
    return run_trials(SMALL, [candidate], [1]).meets_goals(candidate)


@pytest.fixture(scope="module")
def bucket() -> UberRun:
    uber_run = SMALL.candidate("token-bucket").run(SMALL_RIG, 1)
    assert isinstance(uber_run, UberRun)
    return uber_run


@pytest.mark.prove
def test_without_the_queue_every_figure_is_missed() -> None:
    assert not met("without-queue")


def test_a_short_line_in_order_beats_the_four_and_refuses_who_matters() -> None:
    results = run_trials(SMALL, ["bounded"], [1]).judge("bounded")
    assert [one.goal.figure for one in results if not one.met] == ["success.payment"]


@pytest.mark.prove
def test_ours_beats_all_four_figures_with_a_quarter_of_the_workers() -> None:
    assert met(SCENARIO.ours)


@pytest.mark.prove
def test_the_reference_against_itself_gains_nothing(bucket: UberRun) -> None:
    figures = measure(SMALL_RIG, bucket)
    assert "token-bucket" in SCENARIO.must_fail
    for goal in SCENARIO.goals:
        if goal.figure != "success.payment":
            assert figures[goal.figure] == 0.0
            assert not goal.is_met(0.0, SMALL_RIG)
    assert figures["tasks_peak"] == reference(SMALL_RIG, 1).tasks_peak
    assert figures["calm_per_s"] == pytest.approx(800, rel=0.1), "it was tuned well"


def test_live_tasks_are_sampled_and_their_peak_is_exact(bucket: UberRun) -> None:
    drawn = curves(SMALL_RIG, bucket)
    highest = max(value for _, value in drawn["live_tasks"])
    assert 0.9 * bucket.half.tasks_peak < highest <= bucket.half.tasks_peak
    assert dear_us(SMALL_RIG) == SECOND
    assert [at for at, _ in drawn["good_per_s"]] == [at / 10 for at in range(90)]


def test_a_bucket_with_a_pool_refuses_without_a_token_and_drops_who_is_given_up() -> None:
    async def main(world: World) -> list[object]:
        pool = TokenPool(per_s=10, burst=2, places=1)
        now_us = world.clock.now_us()
        first, waiting = (Request("k", deadline_us=now_us + 50_000) for _ in range(2))
        permit = await pool.admit(first, world.clock)
        waited = await pool.admit(waiting, world.clock)
        elapsed_us = world.elapsed_us
        refused = await pool.admit(Request("k"), world.clock)
        assert not isinstance(permit, Decision)
        permit.end(Outcome.SUCCESS, world.clock.now_us())
        await world.sleep_us(200_000)
        return [waited, elapsed_us, refused, await pool.admit(Request("k"), world.clock)]

    waited, elapsed_us, refused, last = run(main, 0).value
    assert isinstance(waited, Decision)
    assert waited.reason is DEADLINE
    assert elapsed_us == 50_000
    assert isinstance(refused, Decision)
    assert refused.reason is QUOTA_SPENT
    assert not isinstance(last, Decision), "the place was given back"


@pytest.mark.parametrize(
    ("make", "task_bytes"),
    [
        (lambda: TokenPool(100_000, 10_000, 8), TOKEN_TASK_BYTES),
        (lambda: Gate(GateSettings(slots=8, length_max=5_000)), QUEUE_TASK_BYTES),
    ],
)
def test_a_live_task_holds_about_as_much_as_is_said(
    make: Callable[[], WaitingPolicy], task_bytes: int
) -> None:
    count = 500
    rig = Rig(kinds=(WorkKind(name="upsert", arrivals=Poisson(1), timeout_us=SECOND),), workers=8)

    async def main(world: World) -> float:
        server = PolicyServer(world, rig, make(), RunLedger(rig.kinds, warm_us=0, span_us=SECOND))
        door, loop = server.door(0, rig.kinds[0]), asyncio.get_running_loop()

        async def come() -> None:
            await door(make_request(world, rig.kinds[0], 0))

        tasks = [loop.create_task(come()) for _ in range(50)]
        await world.sleep_us(1)
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        tasks += [loop.create_task(come()) for _ in range(count)]
        await world.sleep_us(1)
        gc.collect()
        size = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert server.inside == len(tasks)
        await world.cancel_others()
        return size / count

    assert run(main, 0).value == pytest.approx(task_bytes, rel=0.35)


def test_the_chain_is_all_stages_in_their_order() -> None:
    async def main(world: World) -> list[str]:
        stack = chain(SMALL_RIG, world)
        assert isinstance(stack, Stack)
        return [stage.name for stage in stack.stats().stages]

    assert run(main, 0).value == ["request units", "queue"]
