"""Driven: a coroutine that mostly waits once, stepped by what it waits for and not by a task.

A task costs three turns of the loop for one wait: to begin, to go on, and to tell that it is done.
Here the coroutine begins where it was made, and what it waits for steps it on; whoever waits for it
is told in the same turn. It is entered as the loop's current task while it runs, as asyncio asks of
those who bring a task of their own, so time-outs work inside.

It may await futures, and whatever is made of them: tasks, gatherings, time-outs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, final

# Semi-public, for task implementations: "Extending" in the documentation of asyncio.
_enter: Final[Callable[[asyncio.AbstractEventLoop, Any], None]] = asyncio._enter_task
_leave: Final[Callable[[asyncio.AbstractEventLoop, Any], None]] = asyncio._leave_task
_current: Final = asyncio.current_task


@final
class Driven:
    """One coroutine under way. `told` is called once when it is done: its result, or its error."""

    __slots__ = (
        "_asked_to_end",
        "_coroutine",
        "_loop",
        "_must_end",
        "_told",
        "_waits_for",
        "done",
    )

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        loop: asyncio.AbstractEventLoop,
        told: Callable[[Any, BaseException | None], None],
    ) -> None:
        self._coroutine = coroutine
        self._loop = loop
        self._told = told
        self._waits_for: Any = None
        self._asked_to_end = 0
        self._must_end = False  # at its next step, since nothing that could be cancelled is awaited
        self.done = False

    def begin(self) -> None:
        """Run to the first wait. Whoever is told may be told before this returns."""
        self._step(None)

    def cancel(self, msg: object = None) -> bool:
        """Have it end by CancelledError where it waits; False if it is done."""
        if self.done:
            return False
        self._asked_to_end += 1
        waits_for = self._waits_for
        if waits_for is None or not waits_for.cancel():
            self._must_end = True
        return True

    # What asyncio's time-outs ask of a task.

    def cancelling(self) -> int:
        """How many have asked for its end and not taken that back."""
        return self._asked_to_end

    def uncancel(self) -> int:
        """Take one of them back."""
        if self._asked_to_end > 0:
            self._asked_to_end -= 1
        return self._asked_to_end

    # Inside.

    # An error knows the frames it went through, and those know their variables; so what names an
    # error here is emptied at the end, or only the collector could free it.

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
        if self._must_end:
            self._must_end = False
            error = asyncio.CancelledError()
        loop = self._loop
        outer: Any = None
        try:
            _enter(loop, self)
        except RuntimeError:
            # Begun within a task, which goes on afterwards.
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
                self._told(result, failure)
            finally:
                failure = None
        elif waits_for is None:
            loop.call_soon(self._again)
        else:
            waits_for._asyncio_future_blocking = False
            self._waits_for = waits_for
            waits_for.add_done_callback(self._wake)
