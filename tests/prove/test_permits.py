"""Interleavings of a protected service and its client: what is admitted ends exactly once.

Requests wait, work, ask a backend with retries and hedges, fail, are cancelled, and are ended twice
by two who both believe that it is theirs to do. All of it on virtual time: the order of what
happens at one instant is drawn, and a seed has the same order again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, final

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.lab.world import World, run
from sluicegate.policies.admission.gate import GatePermit
from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.resilience.client.calls import Call, ResilientClient
from sluicegate.resilience.client.settings import client_settings
from sluicegate.resilience.hosts.group import HostGroup
from sluicegate.resilience.hosts.sources import list_source
from sluicegate.resilience.server.protection import Protection
from sluicegate.resilience.settings import Resilience
from tests.prove.seeds import seeds

REQUESTS: Final = 300
SLOTS: Final = 3
INSTANT_US: Final = 500  # what happens falls on few instants, so that much happens at one
OUTCOMES: Final = tuple(Outcome)
KINDS: Final = tuple(ResultKind)

End = Callable[[Protection, GatePermit, Outcome], bool]


def end_once(protection: Protection, permit: GatePermit, outcome: Outcome) -> bool:
    return protection.end(permit, outcome)


@final
class Episode:
    """One run: a service, its client, and callers who do whatever callers do."""

    def __init__(self, world: World, end: End) -> None:
        self.world = world
        self._end = end
        self._draw = world.chance("callers").draw
        self.slots = SLOTS if self._draw() < 0.7 else 0
        settings = Resilience(slots=self.slots, queue_length=20)
        self.protection = Protection(settings, clock=world.clock, chance=world.chance("server"))
        hedging = {"hedge": {"samples_min": 5, "delay_us_min": INSTANT_US}}
        table = {"retry": {"base_us": INSTANT_US}, "attempt_us": 6 * INSTANT_US, **hedging}
        self.client = ResilientClient(
            client_settings(table),
            HostGroup(
                list_source(["a:1", "b:2", "c:3"]), clock=world.clock, chance=world.chance("hosts")
            ),
            clock=world.clock,
            chance=world.chance("client"),
        )
        self.admitted = self.ended = self.at_work = self.most = 0

    def _instants(self, most: int) -> int:
        return int(self._draw() * (most + 1)) * INSTANT_US

    async def play(self) -> None:
        """All requests, each a task, of which a third is cancelled at some instant."""
        tasks = []
        for number in range(REQUESTS):
            task = asyncio.get_running_loop().create_task(self._one(f"/{number % 4}"))
            tasks.append(task)
            if self._draw() < 0.35:
                asyncio.get_running_loop().call_later(self._instants(12) / 1e6, task.cancel)
            if self._draw() < 0.6:
                await self.world.sleep_us(self._instants(2))
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.world.sleep_us(1_000_000)

    async def _one(self, endpoint: str) -> None:
        now_us = self.world.clock.now_us()
        request = self.protection.begin(
            endpoint,
            now_us,
            left_us=self._instants(40) if self._draw() < 0.5 else -1,
            criticality=Criticality(int(self._draw() * 4)),
        )
        admitted = await self.protection.admit(request, now_us)
        if isinstance(admitted, Decision):
            return
        self.admitted += 1
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        try:
            await self._work()
        finally:
            self.at_work -= 1
            outcome = OUTCOMES[int(self._draw() * len(OUTCOMES))]
            ends = 2 if self._draw() < 0.3 else 1  # the door, and somebody who thinks it is his
            self.ended += sum([self._end(self.protection, admitted, outcome) for _ in range(ends)])

    async def _work(self) -> None:
        for _ in range(int(self._draw() * 3)):
            await asyncio.sleep(0)
        await self.world.sleep_us(self._instants(8))
        if self._draw() < 0.7:
            with contextlib.suppress(Refused, TimeoutError):
                await self.client.call(self._ask, Request("", operation="get"), idempotent=True)
        if self._draw() < 0.1:
            raise RuntimeError("a bug of the service")

    async def _ask(self, call: Call) -> CallResult[object]:
        await self.world.sleep_us(self._instants(8))
        if self._draw() < 0.03:
            raise RuntimeError("a bug of the driver")
        kind = ResultKind.OK if self._draw() < 0.6 else KINDS[int(self._draw() * len(KINDS))]
        return CallResult(kind, None, retry_after_us=INSTANT_US)

    def wrong(self) -> list[str]:
        """What is not as it should be, after the last request."""
        found = []
        if self.ended != self.admitted:
            found.append(f"{self.admitted} were admitted and {self.ended} ended")
        if self.slots and self.most > self.slots:
            found.append(f"{self.most} were at work at once")
        stats = self.protection.stats().gate
        if (stats.inflight, stats.queued, stats.queued_bytes) != (0, 0, 0):
            found.append(f"{stats.inflight} in flight, {stats.queued} queued")
        client = self.client
        assert client.hosts is not None
        assert client.hedge is not None
        held = {
            "retry": client.retry.stats().inflight,
            "breaker": client.breaker.stats().inflight,
            "throttle": client.throttle.stats().inflight,
            "balance": client.hosts.balance.stats().inflight,
            "hedge": client.hedge.stats().running,
        }
        return found + [f"{name} holds {count}" for name, count in held.items() if count]


def play(seed: int, end: End = end_once) -> Episode:
    async def main(world: World) -> Episode:
        episode = Episode(world, end)
        await episode.play()
        return episode

    return run(main, seed).value


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=1_000, part=20))
def test_in_any_interleaving_what_is_admitted_ends_exactly_once(seed: int) -> None:
    episode = play(seed)
    assert episode.wrong() == [], f"seed {seed}"
    assert episode.admitted > REQUESTS // 10, "there was something to end"


def test_one_seed_of_them_ends_everything_exactly_once() -> None:
    assert play(7).wrong() == []


def test_a_door_that_forgets_one_is_found() -> None:
    """The control."""
    known: dict[int, GatePermit] = {}

    def forgetful(protection: Protection, permit: GatePermit, outcome: Outcome) -> bool:
        known.setdefault(id(permit), permit)
        return list(known).index(id(permit)) != 30 and protection.end(permit, outcome)

    assert play(7, forgetful).wrong() != []


def test_a_seed_is_played_the_same_again() -> None:
    first, second = play(7), play(7)
    assert (first.admitted, first.most) == (second.admitted, second.most)
    assert first.client.retry.stats() == second.client.retry.stats()
    assert first.protection.stats() == second.protection.stats()
