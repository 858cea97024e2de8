from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from sluicegate import Limiter
from sluicegate.contracts.errors import BadValue
from sluicegate.lab.virtual_loop import Deadlock, Livelock, OutOfBounds, TooLong, VirtualLoop
from sluicegate.lab.world import Leak, World, run
from sluicegate.testing import START_US

HOUR_US = 3_600_000_000


def test_an_hour_takes_no_time_and_is_an_hour_to_the_microsecond() -> None:
    async def main(world: World) -> tuple[int, float]:
        await asyncio.sleep(3_600)
        return world.clock.now_us() - START_US, asyncio.get_running_loop().time()

    assert run(main, 0).value == (HOUR_US, 3_600.0)


def test_a_timer_never_fires_early_and_at_most_a_microsecond_late() -> None:
    async def main(world: World) -> None:
        draw = world.chance("waits").draw
        for _ in range(1_000):
            wait_s = draw() * 0.3
            before = asyncio.get_running_loop().time()
            await asyncio.sleep(wait_s)
            waited = asyncio.get_running_loop().time() - before
            assert wait_s - 1e-8 <= waited <= wait_s + 1.1e-6

    run(main, 1)


def test_sums_of_tenths_fall_on_whole_microseconds() -> None:
    async def main(world: World) -> int:
        for _ in range(30):
            await asyncio.sleep(0.1)
        return world.elapsed_us

    assert run(main, 0).value == 3_000_000


def test_a_loop_of_waits_shorter_than_a_microsecond_moves_on() -> None:
    async def main(world: World) -> int:
        for _ in range(5):
            await asyncio.sleep(1e-9)
        return world.elapsed_us

    assert run(main, 0).value == 5


def test_what_is_set_for_one_instant_happens_in_the_order_in_which_it_was_set() -> None:
    async def main(world: World) -> list[int]:
        order: list[int] = []
        for number in range(200):
            world.call_at_us(5_000, order.append, number)
        world.call_at_us(4_999, order.append, -1)
        await world.until_us(6_000)
        return order

    assert run(main, 0).value == [-1, *range(200)]


def test_a_cancelled_timer_moves_no_clock_and_takes_no_place() -> None:
    async def main(world: World) -> int:
        loop = asyncio.get_running_loop()
        for number in range(10_000):
            loop.call_later(100 + number, print).cancel()
        await asyncio.sleep(0.001)
        async with asyncio.timeout(3_600):
            await asyncio.sleep(0)
        assert isinstance(loop, VirtualLoop)
        assert loop._timers_cancelled <= len(loop._timers)
        return len(loop._timers)

    ended = run(main, 0)
    assert ended.elapsed_us == 1_000
    assert ended.value < 1_000


def test_what_asyncio_offers_works_in_there() -> None:
    async def main(world: World) -> list[str]:
        log: list[str] = []
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(10), 1)
        log.append(f"timeout at {world.elapsed_us}")
        queue: asyncio.Queue[int] = asyncio.Queue(1)

        async def produce() -> None:
            for number in range(3):
                await queue.put(number)

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            log += [str(await queue.get()) for _ in range(3)]
        lock = asyncio.Lock()
        async with lock:
            log.append("locked")
        return log

    assert run(main, 0).value == ["timeout at 1000000", "0", "1", "2", "locked"]


def test_a_production_limiter_waits_on_virtual_time_as_it_is() -> None:
    async def main(world: World) -> list[int]:
        limiter = Limiter("2/s", clock=world.clock)
        admitted_us: list[int] = []
        while world.elapsed_us < 3_000_000:
            decision = await limiter.atake("ann")
            if decision.allowed:
                admitted_us.append(world.elapsed_us)
            else:
                await world.sleep_us(decision.retry_after_us)
        return admitted_us

    admitted_us = run(main, 0).value
    assert admitted_us[:2] == [0, 0]
    assert all(late - early == 500_000 for early, late in pairwise(admitted_us[2:]))


