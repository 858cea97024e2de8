"""Gather: fetch several parts at once, and continue with those that arrive in time.

    price, reviews = await gather(fetch_price(item), fetch_reviews(item), timeout_s=0.5)
    page = await gather({"price": fetch_price(item), "reviews": fetch_reviews(item)}, timeout_s=0.5)
    price.ok, price.unwrap(), page["reviews"].error

Every part has a result: its value, its failure by any exception, or TIMED_OUT. A part that fails
never ends another. The deadline of the request that is being served bounds the time as well. A part
that has not arrived is cancelled and not waited for. If no time is left, no part is begun. A caller
that is cancelled gives up all parts.

`gather_now` is the same for functions that block. A late function cannot be stopped, so bound
each function, for example with `soft`.

Bounds: one task, or one thread, for each part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar, overload

from sluicegate.policies.client.attempts import Attempts
from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.resilience.context import remaining_us
from sluicegate.resilience.dependencies.results import any_failure, result_now, result_of_work
from sluicegate.resilience.dependencies.threads import WorkThread
from sluicegate.system import now_us

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
T = TypeVar("T")


@overload
async def gather(a: Awaitable[A], /, *, timeout_s: float | None = None) -> tuple[CallResult[A]]: ...
@overload
async def gather(
    a: Awaitable[A], b: Awaitable[B], /, *, timeout_s: float | None = None
) -> tuple[CallResult[A], CallResult[B]]: ...
@overload
async def gather(
    a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], /, *, timeout_s: float | None = None
) -> tuple[CallResult[A], CallResult[B], CallResult[C]]: ...
@overload
async def gather(
    a: Awaitable[A],
    b: Awaitable[B],
    c: Awaitable[C],
    d: Awaitable[D],
    /,
    *,
    timeout_s: float | None = None,
) -> tuple[CallResult[A], CallResult[B], CallResult[C], CallResult[D]]: ...
@overload
async def gather(
    a: Awaitable[A],
    b: Awaitable[B],
    c: Awaitable[C],
    d: Awaitable[D],
    e: Awaitable[E],
    /,
    *,
    timeout_s: float | None = None,
) -> tuple[CallResult[A], CallResult[B], CallResult[C], CallResult[D], CallResult[E]]: ...
@overload
async def gather(
    works: Mapping[str, Awaitable[T]], /, *, timeout_s: float | None = None
) -> dict[str, CallResult[T]]: ...
async def gather(*works: Any, timeout_s: float | None = None) -> Any:
    """Return the result of each part, in order or by name, after `timeout_s` at the latest."""
    named, parts = _parts_of(works)
    left_us = _left_us(timeout_s)
    if left_us is not None and left_us <= 0:
        for work in parts:
            if isinstance(work, Coroutine):
                work.close()
            elif isinstance(work, asyncio.Future):
                work.cancel()
        return _joined(named, [_too_late() for _ in parts])
    attempts = Attempts()
    tasks = [attempts.start(result_of_work(work, any_failure)) for work in parts]
    try:
        if tasks:
            await asyncio.wait(tasks, timeout=None if left_us is None else left_us / 1_000_000)
        return _joined(named, [_ended(task) for task in tasks])
    finally:
        for task in tasks:
            attempts.give_up(task)


@overload
def gather_now(
    a: Callable[[], A], /, *, timeout_s: float | None = None
) -> tuple[CallResult[A]]: ...
@overload
def gather_now(
    a: Callable[[], A], b: Callable[[], B], /, *, timeout_s: float | None = None
) -> tuple[CallResult[A], CallResult[B]]: ...
@overload
def gather_now(
    a: Callable[[], A], b: Callable[[], B], c: Callable[[], C], /, *, timeout_s: float | None = None
) -> tuple[CallResult[A], CallResult[B], CallResult[C]]: ...
@overload
def gather_now(
    a: Callable[[], A],
    b: Callable[[], B],
    c: Callable[[], C],
    d: Callable[[], D],
    /,
    *,
    timeout_s: float | None = None,
) -> tuple[CallResult[A], CallResult[B], CallResult[C], CallResult[D]]: ...
@overload
def gather_now(
    a: Callable[[], A],
    b: Callable[[], B],
    c: Callable[[], C],
    d: Callable[[], D],
    e: Callable[[], E],
    /,
    *,
    timeout_s: float | None = None,
) -> tuple[CallResult[A], CallResult[B], CallResult[C], CallResult[D], CallResult[E]]: ...
@overload
def gather_now(
    works: Mapping[str, Callable[[], T]], /, *, timeout_s: float | None = None
) -> dict[str, CallResult[T]]: ...
def gather_now(*works: Any, timeout_s: float | None = None) -> Any:
    """Return the result of each part, in order or by name, after `timeout_s` at the latest."""
    named, parts = _parts_of(works)
    left_us = _left_us(timeout_s)
    if left_us is not None and left_us <= 0:
        return _joined(named, [_too_late() for _ in parts])
    until_us = None if left_us is None else now_us() + left_us
    running: list[WorkThread[object]] = []
    try:
        for number, work in enumerate(parts):
            name = named[number] if named is not None else f"part {number}"
            running.append(WorkThread(partial(result_now, work, name, any_failure), name))
            running[-1].start()
        found = [one.wait(None if until_us is None else until_us - now_us()) for one in running]
    except BaseException:
        for one in running:
            one.give_up()
        raise
    return _joined(named, [_too_late() if one is None else one for one in found])


def _parts_of(works: tuple[Any, ...]) -> tuple[list[str] | None, list[Any]]:
    """The names, if the parts have some, and the parts."""
    if len(works) == 1 and isinstance(works[0], Mapping):
        return list(works[0]), list(works[0].values())
    return None, list(works)


def _joined(names: list[str] | None, results: list[CallResult[object]]) -> Any:
    return tuple(results) if names is None else dict(zip(names, results, strict=True))


def _left_us(timeout_s: float | None) -> int | None:
    served_us = remaining_us(now_us())
    if timeout_s is None:
        return served_us
    own_us = int(timeout_s * 1_000_000)
    return own_us if served_us is None else min(own_us, served_us)


def _ended(task: asyncio.Task[CallResult[object]]) -> CallResult[object]:
    if not task.done():
        return _too_late()
    return CallResult(ResultKind.CANCELLED) if task.cancelled() else task.result()


def _too_late() -> CallResult[object]:
    return CallResult(ResultKind.TIMED_OUT, error=TimeoutError("it had not arrived in time"))
