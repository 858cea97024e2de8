"""Thread waiter: an answer that a thread waits for, the gate where it sleeps, and whose turn it is.

It is as much of a future as a store and its batches use. Who tells the answer may be any thread;
who waits for it is one. Nothing here knows where the answer comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from threading import Lock
from typing import Any, final


@final
class ThreadWaiter:
    """An answer that a thread waits for; what is used of a future, and no more."""

    __slots__ = ("_abandoned", "_callbacks", "_done", "_error", "_gate", "_result")

    def __init__(self) -> None:
        self._done = False
        self._abandoned = False
        self._result: Any = None
        self._error: BaseException | None = None
        self._gate: Lock | None = None
        self._callbacks: list[Callable[[Any], object]] = []

    def done(self) -> bool:
        """Return whether it has come, or nobody waits for it any more."""
        return self._done or self._abandoned

    def cancelled(self) -> bool:
        """Return whether nobody waits for it any more."""
        return self._abandoned

    def exception(self) -> BaseException | None:
        """Return the failure, if it is one."""
        return self._error

    def set_result(self, result: Any, /) -> None:
        """The answer."""
        self._result = result
        self._end()

    def set_exception(self, error: BaseException, /) -> None:
        """The failure."""
        self._error = error
        self._end()

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        """Have `callback` called once it has come."""
        self._callbacks.append(callback)

    def result(self) -> Any:
        """Return the answer, or raise the failure."""
        if self._error is not None:
            raise self._error
        return self._result

    def __await__(self) -> Generator[ThreadWaiter, None, Any]:
        if not self._done:
            yield self
        return self.result()

    # For the client.

    def prepare(self) -> None:
        """Have a gate to sleep at, before looking for the last time whether one must."""
        if self._gate is None:
            self._gate = Lock()
            self._gate.acquire()

    def sleep(self, seconds_max: float) -> bool:
        """Sleep until woken; False if that was too long."""
        return self._gate is None or self._gate.acquire(timeout=seconds_max)

    def wake(self) -> None:
        """End the sleep, or spare the next one."""
        gate = self._gate
        if gate is not None:
            with suppress(RuntimeError):  # it was woken already
                gate.release()

    def abandon(self) -> None:
        """Nobody waits for it any more."""
        self._abandoned = True

    def _end(self) -> None:
        self._done = True
        self.wake()
        for callback in self._callbacks:
            callback(self)


@final
class SendTurn:
    """Whose turn it is to send.

    It is taken by one operation of a dict, which leaves there who took it. Of a lock that was taken
    just before an interrupt nobody could say whose it is, and it would stay taken.
    """

    __slots__ = ("_holder",)

    def __init__(self) -> None:
        self._holder: dict[str, object] = {}

    def take(self, sender: object) -> bool:
        """Take it, unless somebody has it."""
        return self._holder.setdefault("sender", sender) is sender

    def is_free(self) -> bool:
        """Return whether nobody has it."""
        return not self._holder

    def give_back(self, sender: object) -> None:
        """Let others have it, if it is this one's."""
        if self._holder.get("sender") is sender:
            self._holder.clear()
