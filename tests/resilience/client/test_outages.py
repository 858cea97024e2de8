"""In an outage our client answers what one without a breaker would, and leaves the server alone.

On virtual time; `None` is the control, a client that never opens.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final, NamedTuple

import pytest

from sluicegate.contracts.request import Request
from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.resilience.client.calls import Call, ResilientClient
from sluicegate.resilience.client.settings import client_settings
from tests.policies.virtual import VirtualLoop, pause_us, run

ANSWER_US: Final = 5_000
NEVER_OPENS: Final = {"failures_in_row": 0, "failure_percent": 0}


class Counts(NamedTuple):
    """Calls, those answered, those that came while the server was well, requests to it dead."""

    calls: int
    answered: int
    lucky: int
    in_vain: int


class Chance:
    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed).random


def outage(seed: int, per_s: int, lasts_us: int, breaker: dict[str, Any]) -> Counts:
    """Call at random instants; the second quarter of the time is an outage of that length."""
    draws = random.Random(seed)

    async def story(loop: VirtualLoop) -> Counts:
        client = ResilientClient(
            client_settings({"breaker": breaker}), clock=loop, chance=Chance(seed)
        )
        began_us = loop.now_us()
        calls = answered = lucky = in_vain = 0

        def is_down() -> bool:
            return lasts_us <= loop.now_us() - began_us < 2 * lasts_us

        async def work(call: Call) -> CallResult[int]:
            nonlocal in_vain
            down = is_down()
            in_vain += down
            await pause_us(ANSWER_US)
            return CallResult(ResultKind.FAILED) if down else CallResult(ResultKind.OK, 1)

        async def ask() -> None:
            nonlocal answered, lucky
            lucky += not is_down()
            result = await client.call(work, Request("k", shard="s"), idempotent=True)
            answered += result.ok

        async with asyncio.TaskGroup() as group:
            while loop.now_us() - began_us < 4 * lasts_us:
                calls += 1
                group.create_task(ask())
                await pause_us(round(draws.expovariate(per_s) * 1_000_000))
        return Counts(calls, answered, lucky, in_vain)

    return run(story)


def outages(seeds: range, per_s: int, lasts_us: int, breaker: dict[str, Any]) -> Counts:
    """The sum over seeds."""
    found = [outage(seed, per_s, lasts_us, breaker) for seed in seeds]
    return Counts(*(sum(column) for column in zip(*found, strict=True)))


@pytest.mark.parametrize(
    ("per_s", "lasts_us", "seeds", "asked_max"),
    [(1, 30_000_000, 8, 1.5), (100, 2_000_000, 2, 0.4), (1_000, 100_000, 3, 0.4)],
)
def test_our_client_loses_less_than_a_hundredth_of_its_answers_to_an_outage(
    per_s: int, lasts_us: int, seeds: int, asked_max: float
) -> None:
    found = outages(range(seeds), per_s, lasts_us, {})
    assert found.answered >= found.lucky - 0.01 * found.calls
    assert found.in_vain <= asked_max * found.calls / 4


def test_a_breaker_whose_open_time_doubles_loses_many_and_none_asks_a_dead_server() -> None:
    doubling = {"open_us": 1_000_000, "open_percent": 100, "probes": 3, "probe_successes": 2}
    found = outages(range(2), 100, 2_000_000, doubling)
    assert found.answered < found.lucky - 0.03 * found.calls
    found = outages(range(2), 100, 2_000_000, NEVER_OPENS)
    assert found.in_vain > 0.9 * found.calls / 4
