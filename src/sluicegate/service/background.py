"""Background: work beside the requests, restarted when it fails, and visible when it does.

Work that ends by an unexpected error would be missed only when it is needed: a budget that is not
filled, a table that is not folded. So the failure is logged with its trace, counted, shown in the
state and the metrics, and the work starts again after a pause.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, final

from sluicegate.system import ThreadTimes
from sluicegate.telemetry.prometheus import MetricFamily, MetricSample

PAUSE_S: Final = 1.0
LAG_TICK_US: Final = 50_000
REST_WEIGHT: Final = 5  # with a twelfth of the time at rest it is 60% full, with a fifth empty


@final
class Background:
    """Tasks of an app, by their names. Made within the loop that runs them."""

    __slots__ = ("_app", "_failures", "_last", "_log", "_pause_s", "_tasks")

    def __init__(self, app: str, pause_s: float = PAUSE_S) -> None:
        self._app = app
        self._log = logging.getLogger(f"sluicegate.{app}")
        self._pause_s = pause_s
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failures: dict[str, int] = {}
        self._last: dict[str, str] = {}

    def start(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run it, and again whenever it ends, until `close`."""
        self._failures[name] = 0
        loop = asyncio.get_running_loop()
        self._tasks[name] = loop.create_task(self._keep(name, work), name=name)

    def state(self) -> Mapping[str, Mapping[str, object]]:
        """By name: how often it failed, and how the last time."""
        return {
            name: {"failures": count, "last": self._last.get(name, "")}
            for name, count in self._failures.items()
        }

    def metrics(self) -> Iterable[MetricFamily]:
        """The failures."""
        samples = [
            MetricSample("_total", (("work", name),), count)
            for name, count in self._failures.items()
        ]
        if samples:
            name = f"sluicegate_{self._app}_background_failures"
            yield MetricFamily(name, "counter", "", "Failures of background work.", samples)

    async def close(self) -> None:
        """End everything."""
        for name in [*self._tasks]:
            await self.stop(name)

    async def stop(self, name: str) -> None:
        """End one."""
        task = self._tasks.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _keep(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            try:
                await work()
                error: Exception | None = None
            except Exception as raised:
                error = raised
            self._failures[name] += 1
            self._last[name] = "it ended" if error is None else f"{type(error).__name__}: {error}"
            self._log.error(
                "%s failed and starts again: %s", name, self._last[name], exc_info=error
            )
            await asyncio.sleep(self._pause_s)


async def measure_lag(report: Callable[[int], None]) -> None:
    """Report how late the event loop's timer is, in microseconds, every tick."""
    loop = asyncio.get_running_loop()
    tick_s = LAG_TICK_US / 1_000_000
    while True:
        due_s = loop.time() + tick_s
        await asyncio.sleep(tick_s)
        report(max(0, int((loop.time() - due_s) * 1e6)))


def busy_share(before: ThreadTimes, now: ThreadTimes, passed_us: int) -> float:
    """How full an event loop was: its thread's times before and after so many microseconds.

    It is as full as the share of time in which it computes; but one that hardly ever rests is full
    however little of a core it gets, and one that rests is not, however long it waits for the core.
    """
    ran_us = now.ran_us - before.ran_us
    rest_us = max(0, passed_us - ran_us - (now.waited_us - before.waited_us))
    return min(max(ran_us, passed_us - REST_WEIGHT * rest_us, 0) / passed_us, 1.0)
