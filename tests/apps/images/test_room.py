"""Room: downloads hold no more than the bound together, and none waits for another for ever."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from sluicegate.apps.images.room import STEP_BYTES, Held, Room
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.image import ImageFailure
from sluicegate.contracts.reasons import OVERLOADED
from tests.apps.images.origin_server import OriginServer, Page
from tests.apps.images.pictures import picture
from tests.apps.images.service_parts import parts_of
from tests.apps.images.test_origin import origin_of, run

ONE = 1 << 20
BOUND = 3 * ONE


def test_downloads_far_over_the_bound_all_end_and_never_hold_more() -> None:
    async def story() -> None:
        bounds: dict[str, Any] = {
            "bytes_max": ONE,
            "held_bytes_max": BOUND,
            "timeout_s": 15.0,
            "idle_s": 10.0,
        }
        async with origin_of(per_host=64, **bounds) as (server, origin):
            bodies = {f"/{at}": bytes([at]) * (ONE - at) for at in range(24)}
            for path, body in bodies.items():
                server.pages[path] = Page(body)

            async def fetch(path: str) -> None:
                download = await origin.fetch(server.url(path))
                assert download.body == bodies[path]
                await asyncio.sleep(0)  # it is stored
                download.held.free()

            await asyncio.gather(*map(fetch, bodies))
            room = origin.room
            assert ONE < room.used_max <= BOUND
            assert (room.used, room.waiting, room.refused) == (0, 0, 0)

    run(story)


def test_whoever_waits_too_long_is_refused_by_a_reason_and_the_host_is_not_blamed() -> None:
    async def story() -> None:
        bounds: dict[str, Any] = {
            "bytes_max": ONE,
            "held_bytes_max": ONE + STEP_BYTES,
            "idle_s": 1.0,
        }
        async with origin_of(**bounds) as (server, origin):
            server.pages["/a"] = Page(bytes(ONE))
            first = await origin.fetch(server.url("/a"))
            for _ in range(30):  # more than would open a breaker
                with pytest.raises(Refused) as raised:
                    await origin.fetch(server.url("/a"))
                assert raised.value.decision.reason is OVERLOADED
                assert raised.value.decision.retry_after_us > 0
                if origin.room.refused > 2:
                    break
            first.held.free()
            again = await origin.fetch(server.url("/a"))
            assert len(again.body or b"") == ONE
            assert set(origin.states().values()) <= {"closed"}

    run(story)


def test_what_fails_or_is_cancelled_holds_nothing() -> None:
    async def story() -> None:
        bounds: dict[str, Any] = {"bytes_max": ONE, "held_bytes_max": BOUND}
        async with origin_of(**bounds) as (server, origin):
            server.pages["/endless"] = Page(endless=True)
            server.pages["/stall"] = Page(bytes(ONE), stall_after=ONE // 2)
            for path in ("/endless", "/stall"):
                with pytest.raises(ImageFailure):
                    await origin.fetch(server.url(path))
                assert origin.room.used == 0
            task = asyncio.create_task(origin.fetch(server.url("/stall")))
            while not origin.room.used:
                await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert origin.room.used == 0

    run(story)


@pytest.mark.parametrize("seed", range(5))
def test_growing_in_any_order_ends_within_the_bound(seed: int) -> None:
    """What grows in steps beside others that do, and frees all at its end: none is stuck."""
    chance = random.Random(seed)
    room = Room(4 * ONE, ONE)

    async def grow() -> None:
        held = Held(room)
        try:
            while held.used < ONE - (1 << 16):
                await held.add(chance.randrange(1, 1 << 16), 30.0)
                assert room.used <= room.bytes_max
                for _ in range(chance.randrange(3)):
                    await asyncio.sleep(0)
        finally:
            held.free()

    async def story() -> None:
        tasks = [asyncio.create_task(grow()) for _ in range(60)]
        for task in chance.sample(tasks, 10):
            await asyncio.sleep(0)
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(one is None or isinstance(one, asyncio.CancelledError) for one in ended)
        assert room.used == room.waiting == 0

    asyncio.run(asyncio.wait_for(story(), 60))


def test_the_room_is_held_until_the_bytes_are_stored_and_not_after(tmp_path: Path) -> None:
    async def story() -> None:
        async with OriginServer() as server, parts_of(tmp_path) as parts:
            server.pages["/a"] = Page(picture(1))
            store, held = parts.contents.store, []

            async def watched(data: bytes, **more: bool) -> object:
                held.append(parts.origin.room.used)
                return await store(data, **more)

            parts.contents.store = watched  # type: ignore[method-assign, assignment]
            await parts.image(server.url("/a"))
            assert held[0] > 0
            assert parts.origin.room.used == 0

    run(story)
