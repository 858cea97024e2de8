from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest

from sluicegate.stores.memory.turn import Turn


class LikeALock(Protocol):
    def take(self) -> None: ...
    def give(self) -> None: ...


class LibraryLock:
    """The oracle: the same two words over `threading.Lock`."""

    def __init__(self) -> None:
        lock = threading.Lock()
        self.take: Callable[[], object] = lock.acquire
        self.give = lock.release


both = pytest.mark.parametrize("make", [Turn, LibraryLock])


@pytest.fixture
def _hasty() -> Iterator[None]:
    """Threads change places as often as the interpreter lets them."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def together(count: int, work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in threads), "a wake was lost"


@both
@pytest.mark.usefixtures("_hasty")
def test_only_one_has_the_turn_at_a_time(make: Callable[[], LikeALock]) -> None:
    turn, inside, most, done = make(), 0, 0, 0

    def work() -> None:
        nonlocal inside, most, done
        for _ in range(2_000):
            turn.take()
            inside += 1
            most = max(most, inside)
            done += 1
            inside -= 1
            turn.give()

    together(8, work)
    assert (most, done) == (1, 16_000)


@both
def test_a_waiter_sleeps_until_the_turn_is_given_up(make: Callable[[], LikeALock]) -> None:
    turn, order = make(), list[str]()
    turn.take()

    def wait() -> None:
        turn.take()
        order.append("waiter")
        turn.give()

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    waiter.join(timeout=0.1)
    assert waiter.is_alive()
    order.append("holder")
    turn.give()
    waiter.join(timeout=10)
    assert order == ["holder", "waiter"]


@both
def test_everyone_of_many_waiters_comes_to_its_turn(make: Callable[[], LikeALock]) -> None:
    turn, came = make(), list[int]()
    turn.take()

    def wait() -> None:
        turn.take()
        came.append(threading.get_ident())
        turn.give()

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(20)]
    for thread in threads:
        thread.start()
    turn.give()
    for thread in threads:
        thread.join(timeout=10)
    assert len(came) == 20


def test_a_turn_that_was_waited_for_leaves_no_gate_behind() -> None:
    turn = Turn()

    def wait() -> None:
        turn.take()
        turn.give()

    turn.take()
    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    waiter.join(timeout=0.05)
    turn.give()
    waiter.join(timeout=10)
    assert turn._gates == []
    assert turn._token == [None]


def test_a_child_whose_parent_held_the_turn_in_another_thread_is_not_stuck() -> None:
    turn = Turn()
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        turn.take()
        held.set()
        done.wait(10)
        turn.give()

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(10)
    child = os.fork()
    if child == 0:
        signal.alarm(5)
        turn.take()
        turn.give()
        turn.take()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    done.set()
    holder.join()
    assert status == 0
    turn.take()
    turn.give()
