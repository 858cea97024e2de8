"""Circuit: the whole herd let through at half-open, and a lock that is held during the call.

aiobreaker, purgatory, hyx and circuitbreaker let 50 of 50 through when the open time ends, cashews
28. pybreaker holds a lock while the protected call runs, so 16 calls take 16 times as long.
"""

from __future__ import annotations

import asyncio
import threading

import pytest

from sluicegate.kernels.breaker import (
    CLOSED,
    FAILURE,
    HALF_OPEN,
    OPEN,
    REFUSED,
    SUCCESS,
    Circuit,
    CircuitSettings,
)
from tests.issues.crowd import crowd

SECOND_US = 1_000_000


def opened(probes: int, probe_successes: int = 1) -> tuple[Circuit, int]:
    """A breaker that has just opened, and the instant at which it may be tried."""
    breaker = Circuit(
        CircuitSettings(failures_in_row=1, probes=probes, probe_successes=probe_successes)
    )
    breaker.leave(breaker.enter(0), FAILURE, 1, 0, 0.5)
    assert breaker.state == OPEN
    return breaker, breaker.retry_after_us(0)


@pytest.mark.parametrize("probes", [1, 3, 10])
def test_of_fifty_calls_at_half_open_so_many_as_are_configured_reach_the_backend(
    probes: int,
) -> None:
    async def story() -> None:
        breaker, now_us = opened(probes)
        reached, answered = 0, asyncio.Event()

        async def call() -> bool:
            nonlocal reached
            generation = breaker.enter(now_us)
            if generation == REFUSED:
                return False
            reached += 1
            await answered.wait()  # the backend is slow: all come before one has returned
            breaker.leave(generation, SUCCESS, 1, now_us, 0.5)
            return True

        calls = [asyncio.create_task(call()) for _ in range(50)]
        for _ in range(5):
            await asyncio.sleep(0)
        assert breaker.state == HALF_OPEN
        assert reached == probes
        answered.set()
        assert sum(await asyncio.gather(*calls)) == probes
        assert breaker.state == CLOSED

    asyncio.run(story())


@pytest.mark.parametrize("probes", [1, 3])
def test_a_probe_that_fails_lets_nobody_else_in(probes: int) -> None:
    breaker, now_us = opened(probes, probes)
    let_in = [generation for _ in range(50) if (generation := breaker.enter(now_us))]
    assert len(let_in) == probes
    breaker.leave(let_in[0], FAILURE, 1, now_us, 0.5)
    assert breaker.state == OPEN
    assert not any(breaker.enter(now_us) for _ in range(50))


def test_probes_of_before_say_nothing_of_now() -> None:
    breaker, now_us = opened(3, 3)
    failed, *late = [breaker.enter(now_us) for _ in range(3)]
    breaker.leave(failed, FAILURE, 1, now_us, 0.5)
    now_us += breaker.retry_after_us(now_us)
    anew = breaker.enter(now_us)
    for generation in [*late, anew]:
        breaker.leave(generation, SUCCESS, 1, now_us, 0.5)
    assert breaker.state == HALF_OPEN


@pytest.mark.usefixtures("restless")
def test_threads_hold_nothing_while_the_protected_call_runs() -> None:
    # pybreaker: https://github.com/danielfm/pybreaker/issues/55
    breaker, turn = Circuit(CircuitSettings()), threading.Lock()
    # All sixteen are in their calls at once, or the barrier breaks.
    together = threading.Barrier(16, timeout=60)

    def call(_: int) -> int:
        with turn:
            generation = breaker.enter(0)
        together.wait()
        with turn:
            return breaker.leave(generation, SUCCESS, 20_000, 0, 0.5)

    assert crowd(16, call) == [CLOSED] * 16


@pytest.mark.usefixtures("restless")
def test_of_fifty_threads_at_half_open_so_many_as_are_configured_are_let_in() -> None:
    breaker, now_us = opened(3)
    turn = threading.Lock()

    def enter(_: int) -> bool:
        with turn:
            return breaker.enter(now_us) != REFUSED

    assert sum(crowd(50, enter)) == 3
    assert breaker.retry_after_us(now_us) > 0


def test_a_probe_that_never_reports_does_not_shut_the_gate_for_ever() -> None:
    breaker, now_us = opened(1)
    assert breaker.enter(now_us)
    assert not breaker.enter(now_us + SECOND_US)
    assert breaker.enter(now_us + 30 * SECOND_US)
