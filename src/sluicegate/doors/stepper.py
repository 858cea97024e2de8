"""Stepper: runs a coroutine that mostly waits once, without the cost of a task.

A task costs three ticks of the loop for one wait: to start, to go on, and to report that it is
done. Here the coroutine starts at once, what it waits for steps it on, and `finish` is called in
the same tick. It is the loop's current task while it runs, as asyncio asks of those who bring a
task of their own, so time-outs work inside. It may await futures, and whatever is made of them:
tasks, gatherings, time-outs.

What asyncio offers for this is not quite public. This is the one file that uses it; where it is not
as we know it, a plain task does the same, three ticks slower.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, final

from sluicegate.kernels.native import mypyc_attr

# For task implementations: "Extending" in the documentation of asyncio.
_enter: Final[Any] = getattr(asyncio, "_enter_task", None)
_leave: Final[Any] = getattr(asyncio, "_leave_task", None)
_current: Final = asyncio.current_task
# From Python 3.14 on a task can be entered in the running loop alone.
_running: Final[Any] = getattr(asyncio, "_get_running_loop", None)
_set_running: Final[Any] = getattr(asyncio, "_set_running_loop", None)


@mypyc_attr(native_class=False)
class _ProbeLoop:
    """As much of a loop as a future asks for when it is made."""

    def get_debug(self) -> bool:
        return False


def can_step(enter: Any, leave: Any) -> bool:
    """Whether futures and current tasks of this asyncio work as this file expects."""
    loop: Any = _ProbeLoop()
    task = object()
    try:
        running = _running()
        _set_running(loop)
    except TypeError:
        return False
    try:
        enter(loop, task)
        entered = _current(loop) is task
        leave(loop, task)
        future: Any = asyncio.Future(loop=loop)
        awaited: Any = next(iter(future.__await__()))
        blocks = future._asyncio_future_blocking is True
        future._asyncio_future_blocking = False
        future.cancel()
    except (AttributeError, RuntimeError, TypeError):
        return False
    finally:
        _set_running(running)
    return entered and blocks and awaited is future and _current(loop) is None


_CAN_STEP: Final = can_step(_enter, _leave)


@final
class Stepper:
    """One coroutine under way; `finish` is called once with its result, or with its error."""

    __slots__ = (
        "_cancels", "_coroutine", "_direct", "_finish", "_loop", "_must_cancel", "_task",
        "_waits_for", "done",
    )  # fmt: skip

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        loop: asyncio.AbstractEventLoop,
        finish: Callable[[Any, BaseException | None], None],
        direct: bool = _CAN_STEP,
    ) -> None:
        self._coroutine = coroutine
        self._loop = loop
        self._finish = finish
        self._direct = direct
        self._task: asyncio.Task[Any] | None = None  # not `direct`
        self._waits_for: Any = None
        self._cancels = 0
        self._must_cancel = False  # at its next step: nothing is awaited that could be cancelled
        self.done = False

    def start(self) -> None:
        """Run to the first wait. `finish` may be called before this returns."""
        if self._direct:
            self._step(None)
            return
        self._task = self._loop.create_task(self._coroutine)
        self._task.add_done_callback(self._finish_task)

    def cancel(self, msg: object = None) -> bool:
        """Have it end by CancelledError where it waits; False if it is done."""
        if self.done:
            return False
        if self._task is not None:
            return self._task.cancel()
        self._cancels += 1
        waits_for = self._waits_for
        if waits_for is None or not waits_for.cancel():
            self._must_cancel = True
        return True

    # What asyncio's time-outs call on a task.

    def cancelling(self) -> int:
        """Return how many have cancelled it and not taken that back."""
        return self._cancels

    def uncancel(self) -> int:
        """Take one of them back."""
        if self._cancels > 0:
            self._cancels -= 1
        return self._cancels

    # Inside.

    # An error knows the frames it went through, and those know their variables; so what names an
    # error here is emptied at the end, or only the collector could free it.

    def _finish_task(self, task: asyncio.Task[Any]) -> None:
        self.done = True
        self._task = None
        if task.cancelled():
            self._finish(None, asyncio.CancelledError())
            return
        error = task.exception()
        try:
            self._finish(None if error is not None else task.result(), error)
        finally:
            error = None

    def _wake(self, future: Any) -> None:
        self._waits_for = None
        error: BaseException | None = None
        if future.cancelled():
            error = asyncio.CancelledError()
        else:
            error = future.exception()
        try:
            self._step(error)
        finally:
            error = future = None

    def _again(self) -> None:
        self._step(None)

    def _step(self, error: BaseException | None) -> None:
        if self._must_cancel:
            self._must_cancel = False
            error = asyncio.CancelledError()
        loop = self._loop
        outer: Any = None
        try:
            _enter(loop, self)
        except RuntimeError:
            # Started within a task, which goes on afterwards.
            outer = _current(loop)
            _leave(loop, outer)
            _enter(loop, self)
        waits_for: Any = None
        result: Any = None
        failure: BaseException | None = None
        try:
            if error is None:
                waits_for = self._coroutine.send(None)
            else:
                waits_for = self._coroutine.throw(error)
        except StopIteration as end:
            self.done = True
            result = end.value
        except BaseException as raised:
            self.done = True
            failure = raised
        finally:
            error = None
            _leave(loop, self)
            if outer is not None:
                _enter(loop, outer)
        if self.done:
            try:
                self._finish(result, failure)
            finally:
                failure = None
        elif waits_for is None:
            loop.call_soon(self._again)
        else:
            waits_for._asyncio_future_blocking = False
            self._waits_for = waits_for
            waits_for.add_done_callback(self._wake)
