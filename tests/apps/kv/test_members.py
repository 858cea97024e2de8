"""Members: who beats is alive, who stops is gone in seconds, who pauses comes back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.apps.kv.heartbeats import HeartbeatMembers, HeartbeatSettings
from sluicegate.apps.kv.members import SHARE_ONE, StaticMembers, demand_shares
from sluicegate.apps.kv.quota_leases import QuotaLeases
from sluicegate.apps.kv.quotas import needs_demand
from sluicegate.apps.kv.settings import KvSettings
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.policies.quota.leased_budget import LeasedBudget, LeasedBudgetSettings
from sluicegate.service.settings import settings_from
from sluicegate.stores.redis.client import RedisClient, open_client
from sluicegate.stores.redis.store import RedisStore
from sluicegate.system import SystemClock
from sluicegate.testing import SeededChance

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

SOON = HeartbeatSettings(every_us=100_000, gone_us=400_000)


class Fleet:
    """Members as a test wants them."""

    def __init__(self, own: dict[str, int], others: list[dict[str, int]]) -> None:
        self.demand_mru: Any = own
        self._others = others

    def live(self) -> int:
        return 1 + len(self._others)

    def names(self) -> list[str]:
        return []

    def demand_elsewhere_mru(self) -> dict[str, int]:
        sums: Counter[str] = Counter()
        for one in self._others:
            sums.update(one)
        return dict(sums)

    def tell(self, demand_mru: Any) -> None:
        self.demand_mru = demand_mru


class Deaf:
    """A client of a server that is gone."""

    def run_script(self, *_: object, **__: object) -> asyncio.Future[Any]:
        raise Unavailable("Redis", "gone")

    call = run_script


def test_a_number_or_a_list_is_what_somebody_wrote_down() -> None:
    assert StaticMembers(3).live() == 3
    assert StaticMembers(["a", "b", "a"], "b").names() == ["b", "a"]
    with pytest.raises(BadValue, match="name this one too"):
        StaticMembers(["a", "b"], "c")
    with pytest.raises(BadValue):
        StaticMembers(0)
    with pytest.raises(BadValue):
        StaticMembers([])


def test_shares_follow_demand_and_add_up_to_one() -> None:
    views = [({"x": 900}, [{"x": 100}, {}]), ({"x": 100}, [{"x": 900}, {}]), ({}, [{"x": 900}] * 1)]
    first = demand_shares(Fleet(*views[0]), lambda _: 1_000)["x"]
    second = demand_shares(Fleet(*views[1]), lambda _: 1_000)["x"]
    third = demand_shares(Fleet({}, [{"x": 900}, {"x": 100}]), lambda _: 1_000)["x"]
    assert first > 0.85 * SHARE_ONE
    assert third > 0  # who begins there is not refused
    assert SHARE_ONE - 3 <= first + second + third <= SHARE_ONE


def test_while_nobody_answers_the_last_that_was_heard_stands() -> None:
    async def story() -> None:
        one = HeartbeatMembers(Deaf(), "one")  # type: ignore[arg-type]
        one._names, one._live = ["two"], 2
        assert not await one.beat()
        assert (one.live(), one.names()) == (2, ["one", "two"])
        assert one.stats().failing
        assert one.stats().failures == 1
        await one.leave()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("some", "field"),
    [
        ({"every_us": 0}, "members.every_us"),
        ({"every_us": 100_000, "gone_us": 150_000}, "members.gone_us"),
        ({"report_bytes_max": 1}, "members.report_bytes_max"),
        ({"changes_max": 0}, "members.changes_max"),
        ({"members_max": 0}, "members.members_max"),
    ],
)
def test_wrong_settings_are_refused_by_name(some: dict[str, int], field: str) -> None:
    with pytest.raises(BadValue) as caught:
        HeartbeatSettings(**some)  # type: ignore[arg-type]
    assert caught.value.field == field


def test_a_name_has_bytes_but_not_too_many() -> None:
    for name in ("", "x" * 241):
        with pytest.raises(BadValue):
            HeartbeatMembers(Deaf(), name)  # type: ignore[arg-type]


async def until(condition: Callable[[], bool], one: HeartbeatMembers) -> None:
    for _ in range(200):
        await one.beat()
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"it did not come to pass; there are {one.names()}")


class Kin:
    """Members of one fleet on a real Redis, each with its own client."""

    def __init__(self, server: RedisServer, **settings: Any) -> None:
        self._server = server
        self._settings = replace(SOON, **settings)
        self._clients: list[RedisClient] = []

    def member(self, name: str, **more: Any) -> HeartbeatMembers:
        client = open_client(self._server.patient_url, SeededChance())
        self._clients.append(client)
        return HeartbeatMembers(client, name, settings=self._settings, **more)

    async def __aenter__(self) -> Kin:
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            await client.close()


def keys_left(server: RedisServer) -> dict[str, Any]:
    """Return the sums, and the members that have a report."""
    with redis.Redis(port=server.port, decode_responses=True) as client:
        base = f"{{{SOON.key}}}"
        return {
            "demand": client.hgetall(f"{base}:demand"),
            "of": sorted(key.rpartition(":")[2] for key in client.keys(f"{base}:of:*")),
        }


def test_who_joins_leaves_dies_and_pauses_is_seen(redis_server: RedisServer) -> None:
    async def story() -> None:
        async with Kin(redis_server) as kin:
            one, two, three = (kin.member(name) for name in ("one", "two", "three"))
            await one.beat()
            assert one.live() == 1
            for other in (two, three, one):
                await other.beat()
            assert one.live() == 3
            assert sorted(one.names()) == ["one", "three", "two"]
            await two.leave()
            await one.beat()
            assert one.names() == ["one", "three"]
            await until(lambda: one.live() == 1, one)  # three says nothing more
            await three.beat()  # it was only paused
            await one.beat()
            assert one.names() == ["one", "three"]

    asyncio.run(story())


def test_sums_follow_reports_and_forget_who_is_gone(redis_server: RedisServer) -> None:
    async def story() -> None:
        async with Kin(redis_server) as kin:
            one, two, three = (kin.member(name) for name in ("one", "two", "three"))
            one.tell({"a": 1_000, "c": 70})
            two.tell({"a": 200, "b": 5})
            three.tell({"a": 30})
            for member in (one, two, three, one):
                await member.beat()
            assert one.demand_elsewhere_mru() == {"a": 230, "b": 5}
            two.tell({"a": 400})  # and nothing of b
            await two.beat()
            await one.beat()
            assert one.demand_elsewhere_mru() == {"a": 430}
            await until(lambda: one.live() == 1, one)
            assert one.demand_elsewhere_mru() == {}
            assert keys_left(redis_server) == {
                "demand": {"a": "1000", "c": "70"},
                "of": ["one"],
            }
            await one.leave()
            assert keys_left(redis_server) == {"demand": {}, "of": []}

    asyncio.run(story())


def test_emptied_store_gets_whole_reports_again(redis_server: RedisServer) -> None:
    async def story() -> None:
        async with Kin(redis_server) as kin:
            one, two = kin.member("one"), kin.member("two")
            two.tell({"a": 100, "b": 200})
            await two.beat()
            with redis.Redis(port=redis_server.port) as client:
                client.flushall()
            for member in (two, two, one):
                await member.beat()
            assert one.demand_elsewhere_mru() == {"a": 100, "b": 200}

    asyncio.run(story())


def test_repeated_beat_counts_its_report_once(redis_server: RedisServer) -> None:
    async def story() -> None:
        async with Kin(redis_server) as kin:
            one, two = kin.member("one"), kin.member("two")
            two.tell({"a": 100})
            await two.beat()
            two._told.clear()  # as if the answer had been lost
            for member in (two, one):
                await member.beat()
            assert one.demand_elsewhere_mru() == {"a": 100}

    asyncio.run(story())


def test_member_beyond_bound_logs_error_until_there_is_room(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with Kin(redis_server, members_max=2) as kin:
            one, two, three = (kin.member(name) for name in ("one", "two", "three"))
            for member in (one, two, three, three):
                assert await member.beat()
            assert three.stats().full
            assert "--members-max 2 dispatchers" in three.why_not_counted()
            assert [record.levelname for record in caplog.records] == ["ERROR"]
            await one.beat()
            assert one.live() == 2
            await two.leave()
            await three.beat()
            assert three.why_not_counted() == ""
            assert three.live() == 2

    asyncio.run(story())


class Recorder:
    """A client that keeps the arguments of each beat, and answers as an empty fleet would."""

    def __init__(self) -> None:
        self.args: list[list[Any]] = []

    def run_script(self, _: object, __: object, args: list[Any]) -> asyncio.Future[Any]:
        self.args.append(list(args))
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        reply.set_result([0, 1, b"1", [], []])
        return reply


def reported(args: list[Any]) -> dict[str, int]:
    return dict(zip(args[8 : 8 + 2 * args[6] : 2], args[9 : 9 + 2 * args[6] : 2], strict=True))


def beats(demands: list[dict[str, int]], **settings: Any) -> list[dict[str, int]]:
    """Return the report of one beat for each of these demands."""

    async def story() -> list[dict[str, int]]:
        client = Recorder()
        one = HeartbeatMembers(client, "one", settings=replace(SOON, **settings))  # type: ignore[arg-type]
        for demand in demands:
            one.tell(demand)
            await one.beat()
        return [reported(args) for args in client.args]

    return asyncio.run(story())


def test_beat_reports_only_what_has_changed() -> None:
    first = {"a": 1_000, "b": 10}
    assert beats([first, first, {"a": 1_020, "b": 20}, {"a": 1_020}]) == [
        {"a": 1_000, "b": 10},
        {},
        {"b": 20},  # a moved by 2%
        {"b": 0},
    ]


@given(
    demand=st.dictionaries(st.text(max_size=40), st.integers(1, 10**15), max_size=60),
    changes=st.integers(1, 40),
    size=st.integers(512, 2_000),
)
def test_beat_is_bounded_and_the_rest_follows(
    demand: dict[str, int], changes: int, size: int
) -> None:
    sent = beats([demand] * 70, changes_max=changes, report_bytes_max=size)
    told: dict[str, int] = {}
    for report in sent:
        assert len(report) <= changes
        assert sum(len(field.encode()) + 20 for field in report) <= size
        assert not told.keys() & report.keys()
        told |= report
    assert told == demand


def test_form_that_needs_no_demand_reports_none() -> None:
    async def story() -> list[Any]:
        client = Recorder()
        one = HeartbeatMembers(client, "one", demand=False, settings=SOON)  # type: ignore[arg-type]
        one.tell({"a": 5})
        await one.beat()
        return client.args[0]

    args = asyncio.run(story())
    assert (args[5], args[6], args[8:]) == (0, 0, [])


@pytest.mark.parametrize(
    ("flags", "needed"),
    [
        ((), False),
        (("--groups", "groups.yaml"), True),
        (("--groups", "groups.yaml", "--policy", "mussel"), False),
    ],
)
def test_demand_is_needed_by_groups_whose_parts_follow_it(
    flags: tuple[str, ...], needed: bool
) -> None:
    settings = settings_from(KvSettings, "--store", "redis://127.0.0.1:1", *flags)
    assert needs_demand(settings) is needed


def commands_in_beats(server: RedisServer, members: int) -> tuple[int, int]:
    """Commands, and bytes of their replies, of one beat each in a fleet whose state is settled."""

    async def story() -> tuple[int, int]:
        async with Kin(server, gone_us=600_000_000) as kin:
            fleet = [kin.member(f"m{at:03}") for at in range(members)]
            for one in fleet:
                one.tell({f"c{caller}": 1_000 for caller in range(20)})
            for _ in range(3):
                for one in fleet:
                    one._names_age_us = one._demand_age_us = 1 << 40
                    await one.beat()
            with redis.Redis(port=server.port) as client:
                before = client.info("all")
                client.config_resetstat()
                for one in fleet:
                    one._demand_age_us = 1 << 40
                    await one.beat()
                after = client.info("all")
            calls = sum(
                row["calls"]
                for name, row in after.items()
                if name.startswith("cmdstat_")
                and name not in ("cmdstat_info", "cmdstat_config|resetstat")
            )
            assert before["connected_clients"] > members
            return calls // members, after["total_net_output_bytes"] // members

    try:
        return asyncio.run(story())
    finally:
        with redis.Redis(port=server.port) as client:
            client.flushall()


def test_beat_of_large_fleet_costs_what_it_does_in_small_one(redis_server: RedisServer) -> None:
    few_calls, few_bytes = commands_in_beats(redis_server, 4)
    many_calls, many_bytes = commands_in_beats(redis_server, 60)
    assert many_calls <= few_calls + 1
    assert many_bytes <= few_bytes * 1.5


def test_a_fleet_spends_one_quota_of_a_real_redis(redis_server: RedisServer) -> None:
    """Whatever the pace of this machine: exactly the quota in one long epoch."""

    async def story() -> None:
        clock = SystemClock()
        settings = LeasedBudgetSettings(quota_ru=500, epoch_us=86_400_000_000)
        stores = [RedisStore(redis_server.patient_url, SeededChance()) for _ in range(3)]
        fleet = [QuotaLeases(LeasedBudget(settings), clock, store=store) for store in stores]
        keepers = [asyncio.ensure_future(one.run()) for one in fleet]
        await asyncio.sleep(0)
        had = 0
        for n in range(3_000):
            one = fleet[0 if n % 10 else 1 + n // 10 % 2]
            waiting = one.before("big", clock.now_us())
            if waiting is not None:
                await waiting
            verdict = one.budget.charge("big", 1_000, clock.now_us())
            more = None if verdict.allowed else one.more("big")
            if more is not None and await more:
                verdict = one.budget.charge("big", 1_000, clock.now_us())
            had += verdict.allowed
        # What a dispatcher holds and does not spend is lost to the others: a block at most.
        assert 450 <= had <= 500
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        for store in stores:
            await store.close()

    asyncio.run(story())
