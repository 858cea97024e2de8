"""A crowd of threads that begin together; what one of them raises fails the test."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

T = TypeVar("T")

CROWD_S_MAX = 60.0


def crowd(size: int, work: Callable[[int], T]) -> list[T]:
    """What `work` answers in each of `size` threads, which are told their numbers."""
    begin = Barrier(size, timeout=CROWD_S_MAX)

    def begun(number: int) -> T:
        begin.wait()
        return work(number)

    with ThreadPoolExecutor(size) as threads:
        return [
            future.result(CROWD_S_MAX)
            for future in [threads.submit(begun, number) for number in range(size)]
        ]
