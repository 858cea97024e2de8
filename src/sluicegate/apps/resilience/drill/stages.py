"""Stages: what the service is put through, in their order, and what is judged of each.

    calm         half of what it can do: everything is answered, or nothing else means anything
    overload     1, 2 and 5 times what it can do: it goes on answering what it can do
    recovery     calm again after the overload: answered again within `recover_us_max`
    slow         its dependency answers late: who asks is told something before he hangs up
    dead         its dependency resets every connection: the same
    return       the dependency is back: answered again within `recover_us_max`

A stage that breaks does not end the drill; only a service that has ended does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, final

from sluicegate.apps.resilience.drill.caller import HttpCaller, LoopbackUrl
from sluicegate.apps.resilience.drill.load import (
    GOOD,
    GROWTH,
    DrillRecord,
    find_capacity,
    send_at,
)
from sluicegate.apps.resilience.drill.proxy import DEAD, PASS, SLOW, FaultProxy
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.kernels.bounds import ranged
from sluicegate.policies.settings import check_ranges, one_of, part_of
from sluicegate.system import now_us

OVERLOADS: Final = (1.0, 2.0, 5.0)
OVERLOADS_MAX: Final = 10
TIMES_MAX: Final = 100.0
OVERLOAD: Final = "overload"
DEPENDENCY: Final = "dependency"
BOTH: Final = "both"
_SECOND_US: Final = 1_000_000
_CALM: Final = 0.5
_CALM_GOOD: Final = 0.99
_BACK_GOOD: Final = 0.95
_SETTLED_IN_ROW: Final = 5
_BESIDE_RATE: Final = 20.0
_SLICE_US: Final = 500_000
_CAPACITY_SLICE_US: Final = 500_000
_RAISES_MAX: Final = 5


@final
@dataclass(frozen=True, kw_only=True)
class DrillSettings:
    """How long, how much, and what is still well."""

    span_us: int = ranged(4 * _SECOND_US, 200_000, 60 * _SECOND_US)
    patience_us: int = ranged(500_000, 10_000, 30 * _SECOND_US)
    start_us_max: int = ranged(15 * _SECOND_US, _SECOND_US, 120 * _SECOND_US)
    recover_us_max: int = ranged(2 * _SECOND_US, _SLICE_US, 60 * _SECOND_US)
    health_us_max: int = ranged(100_000, 1_000, 30 * _SECOND_US)
    rate_max: int = ranged(3_000, 1, 100_000)
    goodput_min: float = 0.7  # of what it can do
    hung_max: float = 0.05  # of what is asked while a dependency fails
    beside_min: float = 0.99  # of paths that need no dependency
    health: str = "/healthz"
    beside: str = ""
    times: tuple[float, ...] = OVERLOADS
    parts: str = BOTH

    def __post_init__(self) -> None:
        check_ranges("drill", self)
        one_of("drill.parts", self.parts, (BOTH, OVERLOAD, DEPENDENCY))
        if len(self.times) > OVERLOADS_MAX:
            raise BadValue("drill.times", self.times, f"give at most {OVERLOADS_MAX}")
        for times in self.times:
            part_of("drill.times", times, 0.1, TIMES_MAX)
        part_of("drill.goodput_min", self.goodput_min, 0.0, 1.0)


class StageResult(NamedTuple):
    """One row: what was sent, what became of it, whether it held, and what that means."""

    name: str
    record: DrillRecord
    held: bool
    words: str


@final
@dataclass
class DrillResult:
    """The whole drill."""

    capacity: float = 0.0
    stages: list[StageResult] = field(default_factory=list)
    untried: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether nothing broke."""
        return all(stage.held for stage in self.stages)


