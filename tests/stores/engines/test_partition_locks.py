"""Turns at a partition: plain writes together, swaps alone, first come first served."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from sluicegate.stores.engines.partition_locks import PartitionLocks


class Stage:
    """Tasks that take turns, and what happens in which order."""

    def __init__(self) -> None:
        self.turns = PartitionLocks()
        self.events: list[str] = []
        self.may_go: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def comes(self, name: str, *, alone: bool, partition: bytes = b"p") -> None:
        self.may_go[name] = asyncio.Event()

        async def work() -> None:
            self.events.append(f"+{name}")
            await self.may_go[name].wait()
            self.events.append(f"-{name}")

        turn = self.turns.run("t", partition, work, alone=alone)
        self.tasks[name] = asyncio.create_task(turn)
        await settled()

    async def goes(self, name: str) -> None:
        self.may_go[name].set()
        await settled()

    async def ends(self) -> None:
        for event in self.may_go.values():
            event.set()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        await settled()
        assert len(self.turns) == 0, "nobody is there, and a line is kept"


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def tell(story: Callable[[Stage], Awaitable[None]]) -> None:
    async def main() -> None:
        stage = Stage()
        await story(stage)
        await stage.ends()

    asyncio.run(main())


def test_writes_share_a_turn_and_a_swap_waits_for_all_of_them() -> None:
    async def story(stage: Stage) -> None:
        await stage.comes("write 1", alone=False)
        await stage.comes("write 2", alone=False)
        await stage.comes("swap", alone=True)
        await stage.goes("write 1")
        assert stage.events == ["+write 1", "+write 2", "-write 1"]
        await stage.goes("write 2")
        assert stage.events[-2:] == ["+swap", "-write 2"] or stage.events[-2:] == [
            "-write 2",
            "+swap",
        ]

    tell(story)


def test_a_write_behind_a_swap_waits_and_so_does_one_behind_a_swap_that_waits() -> None:
    async def story(stage: Stage) -> None:
        await stage.comes("write 1", alone=False)
        await stage.comes("swap 1", alone=True)
        await stage.comes("write 2", alone=False)
        await stage.comes("write 3", alone=False)
        await stage.comes("swap 2", alone=True)
        assert stage.events == ["+write 1"]
        await stage.goes("write 1")
        assert stage.events[-1] in ("+swap 1", "-write 1")
        assert "+write 2" not in stage.events
        await stage.goes("swap 1")
        assert {"+write 2", "+write 3"} <= set(stage.events)
        assert "+swap 2" not in stage.events

    tell(story)


def test_a_write_waits_for_a_swap_that_is_at_it() -> None:
    async def story(stage: Stage) -> None:
        await stage.comes("swap", alone=True)
        await stage.comes("write", alone=False)
        assert stage.events == ["+swap"]
        await stage.goes("swap")
        assert "+write" in stage.events

    tell(story)


def test_two_swaps_are_never_at_it_together() -> None:
    async def story(stage: Stage) -> None:
        await stage.comes("swap 1", alone=True)
        await stage.comes("swap 2", alone=True)
        assert stage.events == ["+swap 1"]
        await stage.goes("swap 1")
        assert "+swap 2" in stage.events

    tell(story)


def test_a_turn_ends_with_its_work_and_not_with_whoever_asked_for_it() -> None:
    async def story(stage: Stage) -> None:
        await stage.comes("swap", alone=True)
        await stage.comes("write", alone=False)
        stage.tasks["swap"].cancel()
        await settled()
        assert stage.tasks["swap"].cancelled()
        assert stage.events == ["+swap"], "its work is under way"
        await stage.goes("swap")
        assert stage.events == ["+swap", "-swap", "+write"]

    tell(story)


def test_work_that_fails_ends_its_turn_and_is_told() -> None:
    async def main() -> None:
        turns = PartitionLocks()

        async def fails() -> None:
            raise OSError("as it happens")

        async def works() -> int:
            return 7

        with pytest.raises(OSError, match="as it happens"):
            await turns.run("t", b"p", fails, alone=True)
        assert await turns.run("t", b"p", works, alone=True) == 7
        await settled()
        assert len(turns) == 0

    asyncio.run(main())


def test_other_partitions_do_not_wait() -> None:
    async def story(stage: Stage) -> None:
        await stage.comes("swap 1", alone=True)
        await stage.comes("swap 2", alone=True, partition=b"q")
        assert stage.events == ["+swap 1", "+swap 2"]

    tell(story)


def test_whoever_is_cancelled_while_waiting_holds_up_nobody() -> None:
    async def story(stage: Stage) -> None:
        await stage.comes("write 1", alone=False)
        await stage.comes("swap", alone=True)
        await stage.comes("write 2", alone=False)
        stage.tasks["swap"].cancel()
        await settled()
        assert stage.events == ["+write 1", "+write 2"]

    tell(story)


def test_whoever_is_cancelled_as_the_turn_comes_gives_it_on() -> None:
    for steps in range(4):  # one of them is between the turn's coming and its being taken

        async def story(stage: Stage, steps: int = steps) -> None:
            await stage.comes("swap 1", alone=True)
            await stage.comes("swap 2", alone=True)
            await stage.comes("swap 3", alone=True)
            stage.may_go["swap 1"].set()
            for _ in range(steps):
                await asyncio.sleep(0)
            stage.tasks["swap 2"].cancel()
            await settled()
            if "+swap 2" in stage.events:
                await stage.goes("swap 2")  # its work had begun, and ends like any
            assert "+swap 3" in stage.events

        tell(story)
