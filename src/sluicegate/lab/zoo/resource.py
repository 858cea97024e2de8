"""Resource: slots that serve, and the first-in, first-out queue before them.

All requests in service progress at one rate: the speed of the instant, times `cores` over their
number where they share cores. So progress is one number for all of them (virtual service time), and
a request ends when that number has grown by its work.

The resource keeps its own time. Where the event loop is late, requests end and begin at the right
instants, and the loop notices late.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import final

from sluicegate.lab.world import World


@final
class ZooResource:
    """`slots` of them (0: any number) with the power of `cores` (0: of as many as are busy)."""

    def __init__(
        self, world: World, slots: int, cores: float, speeds: Sequence[tuple[int, float]]
    ) -> None:
        self._world = world
        self._slots = slots or math.inf
        self._cores = cores or math.inf
        self._changes = deque(speeds)
        self._speed = 1.0
        self._at_us = 0.0
        self._progress = 0.0
        self._order = count()
        self._busy: list[tuple[float, int, Callable[[], None]]] = []
        self._queue: deque[tuple[int, Callable[[], None]]] = deque()
        self._wakes_at_us = math.inf

    @property
    def busy(self) -> int:
        """Requests in service."""
        return len(self._busy)

    def submit(self, work_us: int, done: Callable[[], None]) -> None:
        """Serve a request, and call `done` when it has ended."""
        self._advance()
        if len(self._busy) < self._slots:
            self._begin(work_us, done)
        else:
            self._queue.append((work_us, done))
        self._set_timer()

    def _begin(self, work_us: int, done: Callable[[], None]) -> None:
        heapq.heappush(self._busy, (self._progress + work_us, next(self._order), done))

    def _rate(self) -> float:
        return self._speed * min(1.0, self._cores / len(self._busy)) if self._busy else 0.0

    def _next_us(self) -> float:
        rate = self._rate()
        end_us = self._at_us + (self._busy[0][0] - self._progress) / rate if rate else math.inf
        return min(end_us, self._changes[0][0]) if self._changes else end_us

    def _advance(self) -> None:
        """Let happen what was to happen until now."""
        now_us = self._world.elapsed_us
        ended: list[Callable[[], None]] = []
        while (next_us := self._next_us()) <= now_us:
            self._move(next_us)
            if self._changes and self._changes[0][0] <= next_us:
                self._speed = self._changes.popleft()[1]
                continue
            ended.append(heapq.heappop(self._busy)[2])
            if self._queue:
                self._begin(*self._queue.popleft())
        self._move(now_us)
        for done in ended:
            done()

    def _move(self, at_us: float) -> None:
        self._progress += self._rate() * (at_us - self._at_us)
        self._at_us = at_us

    def _set_timer(self) -> None:
        if not self._busy:
            return
        next_us = self._next_us()
        if next_us < self._wakes_at_us:
            self._wakes_at_us = math.ceil(next_us)
            self._world.call_at_us(self._wakes_at_us, self._wake, self._wakes_at_us)

    def _wake(self, at_us: int) -> None:
        if at_us == self._wakes_at_us:
            self._wakes_at_us = math.inf
            self._advance()
            self._set_timer()
