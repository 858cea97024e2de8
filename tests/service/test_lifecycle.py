"""The end of a worker: what each signal skips, in virtual time."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from typing import NamedTuple

import pytest

from sluicegate.service import lifecycle

LOG = logging.getLogger("tests.lifecycle")


class Times(NamedTuple):
    leave_s: float
    grace_s: float = 10.0


class Virtual(asyncio.SelectorEventLoop):
    """Moves its time to the next timer when a turn has nothing else to do."""

    def __init__(self) -> None:
        super().__init__()
        self.moved_s = 0.0

    def time(self) -> float:
        return super().time() + self.moved_s

    def advance(self, seconds: float) -> None:
        self.moved_s += seconds


class Station:
    """Notes what it is called for; work in flight ends when `idle` is set."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.idle = asyncio.Event()
        self.idle.set()

    async def open(self) -> str:
        return "ready"

    def reload(self) -> None:
        raise AssertionError

    def leave(self) -> None:
        self.calls.append("leave")

    async def close(self, grace_s: float) -> None:
        self.calls.append(f"close {grace_s:g}")
        if grace_s:
            await self.idle.wait()


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def live(story: Callable[[Station, Callable[[int], None]], object], times: Times) -> list[str]:
    """Run a story of signals against a worker, and return what was called."""

    async def lived() -> list[str]:
        station, ready = Station(), asyncio.Event()
        serving = asyncio.create_task(
            lifecycle.serve(station, lambda: times, lambda _: ready.set(), LOG)
        )
        await ready.wait()
        outcome = story(station, lambda signum: os.kill(os.getpid(), signum))
        if asyncio.iscoroutine(outcome):
            await outcome
        await serving
        return station.calls

    with asyncio.Runner(loop_factory=Virtual) as runner:
        return runner.run(lived())


async def called(station: Station, *calls: str) -> None:
    while station.calls != list(calls):
        await asyncio.sleep(0)


def pass_time(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Virtual)
    loop.advance(seconds)


def test_sigterm_serves_for_leave_s_and_then_closes() -> None:
    async def story(station: Station, send: Callable[[int], None]) -> None:
        send(signal.SIGTERM)
        await called(station, "leave")
        pass_time(4.0)
        await turns()
        assert station.calls == ["leave"]
        pass_time(1.1)

    assert live(story, Times(5.0)) == ["leave", "close 10", "close 0"]


def test_second_signal_skips_leave_s_and_keeps_grace() -> None:
    async def story(station: Station, send: Callable[[int], None]) -> None:
        send(signal.SIGTERM)
        await called(station, "leave")
        send(signal.SIGTERM)

    assert live(story, Times(3_600.0)) == ["leave", "close 10", "close 0"]


def test_third_signal_cuts_grace() -> None:
    async def story(station: Station, send: Callable[[int], None]) -> None:
        station.idle.clear()
        send(signal.SIGTERM)
        await called(station, "leave")
        send(signal.SIGINT)
        await called(station, "leave", "close 10")
        send(signal.SIGTERM)

    assert live(story, Times(3_600.0)) == ["leave", "close 10", "close 0"]


@pytest.mark.parametrize(("signum", "leave_s"), [(signal.SIGINT, 3_600.0), (signal.SIGTERM, 0.0)])
def test_sigint_or_no_leave_s_closes_without_wait(signum: int, leave_s: float) -> None:
    def story(_: Station, send: Callable[[int], None]) -> None:
        send(signum)

    assert live(story, Times(leave_s)) == ["leave", "close 10", "close 0"]


def test_second_signal_without_leave_s_cuts_grace() -> None:
    async def story(station: Station, send: Callable[[int], None]) -> None:
        station.idle.clear()
        send(signal.SIGTERM)
        await called(station, "leave", "close 10")
        send(signal.SIGTERM)

    assert live(story, Times(0.0)) == ["leave", "close 10", "close 0"]
