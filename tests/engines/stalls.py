"""Stalls of the machine, noted beside what a test times.

A thread on each processor sleeps for a millisecond, time after time. One that wakes up late tells
of other work on the machine: of nothing that the service under test did, which uses one processor
and gives way to whoever wakes up. What was answered during a stall says how the machine was, and is
left out; a test bounds how much that may be.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from typing import Self

TICK_S = 0.001
LATE_S = 0.002


class Stalls:
    """The stalls between `with` and its end, as pairs of moments of `time.time`."""

    def __init__(self) -> None:
        self._by_processor: list[list[tuple[float, float]]] = []
        self._threads: list[threading.Thread] = []
        self._over = threading.Event()

    def __enter__(self) -> Self:
        for processor in sorted(os.sched_getaffinity(0)):
            noted: list[tuple[float, float]] = []
            thread = threading.Thread(target=self._watch, args=(processor, noted))
            self._by_processor.append(noted)
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _watch(self, processor: int, noted: list[tuple[float, float]]) -> None:
        os.sched_setaffinity(0, {processor})  # of this thread alone
        before = time.time()
        while not self._over.is_set():
            time.sleep(TICK_S)
            now = time.time()
            if now - before > TICK_S + LATE_S:
                noted.append((before, now))
            before = now

    def overlap(self, start_s: float, end_s: float) -> bool:
        """Whether the machine stalled between the two."""
        for noted in self._by_processor:
            # Those of one processor follow each other, so only the last before the end counts.
            index = bisect_left(noted, (end_s, 0.0)) - 1
            if index >= 0 and noted[index][1] > start_s:
                return True
        return False
