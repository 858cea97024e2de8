"""Background: what runs by itself, kept running, and seen when it does not.

Work that ends by an error nobody reckoned with would be missed only when it is needed: a budget
that is not filled, a table that is not folded. So it is logged with its trace, counted, shown in
the state and the metrics, and begun again after a pause.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, final

from sluicegate.telemetry.prometheus import MetricFamily, MetricSample

PAUSE_S: Final = 1.0
_log: Final = logging.getLogger("sluicegate.kv")


@final
class Background:
    """Tasks by their names. Made within the loop that runs them."""

    __slots__ = ("_failures", "_last", "_pause_s", "_tasks")

    def __init__(self, pause_s: float = PAUSE_S) -> None:
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
        """By name: how often it failed, and of what the last time."""
        return {
            name: {"failures": count, "last": self._last.get(name, "")}
            for name, count in self._failures.items()
        }

    def families(self) -> Iterable[MetricFamily]:
        """The same as a metric."""
        samples = [
            MetricSample("_total", (("work", name),), count)
            for name, count in self._failures.items()
        ]
        yield MetricFamily(
            "sluicegate_kv_background_failures", "counter", "", "Failures of what runs by itself.",
            samples,
        )  # fmt: skip

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
            _log.error(
                "%s has failed and is begun again: %s", name, self._last[name], exc_info=error
            )
            await asyncio.sleep(self._pause_s)
