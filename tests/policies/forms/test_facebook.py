"""Facebook's form: two timeouts, last in first out, and a watermark that rejects early."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import DEADLINE, OVERLOADED, QUEUE_FULL, QUEUE_TIMEOUT
from sluicegate.contracts.request import Request
from sluicegate.policies.forms.facebook import FacebookForm, FacebookSettings
from sluicegate.policies.forms.pool import PoolPermit, QueuePool
from sluicegate.policies.stack import Stack, StackPermit
from tests.policies.virtual import VirtualLoop, pause_us, run

MS = 1_000
Given = PoolPermit | Decision
ONE = FacebookSettings(slots=1)


def ask(form: FacebookForm, loop: VirtualLoop, key: str = "k", **more: Any) -> asyncio.Task[Given]:
    return loop.create_task(form.queue.admit(Request(key, **more), loop))


async def hold(form: FacebookForm, loop: VirtualLoop) -> PoolPermit:
    """Take the only slot."""
    permit = await form.queue.admit(Request("first"), loop)
    assert isinstance(permit, PoolPermit)
    return permit


def reason_of(given: Given) -> object:
    return given.reason if isinstance(given, Decision) else None


def test_request_behind_queue_that_empties_waits_for_n() -> None:
    async def story(loop: VirtualLoop) -> None:
        form = FacebookForm(ONE)
        permit = await hold(form, loop)
        waiting = ask(form, loop)
        await pause_us(99 * MS)
        assert not waiting.done()
        await pause_us(2 * MS)
        assert reason_of(waiting.result()) is QUEUE_TIMEOUT
        permit.end(Outcome.SUCCESS, loop.now_us())
        assert form.queue.inflight == 0

    run(story)


def test_request_behind_standing_queue_waits_for_m() -> None:
    async def story(loop: VirtualLoop) -> None:
        form = FacebookForm(ONE)
        permit = await hold(form, loop)
        tasks = []
        for pause_ms in (60, 60, 20):  # the last finds a queue that has not been empty for N
            tasks.append(ask(form, loop))
            await pause_us(pause_ms * MS)
        assert reason_of(tasks[0].result()) is QUEUE_TIMEOUT
        assert reason_of(tasks[2].result()) is QUEUE_TIMEOUT
        assert not tasks[1].done()
        permit.end(Outcome.SUCCESS, loop.now_us())
        given = await tasks[1]
        assert isinstance(given, PoolPermit)
        given.end(Outcome.SUCCESS, loop.now_us())

    run(story)


def test_standing_queue_serves_newest_first() -> None:
    async def story(loop: VirtualLoop) -> None:
        form = FacebookForm(FacebookSettings(slots=1, normal_ms=100, aggressive_ms=100))
        permit = await hold(form, loop)
        order: list[str] = []

        async def work(name: str) -> None:
            given = await form.queue.admit(Request(name), loop)
            assert isinstance(given, PoolPermit)
            order.append(name)
            given.end(Outcome.SUCCESS, loop.now_us())

        works = [loop.create_task(work("a"))]
        await pause_us(90 * MS)
        works += [loop.create_task(work("b")), loop.create_task(work("c"))]
        await pause_us(MS)
        permit.end(Outcome.SUCCESS, loop.now_us())
        await asyncio.gather(*works)
        assert order == ["a", "b", "c"]  # it had been empty less than N ago
        order.clear()
        permit = await hold(form, loop)
        first = loop.create_task(form.queue.admit(Request("dead"), loop))
        await pause_us(60 * MS)
        works = [loop.create_task(work("d"))]
        await pause_us(45 * MS)  # "dead" has expired, and the queue never was empty
        works.append(loop.create_task(work("e")))
        await pause_us(MS)
        permit.end(Outcome.SUCCESS, loop.now_us())
        await asyncio.gather(*works)
        assert reason_of(first.result()) is QUEUE_TIMEOUT
        assert order == ["e", "d"]

    run(story)


def test_request_waits_no_longer_than_its_deadline() -> None:
    async def story(loop: VirtualLoop) -> None:
        form = FacebookForm(ONE)
        await hold(form, loop)
        waiting = ask(form, loop, deadline_us=loop.now_us() + 20 * MS)
        await pause_us(21 * MS)
        assert reason_of(waiting.result()) is DEADLINE

    run(story)


def test_full_queue_rejects_at_once() -> None:
    async def story(loop: VirtualLoop) -> None:
        form = FacebookForm(FacebookSettings(slots=1, high=3, low=0, length_max=2))
        permit = await hold(form, loop)
        waiting = [ask(form, loop) for _ in range(3)]
        await pause_us(0)
        assert [task.done() for task in waiting] == [False, False, True]
        assert reason_of(waiting[2].result()) is QUEUE_FULL
        permit.end(Outcome.SUCCESS, loop.now_us())
        await pause_us(200 * MS)
        assert form.queue.queued == 0

    run(story)


def test_cancelled_request_gives_its_slot_to_the_next() -> None:
    async def story(loop: VirtualLoop) -> None:
        form = FacebookForm(ONE)
        permit = await hold(form, loop)
        gone, queued, last = (ask(form, loop) for _ in range(3))
        await pause_us(0)
        queued.cancel()
        permit.end(Outcome.SUCCESS, loop.now_us())  # `gone` is given the slot, and is cancelled
        gone.cancel()
        given = await last
        assert isinstance(given, PoolPermit)
        assert given.end(Outcome.SUCCESS, loop.now_us())
        assert not given.end(Outcome.SUCCESS, loop.now_us())
        assert form.queue.inflight == form.queue.queued == 0
        assert form.queue.stats().cancelled == 2

    run(story)


def test_watermark_rejects_until_queue_is_low() -> None:
    async def story(loop: VirtualLoop) -> None:
        form = FacebookForm(FacebookSettings(slots=1, high=3, low=1))
        stack = Stack(*form.stages())
        permit = await stack.admit(Request("first"), loop)
        assert isinstance(permit, StackPermit)
        waiting = [loop.create_task(stack.admit(Request("k"), loop)) for _ in range(3)]
        await pause_us(0)
        decision = await stack.admit(Request("k"), loop)
        assert isinstance(decision, Decision)
        assert decision.reason is OVERLOADED
        for left in (2, 1):
            assert form.watermark.refuses
            permit.end(Outcome.SUCCESS, loop.now_us())
            permit = await waiting[2 - left]
            assert isinstance(permit, StackPermit)
            assert form.queue.queued == left
        again = loop.create_task(stack.admit(Request("k"), loop))
        await pause_us(0)
        assert not form.watermark.refuses
        assert form.watermark.stats().rises == 1
        for task in (waiting[2], again):
            permit.end(Outcome.SUCCESS, loop.now_us())
            permit = await task
            assert isinstance(permit, StackPermit)

    run(story)


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("slots", {"slots": 0}),
        ("aggressive_ms", {"normal_ms": 4, "aggressive_ms": 5}),
        ("low", {"high": 5, "low": 5}),
    ],
)
def test_setting_out_of_range_is_named(field: str, given: dict[str, int]) -> None:
    with pytest.raises(BadValue, match=rf"facebook\.{field}"):
        FacebookSettings(**given)


def test_pool_is_prompt_while_slot_is_free() -> None:
    pool = QueuePool(
        name="queue", slots=1, timeout_us=lambda queued, now_us: 1, drop=lambda us, now_us: False
    )
    assert pool.ready(Request("k"), 0)
    permit = pool.admit_now(Request("k"), 0)
    assert not pool.ready(Request("k"), 0)
    permit.end(Outcome.SUCCESS, 0)
    assert pool.stats()[:6] == (1, 0, 0, False, 1, 0)