def test_each_component_has_draws_of_its_own_that_no_other_shifts() -> None:
    async def alone(world: World) -> list[float]:
        return [world.chance("backend").draw() for _ in range(10)]

    async def beside_another(world: World) -> list[float]:
        draws = []
        for _ in range(10):
            world.chance("network").draw()
            draws.append(world.chance("backend").draw())
        return draws

    assert run(alone, 5).value == run(beside_another, 5).value
    assert run(alone, 5).value != run(alone, 6).value


def test_nothing_left_to_do_is_a_deadlock_that_names_who_waits_and_the_seed() -> None:
    async def stuck(world: World) -> None:
        await asyncio.sleep(0.002)
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match=r"at 2000 us.*main \(stuck, line \d+\)") as caught:
        run(stuck, 12)
    assert "seed 12" in caught.value.__notes__[0]
    assert caught.value.at_us == 2_000


def test_a_clock_that_stands_for_ever_is_a_livelock() -> None:
    async def busy(world: World) -> None:
        await asyncio.sleep(1)
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Livelock, match="at 1000000 us"):
        run(busy, 0, ticks_at_once_max=1_000)


def test_a_loop_of_waits_for_nothing_is_a_livelock_too() -> None:
    async def busy(world: World) -> None:
        while True:
            await world.sleep_us(0)

    with pytest.raises(Livelock, match="at 0 us"):
        run(busy, 0, ticks_at_once_max=1_000)


def test_a_busy_instant_does_not_count_against_the_next() -> None:
    async def main(world: World) -> int:
        for _ in range(10):
            for _ in range(400):
                await asyncio.sleep(0)
            await world.sleep_us(1)
        return world.elapsed_us

    assert run(main, 0, ticks_at_once_max=1_000).value == 10


def test_a_run_that_does_not_end_is_ended() -> None:
    async def endless(world: World) -> None:
        while True:
            await asyncio.sleep(60)

    with pytest.raises(TooLong):
        run(endless, 0, span_us_max=HOUR_US)


def test_tasks_that_are_left_are_a_leak_each_by_its_name_and_all_are_ended() -> None:
    ended: list[str] = []

    async def sleeper(name: str) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ended.append(name)

    async def main(world: World) -> None:
        for name in ("first", "second", "third"):
            world.spawn(sleeper(name), name)
        await asyncio.sleep(1)

    with pytest.raises(Leak, match=r"first .*second .*third ") as caught:
        run(main, 0)
    assert len(caught.value.tasks) == 3
    assert ended == ["first", "second", "third"]


def test_leaks_that_are_allowed_are_still_told() -> None:
    async def main(world: World) -> int:
        world.spawn(asyncio.sleep(100), "late")
        await asyncio.sleep(0)
        return 7

    ended = run(main, 0, leaks_allowed=True)
    assert ended.value == 7
    assert ended.leaked == (ended.leaked[0],)
    assert ended.leaked[0].startswith("late ")


def test_the_rest_can_be_cancelled_before_the_end_and_then_nothing_is_left() -> None:
    async def main(world: World) -> None:
        for number in range(50):
            world.spawn(asyncio.sleep(100), f"sleeper-{number}")
        await asyncio.sleep(0.5)
        await world.cancel_others()

    ended = run(main, 0)
    assert (ended.leaked, ended.elapsed_us) == ((), 500_000)


def test_a_spawned_task_that_fails_ends_the_run_with_its_error() -> None:
    async def fails() -> None:
        await asyncio.sleep(1)
        raise LookupError("a bug")

    async def main(world: World) -> None:
        world.spawn(fails(), "fails")
        await asyncio.sleep(1_000)

    with pytest.raises(LookupError, match="a bug") as caught:
        run(main, 3)
    assert caught.value.__notes__ == ["in the world of seed 3, after 1000000 us"]


def test_a_callback_that_fails_ends_the_run_too() -> None:
    def fails() -> None:
        raise LookupError("a bug")

    async def main(world: World) -> None:
        world.call_at_us(10, fails)
        await asyncio.sleep(1)

    with pytest.raises(LookupError):
        run(main, 3)


def test_there_is_no_way_out_of_the_world() -> None:
    async def thread(world: World) -> None:
        await asyncio.to_thread(print)

    async def socket(world: World) -> None:
        await asyncio.open_connection("localhost", 80)

    async def another_thread(world: World) -> None:
        asyncio.get_running_loop().call_soon_threadsafe(print)

    for main in (thread, socket, another_thread):
        with pytest.raises(OutOfBounds):
            run(main, 0)


