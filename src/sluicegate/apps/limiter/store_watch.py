"""Store watch: whether the store of counts is slow, and whether it drops counts.

Late answers tell a slow store from a dead one: a dead store sends none. So each second the store
is `slow` if an answer came after its time-out within `SLOW_US`, else `down` if calls failed, else
`ok` if calls were answered; a second without calls changes nothing. Evictions drop counters, so
limits admit more than their count; each `LOOK_S` the servers are queried for their policy and for
the number of evicted keys. An evicting store is reported in the log, the metrics and the state, and
the limiter stays ready: without it, callers would admit everything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, final

from sluicegate.contracts.errors import Unavailable
from sluicegate.policies.client.path_timeout import PathTimeout
from sluicegate.system import now_us
from sluicegate.telemetry.prometheus import MetricFamily, MetricSample, counter, gauge

if TYPE_CHECKING:
    from sluicegate.stores.redis.eviction import Eviction

TICK_S: Final = 1.0
LOOK_S: Final = 10.0
SLOW_US: Final = 5_000_000  # while a slow store is avoided, it sends no answers to go by
OK: Final = "ok"
SLOW: Final = "slow"
DOWN: Final = "down"
LOG_EVERY_US: Final = 60_000_000
NO_EVICTION: Final = "noeviction"

_log: Final = logging.getLogger("sluicegate.limiter")


@final
class LimiterStoreWatch:
    """Checks a Redis while the limiter runs.

    `paths` are the time-outs of its connections, and `failures` counts calls that failed.
    """

    __slots__ = (
        "_before",
        "_clock",
        "_failures",
        "_late_us",
        "_logged_us",
        "_paths",
        "_read",
        "_seen",
        "_warned",
        "evicted",
        "health",
    )

    def __init__(
        self,
        read: Callable[[], Awaitable[Mapping[str, Eviction]]] | None = None,
        paths: Callable[[], Sequence[PathTimeout]] = tuple,
        clock: Callable[[], int] = now_us,
        failures: Callable[[], int] = int,
    ) -> None:
        """Without `read` counts are in memory, and there is nothing to check."""
        self._read = read
        self._paths = paths
        self._clock = clock
        self._failures = failures
        self._before = (0, 0, 0)  # answers, late ones and failures at the last tick
        self._late_us = 0
        self.health = OK
        self._seen: Mapping[str, Eviction] = {}
        self._warned: Mapping[str, str] = {}
        self._logged_us = 0
        self.evicted = 0  # keys, since this process started

    async def run(self) -> None:
        """Check until cancelled."""
        left_s = 0.0
        while True:
            self.tick()
            if left_s <= 0:
                await self.look()
                left_s = LOOK_S
            await asyncio.sleep(TICK_S)
            left_s -= TICK_S

    def tick(self) -> None:
        """Judge the health of the store by what happened since the last tick."""
        paths, at_us = self._paths(), self._clock()
        now = (sum(path.answers for path in paths), self.late, self._failures())
        # A path may have gone, with its counts.
        answers, late, failures = (new - old for new, old in zip(now, self._before, strict=True))
        self._before = now
        if late > 0:
            self._late_us = at_us
        if self._late_us and at_us - self._late_us < SLOW_US:
            self.health = SLOW
        elif failures > 0:
            self.health = DOWN
        elif answers > 0:
            self.health = OK

    async def look(self) -> None:
        """Query the servers once; a store that does not answer is reported by its decisions."""
        if self._read is None:
            return
        try:
            now = await self._read()
        except Unavailable:
            return
        for name, one in now.items():
            before = self._seen.get(name)
            # A server that was restarted counts from zero.
            more = one.evicted - before.evicted if before is not None else 0
            self.evicted += more if more >= 0 else one.evicted
            if more > 0:
                self._log_evicted(name, more)
        self._seen = now
        troubles = {name: _trouble(one) for name, one in now.items()}
        for name, trouble in troubles.items():
            if trouble and self._warned.get(name) != trouble:
                _log.warning("%s: %s", name, trouble)
        self._warned = troubles

    def state(self) -> Mapping[str, object]:
        """The part of /v1/state."""
        return {
            "health": self.health,
            "trip_us": self.trip_us,
            "timeout_us": self.timeout_us,
            "late": self.late,
            "evicted": self.evicted,
            "trouble": self.trouble,
            "policies": {name: one.policy for name, one in self._seen.items()},
        }

    @property
    def timeout_us(self) -> int:
        """The longest time-out of a connection now."""
        return max((path.timeout_us for path in self._paths()), default=0)

    @property
    def trip_us(self) -> int:
        """The longest smoothed round trip of a connection, late answers included."""
        return max((path.trip_us for path in self._paths()), default=0)

    @property
    def late(self) -> int:
        """Calls that were answered after their time-out."""
        return sum(path.late for path in self._paths())

    @property
    def trouble(self) -> str:
        """The first problem that an operator should fix, or ""."""
        return next((f"{name}: {text}" for name, text in self._warned.items() if text), "")

    def metrics(self) -> Iterable[MetricFamily]:
        """The metrics of the store's connections and of its evictions."""
        evicts = sum(one.policy not in ("", NO_EVICTION) for one in self._seen.values())
        yield MetricFamily(
            "sluicegate_store_health",
            "gauge",
            "",
            "1 for the state of the store: ok, slow (it answers after the time-out) or down.",
            [
                MetricSample("", (("state", state),), int(state == self.health))
                for state in (OK, SLOW, DOWN)
            ],
        )
        yield gauge(
            "sluicegate_store_answer_seconds",
            "Smoothed round trip of the store, late answers included.",
            self.trip_us / 1e6,
        )
        yield gauge(
            "sluicegate_store_timeout_seconds",
            "Time-out of the store's connections, as learned from their round trips.",
            self.timeout_us / 1e6,
        )
        yield counter(
            "sluicegate_store_late_answers",
            "Calls that the store answered after their time-out: it is slow, not dead.",
            self.late,
        )
        yield gauge(
            "sluicegate_store_evicting",
            "Servers of the store whose maxmemory-policy may drop counters.",
            evicts,
        )
        yield counter(
            "sluicegate_store_evicted_keys",
            "Keys that the store evicted since this worker started.",
            self.evicted,
        )

    def _log_evicted(self, name: str, count: int) -> None:
        at_us = self._clock()
        if not self._logged_us or at_us - self._logged_us >= LOG_EVERY_US:
            self._logged_us = at_us
            _log.error(
                "%s evicted %d keys: limits are not enforced where a counter was dropped; give it "
                "more memory, and set maxmemory-policy noeviction",
                name,
                count,
            )


def _trouble(one: Eviction) -> str:
    if one.problem:
        return f"maxmemory-policy is unknown ({one.problem}); make sure that it is noeviction"
    if not one.policy:
        return "maxmemory-policy is not reported; make sure that it is noeviction"
    if one.policy != NO_EVICTION:
        return (
            f"maxmemory-policy {one.policy} may drop counters, and limits then admit more; run "
            "CONFIG SET maxmemory-policy noeviction, and write it to its configuration file"
        )
    return ""
