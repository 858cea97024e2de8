"""Load: requests at their instants whatever becomes of the others, and the search for a capacity.

Open loop: what is due is sent, so a service that stalls cannot make its callers ask less. A record
says how late the requests left and how busy this side was; above `BUSY_MAX` the figures say more of
the drill than of the service.

Answers also come after the last request was sent: what stood in line by then. They are counted over
the time that nine in ten of them took. Over the time of sending alone a long line would pass for a
high capacity: two places of 10 ms were found to do 500 requests a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from math import ceil
from typing import Final, final

from sluicegate.apps.resilience.drill.caller import DrillAnswer, HttpCaller
from sluicegate.system import now_us, thread_times

UNDER_WAY_MAX: Final = 800
BUSY_MAX: Final = 0.85
LATE_US_MAX: Final = 50_000
CALLERS_MAX: Final = 128
GROWTH: Final = 1.1  # less is none
_STALE_MAX: Final = 2  # steps without growth after which there is no more to be found
_SECOND_US: Final = 1_000_000
GOOD: Final = range(200, 400)
REJECTED: Final = frozenset({429, 503, 504})
_COUNTED: Final = 0.9  # of the answers; a few stragglers are not waited for


@final
@dataclass
class DrillRecord:
    """What became of the requests of one stage."""

    span_us: int = 0
    sent: int = 0
    began_us: int = field(default_factory=now_us)
    good_us: list[int] = field(default_factory=list)  # how long each took
    good_at_us: list[int] = field(default_factory=list)  # and when it came, since the beginning
    refused_us: list[int] = field(default_factory=list)  # 429, 503 and 504
    wrong: dict[int, int] = field(default_factory=dict)  # other statuses, by number
    unexpected: int = 0  # a good status without the content that belongs to it
    broken: int = 0  # connections refused, reset or closed before the end of the answer
    hung: int = 0  # no answer in the time callers have
    unsent: int = 0
    busy: float = 0.0
    late_us: int = 0

    @property
    def goodput(self) -> float:
        """Answered in time, a second."""
        came_us = sorted(self.good_at_us)
        counted = ceil(_COUNTED * len(came_us))
        if counted and came_us[counted - 1] > self.span_us:
            return counted * _SECOND_US / came_us[counted - 1]
        within = sum(at_us <= self.span_us for at_us in came_us)
        return within * _SECOND_US / max(self.span_us, 1)

    @property
    def rate(self) -> float:
        """Sent, a second."""
        return self.sent * _SECOND_US / max(self.span_us, 1)

    def share(self, count: int) -> float:
        """Return this part of what was sent."""
        return count / self.sent if self.sent else 0.0

    @property
    def errors(self) -> int:
        """Return how many got neither an answer nor a rejection, and did not hang up."""
        return sum(self.wrong.values()) + self.unexpected + self.broken

    def add(self, other: DrillRecord) -> None:
        """Add a record of later requests."""
        self.good_at_us += [self.span_us + at_us for at_us in other.good_at_us]
        self.span_us += other.span_us
        self.sent += other.sent
        self.good_us += other.good_us
        self.refused_us += other.refused_us
        for status, count in other.wrong.items():
            self.wrong[status] = self.wrong.get(status, 0) + count
        self.unexpected += other.unexpected
        self.broken += other.broken
        self.hung += other.hung
        self.unsent += other.unsent
        self.busy = max(self.busy, other.busy)
        self.late_us = max(self.late_us, other.late_us)

    @property
    def doubtful(self) -> bool:
        """Whether this side was the slow one."""
        return self.busy > BUSY_MAX or self.late_us > LATE_US_MAX or self.unsent > 0

    def p99_us(self) -> int:
        """Of those answered in time."""
        ordered = sorted(self.good_us)
        return ordered[int(0.99 * (len(ordered) - 1))] if ordered else 0


Ask = Callable[[], Awaitable[DrillAnswer]]


async def send_at(ask: Ask, rate: float, span_us: int) -> DrillRecord:
    """Ask at this rate for so long; return once all are answered or given up."""
    record = DrillRecord(span_us)
    tasks: set[asyncio.Task[None]] = set()
    began_us, worked_us = now_us(), thread_times().ran_us
    lates: list[int] = []
    for number in range(max(int(rate * span_us / _SECOND_US), 1)):
        due_us = began_us + int(number * _SECOND_US / rate)
        wait_us = due_us - now_us()
        if wait_us > 0:
            await asyncio.sleep(wait_us / _SECOND_US)
        if len(tasks) >= UNDER_WAY_MAX:
            record.unsent += 1
            continue
        lates.append(now_us() - due_us)
        task = asyncio.create_task(ask_once(ask, record))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    passed_us = max(now_us() - began_us, 1)
    record.busy = (thread_times().ran_us - worked_us) / passed_us
    record.late_us = sorted(lates)[int(0.99 * (len(lates) - 1))] if lates else 0
    return record


async def ask_once(ask: Ask, record: DrillRecord) -> None:
    """Ask, and record what becomes of it."""
    record.sent += 1
    began_us = now_us()
    try:
        status, expected = await ask()
    except TimeoutError:
        record.hung += 1
    except (OSError, EOFError):
        record.broken += 1
    else:
        took_us = now_us() - began_us
        if status in REJECTED:
            record.refused_us.append(took_us)
        elif status not in GOOD:
            record.wrong[status] = record.wrong.get(status, 0) + 1
        elif not expected:
            record.unexpected += 1
        else:
            record.good_us.append(took_us)
            record.good_at_us.append(began_us + took_us - record.began_us)


async def find_capacity(
    caller: HttpCaller, path: str, span_us: int, progress: Callable[[str], None]
) -> float:
    """Return the most that it answers in a second, asked by more and more callers at once."""
    best, callers, stale = 0.0, 1, 0
    while callers <= CALLERS_MAX:
        record = DrillRecord(span_us)
        end_us = now_us() + span_us

        async def keep_asking(record: DrillRecord = record, end_us: int = end_us) -> None:
            while now_us() < end_us:
                refused = len(record.refused_us) + record.errors
                await ask_once(lambda: caller.ask(path), record)
                if len(record.refused_us) + record.errors > refused:
                    await asyncio.sleep(0.005)  # who is refused does not ask again at once

        await asyncio.gather(*(keep_asking() for _ in range(callers)))
        progress(f"capacity: {callers} at once, {record.goodput:,.0f} answered a second")
        stale = stale + 1 if record.goodput < best * GROWTH else 0
        best = max(best, record.goodput)
        if stale == _STALE_MAX:
            break
        callers *= 2
    return best
