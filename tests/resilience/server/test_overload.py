"""Beyond its capacity a protected service answers what it can; a plain line answers nearly nothing.

On virtual time, so that the numbers are of the policies and not of the machine.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.policies.deadline import DeadlineSettings
from sluicegate.policies.queue.settings import WAITER_BYTES, QueueSettings
from sluicegate.policies.watermark import WatermarkSettings
from sluicegate.resilience.server.asgi import protect
from sluicegate.resilience.server.protection import Protection
from sluicegate.resilience.settings import DEADLINE_QUANTILE, Resilience
from tests.policies.virtual import VirtualLoop, pause_us, run
from tests.prove.seeds import first

SLOTS = 8
WORK_US = 20_000
SPAN_US = 2_000_000
PATIENCE_US = 100_000
CAPACITY = SLOTS * SPAN_US // WORK_US


class Backend:
    """Work that needs one of a few slots; `times` lengthens that of a path."""

    def __init__(self, slots: int = SLOTS, times: dict[str, float] | None = None) -> None:
        self.slots = asyncio.Semaphore(slots)
        self.times = {} if times is None else times
        self.begun = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async with self.slots:
            self.begun += 1
            await pause_us(int(WORK_US * self.times.get(scope["path"], 1)))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def receive() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def ask(
    app: Any, path: str, loop: VirtualLoop, claim: str = "", patience_us: int = PATIENCE_US
) -> tuple[int, int]:
    """Return the status, and how long it took."""
    began_us = loop.now_us()
    status = 0

    async def send(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)

    headers = [(b"x-sluicegate-deadline-ms", b"%d" % (patience_us // 1_000))]
    if claim:
        headers.append((b"x-sluicegate-criticality", claim.encode()))
    scope = {"type": "http", "method": "GET", "path": path, "headers": headers}
    await app(scope, receive, send)
    return status, loop.now_us() - began_us


async def in_time(
    app: Any,
    path: str,
    every_us: int,
    loop: VirtualLoop,
    claim: str = "",
    patience_us: int = PATIENCE_US,
) -> tuple[int, int]:
    """Ask at a steady rate; return how many were answered in time, and how many were asked."""
    tasks = []
    for _ in range(SPAN_US // every_us):
        tasks.append(asyncio.create_task(ask(app, path, loop, claim, patience_us)))
        await pause_us(every_us)
    answers = await asyncio.gather(*tasks)
    return sum(status == 200 and took <= patience_us for status, took in answers), len(answers)


def settings() -> Resilience:
    return Resilience(
        queue=QueueSettings(places=SLOTS),
        callers={"shop": Criticality.CRITICAL},
        watermark=WatermarkSettings(high=64, low=16),
        deadline=DeadlineSettings(assumed_us=WORK_US),
    )


@pytest.mark.parametrize("load", first(1, [2, 5, 10]))
def test_nine_tenths_of_the_capacity_are_answered_in_time_at_any_overload(load: int) -> None:
    async def story(loop: VirtualLoop) -> int:
        app = protect(Backend(), protection=Protection(settings(), clock=loop))
        return (await in_time(app, "/", WORK_US // (SLOTS * load), loop))[0]

    assert run(story) >= 0.9 * CAPACITY


def test_a_plain_line_answers_nearly_nothing_in_time() -> None:
    async def story(loop: VirtualLoop) -> int:
        return (await in_time(Backend(), "/", WORK_US // (SLOTS * 5), loop))[0]

    assert run(story) <= 0.1 * CAPACITY


@pytest.mark.parametrize("quantile", [DEADLINE_QUANTILE, 0.99])
def test_who_has_little_time_is_served_beside_those_who_have_much(quantile: float) -> None:
    """One in twenty pieces of work takes 95 ms; by the p99 nobody who has 50 ms would begin."""
    chosen = replace(settings(), deadline=DeadlineSettings(quantile=quantile))
    numbers = count()

    async def work(scope: Any, receive: Any, send: Any) -> None:
        await pause_us(95_000 if next(numbers) % 20 == 0 else WORK_US)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def story(loop: VirtualLoop) -> float:
        app = protect(work, protection=Protection(chosen, clock=loop))
        every_us = 4 * WORK_US // SLOTS
        short, _ = await asyncio.gather(
            in_time(app, "/", every_us, loop, patience_us=50_000),
            in_time(app, "/", every_us, loop, patience_us=500_000),
        )
        return short[0] / short[1]

    served = run(story)
    assert served >= 0.9 if quantile == DEADLINE_QUANTILE else served < 0.7, served


def test_a_line_of_what_matters_less_is_nobody_s_who_matters_more() -> None:
    """One place, marks of 4 and 1: BULK behind a line of BULK is refused, and DEGRADED waits."""

    async def story(loop: VirtualLoop) -> list[bool]:
        marks = WatermarkSettings(high=4, low=1)
        protection = Protection(
            Resilience(queue=QueueSettings(places=1), watermark=marks), clock=loop
        )
        line = (*[Criticality.BULK] * 6, Criticality.DEGRADED, Criticality.BULK)
        tasks = []
        for criticality in line:
            begun = protection.begin("/", criticality=criticality)
            tasks.append(asyncio.create_task(protection.admit(begun)))
            await asyncio.sleep(0)
        refused = [task.done() and isinstance(task.result(), Decision) for task in tasks]
        for task in tasks:
            task.cancel()
        return refused

    assert run(story) == [False] * 5 + [True, False, True]


@pytest.mark.parametrize(("burst_us", "let_in"), [(0, 5), (20_000, 7)])
def test_as_many_more_may_wait_as_are_served_in_what_bursts_add(burst_us: int, let_in: int) -> None:
    """One place of 10 ms, a mark of 4."""

    async def story(loop: VirtualLoop) -> int:
        marks = WatermarkSettings(high=4, low=1)
        protection = Protection(
            Resilience(queue=QueueSettings(places=1), watermark=marks), clock=loop
        )
        queue = protection.light.queue
        queue.learn(10_000, False, loop.now_us())
        queue._book.burst.us = burst_us
        tasks = []
        for _ in range(9):
            tasks.append(asyncio.create_task(protection.admit(protection.begin("/"))))
            await asyncio.sleep(0)
        refused = sum(task.done() and isinstance(task.result(), Decision) for task in tasks)
        for task in tasks:
            task.cancel()
        return len(tasks) - refused

    assert run(story) == let_in


@pytest.mark.parametrize("claim", ["", "CRITICAL"])
@pytest.mark.parametrize("protected", [True, False])
def test_an_endpoint_that_becomes_fifty_times_slower_does_not_take_the_others_with_it(
    protected: bool,
    claim: str,
) -> None:
    """Half of the load is quick, and the slow endpoint alone could fill every place."""

    async def story(loop: VirtualLoop) -> float:
        backend: Any = Backend(slots=SLOTS + 8, times={"/slow": 50})
        app: Any = backend
        if protected:
            protection = Protection(settings(), clock=loop)
            app = protect(backend, protection=protection, caller=lambda scope: "shop")
        quick, _ = await asyncio.gather(
            in_time(app, "/quick", WORK_US * 2 // SLOTS, loop, claim),
            in_time(app, "/slow", WORK_US * 2 // SLOTS, loop, claim),
        )
        return quick[0] / quick[1]

    answered = run(story)
    assert answered >= 0.999 if protected else answered < 0.5


@pytest.mark.parametrize(
    ("field", "weighs"),
    [
        ((b"content-length", b"1000000000"), 65_536),
        ((b"content-length", b"1000"), 1_000),
        ((b"content-length", b"9" * 5_000), 65_536),
        ((b"transfer-encoding", b"chunked"), 65_536),
        ((b"accept", b"*/*"), 0),
    ],
)
def test_bodies_that_wait_are_bounded_in_bytes(field: tuple[bytes, bytes], weighs: int) -> None:
    """One works, two wait, and a third has room in the line if bodies weigh nothing."""
    room = 2 * (WAITER_BYTES + weighs) + WAITER_BYTES + weighs // 2
    chosen = replace(settings(), queue=QueueSettings(places=1, bytes_max=room))

    async def story(loop: VirtualLoop) -> tuple[list[int], int]:
        protection = Protection(chosen, clock=loop)
        app = protect(Backend(slots=1), protection=protection)
        statuses = []

        async def send(message: Any) -> None:
            statuses.extend([message["status"]] if "status" in message else [])

        scope = {"type": "http", "method": "GET", "path": "/", "headers": [field]}
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(app(scope, receive, send))
            await pause_us(1)
            held = protection.light.queue.stats().queued_bytes
        return statuses, held

    statuses, held = run(story)
    assert sorted(statuses) == ([200] * 3 + [503] if weighs else [200] * 4)
    assert held == (2 if weighs else 3) * (WAITER_BYTES + weighs)


@pytest.mark.parametrize("one_line", [False, True])
def test_what_is_fifty_times_as_quick_does_not_wait_behind_three_times_the_capacity(
    one_line: bool,
) -> None:
    """Neither is heavy, and both are of one class; the control is one line for all."""
    weights = {"/nobody": 1} if one_line else {}
    chosen = replace(settings(), queue=QueueSettings(places=SLOTS, weights=weights))

    async def story(loop: VirtualLoop) -> tuple[float, float]:
        backend = Backend(slots=SLOTS + 8, times={"/quick": 0.02})
        app = protect(backend, protection=Protection(chosen, clock=loop))
        await ask(app, "/quick", loop)  # so that it is known
        quick, slow = await asyncio.gather(
            in_time(app, "/quick", 5_000, loop),
            in_time(app, "/slow", WORK_US // (3 * SLOTS), loop),
        )
        return quick[0] / quick[1], slow[0] / CAPACITY

    quick, slow = run(story)
    assert quick < 0.7 if one_line else quick >= 0.999, quick
    assert slow >= 0.9


def test_quick_work_is_not_refused_for_waiting_until_slow_work_ends() -> None:
    """Two endpoints of 1 ms in four places; one takes 30 ms all at once, three times too much.

    The other's line is empty each time a place is free, so it is no overload that it waits.
    """
    chosen = replace(settings(), queue=QueueSettings(places=4))

    async def story(loop: VirtualLoop) -> tuple[float, float]:
        backend = Backend(slots=100, times={"/quick": 0.05, "/turns": 0.05})
        app = protect(backend, protection=Protection(chosen, clock=loop))
        for _ in range(10):
            await asyncio.gather(ask(app, "/quick", loop), ask(app, "/turns", loop))
        backend.times["/turns"] = 1.5
        quick, turned = await asyncio.gather(
            in_time(app, "/quick", 10_000, loop), in_time(app, "/turns", 2_500, loop)
        )
        return quick[0] / quick[1], turned[0] / turned[1]

    quick, turned = run(story)
    assert quick == 1.0
    assert turned >= 0.3


def test_quick_work_keeps_its_own_time_beside_a_hundred_other_endpoints() -> None:
    """It was judged by the time of what came after the first 64, most of which was slow."""
    queue = QueueSettings(places=256)
    chosen = replace(
        settings(),
        queue=queue,
        heavy_queue=replace(queue, name="heavy_queue"),
        deadline=DeadlineSettings(quantile=DEADLINE_QUANTILE),
    )

    async def story(loop: VirtualLoop) -> tuple[int, int]:
        backend = Backend(slots=256, times={"/slow": 10, "/quick": 0.1})
        app = protect(backend, protection=Protection(chosen, clock=loop))
        await asyncio.gather(*[ask(app, f"/{at}", loop) for at in range(100)])
        _, quick = await asyncio.gather(
            in_time(app, "/slow", 2_500, loop, patience_us=10_000_000),
            in_time(app, "/quick", 5_000, loop),
        )
        return quick

    answered, asked = run(story)
    assert answered == asked


@pytest.mark.parametrize("times", [1, 2])
def test_what_is_critical_is_served_beside_three_times_the_capacity_of_bulk(times: int) -> None:
    """Each on an endpoint of its own: class comes before the fair shares of endpoints.

    CRITICAL asks for 95% of all places, of which a fifth are those for heavy work.
    """
    every_us = WORK_US * times // (SLOTS + 2)

    async def story(loop: VirtualLoop) -> float:
        app = protect(
            Backend(slots=SLOTS + 2, times={"/pay": times, "/export": times}),
            protection=Protection(
                replace(settings(), heavy_queue=QueueSettings(name="heavy_queue", places=2)),
                clock=loop,
            ),
            caller=lambda scope: "shop",
        )
        critical, _ = await asyncio.gather(
            in_time(app, "/pay", every_us * 100 // 95, loop, "CRITICAL"),
            in_time(app, "/export", every_us // 3, loop, "BULK"),
        )
        return critical[0] / critical[1]

    assert run(story) >= 0.999


def test_who_may_not_claim_to_be_critical_is_served_as_what_it_is() -> None:
    """A stranger's claim lends it no place and leaves it in the share of its endpoint."""

    async def story(loop: VirtualLoop) -> tuple[int, int]:
        protection = Protection(settings(), clock=loop)
        app = protect(Backend(), protection=protection)
        await in_time(app, "/", WORK_US // (SLOTS * 5), loop, "CRITICAL")
        stats = protection.heavy.stack.stats()
        return stats.admitted, protection.heavy.queue.lent

    assert run(story) == (0, 0)
