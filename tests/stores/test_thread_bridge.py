"""Threads that share a store in a background loop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.rule import Algorithm
from sluicegate.contracts.store import Charge, Store
from sluicegate.stores.memory.store import MemoryStore
from sluicegate.stores.redis.settings import parse_url
from sluicegate.stores.redis.store import RedisStore
from sluicegate.stores.thread_bridge import ThreadBridge
from sluicegate.testing import START_US, SeededChance
from tests.stores.redis.live import PATIENT_US
from tests.stores.redis.storing import limit_of

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

WAIT_S = 60.0  # patience with a busy machine
ONE = Charge("r", limit_of(Algorithm.FIXED_WINDOW, 1_000), "ann", 1)


def memory() -> MemoryStore:
    return MemoryStore(lambda: START_US)


@contextmanager
def bridged(
    open_store: Callable[[], Store] = memory, **options: Any
) -> Iterator[ThreadBridge[Store]]:
    bridge = ThreadBridge(open_store, **options)
    try:
        yield bridge
    finally:
        bridge.close()


def take(store: Store) -> Awaitable[Any]:
    return store.take([ONE])


def test_many_threads_take_exactly_what_there_is_and_share_round_trips(
    redis_server: RedisServer,
) -> None:
    opened: list[RedisStore] = []

    def open_store() -> RedisStore:
        settings = replace(parse_url(redis_server.url), timeout_us=PATIENT_US)
        opened.append(RedisStore(settings, SeededChance(1)))
        return opened[0]

    with bridged(open_store) as bridge:
        limit = limit_of(Algorithm.FIXED_WINDOW, 500, 10**15)
        charge = Charge("r", limit, "ann", 1)
        with ThreadPoolExecutor(16) as pool:
            jobs = [pool.submit(bridge.run, lambda store: store.take([charge])) for _ in range(800)]
            assert sum(one.result(WAIT_S).allowed for one in jobs) == 500
        assert len(opened) == 1
        stats = opened[0].stats()
        assert stats.asks == 800
        assert stats.calls < 800
    with pytest.raises(Unavailable):
        bridge.run(take)


def test_results_and_errors_reach_who_asked_for_them() -> None:
    async def fail(store: Store) -> None:
        raise BadValue("cost", 7, "ask for less")

    async def number(store: Store) -> int:
        await asyncio.sleep(0)
        return 42

    with bridged() as bridge:
        assert bridge.run(number) == 42
        with pytest.raises(BadValue, match="ask for less"):
            bridge.run(fail)
        assert bridge.run(take).decisions[0].remaining == 999


def test_nothing_runs_before_the_first_errand_and_nothing_is_left_after_the_end() -> None:
    before = threading.active_count()
    bridge = ThreadBridge(memory)
    assert threading.active_count() == before
    bridge.run(take)
    assert threading.active_count() == before + 1
    bridge.close()
    bridge.close()
    assert threading.active_count() == before


def test_a_store_that_cannot_be_opened_says_so_and_is_tried_again() -> None:
    attempts: list[int] = []

    def open_store() -> Store:
        attempts.append(1)
        if len(attempts) < 3:
            raise BadValue("redis.url", "x", "give another")
        return memory()

    with bridged(open_store) as bridge:
        for _ in range(2):
            with pytest.raises(BadValue, match="give another"):
                bridge.run(take)
        assert bridge.run(take).allowed


def test_closing_fails_what_is_under_way_and_what_comes_later() -> None:
    started = threading.Event()

    async def forever(store: Store) -> None:
        started.set()
        await asyncio.Event().wait()

    bridge = ThreadBridge(memory)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(bridge.run, forever) for _ in range(4)]
        assert started.wait(WAIT_S)
        bridge.close()
        for one in waiting:
            with pytest.raises(Unavailable, match="closed"):
                one.result(WAIT_S)
    with pytest.raises(Unavailable, match="closed"):
        bridge.run(take)


def test_an_errand_that_takes_too_long_is_given_up_and_the_next_is_done() -> None:
    ended: list[str] = []

    async def forever(store: Store) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    with bridged(wait_us_max=30_000) as bridge:
        with pytest.raises(Unavailable, match=r"no answer in 0\.03 s"):
            bridge.run(forever)
        assert bridge.run(take).allowed
        assert ended == ["cancelled"]


def test_an_interrupt_ends_the_wait_and_the_errand() -> None:
    ended = threading.Event()

    async def interrupted(store: Store) -> None:
        try:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            ended.set()

    with bridged() as bridge:
        with pytest.raises(KeyboardInterrupt):
            bridge.run(interrupted)
        assert ended.wait(WAIT_S)
        assert bridge.run(take).allowed


def test_the_loop_itself_cannot_wait_for_itself() -> None:
    with bridged() as bridge:

        async def inside(store: Store) -> str:
            with pytest.raises(RuntimeError, match="await the store"):
                bridge.run(take)
            return "told"

        assert bridge.run(inside) == "told"


def test_a_child_after_a_fork_has_a_loop_of_its_own(redis_server: RedisServer) -> None:
    def open_store() -> RedisStore:
        settings = replace(parse_url(redis_server.url), timeout_us=PATIENT_US)
        return RedisStore(settings, SeededChance(1))

    with bridged(open_store) as bridge:
        assert bridge.run(take).allowed
        with warnings.catch_warnings():
            # From Python 3.12 on: that a fork beside threads is risky is what is tested here.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:  # only what must be, and out without pytest's ends
            status = 1
            try:
                if all(bridge.run(take).allowed for _ in range(5)):
                    status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        # The parent's connection is as it was.
        assert bridge.run(take).decisions[0].remaining == 1_000 - 7
