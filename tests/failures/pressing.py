"""Pressing: tasks and threads that ask limiters over and over, and write down every decision.

Each limiter stands for a process: it has its own connections, breaker, denials, leases and local
counts. What may be made of the decisions is not known here, but for counting them.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import cycle, takewhile
from typing import NamedTuple

from sluicegate import Decision, Limiter

PAUSE_S = 0.001  # a caller does something between two decisions


class TimedDecision(NamedTuple):
    """One decision: by whom, about what, when, and what it was."""

    process: int
    rule: str
    key: str
    began_us: int
    ended_us: int
    allowed: bool
    degraded: bool
    reason: str


class Press:
    """The load, and its record."""

    def __init__(
        self,
        limiters: Sequence[Limiter],
        pairs: Iterable[tuple[str, str]],
        *,
        wide: str,
        pause_s: float = PAUSE_S,
        seed: int = 1,
    ) -> None:
        """`wanted` are rules and keys; every task asks for all of them in an order of its own.

        `wide` is a rule that is never used up, and so tells whether the store answers.
        """
        self.limiters = limiters
        self.pairs = [*pairs, (wide, "anyone")]
        self.wide = wide
        self.pause_s = pause_s
        self.seed = seed
        self.record: list[TimedDecision] = []
        self.running = False
        # Whoever was refused by the store last, and not for its failure, has used up its limit.
        self._spent: set[tuple[int, str, str]] = set()
        self._well: dict[int, int] = {}  # when the store last admitted something, for a process

    # What came of it.

    def count(self, rule: str | None = None, *, degraded: bool = False) -> int:
        """How many were admitted in all."""
        return sum(
            one.allowed and one.degraded == degraded and rule in (None, one.rule)
            for one in self.record
        )

    def by_key(self, rule: str, *, degraded: bool = False) -> Counter[str]:
        """How many were admitted, by key."""
        return Counter(
            one.key
            for one in self.record
            if one.allowed and one.degraded == degraded and one.rule == rule
        )

    def of(self, key: str) -> list[TimedDecision]:
        """All about one key."""
        return [one for one in self.record if one.key == key]

    def between(self, from_us: int, to_us: int) -> list[TimedDecision]:
        """Decisions that were asked for and made within that span."""
        return [one for one in self.record if from_us <= one.began_us and one.ended_us <= to_us]

    @property
    def spent(self) -> bool:
        """Whether every limiter has been told that every key is used up."""
        return len(self._spent) == len(self.limiters) * (len(self.pairs) - 1)

    def well_since(self, at_us: int) -> bool:
        """Whether the store has admitted something since, and each limiter's latest decision."""
        return all(self._well.get(n, 0) > at_us for n in range(len(self.limiters)))

    # Asking.

    @asynccontextmanager
    async def pressing(self, tasks_a_limiter: int) -> AsyncIterator[Press]:
        """Ask from tasks until the block ends."""
        self.running = True
        async with asyncio.TaskGroup() as group:
            for process in range(len(self.limiters)):
                for task in range(tasks_a_limiter):
                    group.create_task(self._task(process, task))
            try:
                yield self
            finally:
                self.running = False

    @contextmanager
    def threading(self, threads_a_limiter: int) -> Iterator[Press]:
        """Ask from threads until the block ends."""
        self.running = True
        threads = [
            threading.Thread(target=self._thread, args=(process, number))
            for process in range(len(self.limiters))
            for number in range(threads_a_limiter)
        ]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self.running = False
            for thread in threads:
                thread.join()

    async def _task(self, process: int, number: int) -> None:
        take = self.limiters[process].atake
        for rule, key in self._order(process, number):
            began_us = clock_us()
            decision = await take(key, rule=rule)
            self._note(process, rule, key, began_us, decision)
            await asyncio.sleep(self.pause_s)

    def _thread(self, process: int, number: int) -> None:
        take = self.limiters[process].take
        for rule, key in self._order(process, number):
            began_us = clock_us()
            decision = take(key, rule=rule)
            self._note(process, rule, key, began_us, decision)
            time.sleep(self.pause_s)

    def _order(self, process: int, number: int) -> Iterator[tuple[str, str]]:
        order = self.pairs.copy()
        random.Random(f"{self.seed} {process} {number}").shuffle(order)
        return takewhile(lambda _: self.running, cycle(order))

    def _note(self, process: int, rule: str, key: str, began_us: int, decision: Decision) -> None:
        ended_us = clock_us()
        reason = "" if decision.reason is None else decision.reason.name
        allowed, degraded = decision.allowed, decision.degraded
        self.record.append(
            TimedDecision(process, rule, key, began_us, ended_us, allowed, degraded, reason)
        )
        if degraded:
            self._well.pop(process, None)
            return
        if allowed:
            self._spent.discard((process, rule, key))
            if rule == self.wide:
                self._well[process] = ended_us
        else:
            self._spent.add((process, rule, key))


def clock_us() -> int:
    """The wall clock, which is the server's too."""
    return time.time_ns() // 1_000
