"""Glass follower: keeps the local view as its source has it, from a thread of its own.

It looks about once a second, so what is opened or mended anywhere is in force here within about
`interval_s`. The thread is a daemon that starts with the first question that anybody asks of the
glass. A forked child has none of the parent's threads; there it starts anew with the first
question, and until then what the parent knew holds until it ends.

A source that cannot be asked changes nothing: what is open stays open until it ends, and what was
never heard of is not open. A source that answers with something that cannot be understood has
nothing open. Nothing of this ever raises into a caller; it is logged to `sluicegate.glass`, what
opens and closes in one line each, with who said so, why and until when.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, TypeVar, final
from weakref import WeakSet

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, SluicegateError, Unavailable
from sluicegate.limits.glass.break_glass import Glass, GlassView, Opening
from sluicegate.limits.glass.sources import PREFIX_DEFAULT, GlassSource, open_source
from sluicegate.system import SystemChance, SystemClock
from sluicegate.wire.timestamps import utc_text

INTERVAL_S_DEFAULT: Final = 0.8  # with its jitter, less than a second
INTERVAL_S_MIN: Final = 0.01
INTERVAL_S_MAX: Final = 60.0
LOOK_S_MAX: Final = 5.0  # then it is as if the source did not answer
CLOSE_S_MAX: Final = 2.0
_JITTER: Final = 0.2  # of the interval, so that a fleet does not ask in one beat

T = TypeVar("T")

_log: Final = logging.getLogger("sluicegate.glass")


@final
class GlassFollower:
    """Follows `source` and shows it to `glass`; `close` ends it, and with it all that was open.

    `clock` is the one whose instants the glass is asked with. The source is closed with it.
    """

    def __init__(
        self,
        source: GlassSource,
        glass: Glass,
        interval_s: float = INTERVAL_S_DEFAULT,
        *,
        clock: Clock | None = None,
        chance: Chance | None = None,
    ) -> None:
        if not INTERVAL_S_MIN <= interval_s <= INTERVAL_S_MAX:
            remedy = f"give from {INTERVAL_S_MIN:g} to {INTERVAL_S_MAX:g} seconds"
            raise BadValue("glass.interval_s", interval_s, remedy)
        self.glass: Final = glass
        self._source = source
        self._interval_s = interval_s
        self._clock = clock or SystemClock()
        self._chance = chance or SystemChance()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._following = threading.Event()
        self._closed = False
        self._reached = False  # whether the source has ever answered
        self._failure = ""
        self._failure_kind = ""
        self._logged_openings: dict[str, Opening] = {}  # what the log has been told is open
        _followers.add(self)
        glass.sleep(self.start)

    def start(self) -> None:
        """Begin to follow, if it does not yet; the glass calls this at its first question."""
        with self._lock:
            if self._closed or self._thread is not None:
                return
            thread = threading.Thread(target=self._run, name="sluicegate glass", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # there may be no more threads
                self.glass.sleep(self.start)
                self._note_failure("thread", f"no thread can be started ({error})")
                return
            self._thread = thread
            self.glass.awake()

    def close(self) -> None:
        """Stop following. Enforcement is whole again."""
        with self._lock:
            self._closed = True
            thread, self._thread = self._thread, None
            loop, task = self._loop, self._task
        _followers.discard(self)
        if thread is not None:
            if loop is not None and task is not None:
                with suppress(RuntimeError):  # it has just ended
                    loop.call_soon_threadsafe(task.cancel)
            if thread is not threading.current_thread():
                thread.join(CLOSE_S_MAX)
        self.glass.mend()

    @property
    def failure(self) -> str:
        """What is wrong with the source at present; nothing if it answers."""
        return self._failure

    @property
    def reached(self) -> bool:
        """Whether the source has ever answered this process."""
        return self._reached

    def change(self, change: Callable[[GlassSource], Coroutine[Any, Any, T]]) -> Future[T]:
        """Change the source, and show here what follows from it; any thread may."""

        async def changed() -> T:
            result = await change(self._source)
            await self._look()
            return result

        self.start()
        if not self._following.wait(CLOSE_S_MAX) or self._loop is None:
            raise Unavailable(self._source.what, self._failure or "nothing follows it here")
        return asyncio.run_coroutine_threadsafe(changed(), self._loop)

    def state(self) -> dict[str, object]:
        """Return what is open, and whether that is known, as /v1/state has it."""
        standing = self.glass.standing(self._clock.now_us())
        openings = [one._asdict() for one in standing]
        return {"openings": openings, "reached": self._reached, "failure": self._failure}

    def __enter__(self) -> GlassFollower:
        self.start()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.close()

    def after_fork_in_child(self) -> None:
        """Sleep until the child asks."""
        self._lock = threading.Lock()
        self._thread = self._loop = self._task = None
        self._following = threading.Event()
        if not self._closed:
            self.glass.sleep(self.start)

    # Inside.

    def _run(self) -> None:
        try:
            asyncio.run(self._follow())
        except asyncio.CancelledError:
            pass
        except Exception:  # whatever it is, it must not be silent; the view ends by itself
            _log.exception("the glass is not followed any more")

    async def _follow(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._following.set()
        try:
            while True:
                await self._look()
                share = 1 + _JITTER * (2 * self._chance.draw() - 1)
                await asyncio.sleep(self._interval_s * share)
        finally:
            self._following.clear()
            await self._source.close()

    async def _look(self) -> None:
        asked_us = self._clock.now_us()
        self.glass.expire(asked_us)
        try:
            async with asyncio.timeout(LOOK_S_MAX):
                view = await self._source.look()
        except TimeoutError:
            reached = f"{self._source.what} has not answered in {LOOK_S_MAX:g} s"
            self._note_failure("unavailable", reached)
        except SluicegateError as error:
            self._note_failure("unavailable", str(error))
        except Exception as error:
            if self._failure_kind != "bug":
                _log.exception("looking at %s failed", self._source.what)
            self._note_failure("bug", f"{type(error).__name__}: {error}")
        else:
            self._show(view, asked_us)
        self._log_changes()

    def _show(self, view: GlassView, asked_us: int) -> None:
        self._reached = True
        if not self._closed:
            self.glass.show(view, asked_us)
        if view.damage:
            reached = f"{self._source.what} cannot be understood, so nothing is open: {view.damage}"
            self._note_failure("damage", reached)
        elif self._failure:
            self._failure = self._failure_kind = ""
            _log.warning("break-glass is followed again: %s", self._source.what)

    def _note_failure(self, kind: str, reached: str) -> None:
        if kind != self._failure_kind:  # once, and not every second
            _log.warning("break-glass is not followed: %s", reached)
        self._failure_kind, self._failure = kind, reached

    def _log_changes(self) -> None:
        now_us = self._clock.now_us()
        standing = {one.id: one for one in self.glass.standing(now_us)}
        for one in standing.values():
            if one.id not in self._logged_openings:
                _log.warning(
                    "%s: %s %s until %s (for %g s), by %s: %s",
                    "override" if one.rate else "glass broken",
                    one.id,
                    one.effect(),
                    utc_text(one.until_us),
                    (one.until_us - one.opened_at_us) / 1e6,
                    one.by,
                    one.why,
                )
        for one in self._logged_openings.values():
            if one.id not in standing:
                _log.warning(
                    "%s: %s no longer %s; it was open until %s, by %s: %s",
                    "override ended" if one.rate else "glass whole again",
                    one.id,
                    one.effect(),
                    utc_text(one.until_us),
                    one.by,
                    one.why,
                )
        self._logged_openings = standing


def follow(url: str, *, clock: Clock | None = None, prefix: str = PREFIX_DEFAULT) -> GlassFollower:
    """Follow the source of this URL; who decides asks `glass` of what is returned."""
    return GlassFollower(open_source(url, prefix=prefix), Glass(), clock=clock)


_followers: Final[WeakSet[GlassFollower]] = WeakSet()


def _in_child() -> None:
    for follower in list(_followers):
        follower.after_fork_in_child()


def _at_exit() -> None:
    for follower in list(_followers):
        follower.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
atexit.register(_at_exit)
