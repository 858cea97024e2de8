"""Thousands of callers wait for one key: each gets an answer or a refusal in time, the engine
gets at most two reads, and nothing is left over."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

from sluicegate.apps.kv.shield.settings import ShieldSettings
from sluicegate.apps.kv.shield.shield import MISS, STALE, Shield
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Refused, Unavailable
from sluicegate.contracts.key_values import Row
from sluicegate.contracts.reasons import DEADLINE, QUEUE_FULL, WAITERS_FULL
from sluicegate.contracts.request import Request
from sluicegate.policies.cache.coalesce import Flight
from sluicegate.testing import SeededChance
from tests.policies.virtual import VirtualLoop, pause_us, run

CROWD = 4_000
FEW = 1_000  # where the number is not the story
MS = 1_000
SECOND = 1_000_000
ROW = Row(b"", b"value")
Answers = list[Row | BaseException | None]


class Crowd:
    """A shield, an engine that does as the story says, and clients who all want the same."""

    def __init__(self, loop: VirtualLoop, **some: Any) -> None:
        self.loop = loop
        settings = ShieldSettings(saved_min=0.0, **some)
        self.shield: Shield[Row] = Shield(settings, SeededChance(1))
        self.key = self.shield.key("t", b"p", b"")
        self.engine: Callable[[], Coroutine[Any, Any, Row | None]] = self.answers
        self.reads = 0
        self.cancelled = 0
        self.requests: list[Request] = []

    async def answers(self) -> Row | None:
        await pause_us(10 * MS)
        return ROW

    async def fails(self) -> Row | None:
        await pause_us(10 * MS)
        raise Unavailable("the engine", "it fell over")

    async def hangs(self) -> Row | None:
        await asyncio.Event().wait()
        raise AssertionError("it never answers")

    async def fetch(self, _: Flight[Row | None]) -> Row | None:
        self.reads += 1
        try:
            return await self.engine()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    def come(self, count: int, left_us: int = SECOND) -> list[asyncio.Task[Row | None]]:
        """So many clients, who have so much time."""
        return [asyncio.ensure_future(self.one(left_us)) for _ in range(count)]

    async def one(self, left_us: int) -> Row | None:
        now_us = self.loop.now_us()
        request = Request(self.key, deadline_us=now_us + left_us)
        state, row = self.shield.look(self.key, now_us)
        if state not in {MISS, STALE}:
            return row
        self.requests.append(request)
        return await self.shield.read(self.key, row, request, self.loop, self.fetch)

    async def ended(self, clients: list[asyncio.Task[Row | None]]) -> Answers:
        answers: Answers = await asyncio.gather(*clients, return_exceptions=True)
        await pause_us(1)  # the last callbacks
        stats = self.shield.stats()
        assert (stats.flights.flights, stats.flights.waiting, stats.ahead) == (0, 0, 0)
        return answers


def run_story(story: Callable[[Crowd], Coroutine[Any, Any, None]], **some: Any) -> None:
    """Tell the story, and see that it leaves nothing: `run` looks after tasks, this after futures.

    A waiter that was forgotten would stand in a table, or in a cycle with its flight.
    """

    async def begun(loop: VirtualLoop) -> None:
        await story(Crowd(loop, **some))

    gc.collect()
    before = futures()
    run(begun)
    gc.collect()
    assert futures() <= before


def futures() -> int:
    """Those of runs: loops that other tests have left in threads make and end some all the time."""
    # By their types: to ask some objects what they are wakes them (Django's settings, say).
    found = [one for one in gc.get_objects() if issubclass(type(one), asyncio.Future)]
    return sum(isinstance(one.get_loop(), VirtualLoop) for one in found)


def test_the_fetch_answers_and_all_are_answered_by_one_read() -> None:
    async def story(crowd: Crowd) -> None:
        assert await crowd.ended(crowd.come(CROWD)) == [ROW] * CROWD
        assert crowd.reads == 1
        marked = [request for request in crowd.requests if request.measured is not None]
        assert len(marked) == CROWD - 1  # the leader pays what it costs, the others as cached
        assert all(request.measured and request.measured.from_cache for request in marked)

    run_story(story)


def test_the_fetch_fails_and_each_is_told_by_an_error_of_his_own() -> None:
    async def story(crowd: Crowd) -> None:
        crowd.engine = crowd.fails
        answers = await crowd.ended(crowd.come(CROWD))
        assert all(isinstance(one, Unavailable) for one in answers)
        assert len({id(one) for one in answers}) == CROWD
        assert crowd.reads == 1
        # All of them try again at once, and the engine is asked but once more.
        crowd.engine = crowd.answers
        assert await crowd.ended(crowd.come(CROWD)) == [ROW] * CROWD
        assert crowd.reads == 2

    run_story(story)


def test_the_leader_is_refused_and_the_refusal_is_no_storm() -> None:
    async def story(crowd: Crowd) -> None:
        async def refuses() -> Row | None:
            await pause_us(MS)
            raise Refused(Decision(False, 0, 5 * MS, 5 * MS, QUEUE_FULL, "queue"))

        crowd.engine = refuses
        answers = await crowd.ended(crowd.come(FEW))
        assert all(
            isinstance(one, Refused) and one.decision.reason is QUEUE_FULL for one in answers
        )
        assert crowd.reads == 1

    run_story(story)


def test_whoever_asked_first_is_cancelled_and_the_others_are_answered() -> None:
    async def story(crowd: Crowd) -> None:
        clients = crowd.come(CROWD)
        await pause_us(MS)
        clients[0].cancel()
        answers = await crowd.ended(clients)
        assert isinstance(answers[0], asyncio.CancelledError)
        assert answers[1:] == [ROW] * (CROWD - 1)
        assert (crowd.reads, crowd.cancelled) == (1, 0)

    run_story(story)


def test_the_time_of_whoever_asked_first_is_over_and_the_others_are_answered() -> None:
    async def story(crowd: Crowd) -> None:
        first = crowd.come(1, left_us=2 * MS)
        await pause_us(MS)
        answers = await crowd.ended(first + crowd.come(CROWD - 1))
        assert isinstance(answers[0], Refused)
        assert answers[0].decision.reason is DEADLINE
        assert answers[1:] == [ROW] * (CROWD - 1)
        assert crowd.reads == 1

    run_story(story)


def test_the_fetch_hangs_and_each_is_refused_when_his_time_is_over() -> None:
    async def story(crowd: Crowd) -> None:
        crowd.engine = crowd.hangs
        began_us = crowd.loop.now_us()
        soon, late = crowd.come(CROWD // 2, 300 * MS), crowd.come(CROWD // 4, 900 * MS)
        await pause_us(250 * MS)  # who comes now finds it overdue, and begins a second one
        later = crowd.come(CROWD // 4, 900 * MS)
        await asyncio.gather(*soon, return_exceptions=True)
        assert crowd.loop.now_us() - began_us <= 301 * MS
        answers = await crowd.ended(soon + late + later)
        assert crowd.loop.now_us() - began_us <= 1_151 * MS
        assert all(isinstance(one, Refused) and one.decision.reason is DEADLINE for one in answers)
        assert (crowd.reads, crowd.cancelled) == (2, 2)

    run_story(story)


def test_the_first_fetch_hangs_and_the_second_answers_all_who_still_wait() -> None:
    async def story(crowd: Crowd) -> None:
        crowd.engine = crowd.hangs
        early = crowd.come(CROWD // 2)
        await pause_us(250 * MS)
        crowd.engine = crowd.answers
        assert await crowd.ended(early + crowd.come(CROWD // 2)) == [ROW] * CROWD
        assert (crowd.reads, crowd.cancelled) == (2, 1)

    run_story(story)


def test_all_leave_and_the_fetch_is_given_up() -> None:
    async def story(crowd: Crowd) -> None:
        crowd.engine = crowd.hangs
        clients = crowd.come(FEW)
        await pause_us(MS)
        for client in clients:
            client.cancel()
        answers = await crowd.ended(clients)
        assert all(isinstance(one, asyncio.CancelledError) for one in answers)
        assert (crowd.reads, crowd.cancelled) == (1, 1)

    run_story(story)


def test_an_old_answer_is_served_when_the_fetch_fails() -> None:
    async def story(crowd: Crowd) -> None:
        await crowd.ended(crowd.come(1))
        await pause_us(4 * SECOND)
        crowd.engine = crowd.fails
        assert await crowd.ended(crowd.come(FEW)) == [ROW] * FEW
        assert crowd.reads == 2
        assert crowd.shield.stats().stale_served == FEW

    run_story(story)


def test_an_old_answer_is_served_soon_when_the_engine_hangs() -> None:
    async def story(crowd: Crowd) -> None:
        await crowd.ended(crowd.come(1))
        await pause_us(4 * SECOND)
        crowd.engine = crowd.hangs
        began_us = crowd.loop.now_us()
        clients = crowd.come(FEW - 1)  # the fetch ahead waits too
        assert await asyncio.gather(*clients) == [ROW] * (FEW - 1)
        assert crowd.loop.now_us() - began_us <= 101 * MS
        assert crowd.cancelled == 0  # it goes on, so that an engine that is only slow brings it
        await pause_us(SECOND)
        assert (crowd.reads, crowd.cancelled) == (2, 1)
        await crowd.ended(clients)

    run_story(story)


def test_an_engine_that_is_slower_than_the_old_answer_still_brings_the_new_one() -> None:
    async def story(crowd: Crowd) -> None:
        async def slow() -> Row | None:
            await pause_us(500 * MS)
            return Row(b"", b"new")

        await crowd.ended(crowd.come(1))
        await pause_us(4 * SECOND)
        crowd.engine = slow
        assert await asyncio.gather(*crowd.come(10)) == [ROW] * 10
        await pause_us(500 * MS)
        assert await crowd.ended(crowd.come(10)) == [Row(b"", b"new")] * 10
        assert crowd.reads == 2

    run_story(story)


def test_one_more_than_there_is_room_for_is_refused_and_told_when_to_come_back() -> None:
    async def story(crowd: Crowd) -> None:
        answers = await crowd.ended(crowd.come(FEW + 1))
        assert answers[:FEW] == [ROW] * FEW
        last = answers[FEW]
        assert isinstance(last, Refused)
        assert last.decision.reason is WAITERS_FULL
        assert last.decision.retry_after_us > 0

    run_story(story, waiters_max=FEW)
