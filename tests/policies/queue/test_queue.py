"""The queue: order, bounds, deaths with a name, and places that always come back."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import DEADLINE, QUEUE_FULL, QUEUE_TIMEOUT
from sluicegate.contracts.request import Request
from sluicegate.policies.concurrency import AdaptiveSettings, Concurrency, ConcurrencySettings
from sluicegate.policies.queue.queue import WAITER_BYTES, Queue, QueuePermit, QueueSettings
from sluicegate.policies.queue.rules import FORMS
from sluicegate.testing import HandClock, SeededChance

CRITICAL, DEGRADED, BEST_EFFORT, BULK = Criticality
OK = Outcome.SUCCESS
Admitted = asyncio.Task[QueuePermit | Decision]


class HandLoop(asyncio.SelectorEventLoop):
    """A loop whose timers go by a clock that is moved by hand."""

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        super().__init__()

    def time(self) -> float:
        return self.clock.now_us() / 1e6


class World:
    def __init__(self, clock: HandClock, queue: Queue) -> None:
        self.clock = clock
        self.queue = queue
        self.count = 0

    @property
    def now_us(self) -> int:
        return self.clock.now_us()

    async def settle(self) -> None:
        for _ in range(6):
            await asyncio.sleep(0)

    async def ask(self, criticality: Criticality = DEGRADED, **more: Any) -> Admitted:
        self.count += 1
        request = Request(f"key{self.count}", criticality=criticality, **more)
        task = asyncio.ensure_future(self.queue.admit(request, self.clock))
        await self.settle()
        return task

    async def wait(self, *, ms: float) -> None:
        """Move time in steps of a millisecond at most, as timers would see it."""
        left = ms
        while left > 0:
            self.clock.advance(ms=min(1, left))
            left -= 1
            await self.settle()

    async def end(self, task: Admitted) -> None:
        assert permit_of(task).end(OK, self.now_us)
        await self.settle()


def permit_of(task: Admitted) -> QueuePermit:
    assert task.done()
    permit = task.result()
    assert isinstance(permit, QueuePermit)
    return permit


def refusal_of(task: Admitted) -> Decision:
    assert task.done()
    decision = task.result()
    assert isinstance(decision, Decision)
    assert decision.rule_id == "queue"
    return decision


def run(
    story: Callable[[World], Awaitable[None]],
    size_bytes: Callable[[Request], int] | None = None,
    **some: Any,
) -> None:
    clock = HandClock()
    queue = Queue(QueueSettings(**some), size_bytes)

    async def main() -> None:
        await story(World(clock, queue))

    with asyncio.Runner(loop_factory=lambda: HandLoop(clock)) as runner:
        runner.run(main())


def test_as_many_as_there_are_places_begin_at_once_and_the_next_when_one_ends() -> None:
    async def story(world: World) -> None:
        first, second, third = [await world.ask() for _ in range(3)]
        assert first.done()
        assert second.done()
        assert not third.done()
        await world.wait(ms=3)
        await world.end(first)
        assert permit_of(third).waited_us == 3_000
        assert world.queue.inflight == 2

    run(story, places=2)


def test_who_has_left_the_line_leaves_nothing_that_only_the_collector_could_free() -> None:
    """Refused 8,000 a second, 50,000 objects at a time kept the loop for 40 ms to be found."""

    async def story(world: World) -> None:
        place = await world.ask()
        gc.collect()
        gc.disable()
        try:
            crowd = [await world.ask(BULK) for _ in range(12)]  # four are one too many
            late = [await world.ask(deadline_us=world.now_us + 5_000) for _ in range(4)]
            left = await world.ask()
            assert world.queue.requeue(Request("nobody"), world.now_us) is False
            left.cancel()
            await world.wait(ms=8)
            await world.end(place)
            served = [one for one in [*crowd, *late] if one.done()]
            assert {type(one.result()) for one in served} == {QueuePermit, Decision}
            await world.wait(ms=600)
            assert all(one.done() for one in [*crowd, *late, left])
            for one in (crowd, late, served):
                one.clear()
            del left, one
            await world.settle()
            assert gc.collect() < 20  # the tasks of this test
        finally:
            gc.enable()

    run(story, places=1, length_max=8)


def test_a_permit_ends_once_and_an_ended_one_wakes_nobody() -> None:
    async def story(world: World) -> None:
        first, second, third = [await world.ask() for _ in range(3)]
        await world.end(first)
        assert second.done()
        assert not permit_of(first).end(OK, world.now_us)
        await world.settle()
        assert not third.done()
        await world.end(second)
        await world.end(third)
        assert world.queue.inflight == 0

    run(story, places=1)


def test_a_free_place_costs_no_loop_at_all() -> None:
    queue = Queue(QueueSettings(places=1))
    permit = queue.enter(Request("k"), 1)
    assert isinstance(permit, QueuePermit)
    assert permit.waited_us == 0


def test_what_matters_more_goes_first_and_within_a_class_whoever_came_first() -> None:
    async def story(world: World) -> None:
        order: list[str] = []
        holder = await world.ask()
        tasks = {
            name: await world.ask(kind)
            for name, kind in [
                ("bulk", BULK),
                ("first", DEGRADED),
                ("second", DEGRADED),
                ("critical", CRITICAL),
                ("best effort", BEST_EFFORT),
            ]
        }
        while tasks:
            await world.end(holder)
            name = next(name for name, task in tasks.items() if task.done())
            order.append(name)
            holder = tasks.pop(name)
        assert order == ["critical", "first", "second", "best effort", "bulk"]

    run(story, places=1, floor_permille=0)


def test_within_a_class_operations_share_by_weight() -> None:
    async def story(world: World) -> None:
        holder = await world.ask()
        tasks = [await world.ask(operation=op) for op in ["scan", "get"] * 20]
        served = {"scan": 0, "get": 0}
        for _ in range(20):
            await world.end(holder)
            holder = next(task for task in tasks if task.done())
            served[["scan", "get"][(world_index := tasks.index(holder)) % 2]] += 1
            tasks[world_index] = asyncio.get_running_loop().create_future()  # type: ignore[call-overload]
        assert served["get"] == pytest.approx(15, abs=1)

    run(story, places=1, weights={"get": 3, "scan": 1}, adaptive_target=False)


def test_once_it_stands_the_newest_is_served_and_the_oldest_is_told_to_go() -> None:
    async def story(world: World) -> None:
        holder = await world.ask()
        tasks: list[Admitted] = []
        for _ in range(150):  # one a millisecond, and one served in two
            tasks.append(await world.ask())
            await world.wait(ms=1)
            tasks.append(await world.ask())
            await world.wait(ms=1)
            await world.end(holder)
            holder = [task for task in tasks if task.done() and admitted(task)][-1]
        served = [
            permit_of(task).waited_us for task in tasks[200:] if task.done() and admitted(task)
        ]
        refused = [task for task in tasks[200:] if task.done() and not admitted(task)]
        assert len(served) >= 49
        assert sorted(served)[len(served) // 2] <= 2_000
        assert len(refused) >= 35
        assert all(refusal_of(task).reason is QUEUE_TIMEOUT for task in refused)
        assert world.queue.stats().queued <= 15
        assert world.queue.stats().overloaded

    run(story, places=1, standing_us=100_000, adaptive_target=False)


def test_a_class_is_let_go_though_the_places_are_never_free_because_of_a_lesser_one() -> None:
    async def story(world: World) -> None:
        working = await world.ask(BULK)
        tasks: list[Admitted] = []

        async def a_millisecond() -> None:
            nonlocal working
            tasks.append(await world.ask(BULK))  # always more of it than there is room for
            await world.wait(ms=1)
            await world.end(working)
            ended.add(working)
            running = [task for task in tasks if task.done() and task not in ended]
            working = next(task for task in running if admitted(task))

        ended: set[Admitted] = set()
        tasks += [await world.ask(CRITICAL) for _ in range(150)]
        for at in range(500):  # nine in ten milliseconds, each waits for the one at work
            if at % 10:
                tasks.append(await world.ask(CRITICAL))
            await a_millisecond()
        refused = world.queue.stats().refused_timeout
        assert refused > 100  # it stood, and was shed
        burst = [await world.ask(CRITICAL) for _ in range(20)]
        tasks += burst
        for _ in range(25):
            await a_millisecond()
        assert all(admitted(task) for task in burst)

    run(story, places=1, adaptive_target=False, length_max=200)


def admitted(task: Admitted) -> bool:
    return isinstance(task.result(), QueuePermit)


def overload(form: str, standing_us: int | None, load: int) -> tuple[int, int]:
    """Served within 20 ms and served in all, in 2 s at `load` times what one place can do."""
    counts = [0, 0]

    async def story(world: World) -> None:
        tasks: list[Admitted] = []
        holders: list[Admitted] = []
        for ms in range(1_500):
            tasks += [await world.ask() for _ in range(load)]
            world.clock.advance(ms=1)
            await world.settle()
            if ms % 2:  # two places, each 2 ms of work: one a millisecond
                holders = [task for task in tasks if task.done() and admitted(task)]
            for task in holders:
                waited_us = permit_of(task).waited_us
                await world.end(task)
                if ms > 500:
                    counts[0] += waited_us <= 20_000
                    counts[1] += 1
            tasks = [task for task in tasks if not task.done()] + [
                task for task in tasks if task.done() and admitted(task) and task not in holders
            ]
            holders = []

    run(
        story,
        places=2,
        form=form,
        standing_us=standing_us,
        length_max=400,
        wait_us_max=400_000,
        adaptive_target=False,
    )
    return counts[0], counts[1]


@pytest.mark.prove
def test_codel_and_facebook_answer_in_time_at_thrice_the_load_where_packets_do_not() -> None:
    in_time, served = overload("codel", 100_000, 3)
    assert served >= 900
    assert in_time >= 0.99 * served
    in_time, served = overload("facebook", 100_000, 3)
    assert in_time >= 0.99 * served
    in_time, served = overload("rfc8289", None, 3)
    assert in_time < 0.02 * served
    in_time, served = overload("none", None, 3)
    assert in_time < 0.02 * served


def test_who_waits_longer_than_anybody_may_is_told_so_without_a_permit_ending() -> None:
    async def story(world: World) -> None:
        await world.ask()
        task = await world.ask()
        await world.wait(ms=49)
        assert not task.done()
        await world.wait(ms=7)
        decision = refusal_of(task)
        assert decision.reason is QUEUE_TIMEOUT
        assert decision.retry_after_us == 100_000
        assert world.queue.stats().queued == 0

    run(story, places=1, wait_us_max=50_000)


def test_a_deadline_in_the_middle_of_the_line_is_noticed_there() -> None:
    async def story(world: World) -> None:
        await world.ask()
        patient = await world.ask()
        hasty = await world.ask(deadline_us=world.now_us + 20_000)
        await world.ask()
        await world.wait(ms=26)
        assert refusal_of(hasty).reason is DEADLINE
        assert refusal_of(hasty).retry_after_us < 0
        assert not patient.done()

    run(story, places=1)


def test_who_has_less_left_than_the_work_takes_is_refused_before_its_deadline() -> None:
    async def story(world: World) -> None:
        for _ in range(20):
            task = await world.ask()
            await world.wait(ms=10)
            await world.end(task)
        assert world.queue.slack_us == pytest.approx(10_000, rel=0.02)
        holder = await world.ask()
        hopeless = await world.ask(deadline_us=world.now_us + 30_000)
        await world.wait(ms=19)
        assert not hopeless.done()
        await world.wait(ms=6)  # 25 ms: still five before its deadline
        assert refusal_of(hopeless).reason is DEADLINE
        await world.end(holder)
        assert world.queue.stats().refused_deadline == 1

    run(story, places=1)


def test_the_slack_that_counts_is_that_of_the_dequeue() -> None:
    async def story(world: World) -> None:
        holder = await world.ask()
        waiter = await world.ask(deadline_us=world.now_us + 100_000)
        await world.wait(ms=80)  # what was held took 80 ms, and the p99 with it
        assert world.queue.slack_us == 0
        await world.end(holder)
        assert refusal_of(waiter).reason is DEADLINE
        assert world.queue.inflight == 0

    run(story, places=1)


def test_only_what_succeeded_says_how_long_the_work_takes() -> None:
    async def story(world: World) -> None:
        for outcome, spent in [(Outcome.IGNORE, True), (Outcome.DROPPED, True), (OK, False)]:
            task = await world.ask()
            await world.wait(ms=30)
            permit_of(task).end(outcome, world.now_us, spent=spent)
        assert world.queue.slack_us == 0
        assert world.queue.stats().target_us == 5_000

    run(story, places=2)


def test_a_short_deadline_is_not_shut_out_by_a_long_tail() -> None:
    async def story(world: World) -> None:
        task = await world.ask()
        await world.wait(ms=300)
        await world.end(task)
        holder = await world.ask(deadline_us=world.now_us + 20_000)
        assert holder.done()  # a free place asks nothing
        short = await world.ask(deadline_us=world.now_us + 20_000)
        await world.wait(ms=5)
        await world.end(holder)
        assert permit_of(short).waited_us == 5_000

    run(story, places=1)


def test_it_is_bounded_in_number_and_the_less_important_gives_way() -> None:
    async def story(world: World) -> None:
        await world.ask()
        bulk = await world.ask(BULK)
        normal = await world.ask()
        critical = await world.ask(CRITICAL)
        assert refusal_of(bulk).reason is QUEUE_FULL
        assert refusal_of(bulk).retry_after_us >= 1_000
        assert not normal.done()
        assert not critical.done()
        late = await world.ask(BULK)
        assert refusal_of(late).reason is QUEUE_FULL
        assert world.queue.stats().refused_full == 2

    run(story, places=1, length_max=2)


def test_it_is_bounded_in_bytes() -> None:
    async def story(world: World) -> None:
        await world.ask()
        big = await world.ask(key_bytes(6_000))
        assert not big.done()
        another = await world.ask(key_bytes(6_000))
        assert refusal_of(another).reason is QUEUE_FULL
        assert world.queue.stats().queued_bytes == WAITER_BYTES + 6_000

    def key_bytes(count: int) -> Criticality:
        sizes.append(count)
        return DEGRADED

    sizes: list[int] = []
    run(story, lambda request: sizes[-1], places=1, bytes_max=12_000)


def test_a_cancelled_waiter_leaves_no_trace() -> None:
    async def story(world: World) -> None:
        holder = await world.ask()
        leaver, next_one = await world.ask(), await world.ask()
        leaver.cancel()
        await world.settle()
        assert leaver.cancelled()
        assert world.queue.stats().queued == 1
        await world.end(holder)
        await world.end(next_one)
        assert world.queue.inflight == 0
        assert world.queue.stats().cancelled == 1

    run(story, places=1)


def test_a_place_given_to_a_task_that_is_cancelled_in_the_same_instant_goes_on() -> None:
    async def story(world: World) -> None:
        holder = await world.ask()
        leaver, next_one = await world.ask(), await world.ask()
        permit_of(holder).end(OK, world.now_us)  # `leaver` has its place, and does not know it yet
        leaver.cancel()
        await world.settle()
        assert leaver.cancelled()
        assert next_one.done()
        await world.end(next_one)
        assert world.queue.inflight == 0

    run(story, places=1)


def test_a_task_that_is_cancelled_before_it_can_say_so_is_given_no_place() -> None:
    async def story(world: World) -> None:
        holder = await world.ask()
        leaver, next_one = await world.ask(), await world.ask()
        leaver.cancel()
        permit_of(holder).end(OK, world.now_us)
        await world.settle()
        assert next_one.done()
        await world.end(next_one)
        assert world.queue.inflight == 0

    run(story, places=1)


def test_more_places_begin_more_and_fewer_wait_for_permits_to_end() -> None:
    async def story(world: World) -> None:
        tasks = [await world.ask() for _ in range(4)]
        world.queue.resize(3, world.now_us)
        await world.settle()
        assert [task.done() for task in tasks] == [True, True, True, False]
        world.queue.resize(1, world.now_us)
        await world.end(tasks[0])
        await world.end(tasks[1])
        assert not tasks[3].done()
        await world.end(tasks[2])
        assert tasks[3].done()

    run(story, places=1)


def test_a_waiting_unit_that_comes_to_matter_more_is_moved_up() -> None:
    async def story(world: World) -> None:
        holder = await world.ask()
        first = await world.ask()
        request = Request("shared", criticality=BULK)
        raised = asyncio.ensure_future(world.queue.admit(request, world.clock))
        await world.settle()
        request.criticality = CRITICAL
        assert world.queue.requeue(request, world.now_us)
        assert world.queue.stats().queued_bytes == 2 * WAITER_BYTES
        await world.end(holder)
        assert raised.done()
        assert not first.done()
        assert not world.queue.requeue(request, world.now_us)
        assert world.queue.stats().queued == 1

    run(story, places=1)


def test_one_request_may_stand_in_line_twice() -> None:
    async def story(world: World) -> None:
        holder = await world.ask()
        request = Request("hedged")
        twice = [asyncio.ensure_future(world.queue.admit(request, world.clock)) for _ in range(2)]
        await world.settle()
        assert world.queue.stats().queued == 2
        await world.end(holder)
        await world.end(twice[0])
        await world.end(twice[1])
        assert world.queue.stats()[1:4] == (0, 0, 0)

    run(story, places=1)


def test_a_unit_that_was_moved_up_keeps_the_time_it_had() -> None:
    async def story(world: World) -> None:
        await world.ask()
        request = Request("shared", criticality=BULK)
        raised = asyncio.ensure_future(world.queue.admit(request, world.clock))
        await world.wait(ms=30)
        request.criticality = CRITICAL
        world.queue.requeue(request, world.now_us)
        await world.wait(ms=15)
        assert not raised.done()
        await world.wait(ms=11)
        assert refusal_of(raised).reason is QUEUE_TIMEOUT

    run(story, places=1, wait_us_max=50_000)


def test_the_target_follows_an_unloaded_service_and_not_a_loaded_one() -> None:
    async def story(world: World) -> None:
        for _ in range(64):
            task = await world.ask()
            await world.wait(ms=100)
            await world.end(task)
        assert world.queue.stats().target_us == pytest.approx(50_000, rel=0.05)
        tasks = [await world.ask() for _ in range(4)]
        for _ in range(40):  # all four places busy, four times slower
            await world.wait(ms=400)
            await world.end(tasks.pop(0))
            tasks.append(await world.ask())
        assert world.queue.stats().target_us == pytest.approx(50_000, rel=0.6)

    run(story, places=4)


def test_bulk_is_served_a_little_while_nothing_critical_stands() -> None:
    async def story(world: World) -> None:
        holder = await world.ask()
        bulk = await world.ask(BULK)
        served = 0
        while not bulk.done() and served < 50:
            waiting = await world.ask()
            await world.end(holder)
            if bulk.done():
                break
            holder = waiting
            served += 1
        assert 5 <= served <= 20

    run(story, places=1, floor_permille=100)


def test_it_says_how_long_the_oldest_has_waited() -> None:
    async def story(world: World) -> None:
        await world.ask()
        assert world.queue.delay_us(world.now_us) == 0
        await world.ask()
        await world.wait(ms=7)
        await world.ask(CRITICAL)
        assert world.queue.delay_us(world.now_us) == 7_000

    run(story, places=1)


def test_a_clock_that_goes_back_loses_nobody() -> None:
    async def story(world: World) -> None:
        holder = await world.ask()
        waiter = await world.ask()
        world.clock.go_back(s=5)
        await world.settle()
        await world.end(holder)
        assert permit_of(waiter).waited_us == 0
        await world.end(waiter)
        assert world.queue.inflight == 0

    run(story, places=1)


def test_the_number_of_places_may_be_that_of_an_adaptive_limit() -> None:
    async def story(world: World) -> None:
        adaptive = AdaptiveSettings(algorithm="aimd", initial=1, samples_min=1, window_us=1_000)
        gate = Concurrency(ConcurrencySettings(adaptive=adaptive), SeededChance())
        waiting = [await world.ask() for _ in range(3)]
        inner = gate.admit(Request("k"), world.now_us)
        assert not isinstance(inner, Decision)
        for _ in range(3):
            await world.wait(ms=2)
            inner.end(OK, world.now_us)
            again = gate.admit(Request("k"), world.now_us)
            assert not isinstance(again, Decision)
            inner = again
        world.queue.resize(gate.limit, world.now_us)
        await world.settle()
        assert gate.limit == 2
        assert [task.done() for task in waiting] == [True, True, False]

    run(story, places=1)


class Mix:
    """Asks, ends, cancels, resizes and moves time, as the dice say."""

    def __init__(self, world: World, dice: random.Random) -> None:
        self.world = world
        self.dice = dice
        self.tasks: list[Admitted] = []
        self.permits: list[QueuePermit] = []
        self._seen: set[Admitted] = set()

    def gather(self) -> None:
        for task in self.tasks:
            if task.done() and task not in self._seen:
                self._seen.add(task)
                if not task.cancelled() and admitted(task):
                    self.permits.append(permit_of(task))

    async def step(self) -> None:
        world, dice = self.world, self.dice
        what = dice.randrange(6)
        if what <= 1:
            deadline_us = dice.choice([None, world.now_us + dice.randrange(1, 30_000)])
            criticality = dice.choice(list(Criticality))
            request = Request("key", criticality=criticality, deadline_us=deadline_us)
            self.tasks.append(asyncio.ensure_future(world.queue.admit(request, world.clock)))
        elif what == 2 and self.permits:
            permit = self.permits.pop(dice.randrange(len(self.permits)))
            assert permit.end(dice.choice(list(Outcome)), world.now_us, spent=dice.random() < 0.8)
            assert not permit.end(OK, world.now_us)
        elif what == 3 and self.tasks:
            dice.choice(self.tasks).cancel()
        elif what == 4:
            world.queue.resize(dice.randrange(1, 4), world.now_us)
        elif dice.random() < 0.5:
            world.clock.advance(us=dice.randrange(20_000))
        if dice.random() < 0.6:
            await world.settle()
        self.gather()

    async def finish(self) -> None:
        await self.world.wait(ms=120)
        self.gather()
        while self.permits:
            assert self.permits.pop().end(OK, self.world.now_us)
            await self.world.settle()
            self.gather()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30), st.sampled_from(FORMS))
def test_in_any_interleaving_every_unit_has_one_answer_and_every_place_comes_back(
    seed: int, form: str
) -> None:
    async def story(world: World) -> None:
        mix = Mix(world, random.Random(seed))
        for _ in range(80):
            await mix.step()
            stats = world.queue.stats()
            assert stats.inflight >= len(mix.permits)
            assert stats.queued <= 6
            assert stats.queued_bytes == stats.queued * WAITER_BYTES
        await mix.finish()
        assert all(task.done() for task in mix.tasks)
        stats = world.queue.stats()
        assert (stats.inflight, stats.queued, stats.queued_bytes) == (0, 0, 0)
        refused = stats.refused_full + stats.refused_timeout + stats.refused_deadline
        cancelled = sum(task.cancelled() for task in mix.tasks)
        assert len(mix.tasks) - cancelled <= stats.admitted + refused <= len(mix.tasks)

    run(story, places=2, form=form, length_max=6, wait_us_max=100_000)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("places", 0),
        ("length_max", 0),
        ("bytes_max", 1),
        ("wait_us_max", 0),
        ("form", "red"),
        ("target_us", 100_000),
        ("target_us_max", 1),
        ("aggressive_us", 200_000),
        ("standing_us", -1),
        ("weights", {"get": 0}),
        ("weights", {str(n): 1 for n in range(16)}),
        ("floor_permille", 501),
        ("slack_quantile", 1.0),
        ("slack_quantile", float("nan")),
        ("sweep_us", 1),
    ],
)
def test_a_bad_setting_is_named(field: str, value: object) -> None:
    with pytest.raises(BadValue) as caught:
        QueueSettings(**{field: value})  # type: ignore[arg-type]
    assert caught.value.field.startswith(f"queue.{field}")
