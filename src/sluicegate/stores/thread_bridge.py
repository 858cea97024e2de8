"""Thread bridge: a store for callers without an event loop, in one background loop for all of them.

A caller puts its call into a queue and wakes the loop, unless a wake-up is pending already: so
under load one wake-up serves many, and their requests leave in one script call. Then the caller
sleeps at a lock of its own until its call is done. An interrupt (Ctrl-C) ends the sleep, and
cancels the call.

The loop's thread is a daemon that starts at the first call. A child after a fork has no threads, so
there it starts anew; what the parent had in flight stays the parent's. Nothing here knows what the
store is: whatever `open_store` opens within the loop.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, Protocol, TypeVar, final
from weakref import WeakSet

from sluicegate.contracts.errors import Unavailable


class _Closable(Protocol):
    """A store, as far as it matters here: it must be closed."""

    async def close(self) -> None:
        """Give back what is held."""


T = TypeVar("T")
S = TypeVar("S", bound=_Closable)

WAIT_US_MAX_DEFAULT: Final = 60_000_000  # a store's own time-outs end a call long before
CLOSE_S_MAX: Final = 2.0


@final
class _BridgedCall(Generic[T]):
    """A call of a thread, and the gate at which the thread sleeps."""

    __slots__ = ("abandoned", "error", "gate", "operation", "result", "task")

    def __init__(self, operation: Callable[[Any], Awaitable[T]]) -> None:
        self.operation = operation
        self.gate = threading.Lock()
        self.gate.acquire()
        self.result: T | None = None
        self.error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None
        self.abandoned = False

    async def run(self, store: object) -> None:
        """Do it, and open the gate whatever happens."""
        try:
            self.result = await self.operation(store)
        except asyncio.CancelledError:
            self.error = Unavailable("the store", "it was closed")
            raise
        except BaseException as error:  # it is raised where it was asked for
            self.error = error
        finally:
            self.gate.release()


@final
class ThreadBridge(Generic[S]):
    """Runs operations of a store for threads; `open_store` is called within its loop."""

    def __init__(
        self,
        open_store: Callable[[], S],
        *,
        wait_us_max: int = WAIT_US_MAX_DEFAULT,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    ) -> None:
        self._open = open_store
        self._loop_factory = loop_factory
        self._wait_s_max = wait_us_max / 1e6
        self._closed = False
        self._reset()
        _bridges.add(self)

    def run(self, operation: Callable[[S], Awaitable[T]]) -> T:
        """Have it done in the loop; its result, or what it raised."""
        if threading.get_ident() == self._ident:
            raise RuntimeError("a store's own loop cannot wait for itself; await the store instead")
        call = _BridgedCall(operation)
        try:
            self._queue.append(call)
            # Closed first, then looked at: whoever closes fails the row last.
            if self._closed:
                self._withdraw(call)
            elif not self._wake_pending:
                self._wake()
            done = call.gate.acquire(timeout=self._wait_s_max)
        except BaseException:
            self._abandon(call)
            raise
        if not done:
            self._abandon(call)
            raise Unavailable("the store", f"its loop gave no answer in {self._wait_s_max:g} s")
        if call.error is not None:
            raise call.error
        return call.result  # type: ignore[return-value]

    @property
    def store(self) -> S | None:
        """The store, once it was opened; only what any thread may ask may be asked of it."""
        return self._store

    def close(self) -> None:
        """Fail what is under way with `Unavailable`, close the store, and end the thread."""
        self._closed = True
        with self._starting:
            loop, thread = self._loop, self._thread
        if loop is None or thread is None or thread is threading.current_thread():
            return
        try:
            loop.call_soon_threadsafe(loop.stop)
        except RuntimeError:  # it has ended by itself
            return
        thread.join(CLOSE_S_MAX)

    # Inside.

    def _reset(self) -> None:
        """As if nothing had been asked yet; also in a child, where nothing has."""
        self._queue: deque[_BridgedCall[Any]] = deque()
        self._wake_pending = False
        self._ident = 0
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._store: S | None = None

    def _wake(self) -> None:
        self._wake_pending = True
        loop = self._loop
        if loop is None:
            with self._starting:
                loop = self._loop
                if loop is None:
                    loop = self._loop = self._loop_factory()
                    self._thread = threading.Thread(
                        target=self._run_loop, args=(loop,), name="sluicegate store", daemon=True
                    )
                    self._thread.start()
        try:
            loop.call_soon_threadsafe(self._start_calls)
        except RuntimeError:  # closed in this moment: whoever closed it fails the row
            self._fail_queue()

    def _start_calls(self) -> None:
        """In the loop: take up all calls of the row."""
        # Before the row is looked at: who comes later wakes us again.
        self._wake_pending = False
        if self._closed:
            self._fail_queue()
        queue, loop = self._queue, asyncio.get_running_loop()
        store = self._store
        while queue:
            call = queue.popleft()
            if call.abandoned:
                continue
            if store is None:
                try:
                    store = self._store = self._open()
                except Exception as error:
                    call.error = error
                    call.gate.release()
                    continue
            call.task = loop.create_task(call.run(store))

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """The thread."""
        self._ident = threading.get_ident()
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            try:
                loop.run_until_complete(self._end())
            finally:
                asyncio.set_event_loop(None)
                loop.close()
                self._fail_queue()

    async def _end(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            await store.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _fail_queue(self) -> None:
        queue = self._queue
        while queue:
            try:
                call = queue.popleft()
            except IndexError:
                return
            call.error = Unavailable("the store", "it is closed")
            call.gate.release()

    def _withdraw(self, call: _BridgedCall[Any]) -> None:
        """Take it out of the row of a closed bridge, if it has not been failed already."""
        try:
            self._queue.remove(call)
        except ValueError:
            return
        call.error = Unavailable("the store", "it is closed")
        call.gate.release()

    def _abandon(self, call: _BridgedCall[Any]) -> None:
        """Nobody waits for it any more."""
        call.abandoned = True
        self._wake_pending = False  # an interrupt may have come between the word and the deed
        loop = self._loop
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(_cancel, call)
        except RuntimeError:
            return


def _cancel(call: _BridgedCall[Any]) -> None:
    if call.task is not None:
        call.task.cancel()


_bridges: Final[WeakSet[ThreadBridge[Any]]] = WeakSet()
# A child must not end what its parent still uses, as collecting it would.
_left_to_the_parent: Final[list[object]] = []


def _after_fork() -> None:
    for bridge in list(_bridges):
        _left_to_the_parent.append((bridge._loop, bridge._store, bridge._queue))
        bridge._reset()


def _at_exit() -> None:
    for bridge in list(_bridges):
        bridge.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
