"""Threads that begin together."""

from __future__ import annotations

import threading
from collections.abc import Callable


def in_threads(number: int, work: Callable[[int], object]) -> None:
    """Have each of so many threads do its part, and wait for all."""
    start = threading.Barrier(number)
    failures: list[BaseException] = []

    def begin(at: int) -> None:
        start.wait()
        try:
            work(at)
        except BaseException as error:  # a thread's own would not be seen
            failures.append(error)

    threads = [threading.Thread(target=begin, args=(at,)) for at in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
