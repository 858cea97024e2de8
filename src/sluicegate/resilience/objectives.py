"""Objectives: what share of an endpoint's requests is to go well, how fast, and how it stands.

    objectives = Objectives([Objective("GET /page", 0.999, latency_us=200_000)])
    app = measure(protect(app, settings), objectives)

A request goes well if its answer begins with a status below 500 within `latency_us`. What is the
caller's own fault (400 to 499, quotas included) counts for nobody, and neither does one that is not
answered because its caller has left. An endpoint is a method and a path, in which `*` stands for
anything; the first objective that matches counts. Measured outside of the protection, refusals of
overload are failures, as they are to whoever asked.

Counts go to the metrics as they are, so that Prometheus adds up workers; the burn rates beside them
are those of this process. Bounds: `OBJECTIVES_MAX`, each a ring of `kernels/burn_rate.py`. May be
used by many threads.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from fnmatch import translate
from threading import Lock
from typing import Any, Final, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue
from sluicegate.doors.asgi import App, Message, path_in_app
from sluicegate.kernels.backoff import WAIT_US_MAX
from sluicegate.kernels.burn_rate import MINUTE_US, WINDOWS_US, BurnWindows, burn
from sluicegate.policies.settings import within
from sluicegate.system import SystemClock
from sluicegate.telemetry.prometheus import MetricFamily, MetricSample, counters, gauges

OBJECTIVES_MAX: Final = 200
SHARE_MAX: Final = 0.999_999
_FAILED: Final = 500
_CALLERS_FAULT: Final = 400
_HOUR_MINUTES: Final = 60


@final
@dataclass(frozen=True)
class Objective:
    """The share of an endpoint's requests that is to go well; `latency_us` 0 is any time."""

    endpoint: str
    share: float
    latency_us: int = 0

    def __post_init__(self) -> None:
        method, _, path = self.endpoint.partition(" ")
        if not method or not path or not self.endpoint.isprintable():
            raise BadValue(
                "objective.endpoint", self.endpoint, 'give a method and a path, as "GET /page"'
            )
        if not 0.0 < self.share <= SHARE_MAX:
            raise BadValue(
                "objective.share", self.share, f"give a number above 0, at most {SHARE_MAX}"
            )
        within("objective.latency_us", self.latency_us, 0, WAIT_US_MAX)

    @property
    def allowed(self) -> float:
        """The share that may fail; 0.001 of 0.999, and not what is next to it in binary."""
        return round(1.0 - self.share, 12)


@final
class _Standing:
    """One objective and what came so far."""

    __slots__ = ("bad", "good", "matches", "objective", "windows")

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.matches = re.compile(translate(objective.endpoint)).match
        self.windows = BurnWindows()
        self.good = self.bad = 0


@final
class Objectives:
    """All objectives of a service."""

    def __init__(self, objectives: Sequence[Objective], clock: Clock | None = None) -> None:
        if len(objectives) > OBJECTIVES_MAX:
            raise BadValue("objectives", len(objectives), f"give at most {OBJECTIVES_MAX}")
        names = [one.endpoint for one in objectives]
        for name in names:
            if names.count(name) > 1:
                raise BadValue("objectives", name, "give one objective for each endpoint")
        self.clock = SystemClock() if clock is None else clock
        self._standings = [_Standing(one) for one in objectives]
        self._lock = Lock()

    def record(self, method: str, path: str, status: int, took_us: int) -> None:
        """Count one request; a status of 0 is an answer that never began."""
        if _CALLERS_FAULT <= status < _FAILED:
            return
        endpoint = f"{method} {path}"
        for one in self._standings:
            if one.matches(endpoint) is None:
                continue
            latency_us = one.objective.latency_us
            bad = status == 0 or status >= _FAILED or 0 < latency_us < took_us
            with self._lock:
                one.bad += bad
                one.good += not bad
                one.windows.add(int(bad), 1, self.clock.now_us())
            return

    def burn_rates(self) -> dict[str, dict[str, float]]:
        """Return the burn rate of each objective by its windows, `5m` to `6h`."""
        now_us = self.clock.now_us()
        with self._lock:
            return {
                one.objective.endpoint: {
                    _window_name(window_us): burn(bad, total, one.objective.allowed)
                    for window_us, (bad, total) in zip(
                        WINDOWS_US, one.windows.counts(now_us), strict=True
                    )
                }
                for one in self._standings
            }

    def families(self) -> list[MetricFamily]:
        """Return the metrics, for `telemetry.prometheus.page`."""
        requests, allowed = [], []
        for one in self._standings:
            label = ("objective", one.objective.endpoint)
            for outcome, count in (("good", one.good), ("bad", one.bad)):
                requests.append(MetricSample("_total", (label, ("outcome", outcome)), count))
            allowed.append(MetricSample("", (label,), one.objective.allowed))
        rates = [
            MetricSample("", (("objective", endpoint), ("window", window)), rate)
            for endpoint, by_window in self.burn_rates().items()
            for window, rate in by_window.items()
        ]
        return [
            counters("sluicegate_slo_requests", "Requests by objective and outcome.", requests),
            gauges("sluicegate_slo_allowed", "The share that may fail.", allowed),
            gauges("sluicegate_slo_burn_rate", "Failures over those allowed, by window.", rates),
        ]


@final
class MeasuredApp:
    """An ASGI application whose requests are counted; `measure` makes it."""

    def __init__(self, app: App, objectives: Objectives) -> None:
        self.app = app
        self.objectives = objectives

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve it, and count how it went once its answer begins."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began_us, status, left = self.objectives.clock.now_us(), 0, False

        async def heard() -> Message:
            nonlocal left
            message: Message = await receive()
            left = left or message["type"] == "http.disconnect"
            return message

        def watched(message: Message) -> Awaitable[None]:
            nonlocal status
            if message["type"] == "http.response.start" and not status:
                status = message["status"]
                self._record(scope, status, began_us)
            sent: Awaitable[None] = send(message)
            return sent

        try:
            await self.app(scope, heard, watched)
        except Exception:
            if not status:
                self._record(scope, 0, began_us)
            raise
        if not status and not left:  # its server answers 500
            self._record(scope, 0, began_us)

    def _record(self, scope: Any, status: int, began_us: int) -> None:
        took_us = self.objectives.clock.now_us() - began_us
        self.objectives.record(scope["method"], path_in_app(scope), status, took_us)


def measure(app: App, objectives: Objectives) -> MeasuredApp:
    """Return the application, counted by these objectives."""
    return MeasuredApp(app, objectives)


def _window_name(window_us: int) -> str:
    minutes = window_us // MINUTE_US
    return f"{minutes}m" if minutes < _HOUR_MINUTES else f"{minutes // _HOUR_MINUTES}h"
