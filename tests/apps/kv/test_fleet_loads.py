"""Fleet loads: dispatchers hear of each other's load over a real Redis, and forget who is gone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import redis

from sluicegate.apps.kv.fleet_loads import GONE_US, KEY_DEFAULT, RESOURCES_MAX, FleetLoads
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.policies.admission.gate import Gate, GatePermit
from sluicegate.policies.admission.settings import GateSettings
from sluicegate.stores.redis.client import RedisClient, open_client
from sluicegate.system import SystemClock
from sluicegate.testing import SeededChance

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

CLOCK: Final = SystemClock()
LIVE: Final = 3


class Kin:
    """Dispatchers of one fleet, each with its own gate and client."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._clients: list[RedisClient] = []

    def member(self, name: str, slots: int = 4) -> FleetLoads:
        client = open_client(self._server.patient_url, SeededChance())
        self._clients.append(client)
        gate = Gate(GateSettings(slots=slots))
        return FleetLoads(client, name, gate, CLOCK, SeededChance(), lambda: LIVE)

    async def __aenter__(self) -> Kin:
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            await client.close()


class Deaf:
    """A client of a server that is gone."""

    def run_script(self, *_: object, **__: object) -> asyncio.Future[Any]:
        raise Unavailable("Redis", "gone")


def gate_of(member: FleetLoads) -> Gate:
    return member._gate


def begin(member: FleetLoads, shard: str = "s", *, count: int = 1) -> list[GatePermit]:
    """Start work that nobody has to wait for."""
    permits = []
    for _ in range(count):
        permit = gate_of(member).admit_now(Request("k", shard=shard), CLOCK.now_us())
        assert not isinstance(permit, Decision)
        permits.append(permit)
    return permits


def end(permits: list[GatePermit]) -> None:
    for permit in permits:
        permit.end(Outcome.SUCCESS, CLOCK.now_us())


def limit_of(member: FleetLoads, shard: str = "s") -> int:
    return gate_of(member).resource_named(shard).limit


def left(server: RedisServer) -> dict[str, Any]:
    """Return the sums in the store, and who has told anything."""
    with redis.Redis(port=server.port, decode_responses=True) as client:
        base = f"{{{KEY_DEFAULT}}}"
        return {
            "sum": client.hgetall(f"{base}:sum"),
            "of": sorted(key.rpartition(":")[2] for key in client.keys(f"{base}:of:*")),
        }


def test_slots_in_use_elsewhere_are_not_taken_again(redis_server: RedisServer) -> None:
    async def story() -> None:
        async with Kin(redis_server) as kin:
            one, two = kin.member("one"), kin.member("two")
            begin(two, count=3)
            begin(one, "other")
            assert await two.beat()
            assert await one.beat()
            assert limit_of(one) == 1  # of four, three are in use
            assert limit_of(two) == 4  # one is free, as far as it has heard
            assert left(redis_server)["sum"] == {"s\0" + "0": "3", "other\0" + "0": "1"}

    asyncio.run(story())


def test_a_slot_that_comes_free_goes_to_the_more_important_work(redis_server: RedisServer) -> None:
    """Both wait for one slot: BULK here, CRITICAL there."""

    async def story() -> None:
        async with Kin(redis_server) as kin:
            one, two = kin.member("one", 1), kin.member("two", 1)
            working = begin(one)
            waiting = [
                asyncio.ensure_future(
                    gate_of(member).admit(Request("k", shard="s", criticality=of), CLOCK)
                )
                for member, of in ((one, Criticality.BULK), (two, Criticality.CRITICAL))
                for _ in range(5)
            ]
            gate_of(two).set_limit(gate_of(two).resource_named("s"), 0, CLOCK.now_us())
            await asyncio.sleep(0)
            for _ in range(3):
                for member in (one, two):
                    await member.beat()
            end(working)
            await asyncio.sleep(0)
            assert gate_of(one).inflight == 0  # its own BULK does not take the slot
            for member in (one, two):
                await member.beat()
            await asyncio.sleep(0)
            assert (gate_of(one).inflight, gate_of(two).inflight) == (0, 1)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(story())


