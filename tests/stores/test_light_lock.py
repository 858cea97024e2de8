from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest

from sluicegate.stores.memory.light_lock import LightLock


class LikeALock(Protocol):
    def acquire(self) -> object: ...
    def release(self) -> None: ...


# The library's lock is the oracle.
both = pytest.mark.parametrize("make", [LightLock, threading.Lock])


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
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads), "a wake was lost"


@both
@pytest.mark.usefixtures("_hasty")
def test_only_one_thread_holds_the_lock_at_a_time(make: Callable[[], LikeALock]) -> None:
    lock, inside, most, done = make(), 0, 0, 0

    def work() -> None:
        nonlocal inside, most, done
        for _ in range(2_000):
            lock.acquire()
            inside += 1
            most = max(most, inside)
            done += 1
            inside -= 1
            lock.release()

    together(8, work)
    assert (most, done) == (1, 16_000)


@both
def test_a_waiter_sleeps_until_the_lock_is_released(make: Callable[[], LikeALock]) -> None:
    lock, order = make(), list[str]()
    lock.acquire()

    def wait() -> None:
        lock.acquire()
        order.append("waiter")
        lock.release()

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    waiter.join(timeout=0.1)
    assert waiter.is_alive()
    order.append("holder")
    lock.release()
    waiter.join(timeout=60)
    assert order == ["holder", "waiter"]


@both
def test_each_of_many_waiters_gets_the_lock(make: Callable[[], LikeALock]) -> None:
    lock, came = make(), list[int]()
    lock.acquire()

    def wait() -> None:
        lock.acquire()
        came.append(threading.get_ident())
        lock.release()

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(20)]
    for thread in threads:
        thread.start()
    lock.release()
    for thread in threads:
        thread.join(timeout=60)
    assert len(came) == 20


def test_a_lock_that_was_waited_for_leaves_no_gate_behind() -> None:
    lock = LightLock()

    def wait() -> None:
        lock.acquire()
        lock.release()

    lock.acquire()
    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    waiter.join(timeout=0.05)
    lock.release()
    waiter.join(timeout=60)
    assert lock._gates == []
    assert lock._token == [None]


def test_a_child_whose_parent_held_the_lock_in_another_thread_is_not_stuck() -> None:
    lock = LightLock()
    locked, done = threading.Event(), threading.Event()

    def hold() -> None:
        lock.acquire()
        locked.set()
        done.wait(60)
        lock.release()

    holder = threading.Thread(target=hold)
    holder.start()
    assert locked.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(5)
        lock.acquire()
        lock.release()
        lock.acquire()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    done.set()
    holder.join()
    assert status == 0
    lock.acquire()
    lock.release()
