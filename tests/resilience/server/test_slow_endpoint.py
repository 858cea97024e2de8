"""A limit to be found, where one endpoint takes longer than its callers wait."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from sluicegate.lab.world import World, run
from tests.resilience.server.virtual_client import ask, protected, reply

SPAN_S = 60
PATIENCE_US = 1_500_000


async def wait_as_the_path_says(scope: Any, receive: Any, send: Any) -> None:
    await asyncio.sleep(int(scope["path"][1:]) / 1_000)
    await reply(send)


@pytest.mark.parametrize(
    "per_s",
    [
        pytest.param({"/4000": 10, "/1": 30, "/50": 30}, id="4s"),
        pytest.param({"/8000": 4, "/150": 30}, id="8s"),
    ],
)
def test_slow_endpoint_costs_the_others_nothing(per_s: dict[str, int]) -> None:
    async def call(world: World, path: str, rate: int) -> list[bool]:
        app, random, at_s = apps[0], Random(rate), 0.0
        calls: list[Any] = []
        while at_s < SPAN_S:
            await world.until_us(int(at_s * 1e6))
            work = ask(world, app, path, patience_us=PATIENCE_US, told=False)
            calls.append(world.spawn(work, f"{path} {len(calls)}"))
            at_s += random.expovariate(rate)
        return [(await one).served for one in calls]

    async def main(world: World) -> list[list[bool]]:
        apps.append(protected(world, wait_as_the_path_says))
        loads = [world.spawn(call(world, path, rate), path) for path, rate in per_s.items()]
        return [await load for load in loads]

    apps: list[Any] = []
    slow, *others = run(main, 11).value
    assert not any(slow)  # or nothing would be slow here
    for served in others:
        assert sum(served) >= 0.999 * len(served)
