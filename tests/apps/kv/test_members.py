"""Members: who beats is alive, who stops is gone in seconds, who pauses comes back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.apps.kv.members import (
    BEAT,
    HeartbeatMembers,
    HeartbeatSettings,
    NodeHeartbeat,
    StaticMembers,
    demand_shares,
    encode_payload,
    parse_payload,
)
from sluicegate.apps.kv.shares import Shares
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.policies.leased_budget import SHARE_ONE, LeasedBudget, LeasedBudgetSettings
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
        self._others = [NodeHeartbeat(str(n), 0, demand, {}) for n, demand in enumerate(others)]

    def live(self) -> int:
        return 1 + len(self._others)

    def names(self) -> list[str]:
        return []

    def others(self) -> list[NodeHeartbeat]:
        return self._others

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


@given(
    demand=st.dictionaries(st.text(max_size=40), st.integers(1, 10**15), max_size=60),
    hot=st.dictionaries(st.text(max_size=40), st.integers(1, 10**9), max_size=60),
    most=st.integers(64, 4_000),
)
def test_a_beat_is_bounded_and_keeps_what_weighs_most(
    demand: dict[str, int], hot: dict[str, int], most: int
) -> None:
    payload = encode_payload(demand, hot, most)
    assert len(payload) <= most
    parsed_demand, _, valid = parse_payload(payload)
    assert valid
    left_out = [count for caller, count in demand.items() if caller not in parsed_demand]
    assert not parsed_demand or not left_out or max(left_out) <= min(parsed_demand.values())


@pytest.mark.parametrize(
    "payload",
    [b"", b"[]", b"{}", b'{"v":2,"demand":{},"hot":{}}', b'{"v":1,"demand":[],"hot":{}}', b"\xff"],
)
def test_what_cannot_be_read_says_nothing(payload: bytes) -> None:
    assert parse_payload(payload) == ({}, {}, False)


def test_counts_that_are_none_are_left_out() -> None:
    payload = {"v": 1, "demand": {"a": -1, "b": "x", "c": True, "d": 3}, "hot": {}}
    assert parse_payload(json.dumps(payload).encode())[0] == {"d": 3}


def test_while_nobody_answers_the_last_that_was_heard_stands() -> None:
    async def story() -> None:
        one = HeartbeatMembers(Deaf(), "one")  # type: ignore[arg-type]
        one._others = [NodeHeartbeat("two", 0, {}, {})]
        assert not await one.beat()
        assert one.names() == ["one", "two"]
        assert one.stats().failing
        assert one.stats().failures == 1
        await one.leave()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("some", "field"),
    [
        ({"every_us": 0}, "members.every_us"),
        ({"every_us": 100_000, "gone_us": 150_000}, "members.gone_us"),
        ({"payload_bytes_max": 1}, "members.payload_bytes_max"),
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


def test_who_joins_leaves_dies_and_pauses_is_seen(redis_server: RedisServer) -> None:
    async def story() -> None:
        clients: list[RedisClient] = [
            open_client(redis_server.patient_url, SeededChance()) for _ in range(3)
        ]
        one, two, three = (
            HeartbeatMembers(client, name, settings=SOON, hot=lambda: {"t:k": 7})
            for client, name in zip(clients, ("one", "two", "three"), strict=True)
        )
        two.tell({"caller": 5})
        await one.beat()
        assert one.live() == 1
        await two.beat()
        await three.beat()
        await one.beat()
        assert sorted(one.names()) == ["one", "three", "two"]
        (other,) = [beat for beat in one.others() if beat.name == "two"]
        assert other.demand_mru == {"caller": 5}
        assert other.hot == {"t:k": 7}
        await two.leave()
        await one.beat()
        assert one.names() == ["one", "three"]
        await until(lambda: one.live() == 1, one)  # three says nothing more
        await three.beat()  # it was only paused
        await one.beat()
        assert one.names() == ["one", "three"]
        for client in clients:
            await client.close()

    asyncio.run(story())


def test_a_beat_of_a_newer_version_counts_but_is_not_read(redis_server: RedisServer) -> None:
    async def story() -> None:
        client = open_client(redis_server.patient_url, SeededChance())
        args = ["newer", b'{"v":9}', SOON.gone_us, 9]
        await client.run_script(BEAT, [SOON.key], args)  # type: ignore[arg-type]
        one = HeartbeatMembers(client, "one", settings=SOON)
        await one.beat()
        assert one.live() == 2
        assert one.stats().unread == 1
        await client.close()

    asyncio.run(story())


def test_a_fleet_spends_one_quota_of_a_real_redis(redis_server: RedisServer) -> None:
    """Whatever the pace of this machine: exactly the quota in one long epoch."""

    async def story() -> None:
        clock = SystemClock()
        settings = LeasedBudgetSettings(quota_ru=500, epoch_us=86_400_000_000)
        stores = [RedisStore(redis_server.patient_url, SeededChance()) for _ in range(3)]
        fleet = [Shares(LeasedBudget(settings), clock, store=store) for store in stores]
        keepers = [asyncio.ensure_future(one.run()) for one in fleet]
        await asyncio.sleep(0)
        had = 0
        for n in range(3_000):
            one = fleet[0 if n % 10 else 1 + n // 10 % 2]
            waiting = one.before("big")
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
