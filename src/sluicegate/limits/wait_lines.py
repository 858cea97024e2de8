"""Wait lines: callers that would rather wait than be refused stand in one line for each key.

The first of a line asks, and if it is refused, sleeps for exactly as long as the refusal says; the
others sleep until they are first. So they are admitted in the order in which they came, threads and
tasks alike, and nobody on another key waits for them. A caller that cannot be admitted before its
deadline is refused at once.

A newcomer that does not wait (`take`) stands in no line. A line holds at most `waiters_max`; one
more is refused as LINE_FULL.

The wait is written once, as a coroutine. A task suspends in it; a thread's ticket blocks instead,
so a thread runs the same coroutine from end to end without suspending.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar, cast, final

from sluicegate.contracts.clock import Clock, PausableClock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.reasons import LINE_FULL, WAIT_TIMEOUT, Reason
from sluicegate.kernels.verdict import NEVER

WAITERS_MAX_DEFAULT: Final = 1_000  # in one line

T = TypeVar("T")
TableCharge = Callable[[], Awaitable[Decision]]


class Ticket(Protocol):
    """A place in a line."""

    def wake(self) -> None:
        """Wake whoever holds this place; any thread may."""

    async def pause(self, us: int | None) -> None:
        """Return after `us` at the latest, or when woken. None: when woken."""


@final
class ThreadTicket:
    """The place of a thread; it blocks, and never suspends the coroutine it is used in."""

    __slots__ = ("_woken",)

    def __init__(self) -> None:
        self._woken = threading.Event()

    def wake(self) -> None:
        """Wake whoever holds this place."""
        self._woken.set()

    async def pause(self, us: int | None) -> None:
        """Block."""
        # A week at a time: a longer wait overflows the platform's clock.
        self._woken.wait(None if us is None else min(us / 1e6, 604_800.0))
        self._woken.clear()


@final
class _ManualClockTicket:
    """The place of whoever waits on a clock that is moved by hand: waiting moves it."""

    __slots__ = ("_clock", "_inner")

    def __init__(self, clock: PausableClock, inner: Ticket) -> None:
        self._clock = clock
        self._inner = inner

    def wake(self) -> None:
        """Wake whoever holds this place."""
        self._inner.wake()

    async def pause(self, us: int | None) -> None:
        """Move the clock."""
        if us is None:
            await self._inner.pause(None)
        else:
            self._clock.pause(us)


@final
class WaitLines:
    """The lines of a limiter, by place: a rule and a key."""

    __slots__ = ("_lines", "_lock", "_now_us", "waiters_max")

    def __init__(self, now_us: Callable[[], int], waiters_max: int) -> None:
        self._now_us = now_us
        self._lock = threading.Lock()
        self._lines: dict[object, deque[Ticket]] = {}
        self.waiters_max = waiters_max

    async def wait(
        self,
        place: object,
        ticket: Ticket,
        take: TableCharge,
        look: TableCharge,
        timeout_us: int | None,
    ) -> Decision:
        """Wait in the line of `place` until `take` admits, or it is clear that it will not."""
        deadline_us = None if timeout_us is None else self._now_us() + timeout_us
        if not self._join(place, ticket):
            return _refuse(await look(), LINE_FULL)
        try:
            while True:
                left_us = None if deadline_us is None else deadline_us - self._now_us()
                if self._lines[place][0] is not ticket:
                    if left_us is not None and left_us <= 0:
                        return _refuse(await look(), WAIT_TIMEOUT)
                    await ticket.pause(left_us)
                    continue
                decision = await take()
                retry_us = decision.retry_after_us
                if decision.allowed or retry_us == NEVER:
                    return decision
                if left_us is not None and retry_us > left_us:
                    return decision
                await ticket.pause(max(retry_us, 1))
        finally:
            self._leave(place, ticket)

    def waiting(self) -> int:
        """Return how many wait now."""
        with self._lock:
            return sum(len(line) for line in self._lines.values())

    def _join(self, place: object, ticket: Ticket) -> bool:
        with self._lock:
            line = self._lines.setdefault(place, deque())
            if len(line) >= self.waiters_max:
                return False
            line.append(ticket)
            return True

    def _leave(self, place: object, ticket: Ticket) -> None:
        with self._lock:
            line = self._lines[place]
            first = line[0] is ticket
            line.remove(ticket)
            if not line:
                del self._lines[place]
            elif first:
                line[0].wake()


def _refuse(peeked: Decision, reason: Reason) -> Decision:
    """Return a look that finds room is no admission: those in the line were there first."""
    return Decision(
        False,
        peeked.remaining,
        peeked.retry_after_us,
        peeked.reset_after_us,
        reason,
        peeked.rule_id,
        limit=peeked.limit,
    )


def finish(story: Coroutine[Any, Any, T]) -> T:
    """Step a coroutine that never suspends to its end."""
    try:
        story.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    story.close()
    raise AssertionError("what a thread runs to its end must not suspend")


def ticket_on(clock: Clock | None, ticket: Ticket) -> Ticket:
    """Return a ticket whose waits move the clock, where that is one moved by hand."""
    return (
        _ManualClockTicket(cast("PausableClock", clock), ticket)
        if hasattr(clock, "pause")
        else ticket
    )


def task_ticket() -> Ticket:
    """Return the place of a task; imported when it is needed, since it needs asyncio."""
    from sluicegate.limits.task_ticket import TaskTicket  # noqa: PLC0415

    return TaskTicket()