def test_whatever_asyncio_asks_of_a_loop_is_there_or_refused() -> None:
    loop = VirtualLoop()
    answered = {
        "call_at", "call_exception_handler", "call_later", "call_soon", "close", "create_future",
        "create_task", "get_debug", "is_closed", "is_running", "run_until_complete", "time",
    }  # fmt: skip
    for name in vars(asyncio.AbstractEventLoop):
        if not name.startswith("_") and name not in answered:
            with pytest.raises(OutOfBounds, match="use the lab's network"):
                getattr(loop, name)()


def test_a_run_inside_a_run_is_refused_and_the_outer_goes_on() -> None:
    async def main(world: World) -> int:
        inner = VirtualLoop()
        with pytest.raises(RuntimeError, match="await it"):
            inner.run_until_complete(inner.create_future())
        await world.sleep_us(7)
        return world.elapsed_us

    assert run(main, 0).value == 7


def test_a_generator_that_is_dropped_half_way_is_closed_in_the_run_it_was_made_in() -> None:
    closed_us: list[int] = []

    async def numbers(world: World) -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await world.sleep_us(5)
            closed_us.append(world.elapsed_us)

    async def main(world: World) -> None:
        async for _ in numbers(world):
            break
        await world.sleep_us(10)

    assert run(main, 0).elapsed_us == 10
    assert closed_us == [5]


def test_a_generator_that_is_dropped_at_the_end_is_closed_and_no_leak() -> None:
    closed: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            closed.append("closed")

    async def main(world: World) -> None:
        async for _ in numbers():
            break

    assert run(main, 0).leaked == ()
    assert closed == ["closed"]


def test_an_interrupt_ends_the_run_and_the_next_run_is_whole() -> None:
    async def interrupted(world: World) -> None:
        await world.sleep_us(3)
        raise KeyboardInterrupt

    async def main(world: World) -> int:
        await world.sleep_us(4)
        return world.elapsed_us

    with pytest.raises(KeyboardInterrupt):
        run(interrupted, 0)
    assert run(main, 0).value == 4


def test_a_timer_that_has_fired_can_be_cancelled_and_is_not_counted() -> None:
    async def main(world: World) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        timer = loop.call_later(0.001, int)
        assert timer.when() == 0.001
        await asyncio.sleep(0.002)
        assert not timer.cancelled()
        timer.cancel()
        assert timer.cancelled()
        assert loop._timers_cancelled == 0

    run(main, 0)


def test_a_seed_below_zero_is_refused() -> None:
    async def main(world: World) -> None: ...

    with pytest.raises(BadValue, match="seed"):
        run(main, -1)


SCRIPT = """
import asyncio
from sluicegate.lab.world import run

async def main(world):
    async def one(name):
        for _ in range(50):
            await world.sleep_us(int(world.chance(name).draw() * 1000))
            world.note(name, world.elapsed_us)
    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(one(f"task-{number}"))

print(run(main, 9).digest)
"""


def test_the_digest_is_the_same_whatever_python_hashes_with() -> None:
    digests = set()
    for hash_seed in ("0", "1", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        result = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(result.stdout)
    assert len(digests) == 1


def test_the_digest_tells_runs_apart_that_differ_in_one_instant_or_one_word() -> None:
    async def main(world: World, wait_us: int, word: str) -> None:
        await world.sleep_us(wait_us)
        world.note(word)

    digests = {
        run(lambda world, wait=wait, word=word: main(world, wait, word), 0).digest  # type: ignore[misc]
        for wait, word in ((10, "a"), (11, "a"), (10, "b"))
    }
    assert len(digests) == 3


def test_the_digest_tells_of_an_instant_that_nobody_noted() -> None:
    async def main(world: World, wait_us: int) -> None:
        await world.sleep_us(wait_us)

    once, later = run(lambda world: main(world, 10), 0), run(lambda world: main(world, 11), 0)
    assert once.digest != later.digest
