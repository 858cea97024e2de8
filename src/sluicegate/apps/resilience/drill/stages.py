"""Stages: what the service is put through, in order; `verdicts.py` judges each.

    calm         half of its capacity; if that fails, no later stage can be judged
    overload     1, 2 and 5 times its capacity
    recovery     calm again after the overload, within `recover_us_max`
    leaks        calm again: memory and files must not grow
    slow         its dependency answers late
    dead         its dependency resets every connection
    return       the dependency is back: answered again within `recover_us_max`

A stage that breaks does not end the drill, except for the calm one and a service that has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
from sluicegate.apps.resilience.drill.settings import (
    DEPENDENCY,
    OVERLOAD,
    SLICE_US,
    DrillSettings,
)
from sluicegate.apps.resilience.drill.usage import Usage, usage_of
from sluicegate.apps.resilience.drill.verdicts import (
    BACK_GOOD,
    ENDED,
    RECOVERY,
    DrillResult,
    HealthWatch,
    StageFinding,
    StageResult,
    calm_findings,
    dependency_findings,
    leak_findings,
    overload_findings,
)
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.system import now_us

_SECOND_US: Final = 1_000_000
_CALM: Final = 0.5
_SETTLED_IN_ROW: Final = 5
_BESIDE_RATE: Final = 20.0
_CAPACITY_SLICE_US: Final = 500_000
_RAISES_MAX: Final = 5
_CONNECT_S_MAX: Final = 0.5  # a full backlog is no end
_REST_S: Final = 0.1  # between two looks at open files
_RESTS_MAX: Final = 20


class Service(NamedTuple):
    """The service under drill: how it has ended, if it has, and its session in /proc."""

    ending: Callable[[], str]
    session: int | None = None


@final
class ServiceEndedError(Exception):
    """The service has ended; `record` is that of the stage."""

    def __init__(self, ending: str, record: DrillRecord) -> None:
        super().__init__(ending)
        self.record = record


@final
class ServiceDrill:
    """Plays the stages."""

    def __init__(
        self,
        url: LoopbackUrl,
        settings: DrillSettings,
        proxy: FaultProxy | None,
        service: Service,
        progress: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._url = url
        self._path = url.path
        self._proxy = proxy
        self._service = service
        self._progress = progress
        expect = settings.expect.encode()
        self._caller = HttpCaller(url.host, url.port, settings.patience_us, expect)
        self._beside = HttpCaller(url.host, url.port, settings.patience_us)
        self._has_health = False
        self._stage = ""
        self._result = DrillResult()

    async def play(self) -> DrillResult:
        """Play all of them."""
        try:
            await self._until_ready()
            self._check_proxy()
            await self._play()
        except ServiceEndedError as error:
            finding = StageFinding(ENDED, str(error))
            self._add(self._stage, error.record, "its process did not survive", [finding])
            self._result.untried.append("every later stage: the service has ended")
        finally:
            self._caller.close()
            self._beside.close()
        return self._result

    async def _play(self) -> None:
        result, settings = self._result, self._settings
        self._has_health = await self._answers(settings.health)
        if not self._has_health:
            result.untried.append(f"health: {settings.health} is not there (--health PATH)")
        self._stage = "search for its capacity"
        result.capacity = await self._capacity()
        if result.capacity <= 0:
            raise Unavailable(
                "the service", f"it answers nothing on {self._path} with success in time"
            )
        if not await self._calm():
            return
        if settings.parts != DEPENDENCY:
            if not await self._overloads():
                return
            await self._recovery("after overload")
            await self._leaks()
        if settings.parts == OVERLOAD:
            return
        if self._proxy is None:
            result.untried.append("a slow and a dead dependency: name one with --dependency")
            return
        await self._dependency(self._proxy, SLOW)
        await self._dependency(self._proxy, DEAD)
        self._proxy.switch(PASS)
        await self._recovery("dependency is back")

    async def _until_ready(self) -> None:
        end_us = now_us() + self._settings.start_us_max
        while True:
            ending = self._service.ending()
            if ending:
                raise Unavailable("the service", ending)
            try:
                status, expected = await self._caller.ask(self._path)
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
                if not expected:
                    text = self._settings.expect
                    remedy = f"give text of a good answer: that of {self._path} lacks it"
                    raise BadValue("--expect", text, remedy)
                return

    def _check_proxy(self) -> None:
        if self._proxy is not None and self._proxy.connections == 0:
            raise BadValue(
                "--dependency",
                "an unused proxy",
                "let the service call {dependency} (or SLUICEGATE_DRILL_DEPENDENCY) for this path",
            )

    async def _check_alive(self, record: DrillRecord | None = None) -> None:
        """Raise `ServiceEndedError` if its process has ended, or nothing listens any more."""
        ending = self._service.ending()
        if not ending:
            try:
                async with asyncio.timeout(_CONNECT_S_MAX):
                    _, writer = await asyncio.open_connection(self._url.host, self._url.port)
                writer.close()
            except ConnectionRefusedError:
                ending = self._service.ending() or "nothing listens on its port any more"
            except OSError:
                pass
        if ending:
            raise ServiceEndedError(ending, DrillRecord() if record is None else record)

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
                await self._check_alive()
            else:
                in_row = in_row + 1 if now_us() - begun_us < self._settings.patience_us / 2 else 0

    async def _answers(self, path: str) -> bool:
        try:
            return 200 <= (await self._beside.ask(path)).status < 300
        except (OSError, EOFError):
            return False

    def _rate(self, times: float) -> float:
        return min(self._result.capacity * times, float(self._settings.rate_max))

    async def _send(self, times: float, span_us: int = 0) -> DrillRecord:
        await self._check_alive()
        record = await send_at(
            lambda: self._caller.ask(self._path),
            self._rate(times),
            span_us or self._settings.span_us,
        )
        await self._check_alive(record)
        return record

    def _usage(self) -> Usage | None:
        session = self._service.session
        return None if session is None else usage_of(session)

    def _add(
        self, name: str, record: DrillRecord, words: str, findings: list[StageFinding]
    ) -> None:
        if record.doubtful:
            words += (
                f" (doubtful: the drill itself was {record.busy:.0%} busy, sent up to "
                f"{record.late_us / 1_000:.0f} ms late, left {record.unsent:,} unsent)"
            )
        self._result.stages.append(StageResult(name, record, words, tuple(findings)))
        self._progress(f"{name}: {'BROKE' if findings else 'held'}")

    async def _capacity(self) -> float:
        await self._check_alive()
        slice_us = min(_CAPACITY_SLICE_US, self._settings.span_us // 4)
        found = await find_capacity(self._caller, self._path, slice_us, self._progress)
        await self._check_alive()
        return found

    async def _calm(self) -> bool:
        """Return whether it held; no later stage means anything if not."""
        self._stage = f"calm, {self._rate(_CALM) / self._result.capacity:.2g} x"
        await self._settle()
        self._progress("calm: half of its capacity")
        record = await self._send(_CALM)
        good = record.share(len(record.good_us))
        findings = calm_findings(record)
        self._add(self._stage, record, f"{good:.1%} of requests were answered", findings)
        if findings:
            self._result.untried.append("every later stage: the calm one must hold first")
        return not findings

    async def _overloads(self) -> bool:
        """Play each; all again where it does more than the search has found."""
        result, untried = self._result, [*self._result.untried]
        for _ in range(_RAISES_MAX):
            goodput = await self._overloads_once()
            if goodput <= GROWTH * result.capacity:
                break
            self._progress(f"it can do more than was found: {goodput:,.0f} answered a second")
            result.capacity, result.untried = max(goodput, await self._capacity()), [*untried]
            result.stages.clear()
            if not await self._calm():
                return False
        return True

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
        self._stage = f"overload, {rate / self._result.capacity:.2g} x"
        self._progress(f"overload: {times:g} x its capacity, {rate:,.0f} requests a second")
        took_us: list[int] = []
        watch = asyncio.create_task(self._watch_health(took_us))
        before, began_us = self._usage(), now_us()
        try:
            record = await self._send(times)
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
        passed_us, after = max(now_us() - began_us, 1), self._usage()
        cpu = None if before is None or after is None else after.busiest(before, passed_us)
        wanted = min(rate, self._result.capacity)
        health = HealthWatch(self._settings.health, took_us) if self._has_health else None
        findings = overload_findings(record, wanted, self._settings, health, cpu)
        asked = "it can do" if rate >= self._result.capacity else "was asked"
        words = f"it answered {record.goodput / wanted:.0%} of what {asked} in time"
        self._add(self._stage, record, words, findings)
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
        self._stage = name
        self._progress(f"{name}: calm again")
        began_us, whole, us_max = now_us(), DrillRecord(), self._settings.recover_us_max
        while True:
            slice_us = now_us()
            record = await self._send(_CALM, SLICE_US)
            whole.add(record)
            if record.share(len(record.good_us)) >= BACK_GOOD:
                took_us = slice_us - began_us
                words = "it answers again" + (
                    f" after {took_us / 1e6:.1f} s" if took_us >= SLICE_US else " at once"
                )
                self._add(name, whole, words, [])
                return
            if now_us() - began_us > us_max:
                good = record.share(len(record.good_us))
                words = f"after {us_max / 1e6:g} s of half load it answers {good:.0%}"
                self._add(name, whole, "it stays down", [StageFinding(RECOVERY, words)])
                return

    async def _leaks(self) -> None:
        """Compare memory and files before, between and after two halves of calm load."""
        if self._usage() is None:
            self._result.untried.append("leaks and CPU: they need CMD and Linux")
            return
        self._stage = "leaks"
        await self._settle()
        self._progress("leaks: calm, and what grows")
        whole, samples = DrillRecord(), [await self._usage_at_rest()]
        for _ in range(2):
            whole.add(await self._send(_CALM, self._settings.span_us // 2))
            samples.append(await self._usage_at_rest())
        known = [one for one in samples if one is not None]
        findings = leak_findings(known, whole.sent)
        words = "it grows with every request" if findings else "it keeps nothing"
        self._add("leaks", whole, words, findings)

    async def _usage_at_rest(self) -> Usage | None:
        """Read it once the connections of the drill are closed at the other end too."""
        self._caller.close()
        self._beside.close()
        last = self._usage()
        for _ in range(_RESTS_MAX):
            await asyncio.sleep(_REST_S)
            now = self._usage()
            if now is None or (last is not None and now.files == last.files):
                return now
            last = now
        return last

    async def _dependency(self, proxy: FaultProxy, mode: str) -> None:
        self._stage = f"dependency {mode}"
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
        words = f"{record.share(len(record.good_us)):.0%} answered, {hung:.0%} of callers hung up"
        if other is not None:
            good = other.share(len(other.good_us))
            words += f"; {self._settings.beside} next to it: {good:.0%} answered"
        findings = dependency_findings(record, other, self._settings)
        self._add(self._stage, record, words, findings)
