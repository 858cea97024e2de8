"""Status: what one worker of a service shows of itself, its state and its metrics; read-only.

Each part says itself what there is to see of it. Where several workers share a port, each shows its
own state, and the metrics are those of all.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, is_dataclass
from enum import Enum
from typing import final

from sluicegate import __version__
from sluicegate.contracts.access import Grant, Identity
from sluicegate.service.siblings import Siblings, WorkerId, merge_pages
from sluicegate.system import memory_bytes, now_us
from sluicegate.telemetry.prometheus import MetricFamily, gauge, page

Part = Callable[[], object]


@final
class WorkerStatus:
    """Of one worker of an app. One that is `alone` asks no sibling: siblings ask it."""

    def __init__(
        self,
        app: str,
        worker: WorkerId,
        *,
        parts: Mapping[str, Part],
        metrics: Callable[[], Iterable[MetricFamily]],
        not_ready: Callable[[], str],
        not_alive: Callable[[], str],
        alone: bool = False,
    ) -> None:
        self.worker = worker
        self.siblings = Siblings(worker)
        self.alone = alone or not len(self.siblings)
        self._app = app
        self._parts = parts
        self._metrics = metrics
        self._not_ready = not_ready
        self.not_alive = not_alive
        self._since_us = now_us()

    def state(self, by: Identity) -> Mapping[str, object]:
        """What this worker is doing now. Needs AUDIT."""
        by.require(Grant.AUDIT)
        at_us = now_us()
        state: dict[str, object] = {
            "app": self._app,
            "version": __version__,
            "worker": self.worker.number,
            "workers": len(self.siblings) + 1,
            "at_us": at_us,
            "up_us": at_us - self._since_us,
            "not_ready": self._not_ready(),
            "process": {
                "pid": os.getpid(),
                "memory_bytes": memory_bytes(),
                "tasks": len(asyncio.all_tasks()),
                "threads": threading.active_count(),
            },
        }
        for name, part in self._parts.items():
            state[name] = to_json(part())
        return state

    def metrics(self) -> str | Awaitable[str]:
        """All metrics as Prometheus text."""
        several = len(self.siblings) > 0
        labels = {"worker": str(self.worker.number)} if several else {}
        memory = gauge(
            f"sluicegate_{self._app}_memory_bytes", "Memory of the process.", memory_bytes()
        )
        text = page([*self._metrics(), memory], labels=labels).decode()
        return text if self.alone else self._metrics_of_all(text)

    def not_ready(self) -> str:
        """Why this instance should get no traffic; empty if it should."""
        return self._not_ready()

    async def _metrics_of_all(self, own: str) -> str:
        return merge_pages([own, *await self.siblings.texts("/metrics")])


def to_json(value: object) -> object:
    """A value as JSON can hold it: tuples with names and dataclasses by their fields."""
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Mapping):
        return {str(to_json(key)): to_json(one) for key, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return to_json(asdict(value))
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return to_json(value._asdict())
    if isinstance(value, Iterable):
        return [to_json(one) for one in value]
    return str(value)
