"""Many asks of one engine at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from sluicegate.contracts.errors import Unavailable
from sluicegate.stores.engines.batches import all_of, some_at_once


class Works:
    """Asks that begin, wait until they are let go, and end."""

    def __init__(self, count: int, failing: frozenset[int] = frozenset()) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.go = [asyncio.Event() for _ in range(count)]
        self.failing = failing

    async def one(self, number: int) -> int:
        self.begun.append(number)
        await self.go[number].wait()
        self.ended.append(number)
        if number in self.failing:
            raise Unavailable("an ask", str(number))
        return number * number

    def later(self, number: int) -> Callable[[], Awaitable[int]]:
        return lambda: self.one(number)


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_results_are_told_in_the_order_of_the_asks(count: int) -> None:
    async def story() -> None:
        works = Works(count)
        work = asyncio.create_task(_all(works, count))
        await settled()
        for event in reversed(works.go):
            event.set()
            await settled()
        assert await work == [number * number for number in range(count)]

    asyncio.run(story())


async def _all(works: Works, count: int) -> list[int]:
    return await all_of([works.one(number) for number in range(count)])


def test_a_failure_is_told_when_all_have_ended_and_it_is_the_first_asks() -> None:
    async def story() -> None:
        works = Works(3, failing=frozenset({1, 2}))
        work = asyncio.create_task(_all(works, 3))
        await settled()
        works.go[2].set()
        works.go[1].set()
        await settled()
        assert not work.done()
        works.go[0].set()
        with pytest.raises(Unavailable, match="1"):
            await work

    asyncio.run(story())


def test_so_many_are_under_way_and_one_that_ends_makes_room_for_the_next() -> None:
    async def story() -> None:
        works = Works(5)
        done = asyncio.create_task(some_at_once([works.later(at) for at in range(5)], 2))
        await settled()
        assert works.begun == [0, 1]
        works.go[1].set()
        works.go[2].set()
        await settled()
        assert works.begun == [0, 1, 2, 3], "0 holds nobody up"
        for event in works.go:
            event.set()
        await done
        assert sorted(works.ended) == [0, 1, 2, 3, 4]

    asyncio.run(story())


def test_behind_a_failure_what_was_begun_ends_and_nothing_else_is_begun() -> None:
    async def story() -> None:
        works = Works(5, failing=frozenset({1}))
        done = asyncio.create_task(some_at_once([works.later(at) for at in range(5)], 2))
        await settled()
        works.go[1].set()
        await settled()
        assert not done.done()
        works.go[0].set()
        with pytest.raises(Unavailable, match="1"):
            await done
        assert works.begun == works.ended[::-1] == [0, 1]

    asyncio.run(story())


def test_nothing_to_do_is_done() -> None:
    async def story() -> None:
        done = asyncio.create_task(some_at_once([], 4))
        await settled()
        assert done.done()

    asyncio.run(story())
