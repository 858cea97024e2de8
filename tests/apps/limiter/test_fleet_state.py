"""What limiters on one Redis know of each other's stress, and what they know without it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from sluicegate.apps.limiter.app import SHEDS
from sluicegate.apps.limiter.fleet_state import HEARD_US, FleetState
from sluicegate.contracts.errors import Unavailable
from sluicegate.policies.admission.utilization_gate import OpenGate, Readings, UtilizationGate
from sluicegate.stores.redis.store import RedisStore
from sluicegate.testing import HandClock, SeededChance
from tests.apps.limiter.process import NATIVE, LimiterProcess, rules_file
from tests.engines.child import until

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

CALM = ("", "")
ELSEWHERE = ("DEGRADED_MODE", "")


class BrokenMark:
    """A store that answers while `up`."""

    def __init__(self) -> None:
        self.up = True
        self.word = ""

    async def set(self, text: str, ttl_ms: int) -> None:
        self._check()
        self.word = text

    async def read(self) -> str:
        self._check()
        return self.word

    def _check(self) -> None:
        if not self.up:
            raise Unavailable("Redis", "it is gone")


def words(limiter: LimiterProcess) -> tuple[str, str]:
    answer = limiter.check("ann")
    return answer["cluster_utilization_status"], answer["node_utilization_status"]


def test_one_that_sheds_is_heard_by_the_others_and_forgotten(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    async def shed(limiter: LimiterProcess) -> None:
        store = RedisStore(redis_server.patient_url, SeededChance(1))
        gate = UtilizationGate(SeededChance(1))
        fleet = FleetState(gate, store.mark(SHEDS), "another", HandClock())
        await fleet.tick()
        assert gate.status() == ""
        gate.observe(Readings(cpu=1.0))
        await fleet.tick()
        assert (gate.status(), gate.node_status()) == ("DEGRADED_MODE", "DEGRADED_MODE")
        await asyncio.to_thread(until, lambda: words(limiter) == ELSEWHERE, "it to be heard")
        assert limiter.ask("/v1/state")[1]["fleet"]["sheds"] == "another"
        await store.close()

    rules = rules_file(tmp_path, NATIVE)
    flags = ["--rules", rules, "--store", redis_server.patient_url, "--shed", "off"]
    with LimiterProcess(tmp_path, *flags) as limiter:
        until(lambda: words(limiter) == CALM, "what other tests have said to be forgotten")
        asyncio.run(shed(limiter))
        until(lambda: words(limiter) == CALM, "it to be forgotten")


def test_without_the_store_a_worker_knows_itself_alone() -> None:
    async def story() -> None:
        clock, mark, gate = HandClock(), BrokenMark(), OpenGate()
        fleet = FleetState(gate, mark, "here", clock)
        mark.word = "another"
        await fleet.tick()
        assert gate.status() == "DEGRADED_MODE"
        mark.up = False
        clock.advance(us=HEARD_US - 1)
        await fleet.tick()
        assert gate.status() == "DEGRADED_MODE"
        clock.advance(us=1)
        await fleet.tick()
        assert gate.status() == ""
        assert "it is gone" in str(fleet.state())

    asyncio.run(story())
