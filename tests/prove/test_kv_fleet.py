"""A thousand dispatchers beat in one real Redis, and take a small part of its core.

The time is virtual: in a round each dispatcher beats once, which takes a second in a fleet of this
size. The bound is on CPU time of the server, so the pace of the machine does not matter.
"""

from __future__ import annotations

import asyncio
import resource
from random import Random
from typing import TYPE_CHECKING

import pytest
import redis

from sluicegate.apps.kv.heartbeats import HeartbeatMembers, HeartbeatSettings
from sluicegate.stores.redis.client import open_client
from sluicegate.testing import SeededChance
from tests.prove.seeds import whole as in_full

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

pytestmark = pytest.mark.prove

MEMBERS = 1_000
CALLERS = 100
ROUNDS = 12
ROUND_US = 1_000_000
AT_ONCE = 20  # beats in flight
TRIES_MAX = 20
FILES = 4_096
CORE_MAX = 0.2
# A round may take long here, and no member is gone because of it.
SETTINGS = HeartbeatSettings(gone_us=600_000_000)


class Simulated:
    """One dispatcher: the demand of its callers varies as counts of requests do."""

    def __init__(self, server: RedisServer, number: int, *, demand: bool) -> None:
        self._chance = Random(number)
        self.client = open_client(server.patient_url, SeededChance(number))
        self.members = HeartbeatMembers(
            self.client, f"kv-{number}", demand=demand, settings=SETTINGS
        )

    def next_epoch(self) -> None:
        """A hundred requests of each caller, more or less."""
        draw = self._chance.gauss
        self.members.tell({f"caller-{at}": round(draw(100, 10) * 1_000) for at in range(CALLERS)})


# On a contended core a server takes up to a third more CPU time for the same commands, and with
# demand there is no room for that: the second runs with the full proofs, on an idle machine.
@pytest.mark.parametrize(
    "demand",
    [pytest.param(False, id="leases"), *([pytest.param(True, id="shares")] if in_full() else [])],
)
def test_thousand_dispatchers_take_part_of_redis_core(
    redis_server: RedisServer, demand: bool
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(FILES, hard)), hard))

    async def story() -> None:
        fleet = [Simulated(redis_server, number, demand=demand) for number in range(MEMBERS)]
        try:
            for one in fleet:
                await one.client.connect()
            await rounds(fleet, 6)
            with redis.Redis(port=redis_server.port) as client:
                before_s = cpu_s(client)
                await rounds(fleet, ROUNDS)
                busy = (cpu_s(client) - before_s) / ROUNDS
            seen = [one.members for one in fleet]
            assert {one.every_us for one in seen} == {ROUND_US}
            assert {one.live() for one in seen} == {MEMBERS}
            assert all(len(one.names()) == MEMBERS for one in seen[:10])
            if demand:
                whole = sum(one.demand_mru["caller-7"] for one in seen)
                elsewhere = seen[0].demand_elsewhere_mru()["caller-7"]
                assert elsewhere == pytest.approx(whole * (MEMBERS - 1) / MEMBERS, rel=0.05)
            assert busy < CORE_MAX, f"{busy:.1%} of a core"
        finally:
            for one in fleet:
                await one.client.close()

    asyncio.run(story())


async def rounds(fleet: list[Simulated], count: int) -> None:
    turn = asyncio.Semaphore(AT_ONCE)

    async def beat(one: Simulated) -> None:
        async with turn:
            for _ in range(TRIES_MAX):  # this machine may be too busy for one of them
                if await one.members.beat():
                    return
            raise AssertionError("Redis does not answer")

    for _ in range(count):
        for one in fleet:
            one.next_epoch()
        await asyncio.gather(*(beat(one) for one in fleet))


def cpu_s(client: redis.Redis) -> float:
    """The CPU time of the server so far."""
    found = client.info("cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])
