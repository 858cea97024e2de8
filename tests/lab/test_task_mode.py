from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.policy import WaitingPolicy
from sluicegate.contracts.request import Request
from sluicegate.lab import task_mode
from sluicegate.lab.arrivals import Even, Poisson, Replay
from sluicegate.lab.backend import Backend
from sluicegate.lab.baselines.queues import QueuedPermit, QueuedPool, fifo_pool
from sluicegate.lab.clients import RetryingCall, make_request, open_loop
from sluicegate.lab.durations import Constant, Exponential
from sluicegate.lab.retries import NAIVE, SMART, Retrier
from sluicegate.lab.rig import Rig, WorkKind
from sluicegate.lab.speed_profile import SpeedProfile
from sluicegate.lab.station_candidates import queue
from sluicegate.lab.world import World, run
from sluicegate.policies.admission.gate import Gate
from tests.lab.rigs import small

SECOND = 1_000_000
KIND = WorkKind(name="get", arrivals=Even(100), timeout_us=100_000, callers=3)


def test_five_runs_of_a_seed_have_one_digest_and_another_seed_another() -> None:
    rig = small(2, span_us=200_000, warm_us=50_000, refusal_cost=0.01)
    runs = [task_mode.run_world(rig, queue, 7) for _ in range(5)]
    assert len({ended.digest for ended in runs}) == 1
    assert len({tuple(ended.value.by_kind[0].good_us) for ended in runs}) == 1
    assert task_mode.run_world(rig, queue, 8).digest != runs[0].digest


def test_the_production_queue_keeps_a_service_at_what_is_possible_where_a_pool_dies() -> None:
    rig = small(2, span_us=2 * SECOND, warm_us=SECOND, refusal_cost=0.01)
    own_run = task_mode.run_policy(rig, queue, 1)
    lost = task_mode.run_policy(rig, fifo_pool, 1)
    capacity_us = 32 * SECOND
    assert own_run.useful_us / capacity_us >= 0.98 * rig.ceiling(2)
    assert lost.useful_us / capacity_us < 0.01


def test_when_a_run_is_over_the_policy_holds_nothing() -> None:
    made: list[Gate] = []

    def keep(rig: Rig, world: World) -> WaitingPolicy:
        made.append(queue(rig, world))
        return made[0]

    task_mode.run_policy(small(3, span_us=300_000, warm_us=0), keep, 1)
    stats = made[0].stats()
    assert (stats.inflight, stats.queued, stats.queued_bytes) == (0, 0, 0)


@pytest.mark.prove
def test_naive_callers_in_full_mode_try_again_and_their_old_attempts_go_on() -> None:
    rig = small(
        0.8, span_us=4 * SECOND, speed_profile=SpeedProfile(((SECOND, 0.1), (2 * SECOND, 1.0)))
    )
    naive = Rig(
        kinds=rig.kinds,
        speed_profile=rig.speed_profile,
        span_us=rig.span_us,
        warm_us=0,
        retries=NAIVE,
    )
    ledger = task_mode.run_policy(naive, fifo_pool, 1)
    assert ledger.retries > 0.5 * ledger.started
    assert ledger.by_kind[0].late > 0
    # The dip is over after a second; the storm is not two seconds later.
    assert sum(ledger.good_at[30:40]) < 0.1 * 0.2 * 3_200


def test_a_pool_passes_a_place_on_when_whoever_was_given_it_is_cancelled() -> None:
    async def main(world: World) -> list[str]:
        pool = QueuedPool(1)
        request = make_request(world, KIND, 0)
        first = await pool.admit(request, world.clock)
        assert isinstance(first, QueuedPermit)
        order: list[str] = []

        async def wait(name: str) -> None:
            permit = await pool.admit(request, world.clock)
            assert isinstance(permit, QueuedPermit)
            order.append(name)
            assert permit.end(Outcome.SUCCESS, world.clock.now_us())
            assert not permit.end(Outcome.SUCCESS, world.clock.now_us())

        tasks = [world.spawn(wait(name), name) for name in ("a", "b", "c")]
        await world.sleep_us(1)
        assert first.end(Outcome.SUCCESS, world.clock.now_us())
        tasks[0].cancel()  # it has the place, and has not run yet
        await asyncio.wait(tasks)
        return order

    assert run(main, 0).value == ["b", "c"]


def test_a_backend_serves_as_many_as_it_has_workers_and_the_urgent_first() -> None:
    async def main(world: World) -> tuple[list[tuple[str, int]], tuple[int, ...]]:
        backend = Backend(world, Constant(100), workers=1)
        ended: list[tuple[str, int]] = []

        async def one(name: str, urgent: bool) -> None:
            await backend.serve(backend.draw_us(), urgent=urgent)
            ended.append((name, world.elapsed_us))

        for name, urgent in (("a", False), ("b", False), ("c", True)):
            world.spawn(one(name, urgent), name)
        await world.sleep_us(50)
        busy = (backend.busy, backend.queued)
        await world.sleep_us(1_000)
        return ended, busy

    ended, busy = run(main, 0).value
    assert ended == [("a", 100), ("c", 200), ("b", 300)]
    assert busy == (1, 2)


