"""Group commit: calls of many tasks, made durable together.

A synced commit costs a disk's turn whether it holds one change or a thousand. So one thread commits
for an engine, and while it waits for the disk the next calls gather; nobody waits for a timer. A
call is told when its commit is on disk. One that fails is tried again without its neighbours, so it
fails alone. After `OutcomeUnknown` none is tried again, as it could be made twice. The queue is
bounded in calls and in bytes; beyond that a call is refused at once.

The thread also does what an engine has to do in the background, a short step at a time, behind a
group or in a pause. It is the one writer of its engine: no step meets a commit under way. A step
that fails is told in the log and tried again later. Should the thread ever end by a fault, whoever
waits is told so, and so is whoever comes later: nobody waits for a thread that is gone.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from sluicegate.contracts.engine import Change, Update
from sluicegate.contracts.errors import BadValue, OutcomeUnknown, Unavailable

_PAUSE_S: Final = 0.002  # between steps, if nobody commits
_FAILED_PAUSE_S: Final = 1.0  # before a step that failed is tried again, if nobody commits
_MOMENT_S: Final = 0.000_02
WAY_CHANGES: Final = 256  # after so many of a commit, others have a turn
_NEVER: Final = threading.Event()
_log: Final = logging.getLogger("sluicegate.kv")


@final
class CommitCall:
    """What one caller wants to have committed: changes, or those that an `update` decides.

    One that says `drop` forgets that space, and changes nothing else.
    """

    __slots__ = ("changes", "done", "drop", "error", "future", "update", "weight")

    def __init__(
        self,
        changes: Sequence[Change],
        weight: int,
        *,
        update: Update | None = None,
        drop: str = "",
    ) -> None:
        self.changes = changes
        self.weight = weight
        self.update = update
        self.drop = drop
        self.done = True
        self.error: Exception | None = None
        self.future: asyncio.Future[bool] | None = None


# Makes the calls durable, all or none, in order; whether each was made. Runs on the thread.
Commit: TypeAlias = "Callable[[Sequence[CommitCall]], Sequence[bool]]"
# Does a bit of what is left to do; whether there is more of it. Runs on the thread.
Step: TypeAlias = "Callable[[], bool]"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCommitSettings:
    """The bounds of a group, and of what waits for one; checked when made."""

    calls_max: int = 1_000
    bytes_max: int = 8 << 20  # one call alone may be larger
    waiting_calls_max: int = 16_384
    waiting_bytes_max: int = 256 << 20

    def __post_init__(self) -> None:
        for name in ("calls_max", "bytes_max", "waiting_calls_max", "waiting_bytes_max"):
            value = getattr(self, name)
            if not 1 <= value <= 1 << 40:
                raise BadValue(f"group.{name}", value, f"give a number from 1 to {1 << 40}")


def give_way() -> None:
    """Let the other threads run: a long commit would hold up whoever answers requests.

    Only waiting gives the interpreter away for certain, if it is for no time at all.
    """
    _NEVER.wait(_MOMENT_S)


@final
class GroupCommitter:
    """The thread, and what waits for it. It starts with the first call."""

    def __init__(
        self, name: str, commit: Commit, settings: GroupCommitSettings, *, step: Step | None = None
    ) -> None:
        self._name = name
        self._commit = commit
        self._step = step
        self._settings = settings
        self._waiting: deque[CommitCall] = deque()
        self._waiting_bytes = 0
        self._ready = threading.Condition()
        self._closed = False
        self._closed_by = "it was closed"
        self.fault = ""  # what ended the thread, if a fault did
        self._group: Sequence[CommitCall] = ()  # that is being committed
        self._thread: threading.Thread | None = None
        self.groups = 0  # that were committed
        self.calls = 0  # that were in them

    async def commit(self, call: CommitCall) -> bool:
        """Have it committed; whether it was made. Raises what the commit raised."""
        future = asyncio.get_running_loop().create_future()
        call.future = future
        with self._ready:
            self._admit(call)
            self._waiting.append(call)
            self._waiting_bytes += call.weight
            self._start()
            self._ready.notify()
        return bool(await future)

    def start(self) -> None:
        """Start the thread for its steps, before anybody commits."""
        with self._ready:
            self._start()

    async def close(self) -> None:
        """Commit what waits, and end the thread; later calls are unavailable."""
        with self._ready:
            self._closed = True
            self._ready.notify()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _start(self) -> None:
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def _admit(self, call: CommitCall) -> None:
        if self._closed:
            raise Unavailable(self._name, self._closed_by)
        settings = self._settings
        if len(self._waiting) >= settings.waiting_calls_max:
            raise Unavailable(
                self._name,
                f"{len(self._waiting):,} calls wait to be committed already;"
                " offer less at a time, or raise waiting_calls",
            )
        # One call alone may weigh more than all that may wait.
        if self._waiting and self._waiting_bytes + call.weight > settings.waiting_bytes_max:
            raise Unavailable(
                self._name,
                f"{self._waiting_bytes:,} bytes wait to be committed already;"
                " offer less at a time, or raise waiting_bytes",
            )

    # On the thread.

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as error:
            _log.exception("%s: its only writer ended; start again", self._name)
            self._fail(Unavailable(self._name, f"its writer ended ({error!r}); start again"))

    def _serve(self) -> None:
        more = self._step is not None
        failed = False
        while True:
            with self._ready:
                if not self._waiting and not self._closed:
                    pause_s = _FAILED_PAUSE_S if failed else _PAUSE_S
                    self._ready.wait(pause_s if more else None)
                group = self._group = self._gather()
                if not group and self._closed:
                    return
            if group:
                self._commit_group(group)
                self._group = ()
            if self._step is None or not (more or group):
                continue
            try:
                more = self._step()
                failed = False
            except Exception:
                # Once for however many in a row: a disk that is gone would fill the log.
                if not failed:
                    _log.exception("%s: a step in the background failed", self._name)
                more = failed = True

    def _fail(self, error: Unavailable) -> None:
        """Refuse whatever comes, and fail whatever waits."""
        with self._ready:
            self._closed = True
            self._closed_by = self.fault = error.detail
            group, waiting = [*self._group], [*self._waiting]
            self._group = ()
            self._waiting.clear()
            self._waiting_bytes = 0
        for call in group:
            call.error = OutcomeUnknown(error.what, error.detail)  # it may be on the disk
        for call in waiting:
            call.error = error
        _tell([*group, *waiting])

    def _gather(self) -> list[CommitCall]:
        group: list[CommitCall] = []
        weight = 0
        settings = self._settings
        while self._waiting and len(group) < settings.calls_max:
            weight += self._waiting[0].weight
            if group and weight > settings.bytes_max:
                break
            call = self._waiting.popleft()
            self._waiting_bytes -= call.weight
            group.append(call)
        return group

    def _commit_group(self, group: Sequence[CommitCall]) -> None:
        repeatable = not self._try(group) and not isinstance(group[0].error, OutcomeUnknown)
        if repeatable and len(group) > 1:
            for call in group:
                self._try([call])
        _tell(group)

    def _try(self, calls: Sequence[CommitCall]) -> bool:
        try:
            results = self._commit(calls)
        except Exception as error:  # whatever it is, it is its callers'
            for call in calls:
                call.error = error
            return False
        for call, outcome in zip(calls, results, strict=True):
            call.done = outcome
            call.error = None
        self.groups += 1
        self.calls += len(calls)
        return True


def _tell(group: Sequence[CommitCall]) -> None:
    """Wake each loop once, however many of its tasks wait."""
    by_loop: dict[asyncio.AbstractEventLoop, list[CommitCall]] = {}
    for call in group:
        if call.future is not None:
            by_loop.setdefault(call.future.get_loop(), []).append(call)
    for loop, calls in by_loop.items():
        # On a loop that was closed nobody waits any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, calls)


def _settle(calls: Sequence[CommitCall]) -> None:
    for call in calls:
        future = call.future
        if future is None or future.done():
            continue
        if call.error is not None:
            future.set_exception(call.error)
        else:
            future.set_result(call.done)
