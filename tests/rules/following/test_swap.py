from __future__ import annotations

import asyncio
from collections.abc import Iterator
from threading import Event

import pytest

from sluicegate.contracts.errors import Unavailable
from sluicegate.rules.following import in_force
from sluicegate.rules.following.fleet_books import FleetBooks
from sluicegate.rules.following.in_force import Swap
from tests.rules.following.test_fleet_books import trying


@pytest.fixture
def idle() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that nobody runs."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def test_whoever_starts_is_handed_the_first_books_in_its_own_thread(
    idle: asyncio.AbstractEventLoop,
) -> None:
    taken: list[FleetBooks] = []
    Swap(taken.append, idle, Event()).put_in_force(trying(1))
    assert len(taken) == 1


def test_a_loop_that_takes_nothing_is_told_and_not_waited_for_without_end(
    idle: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_force, "LOOK_S", 0.001)
    monkeypatch.setattr(in_force, "LOOKS_MAX", 3)
    taken: list[FleetBooks] = []
    swap = Swap(taken.append, idle, Event())
    swap.started = True
    with pytest.raises(Unavailable, match="has not taken the new rules"):
        swap.put_in_force(trying(1))
    assert taken == []


def test_at_the_end_nobody_waits_for_a_loop(idle: asyncio.AbstractEventLoop) -> None:
    closed = Event()
    closed.set()
    swap = Swap(print, idle, closed)
    swap.started = True
    with pytest.raises(Unavailable, match="before the end"):
        swap.put_in_force(trying(1))


def test_a_loop_that_is_closed_is_told(idle: asyncio.AbstractEventLoop) -> None:
    idle.close()
    swap = Swap(print, idle, Event())
    swap.started = True
    with pytest.raises(Unavailable, match="closed"):
        swap.put_in_force(trying(1))
