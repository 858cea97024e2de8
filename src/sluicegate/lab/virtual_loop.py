"""The event loop on virtual time: production coroutines run in it as they are.

It never waits. When nothing is left to do at an instant, its clock jumps to the next timer. Time is
whole microseconds; a timer never fires early, and those of one instant fire in the order in which
they were set, where asyncio's own heap promises no order. There are no sockets, no threads and no
executor here: code that uses one gets `OutOfBounds`.

Every tick is written into a digest: the instant and how many callbacks ran. Two runs that did the
same things at the same times have the same digest, and hardly any others do.
"""

from __future__ import annotations

import asyncio
import heapq
from array import array
from asyncio.base_events import BaseEventLoop
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from hashlib import blake2b
from math import ceil
from typing import Any, Final, NoReturn, TypeVar, TypeVarTuple, final

from sluicegate.contracts.errors import SluicegateError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

TICKS_AT_ONCE_MAX: Final = 1_000_000
SPAN_US_MAX: Final = 400 * 86_400_000_000

_US: Final = 1e6
# What a double's rounding may add to an instant: far below a microsecond, far above its error.
_NOISE_US: Final = 1e-3
_TRACE_ENTRIES: Final = 8_192
_TASKS_SWEPT_MIN: Final = 1_024
_CANCELLED_SWEPT_MIN: Final = 256


class BrokenRun(SluicegateError):  # noqa: N818 - it names the thing, as the others do
    """A run that did not end as a run must; `at_us` is the virtual time of the finding."""

    def __init__(self, sentence: str, at_us: int) -> None:
        super().__init__(sentence)
        self.at_us = at_us


class Deadlock(BrokenRun):
    """Nothing is left to do, and somebody still waits."""


class Livelock(BrokenRun):
    """The clock stands, and there is always something left to do."""


class TooLong(BrokenRun):
    """The run's span is over, and it has not ended."""


class OutOfBounds(BrokenRun):
    """Somebody asked for a socket, a thread or an executor."""


