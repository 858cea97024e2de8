"""Gather: fetch from many dependencies until a deadline, and go on with what arrived.

    page = await gather_within(deadline_us, {"price": price(id), "trends": trends(id)}, clock)
    page["trends"].ok

Every name has a result: its value, its failure, or TIMED_OUT. What has not arrived is cancelled
and not waited for; when the deadline has passed already nothing is begun. A bug in one of them, or
a caller that is cancelled, gives up all of them. `gather_now_within` is the same for work that
blocks: what has not arrived cannot be stopped, so let each be bounded, as by a `Dependency`.

Bounds: one task, or one thread, for each name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import TypeVar

from sluicegate.contracts.clock import Clock
from sluicegate.policies.attempts import Attempts
from sluicegate.policies.call_result import CallResult, ResultKind
from sluicegate.resilience.dependencies.dependency import ok_of
from sluicegate.resilience.dependencies.threads import WorkThread, result_now
from sluicegate.system import SystemClock

T = TypeVar("T")


async def gather_within(
    deadline_us: int, works: Mapping[str, Awaitable[T]], clock: Clock | None = None
) -> dict[str, CallResult[T]]:
    """Return the result of each by its name, at the deadline at the latest."""
    left_us = deadline_us - (SystemClock() if clock is None else clock).now_us()
    if left_us <= 0:
        for work in works.values():
            if isinstance(work, Coroutine):
                work.close()
            elif isinstance(work, asyncio.Future):
                work.cancel()
        return {name: _too_late() for name in works}
    attempts = Attempts()
    tasks = {name: attempts.start(ok_of(work)) for name, work in works.items()}
    try:
        if tasks:
            await asyncio.wait(
                tasks.values(), timeout=left_us / 1_000_000, return_when=asyncio.FIRST_EXCEPTION
            )
        return {name: task.result() if task.done() else _too_late() for name, task in tasks.items()}
    finally:
        for task in tasks.values():
            attempts.give_up(task)


def gather_now_within(
    deadline_us: int, works: Mapping[str, Callable[[], T]], clock: Clock | None = None
) -> dict[str, CallResult[T]]:
    """Return the result of each by its name, at the deadline at the latest."""
    clock = SystemClock() if clock is None else clock
    if clock.now_us() >= deadline_us:
        return {name: _too_late() for name in works}
    running: dict[str, WorkThread[T]] = {}
    try:
        for name, work in works.items():
            running[name] = WorkThread(partial(result_now, work, name), name)
            running[name].start()
        found = {name: one.wait(deadline_us - clock.now_us()) for name, one in running.items()}
    except BaseException:
        for one in running.values():
            one.give_up()
        raise
    return {name: _too_late() if one is None else one for name, one in found.items()}


def _too_late() -> CallResult[T]:
    error = TimeoutError("it had not arrived at the deadline")
    return CallResult(ResultKind.TIMED_OUT, error=error)
