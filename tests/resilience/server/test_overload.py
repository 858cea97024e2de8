"""Beyond its capacity a protected service answers what it can; a plain line answers nearly nothing.

On virtual time, so that the numbers are of the policies and not of the machine.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.policies.admission.settings import WAITER_BYTES
from sluicegate.resilience.server.asgi import protect
from sluicegate.resilience.server.protection import Protection
from sluicegate.resilience.settings import Resilience
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


def settings(slots: int = SLOTS, **more: Any) -> Resilience:
    return Resilience(slots=slots, callers={"shop": Criticality.CRITICAL}, **more)


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


def test_who_has_little_time_is_served_beside_those_who_have_much() -> None:
    """One in twenty pieces of work takes 95 ms; by the p99 nobody who has 50 ms would begin."""
    numbers = count()

    async def work(scope: Any, receive: Any, send: Any) -> None:
        await pause_us(95_000 if next(numbers) % 20 == 0 else WORK_US)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def story(loop: VirtualLoop) -> float:
        app = protect(work, protection=Protection(settings(), clock=loop))
        every_us = 4 * WORK_US // SLOTS
        short, _ = await asyncio.gather(
            in_time(app, "/", every_us, loop, patience_us=50_000),
            in_time(app, "/", every_us, loop, patience_us=500_000),
        )
        return short[0] / short[1]

    assert run(story) >= 0.9


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
        await in_time(app, "/slow", WORK_US * 2 // SLOTS, loop, claim)
        quick, _ = await asyncio.gather(
            in_time(app, "/quick", WORK_US * 2 // SLOTS, loop, claim),
            in_time(app, "/slow", WORK_US * 2 // SLOTS, loop, claim),
        )
        return quick[0] / quick[1]

    answered = run(story)
    assert answered >= 0.9 if protected else answered < 0.5


@pytest.mark.parametrize(
    ("field", "weighs"),
    [
        ((b"content-length", b"1000000000"), 131_072),
        ((b"content-length", b"1000"), 1_000),
        ((b"content-length", b"9" * 5_000), 131_072),
        ((b"transfer-encoding", b"chunked"), 131_072),
        ((b"accept", b"*/*"), 0),
    ],
)
def test_bodies_that_wait_are_bounded_in_bytes(field: tuple[bytes, bytes], weighs: int) -> None:
    """One works, two wait, and a third has room in the queue if bodies weigh nothing."""
    room = 2 * (WAITER_BYTES + weighs) + WAITER_BYTES + weighs // 2

    async def story(loop: VirtualLoop) -> tuple[list[int], int]:
        protection = Protection(settings(1, queue_bytes=room), clock=loop)
        app = protect(Backend(slots=1), protection=protection)
        statuses = []

        async def send(message: Any) -> None:
            statuses.extend([message["status"]] if "status" in message else [])

        scope = {"type": "http", "method": "GET", "path": "/", "headers": [field]}
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(app(scope, receive, send))
            await pause_us(1)
            held = protection.gate.queued_bytes
        return statuses, held

    statuses, held = run(story)
    assert sorted(statuses) == ([200] * 3 + [503] if weighs else [200] * 4)
    assert held == (2 if weighs else 3) * (WAITER_BYTES + weighs)


@pytest.mark.parametrize("named", [False, True])
def test_quick_work_is_served_beside_three_times_capacity_of_slow_work(named: bool) -> None:
    """Callers share the slots by the time they use; without names endpoints do."""

    async def story(loop: VirtualLoop) -> tuple[float, float]:
        backend = Backend(slots=SLOTS, times={"/quick": 0.02})
        app = protect(
            backend,
            protection=Protection(settings(), clock=loop),
            caller=(lambda scope: scope["path"][1:]) if named else None,
        )
        quick, slow = await asyncio.gather(
            in_time(app, "/quick", 5_000, loop),
            in_time(app, "/slow", WORK_US // (3 * SLOTS), loop),
        )
        return quick[0] / quick[1], slow[0] / CAPACITY

    quick, slow = run(story)
    assert quick >= 0.99
    assert slow >= 0.9


def test_critical_is_served_beside_three_times_capacity_of_bulk() -> None:
    """It asks for 90% of the slots."""
    every_us = WORK_US // SLOTS

    async def story(loop: VirtualLoop) -> float:
        app = protect(
            Backend(),
            protection=Protection(settings(), clock=loop),
            caller=lambda scope: "shop",
        )
        critical, _ = await asyncio.gather(
            in_time(app, "/pay", every_us * 100 // 90, loop, "CRITICAL"),
            in_time(app, "/export", every_us // 3, loop, "BULK"),
        )
        return critical[0] / critical[1]

    assert run(story) >= 0.98