@final
class VirtualLoop(BaseEventLoop):
    """An asyncio event loop whose time jumps."""

    _stopping: bool

    def __init__(
        self, *, span_us_max: int = SPAN_US_MAX, ticks_at_once_max: int = TICKS_AT_ONCE_MAX
    ) -> None:
        super().__init__()
        self.elapsed_us = 0
        self.steps = 0
        self.failure: BaseException | None = None  # ends the run at the end of the tick
        self._span_us_max = span_us_max
        self._ticks_at_once_max = ticks_at_once_max
        self._ticks_at_once = 0
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[int, int, asyncio.TimerHandle]] = []
        self._timers_set = 0
        self._timers_cancelled = 0
        self._tasks: list[asyncio.Task[Any]] = []
        self._tasks_swept_at = _TASKS_SWEPT_MIN
        self._trace = array("q")
        self._digest = blake2b(digest_size=16)
        self.set_debug(False)

    # What the world reads.

    def time(self) -> float:
        """Virtual seconds since the run began."""
        return self.elapsed_us / _US

    def note(self, text: str) -> None:
        """Write `text` into the digest, at this instant."""
        self._flush()
        self._digest.update(f"{self.elapsed_us} {text}\n".encode())

    def digest(self) -> str:
        """What has happened so far, in 32 characters."""
        self._flush()
        return self._digest.copy().hexdigest()

    def unfinished(self) -> list[asyncio.Task[Any]]:
        """The tasks that are not done, in the order in which they were made."""
        self._tasks = [task for task in self._tasks if not task.done()]
        return list(self._tasks)

    def forgive(self) -> None:
        """Let it run once more, to clean up after a run that broke."""
        self.failure = None
        self._ticks_at_once = 0

    # What asyncio calls.

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call back at `when`, in seconds of `time()`; at the next microsecond if that is sooner.

        A wait of less than a microsecond moves the clock too, so a loop of short waits goes on.
        """
        now_us = self.elapsed_us
        at_us = now_us
        if when > now_us / _US:
            at_us = max(ceil(when * _US - _NOISE_US), now_us + 1)
        return self._set_timer(at_us, when, callback, args, context)

    def call_at_us(
        self, at_us: int, callback: Callable[[*Ts], object], *args: *Ts
    ) -> asyncio.TimerHandle:
        """Call back when the run is `at_us` old; now if it already is older."""
        if at_us < self.elapsed_us:
            at_us = self.elapsed_us
        return self._set_timer(at_us, at_us / _US, callback, args, None)

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Call back in the next tick."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def create_task(
        self, coro: Generator[Any, None, T] | Coroutine[Any, Any, T], **options: Any
    ) -> asyncio.Task[T]:
        """Make a task, and list it until it is done."""
        task = super().create_task(coro, **options)
        self._tasks.append(task)
        if len(self._tasks) >= self._tasks_swept_at:
            self._tasks_swept_at = max(2 * len(self.unfinished()), _TASKS_SWEPT_MIN)
        return task

    def _set_timer(
        self,
        at_us: int,
        when: float,
        callback: Callable[..., object],
        args: tuple[object, ...],
        context: Context | None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._timers_set += 1
        heapq.heappush(self._timers, (at_us, self._timers_set, timer))
        timer._scheduled = True  # type: ignore[attr-defined]  # so that cancel() calls back
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._timers_cancelled += 1
        if self._timers_cancelled > _CANCELLED_SWEPT_MIN and 2 * self._timers_cancelled > len(
            self._timers
        ):
            self._timers = [timer for timer in self._timers if not timer[2].cancelled()]
            heapq.heapify(self._timers)
            self._timers_cancelled = 0

    def _run_once(self) -> None:
        """Run all ticks of one instant."""
        ready = self._ready
        trace = self._trace
        if not ready and not self._stopping:
            self._jump()
        while ready:
            count = len(ready)
            trace.append(self.elapsed_us)
            trace.append(count)
            for _ in range(count):
                handle: Any = ready.popleft()
                if not handle._cancelled:
                    # What the handle's own _run does, one call nearer.
                    try:
                        handle._context.run(handle._callback, *handle._args)
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException as error:
                        self.failure = error
            self.steps += count
            if self.failure is not None:
                failure, self.failure = self.failure, None
                raise failure
            if self._stopping:
                break
            self._ticks_at_once += 1
            if self._ticks_at_once > self._ticks_at_once_max:
                sentence = f"at {self.elapsed_us} us there is always something left to do"
                raise Livelock(sentence, self.elapsed_us)
        if len(trace) >= _TRACE_ENTRIES:
            self._flush()

    def _jump(self) -> None:
        """Go to the instant of the next timer, and make all timers of that instant ready."""
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
            self._timers_cancelled -= 1
        if not timers:
            raise Deadlock(self._who_waits(), self.elapsed_us)
        at_us = timers[0][0]
        if at_us > self._span_us_max:
            raise TooLong(f"the run did not end in {self._span_us_max} us", self.elapsed_us)
        if at_us > self.elapsed_us:
            self.elapsed_us = at_us
            self._ticks_at_once = 0
        while timers and timers[0][0] == at_us:
            timer = heapq.heappop(timers)[2]
            if timer.cancelled():
                self._timers_cancelled -= 1
            else:
                timer._scheduled = False  # type: ignore[attr-defined]
                self._ready.append(timer)

    def _who_waits(self) -> str:
        waiting = ", ".join(describe(task) for task in self.unfinished()) or "nobody known"
        return f"nothing is left to do at {self.elapsed_us} us, and these wait: {waiting}"

    def _flush(self) -> None:
        self._digest.update(self._trace.tobytes())
        del self._trace[:]

    # What reaches out of the run is refused.

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> NoReturn:
        """There are no other threads."""
        raise OutOfBounds("a run has no other threads", self.elapsed_us)

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> NoReturn:
        """There is no executor; a name is looked up in one, so there are no sockets either."""
        raise OutOfBounds("a run has no executor, and no names to look up", self.elapsed_us)

    def _make_socket_transport(self, *args: Any, **options: Any) -> NoReturn:
        raise OutOfBounds("a run has no sockets; use the lab's network", self.elapsed_us)


def describe(task: asyncio.Task[Any]) -> str:
    """A task's name, and the function and line in which it waits."""
    frames = task.get_stack(limit=1)
    if not frames:
        return task.get_name()
    frame = frames[-1]
    return f"{task.get_name()} ({frame.f_code.co_name}, line {frame.f_lineno})"
