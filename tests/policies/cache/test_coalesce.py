"""Coalesce: one fetch for many, and nobody's end is another's."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, Refused, Unavailable
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import DEADLINE, QUOTA_SPENT, SHED, WAITERS_FULL
from sluicegate.contracts.request import Request
from sluicegate.kernels.lru_ttl import FRESH, MISS, LruTtl
from sluicegate.policies.admission.gate import Gate, GatePermit
from sluicegate.policies.admission.settings import GateSettings
from sluicegate.policies.cache.coalesce import TOLD_A_TURN, Coalesce, CoalesceSettings, Flight
from sluicegate.testing import HandClock

CRITICAL, DEGRADED, BEST_EFFORT, BULK = Criticality
Waiter = asyncio.Task[str]


class HandLoop(asyncio.SelectorEventLoop):
    """A loop whose timers go by a clock that is moved by hand."""

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        super().__init__()

    def time(self) -> float:
        return self.clock.now_us() / 1e6


class World:
    """A backend whose answers come when the story says so."""

    def __init__(self, clock: HandClock, shared: Coalesce[str]) -> None:
        self.clock = clock
        self.shared = shared
        self.flights: list[Flight[str]] = []
        self.answers: list[asyncio.Future[str]] = []
        self.cancelled = 0

    @property
    def now_us(self) -> int:
        return self.clock.now_us()

    async def fetch(self, flight: Flight[str]) -> str:
        self.flights.append(flight)
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        try:
            return await answer
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def settle(self) -> None:
        for _ in range(6):
            await asyncio.sleep(0)

    async def ask(
        self, criticality: Criticality = DEGRADED, *, key: str = "k", left_us: int | None = None
    ) -> Waiter:
        deadline_us = None if left_us is None else self.now_us + left_us
        request = Request(key, criticality=criticality, deadline_us=deadline_us)
        task = asyncio.ensure_future(self.shared.share(key, request, self.clock, self.fetch))
        await self.settle()
        return task

    async def wait(self, us: int) -> None:
        self.clock.advance(us=us + 1)  # the loop counts in seconds and rounds
        await self.settle()


def run(
    story: Callable[[World], Awaitable[None]],
    raised: Callable[[Request, int], object] | None = None,
    **some: Any,
) -> None:
    clock = HandClock()
    shared: Coalesce[str] = Coalesce(CoalesceSettings(**some), raised)
    complaints: list[object] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        await story(World(clock, shared))

    with asyncio.Runner(loop_factory=lambda: HandLoop(clock)) as runner:
        runner.run(main())
    gc.collect()
    assert complaints == []
    stats = shared.stats()
    assert (stats.flights, stats.waiting) == (0, 0)


def refusal_of(task: Waiter) -> Decision:
    error = task.exception()
    assert isinstance(error, Refused)
    assert error.decision.rule_id == "coalesce"
    return error.decision


def test_many_who_ask_for_one_key_are_answered_by_one_fetch() -> None:
    async def story(world: World) -> None:
        tasks = [await world.ask() for _ in range(50)]
        other = await world.ask(key="other")
        assert len(world.answers) == 2
        world.answers[0].set_result("answer")
        world.answers[1].set_result("another")
        await world.settle()
        assert {task.result() for task in tasks} == {"answer"}
        assert other.result() == "another"
        assert world.shared.stats()[2:4] == (2, 49)

    run(story)


def test_those_who_wait_are_told_in_the_order_they_came() -> None:
    async def story(world: World) -> None:
        order: list[int] = []
        for place in range(40):
            task = await world.ask()
            task.add_done_callback(lambda _, place=place: order.append(place))  # type: ignore[misc]
        world.answers[0].set_result("answer")
        await world.settle()
        assert order == list(range(40))

    run(story)


@pytest.mark.parametrize("fails", [False, True])
def test_a_crowd_goes_on_over_several_turns_of_the_loop_in_its_order(fails: bool) -> None:
    async def story(world: World) -> None:
        told: list[int] = []

        async def ask(place: int) -> None:
            with suppress(Unavailable):
                await world.shared.share("k", Request("k"), world.clock, world.fetch)
            told.append(place)

        crowd = [asyncio.ensure_future(ask(place)) for place in range(5 * TOLD_A_TURN)]
        await world.settle()
        if fails:
            world.answers[0].set_exception(Unavailable("the engine", "it is gone"))
        else:
            world.answers[0].set_result("answer")
        before = 0
        while not crowd[-1].done():
            await asyncio.sleep(0)
            assert len(told) - before <= TOLD_A_TURN
            before = len(told)
        assert told == list(range(len(crowd)))

    run(story)


def test_what_was_refused_leaves_nothing_that_only_the_collector_could_free() -> None:
    """1,280 refused scans left 47,000 objects, and the loop stood still while they were found."""

    async def story(world: World) -> None:
        gc.collect()
        gc.disable()
        try:
            crowd = [await world.ask() for _ in range(20)]
            world.answers[0].set_exception(
                Refused(Decision(False, 0, 1, 1, QUOTA_SPENT, "request_units"))
            )
            await world.settle()
            assert all(isinstance(one.exception(), Refused) for one in crowd)
            world.answers.clear()
            world.flights.clear()
            crowd.clear()
            await world.settle()
            assert gc.collect() < 60  # a compiled coroutine leaves one, and each left 17
        finally:
            gc.enable()

    run(story)


def test_who_asks_after_the_answer_begins_anew() -> None:
    async def story(world: World) -> None:
        first = await world.ask()
        world.answers[0].set_result("old")
        await world.settle()
        second = await world.ask()
        world.answers[1].set_result("new")
        await world.settle()
        assert (first.result(), second.result()) == ("old", "new")

    run(story)


def test_a_cancelled_first_one_cancels_nobody_else() -> None:
    async def story(world: World) -> None:
        leader, follower = await world.ask(), await world.ask()
        leader.cancel()
        await world.settle()
        assert leader.cancelled()
        assert world.cancelled == 0
        world.answers[0].set_result("answer")
        await world.settle()
        assert follower.result() == "answer"

    run(story)


def test_the_fetch_is_cancelled_when_the_last_one_has_left_and_not_before() -> None:
    async def story(world: World) -> None:
        tasks = [await world.ask() for _ in range(3)]
        for left, task in enumerate(tasks):
            assert world.cancelled == 0, left
            task.cancel()
            await world.settle()
        assert world.cancelled == 1
        assert world.shared.stats().abandoned == 1

    run(story)


def test_nobody_joins_a_fetch_that_is_being_cancelled() -> None:
    async def story(world: World) -> None:
        leaver = await world.ask()
        leaver.cancel()
        await asyncio.sleep(0)  # it has left, and the fetch has not ended yet
        fresh = await world.ask()
        world.answers[-1].set_result("answer")
        await world.settle()
        assert fresh.result() == "answer"
        assert len(world.answers) == 2

    run(story)


def test_a_fetch_that_is_slow_to_be_cancelled_keeps_its_place_in_the_air() -> None:
    async def story(world: World) -> None:
        let_go = asyncio.Event()

        async def stubborn(flight: Flight[str]) -> str:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await let_go.wait()
            return "too late"

        task = asyncio.ensure_future(
            world.shared.share("stubborn", Request("k"), world.clock, stubborn)
        )
        await world.settle()
        task.cancel()
        await world.settle()
        assert world.shared.stats().flights == 1
        let_go.set()
        await world.settle()
        assert world.shared.stats().flights == 0

    run(story)


def test_an_error_goes_to_all_who_wait_each_its_own_and_is_not_kept() -> None:
    async def story(world: World) -> None:
        tasks = [await world.ask() for _ in range(3)]
        failure = ConnectionError("no")
        world.answers[0].set_exception(failure)
        await world.settle()
        errors = [task.exception() for task in tasks]
        assert all(type(error) is ConnectionError for error in errors)
        assert all(str(error) == "no" for error in errors)
        assert len({id(error) for error in errors} | {id(failure)}) == 4
        assert all(error.__cause__ is failure for error in errors if error)
        again = await world.ask()
        world.answers[1].set_result("well again")
        await world.settle()
        assert again.result() == "well again"
        assert world.shared.stats().failed == 1

    run(story)


def test_an_error_is_out_of_the_table_before_anybody_is_told() -> None:
    async def story(world: World) -> None:
        request = Request("k")

        async def stubborn() -> str:
            try:
                return await world.shared.share("k", request, world.clock, world.fetch)
            except ConnectionError:
                return await world.shared.share("k", request, world.clock, world.fetch)

        tasks = [asyncio.ensure_future(stubborn()) for _ in range(5)]
        await world.settle()
        world.answers[0].set_exception(ConnectionError())
        await world.settle()
        assert len(world.answers) == 2, "one retry of all five, by one of them"
        world.answers[1].set_result("answer")
        await world.settle()
        assert {task.result() for task in tasks} == {"answer"}

    run(story)


class Odd(Exception):  # noqa: N818 - it is one
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def test_an_error_that_cannot_be_copied_is_told_as_something_that_does_not_answer() -> None:
    async def story(world: World) -> None:
        task = await world.ask()
        failure = Odd(1, 2)
        world.answers[0].set_exception(failure)
        await world.settle()
        error = task.exception()
        assert isinstance(error, Unavailable)
        assert "1 and 2" in str(error)
        assert error.__cause__ is failure

    run(story)


def test_a_waiter_cancelled_in_the_instant_of_the_error_leaves_no_complaint() -> None:
    async def story(world: World) -> None:
        stays, goes = await world.ask(), await world.ask()
        world.answers[0].set_exception(ConnectionError())
        await asyncio.sleep(0)  # told, and not awake yet
        goes.cancel()
        await world.settle()
        assert goes.cancelled()
        assert isinstance(stays.exception(), ConnectionError)

    run(story)


def test_each_waiter_has_its_own_deadline_and_the_fetch_has_the_latest() -> None:
    async def story(world: World) -> None:
        hasty = await world.ask(left_us=10_000)
        patient = await world.ask(left_us=90_000)
        flight = world.flights[0]
        assert flight.request.deadline_us == world.now_us + 90_000
        await world.wait(10_000)
        assert refusal_of(hasty).reason is DEADLINE
        assert refusal_of(hasty).retry_after_us < 0
        assert not patient.done()
        world.answers[0].set_result("answer")
        await world.settle()
        assert patient.result() == "answer"
        third = await world.ask(left_us=10_000)
        forever = await world.ask()
        assert world.flights[1].request.deadline_us is None
        await world.wait(20_000)
        assert refusal_of(third).reason is DEADLINE
        assert world.cancelled == 0
        forever.cancel()
        await world.settle()
        assert world.cancelled == 1

    run(story)


def test_a_shorter_deadline_does_not_shorten_that_of_the_fetch() -> None:
    async def story(world: World) -> None:
        tasks = [await world.ask(left_us=50_000), await world.ask(left_us=10_000)]
        assert world.flights[0].request.deadline_us == world.now_us + 50_000
        await world.wait(50_000)
        assert all(refusal_of(task).reason is DEADLINE for task in tasks)
        assert world.cancelled == 1
        assert world.shared.stats().late == 2

    run(story)


def test_who_comes_too_late_begins_no_fetch() -> None:
    async def story(world: World) -> None:
        task = await world.ask(left_us=0)
        assert refusal_of(task).reason is DEADLINE
        assert world.answers == []

    run(story)


def test_the_fetch_matters_as_much_as_the_most_that_waits_for_it() -> None:
    raised: list[tuple[str, Criticality]] = []

    async def story(world: World) -> None:
        await world.ask(BULK)
        await world.ask(DEGRADED)
        await world.ask(BEST_EFFORT)
        await world.ask(CRITICAL)
        assert world.flights[0].request.criticality is CRITICAL
        world.answers[0].set_result("answer")
        await world.settle()

    run(story, lambda request, now_us: raised.append((request.key, request.criticality)))
    assert raised == [("k", DEGRADED), ("k", CRITICAL)]


def test_the_claim_of_the_first_one_is_not_changed_by_those_who_join() -> None:
    async def story(world: World) -> None:
        request = Request("k", criticality=BULK, deadline_us=world.now_us + 5)
        task = asyncio.ensure_future(world.shared.share("k", request, world.clock, world.fetch))
        await world.settle()
        await world.ask(CRITICAL)
        assert request.criticality is BULK
        assert request.deadline_us == world.now_us + 5
        world.answers[0].set_result("answer")
        await task

    run(story)


def test_a_fetch_refused_as_bulk_is_flown_once_more_for_the_critical_who_joined() -> None:
    async def story(world: World) -> None:
        refusal = Refused(Decision(False, 0, 1, 1, SHED, "shed"))
        bulk, critical = await world.ask(BULK), await world.ask(CRITICAL)
        world.answers[0].set_exception(refusal)
        await world.settle()
        assert not critical.done()
        world.answers[1].set_result("answer")
        await world.settle()
        assert (bulk.result(), critical.result()) == ("answer", "answer")
        # Refused as what it is, it is refused.
        twice, raised = await world.ask(BULK), await world.ask(CRITICAL)
        world.answers[2].set_exception(refusal)
        await world.settle()
        world.answers[3].set_exception(refusal)
        await world.settle()
        error = twice.exception()
        assert isinstance(error, Refused)
        assert error.decision.reason is SHED
        assert isinstance(raised.exception(), Refused)
        plain = await world.ask(BULK)
        world.answers[4].set_exception(refusal)
        await world.settle()
        assert isinstance(plain.exception(), Refused)
        assert len(world.answers) == 5
        assert world.shared.stats().again == 2

    run(story)


def test_a_critical_read_that_joins_a_bulk_one_does_not_wait_behind_bulk_in_the_queue() -> None:
    queue = Gate(GateSettings(slots=1))

    async def story(world: World) -> None:
        busy = await queue.admit(Request("busy"), world.clock)
        assert isinstance(busy, GatePermit)
        before = asyncio.ensure_future(
            queue.admit(Request("before", criticality=BEST_EFFORT), world.clock)
        )

        async def through_the_queue(flight: Flight[str]) -> str:
            permit = await queue.admit(flight.request, world.clock)
            assert isinstance(permit, GatePermit)
            permit.end(Outcome.SUCCESS, world.now_us)
            return "answer"

        async def read(criticality: Criticality) -> str:
            request = Request("hot", criticality=criticality)
            return await world.shared.share("hot", request, world.clock, through_the_queue)

        bulk = asyncio.ensure_future(read(BULK))
        await world.settle()
        critical = asyncio.ensure_future(read(CRITICAL))
        await world.settle()
        busy.end(Outcome.SUCCESS, world.now_us)
        await asyncio.sleep(0)
        assert not before.done()
        assert await critical == "answer"
        assert await bulk == "answer"
        permit = await before
        assert isinstance(permit, GatePermit)
        permit.end(Outcome.SUCCESS, world.now_us)

    run(story, queue.requeue)
    assert queue.inflight == 0


def test_one_waiter_too_many_is_refused_and_told_when_the_answer_is_likely_there() -> None:
    async def story(world: World) -> None:
        warm = await world.ask()
        await world.wait(80_000)
        world.answers[0].set_result("answer")
        await warm
        await world.ask()
        await world.ask()
        refused = await world.ask()
        decision = refusal_of(refused)
        assert decision.reason is WAITERS_FULL
        assert decision.retry_after_us == 10_000
        assert world.shared.stats().refused == 1
        world.answers[1].set_result("answer")
        await world.settle()

    run(story, waiters_max=2)


def test_where_the_table_is_full_who_asks_fetches_alone() -> None:
    async def story(world: World) -> None:
        first = await world.ask(key="a")
        alone = [await world.ask(key="b") for _ in range(2)]
        assert len(world.answers) == 3
        for answer in world.answers:
            answer.set_result("answer")
        await world.settle()
        assert all(task.result() == "answer" for task in [first, *alone])
        assert world.shared.stats().alone == 2

    run(story, flights_max=1)


def test_nobody_who_asks_after_a_write_gets_what_was_before_it() -> None:
    async def story(world: World) -> None:
        before = await world.ask()
        assert world.shared.invalidate("k")
        assert world.flights[0].void
        after = await world.ask()
        assert not world.flights[1].void
        world.answers[1].set_result("new")
        await world.settle()
        assert after.result() == "new"
        joined = await world.ask()
        world.answers[0].set_result("old")
        await world.settle()
        assert before.result() == "old"
        assert not joined.done(), "the end of an old flight takes no new one out of the table"
        world.answers[2].set_result("newest")
        await world.settle()
        assert joined.result() == "newest"
        assert not world.shared.invalidate("k")

    run(story)


def test_a_cancelled_flight_of_before_a_write_takes_no_newer_one_with_it() -> None:
    async def story(world: World) -> None:
        before = await world.ask()
        world.shared.invalidate("k")
        after = await world.ask()
        before.cancel()
        await world.settle()
        joined = await world.ask()
        assert len(world.answers) == 2
        world.answers[1].set_result("new")
        await world.settle()
        assert (after.result(), joined.result()) == ("new", "new")

    run(story)


def test_a_fetch_cancelled_from_outside_is_no_cancellation_of_those_who_wait() -> None:
    async def story(world: World) -> None:
        begun = await world.ask()
        task = world.flights[0].task
        assert task is not None
        task.cancel()
        await world.settle()
        assert isinstance(begun.exception(), Unavailable)
        # And one that had not even begun.
        early = asyncio.ensure_future(
            world.shared.share("k", Request("k"), world.clock, world.fetch)
        )
        await asyncio.sleep(0)
        flight = world.shared._flights["k"]
        assert flight.task is not None
        flight.task.cancel()
        await world.settle()
        assert isinstance(early.exception(), Unavailable)

    run(story)


def test_a_fetch_that_is_overdue_is_helped_by_a_second_which_answers_all() -> None:
    async def story(world: World) -> None:
        waits = await world.ask()
        await world.wait(199_000)
        joins = await world.ask()
        await world.wait(1_000)
        second = await world.ask()
        third = await world.ask()
        assert len(world.answers) == 2, "one helps, and the others join it"
        world.answers[1].set_result("answer")
        await world.settle()
        assert {task.result() for task in (waits, joins, second, third)} == {"answer"}
        assert world.cancelled == 1, "the one that hangs is given up"
        stats = world.shared.stats()
        assert (stats.flown, stats.joined, stats.relieved, stats.abandoned) == (2, 2, 1, 1)

    run(story)


def test_the_overdue_fetch_may_land_first_and_then_answers_all_too() -> None:
    async def story(world: World) -> None:
        first = await world.ask()
        await world.wait(300_000)
        second = await world.ask()
        world.answers[0].set_result("late")
        await world.settle()
        assert (first.result(), second.result()) == ("late", "late")
        assert world.cancelled == 1
        fresh = await world.ask()
        assert len(world.answers) == 3, "who comes now begins anew"
        world.answers[2].set_result("new")
        assert await fresh == "new"

    run(story)


def test_an_error_of_the_second_is_not_told_to_those_who_wait_for_the_first() -> None:
    async def story(world: World) -> None:
        first = await world.ask()
        await world.wait(300_000)
        second = await world.ask()
        world.answers[1].set_exception(ConnectionError())
        await world.settle()
        assert isinstance(second.exception(), ConnectionError)
        assert not first.done()
        world.answers[0].set_result("answer")
        assert await first == "answer"

    run(story)


def test_there_are_two_at_most_until_one_of_them_has_ended() -> None:
    async def story(world: World) -> None:
        tasks = [await world.ask()]
        for _ in range(3):
            await world.wait(300_000)
            tasks.append(await world.ask())
        assert len(world.answers) == 2
        tasks[0].cancel()
        await world.settle()
        assert world.cancelled == 1
        tasks.append(await world.ask())
        assert len(world.answers) == 3
        world.answers[2].set_result("answer")
        await world.settle()
        assert {task.result() for task in tasks[1:]} == {"answer"}

    run(story)


def test_what_is_overdue_is_measured_by_what_is_usual() -> None:
    async def story(world: World) -> None:
        for _ in range(20):
            usual = await world.ask()
            await world.wait(100_000)
            world.answers[-1].set_result("answer")
            await usual
        flown = len(world.answers)
        tasks = [await world.ask()]
        await world.wait(350_000)
        tasks.append(await world.ask())
        assert len(world.answers) == flown + 1
        await world.wait(100_000)
        tasks.append(await world.ask())
        assert len(world.answers) == flown + 2
        world.answers[-1].set_result("answer")
        assert {await task for task in tasks} == {"answer"}

    run(story)


def test_an_overdue_fetch_can_be_left_alone_and_is_where_the_table_is_full() -> None:
    async def story(world: World) -> None:
        tasks = [await world.ask()]
        await world.wait(10_000_000)
        tasks.append(await world.ask())
        assert len(world.answers) == 1
        world.answers[0].set_result("answer")
        assert {await task for task in tasks} == {"answer"}
        assert world.shared.stats().relieved == 0

    run(story, overdue_us=0)
    run(story, flights_max=1)


def test_a_write_voids_both_and_nobody_joins_either() -> None:
    async def story(world: World) -> None:
        first = await world.ask()
        await world.wait(300_000)
        second = await world.ask()
        assert world.shared.invalidate("k")
        assert world.flights[0].void
        assert world.flights[1].void
        after = await world.ask()
        assert len(world.answers) == 3
        world.answers[1].set_result("old")
        await world.settle()
        assert (first.result(), second.result()) == ("old", "old")
        assert not after.done()
        world.answers[2].set_result("new")
        assert await after == "new"

    run(story)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 30))
def test_in_any_interleaving_of_reads_writes_and_ends_no_read_is_older_than_its_asking(
    seed: int,
) -> None:
    """With a cache behind it: what was written before a read began is what it sees, or newer."""
    dice = random.Random(seed)
    cache: LruTtl[str] = LruTtl(1 << 20, ttl_us=1_000_000, epoch_slots=4)
    version = {"a": 0, "b": 0}
    reads: list[tuple[int, int]] = []

    async def story(world: World) -> None:
        async def fetch(flight: Flight[str]) -> str:
            epoch = cache.begin(flight.key)
            for _ in range(dice.randrange(3)):
                await asyncio.sleep(0)
            value = str(version[flight.key])
            for _ in range(dice.randrange(4)):
                await asyncio.sleep(0)
            if dice.random() < 0.1:
                raise ConnectionError
            cache.put(flight.key, value, 1, epoch=epoch, now_us=world.now_us, draw=0.5)
            return value

        async def read(key: str) -> None:
            least = version[key]
            state, value = cache.get(key, world.now_us, 0.5)
            if state != FRESH:
                assert state == MISS
                left_us = dice.choice([None, 1_000])
                deadline_us = None if left_us is None else world.now_us + left_us
                request = Request(key, deadline_us=deadline_us)
                try:
                    value = await world.shared.share(key, request, world.clock, fetch)
                except (ConnectionError, Refused):
                    return
            assert value is not None
            reads.append((least, int(value)))

        tasks: list[asyncio.Task[None]] = []
        for _ in range(60):
            what = dice.randrange(8)
            key = dice.choice(["a", "b"])
            if what < 4:
                tasks.append(asyncio.ensure_future(read(key)))
            elif what == 4:
                version[key] += 1
                cache.invalidate(key)
                world.shared.invalidate(key)
            elif what == 5 and tasks:
                dice.choice(tasks).cancel()
            elif what == 6:
                world.clock.advance(us=dice.choice([500, 150_000]))
            for _ in range(dice.randrange(3)):
                await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)
        await world.settle()
        broken = [task for task in tasks if not task.cancelled() and task.exception()]
        assert broken == []

    run(story, waiters_max=5, flights_max=3)
    assert all(value >= least for least, value in reads)


@pytest.mark.parametrize("field", ["waiters_max", "flights_max"])
def test_a_bad_setting_is_named(field: str) -> None:
    with pytest.raises(BadValue) as caught:
        CoalesceSettings(**{field: 0})  # type: ignore[arg-type]
    assert caught.value.field == f"coalesce.{field}"


def test_a_negative_time_is_no_time_to_be_overdue() -> None:
    with pytest.raises(BadValue, match="overdue_us"):
        CoalesceSettings(overdue_us=-1)
