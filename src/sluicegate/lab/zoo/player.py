"""Player: what the players of services and engines share: resources, and a loop that is late."""

from __future__ import annotations

import asyncio
from typing import Final

from sluicegate.lab.virtual_loop import VirtualLoop
from sluicegate.lab.world import World
from sluicegate.lab.zoo.resource import ZooResource
from sluicegate.lab.zoo.shape import ZooShape

LOOP_IO_US: Final = 5_000  # what a handler that works in the loop awaits half way


def make_resources(world: World, shape: ZooShape) -> list[ZooResource]:
    """Return the sets of slots of a shape."""
    return [
        ZooResource(world, shape.slots, shape.cores, shape.speeds(number))
        for number in range(shape.resources)
    ]


def burn(us: int) -> None:
    """Keep the event loop busy: time passes, and nothing else happens."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.elapsed_us += us


def starve(world: World, shape: ZooShape) -> None:
    """Stop the process now and then from the onset on, as one that gets no processor."""
    every_us, late_us = shape.starved
    if not every_us:
        return

    def stop(at_us: int) -> None:
        burn(late_us)
        if at_us < shape.span_us:
            world.call_at_us(at_us + every_us, stop, at_us + every_us)

    first_us = shape.onset_us + every_us
    world.call_at_us(first_us, stop, first_us)
