"""The event loop on virtual time: production coroutines run in it as they are.

It never waits. When nothing is left to do at an instant, its clock jumps to the next timer. Time is
whole microseconds; a timer never fires early, and those of one instant fire in the order in which
they were set, where asyncio's own heap promises no order. There are no sockets, no threads and no
executor here: code that uses one gets `OutOfBounds`.

It is a loop of its own, made of what asyncio offers to those who write one: `AbstractEventLoop`,
the two handle classes and `_set_running_loop`, which `asyncio` exports for them.

Every tick is written into a digest: the instant and how many callbacks ran. Two runs that did the
same things at the same times have the same digest, and hardly any others do.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
from array import array
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from hashlib import blake2b
from math import ceil
from typing import Any, Final, NoReturn, TypeVar, TypeVarTuple, cast, final

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


def _refuse(loop: VirtualLoop, *_: object, **__: object) -> NoReturn:
    sentence = "a run has no sockets, threads, executors, processes or signals"
    raise OutOfBounds(f"{sentence}; use the lab's network", loop.elapsed_us)


_OUTSIDE: Final[Any] = _refuse  # a method of any form


@final
class _Call(asyncio.TimerHandle):
    """A call to be made in this instant, or in that of its timer.

    What asyncio's own handles hold is private to asyncio, so its fields stay empty.
    """

    __slots__ = ("args", "at_us", "callback", "context", "waits_in")

    def __init__(
        self,
        at_us: int,
        callback: Callable[..., object],
        args: tuple[object, ...],
        context: Context | None,
    ) -> None:
        self.at_us = at_us
        self.callback: Callable[..., object] | None = callback  # None: it was cancelled
        self.args = args
        self.context = copy_context() if context is None else context
        self.waits_in: VirtualLoop | None = None  # while it is among the timers

    __eq__ = object.__eq__
    __hash__ = object.__hash__
    __repr__ = object.__repr__

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self.args = ()
            if self.waits_in is not None:
                self.waits_in.sweep_cancelled()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.at_us / _US


@final
class VirtualLoop(asyncio.AbstractEventLoop):
    """An asyncio event loop whose time jumps."""

    def __init__(
        self, *, span_us_max: int = SPAN_US_MAX, ticks_at_once_max: int = TICKS_AT_ONCE_MAX
    ) -> None:
        self.elapsed_us = 0
        self.steps = 0
        self.failure: BaseException | None = None  # ends the run at the end of the tick
        self._running = False
        self._closed = False
        self._span_us_max = span_us_max
        self._ticks_at_once_max = ticks_at_once_max
        self._ticks_at_once = 0
        self._ready: deque[_Call] = deque()
        self._timers: list[tuple[int, int, _Call]] = []
        self._timers_set = 0
        self._timers_cancelled = 0
        self._tasks: list[asyncio.Task[Any]] = []
        self._tasks_swept_at = _TASKS_SWEPT_MIN
        self._trace = array("q")
        self._digest = blake2b(digest_size=16)

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

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        """Run until it is done, and return its result."""
        if asyncio._get_running_loop() is not None:
            raise RuntimeError("a run cannot begin inside another: await it there")
        awaited = asyncio.ensure_future(cast("Awaitable[T]", future), loop=self)
        ended: list[object] = []
        awaited.add_done_callback(ended.append)
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=None, finalizer=self._close_generator)
        asyncio._set_running_loop(self)
        self._running = True
        try:
            while not ended:
                self._run_instant(ended)
        finally:
            self._running = False
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
            awaited.remove_done_callback(ended.append)
        return awaited.result()

    def close(self) -> None:
        """Forget what is left to do; nothing runs any more."""
        self._closed = True
        self._ready.clear()
        self._timers.clear()

    # What asyncio calls.

    def is_running(self) -> bool:
        """Whether a run is under way."""
        return self._running

    def is_closed(self) -> bool:
        """Whether nothing runs any more."""
        return self._closed

    def get_debug(self) -> bool:
        """No: what asyncio's debug mode finds, a run finds by itself."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """End the run with the error of whoever failed where nobody awaits it."""
        self.failure = context.get("exception", self.failure)

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
        return self._set_timer(_Call(at_us, callback, args, context))

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call back in `delay` seconds."""
        return self.call_at(self.elapsed_us / _US + delay, callback, *args, context=context)

    def call_at_us(
        self, at_us: int, callback: Callable[[*Ts], object], *args: *Ts
    ) -> asyncio.TimerHandle:
        """Call back when the run is `at_us` old; now if it already is older."""
        return self._set_timer(_Call(max(at_us, self.elapsed_us), callback, args, None))

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Call back in the next tick."""
        call = _Call(self.elapsed_us, callback, args, context)
        self._ready.append(call)
        return call

    def create_future(self) -> asyncio.Future[Any]:
        """Make a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Generator[Any, None, T] | Coroutine[Any, Any, T], **options: Any
    ) -> asyncio.Task[T]:
        """Make a task, and list it until it is done."""
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, **options)
        self._tasks.append(task)
        if len(self._tasks) >= self._tasks_swept_at:
            self._tasks_swept_at = max(2 * len(self.unfinished()), _TASKS_SWEPT_MIN)
        return task

    # Inside.

    def _set_timer(self, call: _Call) -> _Call:
        self._timers_set += 1
        heapq.heappush(self._timers, (call.at_us, self._timers_set, call))
        call.waits_in = self
        return call

    def sweep_cancelled(self) -> None:
        """Count a timer that was cancelled; drop them all when most are."""
        self._timers_cancelled += 1
        if self._timers_cancelled > max(_CANCELLED_SWEPT_MIN, len(self._timers) // 2):
            self._timers = [timer for timer in self._timers if not timer[2].cancelled()]
            heapq.heapify(self._timers)
            self._timers_cancelled = 0

    def _close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        # Of a generator that is dropped half-way; no task of the run's, so it is no leak either.
        if not self._closed:
            asyncio.Task(generator.aclose(), loop=self)

    def _run_instant(self, ended: list[object]) -> None:
        """Run all ticks of one instant, or those until the run has ended."""
        ready = self._ready
        trace = self._trace
        if not ready:
            self._jump()
        while ready:
            count = len(ready)
            trace.append(self.elapsed_us)
            trace.append(count)
            for _ in range(count):
                call = ready.popleft()
                if call.callback is not None:
                    try:
                        call.context.run(call.callback, *call.args)
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException as error:
                        self.failure = error
            self.steps += count
            if self.failure is not None:
                failure, self.failure = self.failure, None
                raise failure
            if ended:
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
            timer.waits_in = None
            if timer.cancelled():
                self._timers_cancelled -= 1
            else:
                self._ready.append(timer)

    def _who_waits(self) -> str:
        waiting = ", ".join(describe(task) for task in self.unfinished()) or "nobody known"
        return f"nothing is left to do at {self.elapsed_us} us, and these wait: {waiting}"

    def _flush(self) -> None:
        self._digest.update(self._trace.tobytes())
        del self._trace[:]

    # What reaches out of the run is refused, and so is what would change how it runs.

    call_soon_threadsafe = run_in_executor = set_default_executor = _OUTSIDE
    shutdown_default_executor = subprocess_exec = subprocess_shell = _OUTSIDE
    add_signal_handler = remove_signal_handler = connect_read_pipe = connect_write_pipe = _OUTSIDE
    add_reader = remove_reader = add_writer = remove_writer = connect_accepted_socket = _OUTSIDE
    create_connection = create_datagram_endpoint = create_server = _OUTSIDE
    create_unix_connection = create_unix_server = getaddrinfo = getnameinfo = _OUTSIDE
    sendfile = start_tls = sock_accept = sock_connect = sock_sendall = sock_sendfile = _OUTSIDE
    sock_recv = sock_recv_into = sock_recvfrom = sock_recvfrom_into = sock_sendto = _OUTSIDE
    run_forever = stop = set_debug = shutdown_asyncgens = _OUTSIDE
    get_exception_handler = set_exception_handler = default_exception_handler = _OUTSIDE
    get_task_factory = set_task_factory = _OUTSIDE


def describe(task: asyncio.Task[Any]) -> str:
    """A task's name, and the function and line in which it waits."""
    frames = task.get_stack(limit=1)
    if not frames:
        return task.get_name()
    frame = frames[-1]
    return f"{task.get_name()} ({frame.f_code.co_name}, line {frame.f_lineno})"
