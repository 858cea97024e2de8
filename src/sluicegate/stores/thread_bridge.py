"""Threads: a store for callers that have no event loop, in one background loop for all of them.

A caller puts its errand into a row and wakes the loop, unless somebody has and the loop has not
looked yet: so under load one wake-up serves many, and what they ask leaves in one script call. Then
it sleeps at a lock of its own until its errand is done. An interrupt (Ctrl-C) ends the sleep, and
the errand with it.

The loop's thread is a daemon that starts at the first errand. A child after a fork has no threads,
so there it starts anew; what the parent had under way stays the parent's. Nothing here knows what
the store is: whatever `open_store` opens within the loop.
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


class Closing(Protocol):
    """All that is known here of a store: that it must be closed."""

    async def close(self) -> None:
        """Give back what is held."""
        ...


T = TypeVar("T")
S = TypeVar("S", bound=Closing)

WAIT_US_MAX_DEFAULT: Final = 60_000_000  # a store's own time-outs end an errand long before
CLOSE_S_MAX: Final = 2.0


@final
class Errand(Generic[T]):
    """What a thread wants done, and the gate it sleeps at."""

    __slots__ = ("error", "gate", "given_up", "operation", "result", "task")

    def __init__(self, operation: Callable[[Any], Awaitable[T]]) -> None:
        self.operation = operation
        self.gate = threading.Lock()
        self.gate.acquire()
        self.result: T | None = None
        self.error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None
        self.given_up = False

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
class Bridge(Generic[S]):
    """Runs operations of a store for threads; `open_store` is called within its loop."""

    __slots__ = (
        "__weakref__",
        "_closed",
        "_ident",
        "_loop",
        "_loop_factory",
        "_open",
        "_row",
        "_starting",
        "_store",
        "_thread",
        "_wait_s_max",
        "_woken",
    )

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
        self._begin()
        _bridges.add(self)

    def run(self, operation: Callable[[S], Awaitable[T]]) -> T:
        """Have it done in the loop; its result, or what it raised."""
        if threading.get_ident() == self._ident:
            raise RuntimeError("a store's own loop cannot wait for itself; await the store instead")
        errand = Errand(operation)
        try:
            self._row.append(errand)
            # Closed first, then looked at: whoever closes fails the row last.
            if self._closed:
                self._withdraw(errand)
            elif not self._woken:
                self._wake()
            done = errand.gate.acquire(timeout=self._wait_s_max)
        except BaseException:
            self._give_up(errand)
            raise
        if not done:
            self._give_up(errand)
            raise Unavailable("the store", f"its loop gave no answer in {self._wait_s_max:g} s")
        if errand.error is not None:
            raise errand.error
        return errand.result  # type: ignore[return-value]

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

    def _begin(self) -> None:
        """As if nothing had been asked yet; also in a child, where nothing has."""
        self._row: deque[Errand[Any]] = deque()
        self._woken = False
        self._ident = 0
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._store: S | None = None

    def _wake(self) -> None:
        self._woken = True
        loop = self._loop
        if loop is None:
            with self._starting:
                loop = self._loop
                if loop is None:
                    loop = self._loop = self._loop_factory()
                    self._thread = threading.Thread(
                        target=self._live, args=(loop,), name="sluicegate store", daemon=True
                    )
                    self._thread.start()
        try:
            loop.call_soon_threadsafe(self._look)
        except RuntimeError:  # closed in this moment: whoever closed it fails the row
            self._fail_row()

    def _look(self) -> None:
        """In the loop: take up all errands of the row."""
        # Before the row is looked at: who comes later wakes us again.
        self._woken = False
        if self._closed:
            self._fail_row()
        row, loop = self._row, asyncio.get_running_loop()
        store = self._store
        while row:
            errand = row.popleft()
            if errand.given_up:
                continue
            if store is None:
                try:
                    store = self._store = self._open()
                except Exception as error:
                    errand.error = error
                    errand.gate.release()
                    continue
            errand.task = loop.create_task(errand.run(store))

    def _live(self, loop: asyncio.AbstractEventLoop) -> None:
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
                self._fail_row()

    async def _end(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            await store.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _fail_row(self) -> None:
        row = self._row
        while row:
            try:
                errand = row.popleft()
            except IndexError:
                return
            errand.error = Unavailable("the store", "it is closed")
            errand.gate.release()

    def _withdraw(self, errand: Errand[Any]) -> None:
        """Take it out of the row of a closed bridge, if it has not been failed already."""
        try:
            self._row.remove(errand)
        except ValueError:
            return
        errand.error = Unavailable("the store", "it is closed")
        errand.gate.release()

    def _give_up(self, errand: Errand[Any]) -> None:
        """Nobody waits for it any more."""
        errand.given_up = True
        self._woken = False  # an interrupt may have come between the word and the deed
        loop = self._loop
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(_cancel, errand)
        except RuntimeError:
            return


def _cancel(errand: Errand[Any]) -> None:
    if errand.task is not None:
        errand.task.cancel()


_bridges: Final[WeakSet[Bridge[Any]]] = WeakSet()
# A child must not end what its parent still uses, as collecting it would.
_left_to_the_parent: Final[list[object]] = []


def _after_fork() -> None:
    for bridge in list(_bridges):
        _left_to_the_parent.append((bridge._loop, bridge._store, bridge._row))
        bridge._begin()


def _at_exit() -> None:
    for bridge in list(_bridges):
        bridge.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
