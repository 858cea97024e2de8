"""Time in queue counts from the socket: what the event loop left there has waited too."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from sluicegate.policies.admission.gate import Gate, GateSettings
from sluicegate.resilience.server.asgi import protect
from sluicegate.resilience.server.loop_lag import BEAT_US, CALM_BEATS, LATE_US, LoopLag
from sluicegate.resilience.server.protection import Protection
from sluicegate.system import SystemClock
from tests.doors.test_frameworks import served
from tests.policies.virtual import VirtualLoop, pause_us, run

BLOCKED_S = 0.4
SHORT = {"x-sluicegate-deadline-ms": "50"}
LONG = {"x-sluicegate-deadline-ms": "60000"}


def test_what_expired_in_its_socket_while_the_loop_was_blocked_is_never_begun() -> None:
    entered, begun = threading.Event(), []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/block":
            entered.set()
            time.sleep(BLOCKED_S)
        begun.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    with served(protect(app)) as port, ThreadPoolExecutor(3) as pool:
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(timeout=30) as first, httpx.Client(timeout=30) as second:
            assert first.get(f"{url}/", headers=LONG).status_code == 200
            assert second.get(f"{url}/", headers=LONG).status_code == 200
            blocking = pool.submit(httpx.get, f"{url}/block", timeout=30)
            assert entered.wait(60)
            late = pool.submit(first.get, f"{url}/late", headers=SHORT)
            patient = pool.submit(second.get, f"{url}/patient", headers=LONG)
            assert late.result().status_code == 504
            assert patient.result().status_code == 200
            assert blocking.result().status_code == 200
    assert "/late" not in begun


def test_a_loop_that_is_on_time_adds_nothing_and_a_blocked_turn_is_forgotten_after_it() -> None:
    async def story(loop: VirtualLoop) -> list[int]:
        gate = Gate(GateSettings())
        lag = LoopLag(loop, gate)
        found = [lag.waited_us(loop.now_us())]
        await pause_us(20 * BEAT_US)
        found.append(lag.waited_us(loop.now_us()))
        loop._leaping.at_us += 300_000  # a turn of 300 ms
        found.append(lag.waited_us(loop.now_us()))
        await asyncio.sleep(0)
        await pause_us(20 * BEAT_US)
        found.append(lag.waited_us(loop.now_us()))
        return found

    first, calm, blocked, after = run(story)
    assert (first, calm, after) == (0, 0, 0)
    assert 290_000 <= blocked <= 300_000


def test_loop_is_late_until_on_time_for_some_beats() -> None:
    async def story(loop: VirtualLoop) -> list[bool]:
        gate = Gate(GateSettings())
        lag = LoopLag(loop, gate)
        lag.waited_us(loop.now_us())
        found = [gate.lagging]
        for late_us in (LATE_US // 2, LATE_US + 2 * BEAT_US):
            loop._leaping.at_us += late_us
            await pause_us(2 * BEAT_US)
            found.append(gate.lagging)
        await pause_us((CALM_BEATS - 5) * BEAT_US)
        found.append(gate.lagging)
        await pause_us(5 * BEAT_US)
        return [*found, gate.lagging]

    assert run(story) == [False, False, True, True, False]


def test_time_that_a_door_has_counted_from_the_socket_is_not_counted_twice() -> None:
    async def story(loop: VirtualLoop) -> list[int]:
        protection = Protection(clock=loop)
        protection.begin("/", loop.now_us())
        loop._leaping.at_us += 300_000
        requests = [
            protection.begin("/", loop.now_us(), left_us=500_000, left_now=left_now)
            for left_now in (True, False)
        ]
        return [(request.deadline_us or 0) - loop.now_us() for request in requests]

    counted, uncounted = run(story)
    assert counted == 500_000
    assert 200_000 <= uncounted <= 210_000


def test_a_protection_that_outlives_its_loop_measures_the_next_one_anew() -> None:
    lag = LoopLag(SystemClock(), Gate(GateSettings()))

    async def ask(now_us: int) -> int:
        return lag.waited_us(now_us)

    assert asyncio.run(ask(1_000_000)) == 0
    assert asyncio.run(ask(900_000_000)) == 0