def test_who_is_gone_holds_nothing(redis_server: RedisServer) -> None:
    async def story() -> None:
        async with Kin(redis_server) as kin:
            one, two = kin.member("one"), kin.member("two")
            begin(two, count=4)
            await two.beat()  # and never again
            begin(one)
            await one.beat()
            assert limit_of(one) <= 1
            await asyncio.sleep(GONE_US / 1e6 + 0.1)
            await one.beat()
            assert limit_of(one) == 4
            assert left(redis_server) == {"sum": {"s\0" + "0": "1"}, "of": ["one"]}
            await one._leave()
            assert left(redis_server) == {"sum": {}, "of": []}

    asyncio.run(story())


def test_one_leads_until_it_is_gone_and_all_follow_its_limit(redis_server: RedisServer) -> None:
    """The slots are unknown, and only the leader's limit counts."""

    async def story() -> None:
        async with Kin(redis_server) as kin:
            one, two = kin.member("one", 0), kin.member("two", 0)
            begin(one)
            begin(two)
            for member in (one, two):
                await member.beat()
            assert (one._leads, two._leads) == (True, False)
            part = one.share._parts["s"]
            assert part.found is not None
            part.found._found.follow(3)
            part.slots = 3
            for member in (one, two):
                await member.beat()
            assert limit_of(two) == 2  # its own unit, and one free slot
            two._leads = True  # it is wrong: its limits do not count
            two.share._parts["s"].slots = 1
            await two.beat()
            assert two.share.found() == {"s": 3}
            await one._leave()
            await two.beat()
            assert two._leads
            await two.beat()
            assert two.share.found() == {"s": 3}

    asyncio.run(story())


def test_repeated_beat_counts_once_and_an_emptied_store_hears_again(
    redis_server: RedisServer,
) -> None:
    async def story() -> None:
        async with Kin(redis_server) as kin:
            one, two = kin.member("one"), kin.member("two")
            begin(two, count=2)
            begin(one)
            for _ in range(3):
                await two.beat()
            await one.beat()
            assert limit_of(one) == 2
            with redis.Redis(port=redis_server.port) as client:
                client.flushall()
            for member in (two, one):
                await member.beat()
            assert limit_of(one) == 2

    asyncio.run(story())


def test_without_an_answer_each_has_an_equal_part() -> None:
    async def story() -> None:
        gate = Gate(GateSettings(slots=6))
        one = FleetLoads(Deaf(), "one", gate, CLOCK, SeededChance(), lambda: LIVE)  # type: ignore[arg-type]
        begin(one)
        assert not await one.beat()
        assert limit_of(one) == 2
        assert one.failures == 1

    asyncio.run(story())


def test_who_is_idle_or_alone_sends_nothing() -> None:
    async def story() -> None:
        gate = Gate(GateSettings(slots=6))
        idle = FleetLoads(Deaf(), "one", gate, CLOCK, SeededChance(), lambda: LIVE)  # type: ignore[arg-type]
        idle._admitted = 0
        assert await idle.beat()
        alone = FleetLoads(Deaf(), "one", gate, CLOCK, SeededChance(), lambda: 1)  # type: ignore[arg-type]
        begin(alone)
        assert await alone.beat()
        assert limit_of(alone) == 6

    asyncio.run(story())


def test_a_beat_of_many_shards_is_bounded(redis_server: RedisServer) -> None:
    async def story() -> None:
        async with Kin(redis_server) as kin:
            one, two = kin.member("one"), kin.member("two")
            for number in range(3 * RESOURCES_MAX):
                begin(one, f"s{number}")
            begin(two, "s1", count=3)
            for member in (one, two):
                assert await member.beat()
            assert len(left(redis_server)["sum"]) == RESOURCES_MAX
            assert limit_of(two, "s1") == 3

    asyncio.run(story())