@final
class ServiceDrill:
    """Plays the stages; `alive` raises once the service has ended."""

    def __init__(
        self,
        url: LoopbackUrl,
        settings: DrillSettings,
        proxy: FaultProxy | None,
        alive: Callable[[], None],
        progress: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._path = url.path
        self._proxy = proxy
        self._alive = alive
        self._progress = progress
        self._caller = HttpCaller(url.host, url.port, settings.patience_us)
        self._beside = HttpCaller(url.host, url.port, settings.patience_us)
        self._has_health = False
        self._result = DrillResult()

    async def play(self) -> DrillResult:
        """Play all of them."""
        result, settings = self._result, self._settings
        try:
            await self._until_ready()
            self._check_proxy()
            self._has_health = await self._answers(settings.health)
            if not self._has_health:
                result.untried.append(f"health: {settings.health} is not there (--health PATH)")
            result.capacity = await self._capacity()
            if result.capacity <= 0:
                raise Unavailable(
                    "the service", f"it answers nothing on {self._path} with success in time"
                )
            await self._calm()
            if settings.parts != DEPENDENCY:
                await self._overloads()
                await self._recovery("after overload")
            if settings.parts == OVERLOAD:
                pass
            elif self._proxy is None:
                result.untried.append("a slow and a dead dependency: name one with --dependency")
            else:
                await self._dependency(self._proxy, SLOW)
                await self._dependency(self._proxy, DEAD)
                self._proxy.switch(PASS)
                await self._recovery("dependency is back")
            return result
        finally:
            self._caller.close()
            self._beside.close()

    async def _until_ready(self) -> None:
        end_us = now_us() + self._settings.start_us_max
        while True:
            self._alive()
            try:
                status = await self._caller.ask(self._path)
            except (OSError, EOFError) as error:
                if now_us() >= end_us:
                    seconds = self._settings.start_us_max / _SECOND_US
                    raise Unavailable(
                        "the service", f"no answer on {self._path} within {seconds:g} s ({error})"
                    ) from None
                await asyncio.sleep(0.1)
            else:
                if status not in GOOD:
                    raise Unavailable(
                        "the service", f"it answers {status} on {self._path}; ask what succeeds"
                    )
                return

    def _check_proxy(self) -> None:
        if self._proxy is not None and self._proxy.connections == 0:
            raise BadValue(
                "--dependency",
                "an unused proxy",
                "let the service call {dependency} (or SLUICEGATE_DRILL_DEPENDENCY) for this path",
            )

    async def _settle(self) -> None:
        """Wait until it is through with what the search for its capacity has left there."""
        self._progress("settling")
        end_us, in_row = now_us() + self._settings.start_us_max, 0
        while in_row < _SETTLED_IN_ROW and now_us() < end_us:
            begun_us = now_us()
            try:
                await self._caller.ask(self._path)
            except (OSError, EOFError):
                in_row = 0
            else:
                in_row = in_row + 1 if now_us() - begun_us < self._settings.patience_us / 2 else 0

    async def _answers(self, path: str) -> bool:
        try:
            return 200 <= await self._beside.ask(path) < 300
        except (OSError, EOFError):
            return False

    def _rate(self, times: float) -> float:
        return min(self._result.capacity * times, float(self._settings.rate_max))

    async def _send(self, times: float, span_us: int = 0) -> DrillRecord:
        self._alive()
        record = await send_at(
            lambda: self._caller.ask(self._path),
            self._rate(times),
            span_us or self._settings.span_us,
        )
        self._alive()
        return record

    def _add(self, name: str, record: DrillRecord, held: bool, words: str) -> None:
        if record.doubtful:
            words += (
                f" (doubtful: the drill itself was {record.busy:.0%} busy, sent up to "
                f"{record.late_us / 1_000:.0f} ms late, left {record.unsent:,} unsent)"
            )
        self._result.stages.append(StageResult(name, record, held, words))
        self._progress(f"{name}: {'held' if held else 'BROKE'}")

    async def _capacity(self) -> float:
        slice_us = min(_CAPACITY_SLICE_US, self._settings.span_us // 4)
        return await find_capacity(self._caller, self._path, slice_us, self._progress)

    async def _calm(self) -> None:
        await self._settle()
        self._progress("calm: half of its capacity")
        record = await self._send(_CALM)
        good = record.share(len(record.good_us))
        held, words = good >= _CALM_GOOD, f"{good:.1%} of requests were answered"
        if not held and record.refused_us:
            words += (
                f", and {record.share(len(record.refused_us)):.0%} refused: a quota may take the "
                "drill for one caller; raise it for the drill"
            )
        self._add(f"calm, {self._rate(_CALM) / self._result.capacity:.2g} x", record, held, words)

    async def _overloads(self) -> None:
        """Play each; all of them anew where it does more than the search has found."""
        result, untried = self._result, [*self._result.untried]
        for _ in range(_RAISES_MAX):
            goodput = await self._overloads_once()
            if goodput <= GROWTH * result.capacity:
                break
            self._progress(f"it can do more than was found: {goodput:,.0f} answered a second")
            result.capacity, result.untried = max(goodput, await self._capacity()), [*untried]
            result.stages.clear()
            await self._calm()

    async def _overloads_once(self) -> float:
        """Return the most that was answered in time, a second; the first that is too much ends."""
        reached = most = 0.0
        for times in self._settings.times:
            if self._rate(times) <= reached:
                self._result.untried.append(f"{times:g} x its capacity: it is above --rate-max")
                continue
            reached = self._rate(times)
            most = max(most, await self._overload(times))
            if most > GROWTH * self._result.capacity:
                break
        if self._settings.rate_max < self._result.capacity:
            most_asked = f"it can do more than --rate-max {self._settings.rate_max:,} a second"
            self._result.untried.append(f"overload: {most_asked}")
        return most

    async def _overload(self, times: float) -> float:
        rate = self._rate(times)
        self._progress(f"overload: {times:g} x its capacity, {rate:,.0f} requests a second")
        health: list[int] = []
        watch = asyncio.create_task(self._watch_health(health))
        try:
            record = await self._send(times)
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
        wanted = min(rate, self._result.capacity)
        share = record.goodput / wanted
        asked = "it can do" if rate >= self._result.capacity else "was asked"
        words = f"it answered {share:.0%} of what {asked} in time"
        held = share >= self._settings.goodput_min
        if not held:
            words += (
                f"; {record.share(record.hung):.0%} of callers hung up without an answer: "
                "it works on what nobody waits for any more"
                if record.hung > len(record.refused_us)
                else "; it spends itself on refusing or failing"
            )
        if health and self._has_health:
            worst_us = max(health)
            if worst_us > self._settings.health_us_max:
                held = False
                words += f"; {self._settings.health} took {worst_us / 1_000:.0f} ms, so whoever "
                words += "checks it would take the service for dead"
        reached = rate / self._result.capacity
        self._add(f"overload, {reached:.2g} x", record, held, words)
        return record.goodput

    async def _watch_health(self, took_us: list[int]) -> None:
        while self._has_health:
            began_us = now_us()
            try:
                await self._beside.ask(self._settings.health)
            except (OSError, EOFError):
                took_us.append(max(now_us() - began_us, self._settings.patience_us))
            else:
                took_us.append(now_us() - began_us)
            await asyncio.sleep(0.1)

    async def _recovery(self, name: str) -> None:
        self._progress(f"{name}: calm again")
        began_us, whole, us_max = now_us(), DrillRecord(), self._settings.recover_us_max
        while True:
            slice_us = now_us()
            record = await self._send(_CALM, _SLICE_US)
            _merge(whole, record)
            if record.share(len(record.good_us)) >= _BACK_GOOD:
                took_us = slice_us - began_us
                words = "it answers again" + (
                    f" after {took_us / 1e6:.1f} s" if took_us >= _SLICE_US else " at once"
                )
                self._add(name, whole, True, words)
                return
            if now_us() - began_us > us_max:
                words = f"it does not answer {_BACK_GOOD:.0%} again within {us_max / 1e6:g} s"
                self._add(name, whole, False, words)
                return

    async def _dependency(self, proxy: FaultProxy, mode: str) -> None:
        self._progress(f"its dependency is {mode}")
        proxy.switch(mode)
        beside: asyncio.Task[DrillRecord] | None = None
        if self._settings.beside:
            path = self._settings.beside
            beside = asyncio.create_task(
                send_at(lambda: self._beside.ask(path), _BESIDE_RATE, self._settings.span_us)
            )
        try:
            record = await self._send(_CALM)
            other = None if beside is None else await beside
        finally:
            if beside is not None:
                beside.cancel()
        hung = record.share(record.hung)
        held = hung <= self._settings.hung_max
        words = f"{record.share(len(record.good_us)):.0%} answered, {hung:.0%} of callers hung up"
        if not held:
            words += ": it waits for its dependency for longer than its callers wait for it"
        if other is not None:
            good = other.share(len(other.good_us))
            words += f"; {self._settings.beside}, beside it: {good:.0%} answered"
            if good < self._settings.beside_min:
                held = False
                words += ", so what needs no dependency goes down with what does"
        self._add(f"dependency {mode}", record, held, words)


def _merge(whole: DrillRecord, record: DrillRecord) -> None:
    whole.good_at_us += [whole.span_us + at_us for at_us in record.good_at_us]
    whole.span_us += record.span_us
    whole.sent += record.sent
    whole.good_us += record.good_us
    whole.refused_us += record.refused_us
    whole.errors += record.errors
    whole.hung += record.hung
    whole.unsent += record.unsent
    whole.busy = max(whole.busy, record.busy)
    whole.late_us = max(whole.late_us, record.late_us)