def test_a_slow_shard_is_slower_by_its_factor_and_dear_work_takes_longer() -> None:
    async def main(world: World) -> tuple[int, int, int]:
        backend = Backend(world, Constant(100), slow_shards={"s3": 50.0})
        return (
            backend.draw_us(),
            backend.draw_us(cost=200),
            backend.draw_us(shard="s3"),
        )

    assert run(main, 0).value == (100, 20_000, 5_000)


def test_a_backend_that_is_paused_answers_when_the_pause_is_over() -> None:
    async def main(world: World) -> int:
        backend = Backend(
            world, Constant(100), speed_profile=SpeedProfile(((50, 0.0), (5_000, 1.0)))
        )
        await backend.serve(100)
        return world.elapsed_us

    assert run(main, 0).value == 5_050


def test_who_is_cancelled_while_waiting_or_at_work_leaves_no_worker_behind() -> None:
    async def main(world: World) -> tuple[int, ...]:
        backend = Backend(world, Exponential(100.0), workers=3)
        draw = world.chance("test").draw
        for number in range(400):
            task = world.spawn(backend.serve(backend.draw_us()), str(number))
            if draw() < 0.5:
                world.call_at_us(world.elapsed_us + int(draw() * 200), task.cancel)
            await world.sleep_us(int(draw() * 40))
        await world.sleep_us(100_000)
        return (backend.busy, backend.queued)

    for seed in range(5):
        assert run(main, seed).value == (0, 0)


def test_an_open_loop_does_not_wait_for_answers() -> None:
    async def main(world: World) -> list[int]:
        came: list[int] = []

        async def never(request: Request) -> None:
            came.append(world.elapsed_us)
            await asyncio.sleep(1_000)

        await open_loop(world, KIND, never, until_us=100_000)
        await world.sleep_us(1)
        await world.cancel_others()
        return came

    assert run(main, 0).value == list(range(10_000, 100_000, 10_000))


def test_a_retrying_call_ends_with_an_answer_or_its_attempts_and_its_deadlines() -> None:
    async def main(world: World) -> tuple[bool, int, int, list[int]]:
        begun: list[int] = []

        async def too_slow(request: Request) -> bool:
            begun.append(world.elapsed_us)
            assert request.deadline_us == world.clock.now_us() + 100_000
            await world.sleep_us(250_000)
            return False

        call = RetryingCall(world, too_slow, Retrier(NAIVE, world.chance("retries")))
        answered = await call(make_request(world, KIND, 0))
        await world.cancel_others()
        return answered, call.calls, call.attempts, begun

    assert run(main, 0).value == (False, 1, 4, [0, 100_000, 200_000, 300_000])


def test_a_smart_call_waits_longer_each_time_and_stops_where_its_budget_ends() -> None:
    async def main(world: World) -> tuple[int, list[int]]:
        begun: list[int] = []

        async def refuse(request: Request) -> bool:
            begun.append(world.elapsed_us)
            return False

        call = RetryingCall(world, refuse, Retrier(SMART, world.chance("retries")))
        await call(make_request(world, KIND, 0))
        for _ in range(100):
            await call(make_request(world, KIND, 0))
        return call.attempts, begun

    attempts, begun = run(main, 2).value
    # The reserve is ten in a window of ten seconds, and each call pays in a tenth.
    assert 101 + 10 <= attempts <= 101 + 21
    assert all(early <= late for early, late in pairwise(begun))


def test_a_request_carries_what_its_kind_says() -> None:
    async def main(world: World) -> Request:
        kind = WorkKind(
            name="scan",
            arrivals=Poisson(1),
            criticality=Criticality.BULK,
            timeout_us=70,
            cost=200,
            shard="s1",
        )
        await world.sleep_us(30)
        return make_request(world, kind, 2)

    request = run(main, 0).value
    assert (request.caller, request.operation, request.shard) == ("scan-2", "scan", "s1")
    assert (request.cost, request.criticality) == (200, Criticality.BULK)
    assert request.deadline_us == request.arrived_us + 70


def test_replayed_arrivals_of_one_instant_all_come() -> None:
    rig = Rig(
        kinds=(WorkKind(name="get", arrivals=Replay((0, 0, 5, 5)), timeout_us=1_000),),
        workers=4,
        service=Constant(10),
        span_us=100,
        warm_us=0,
    )
    assert task_mode.run_policy(rig, fifo_pool, 0).by_kind[0].good_us == [10, 10, 10, 10]
