"""Shares: a fleet that spends one quota, whoever dies, and whatever is down."""

from __future__ import annotations

import asyncio

import pytest

from sluicegate.apps.kv.members import StaticMembers
from sluicegate.apps.kv.quota_leases import QuotaLeases, QuotaLeasesSettings
from sluicegate.contracts.errors import BadValue
from sluicegate.policies.quota.leased_budget import LeasedBudget, LeasedBudgetSettings
from sluicegate.stores.memory.store import MemoryStore
from sluicegate.testing import HandClock
from tests.apps.kv.fleet import EPOCH_US, RU, Dispatcher, FarStore, admitted
from tests.policies.virtual import VirtualLoop, pause_us, run

SKEWS = (0, 3_400_000, -77_777)


def fleet_of(loop: VirtualLoop, store: FarStore, **some: object) -> list[Dispatcher]:
    settings = LeasedBudgetSettings(quota_ru=1_000, live=3, **some)  # type: ignore[arg-type]
    fleet = [Dispatcher(loop, store, settings, skew_us=skew) for skew in SKEWS]
    for one in fleet:
        one.start()
    return fleet


def offer(fleet: list[Dispatcher], caller: str, rates: tuple[int, ...]) -> None:
    for place, (one, rate) in enumerate(zip(fleet, rates, strict=True)):
        if rate:
            one.offer(caller, rate, seed=hash_of(caller) + place)


def hash_of(caller: str) -> int:
    return sum(map(ord, caller)) * 100


def test_a_fleet_admits_the_quota_however_skewed_and_when_one_is_killed() -> None:
    """Three dispatchers, 90 to 10, and 3 epochs to make good for the one that is gone."""

    async def story(loop: VirtualLoop) -> list[int]:
        fleet = fleet_of(loop, FarStore(loop.now_us))
        offer(fleet, "big", (1_800, 100, 100))
        offer(fleet, "small", (30, 10, 10))
        await pause_us(5 * EPOCH_US)
        await fleet[0].kill()
        offer(fleet[1:], "big", (1_000, 800))
        await pause_us(6 * EPOCH_US)
        for one in fleet[1:]:
            assert one.refused.total() > 0
            assert not [place for place in one.refused if place[0] == "small"]
            await one.kill()
        return [admitted(fleet, "big", epoch) for epoch in range(11)]

    had = run(story)
    assert all(ru <= 1_000 for ru in had)
    assert all(ru >= 950 for ru in (*had[1:5], *had[8:]))


def test_nobody_is_refused_at_an_epochs_edge_while_there_is_quota() -> None:
    async def story(loop: VirtualLoop) -> None:
        fleet = fleet_of(loop, FarStore(loop.now_us))
        offer(fleet, "small", (200, 200, 200))
        await pause_us(8 * EPOCH_US)
        for one in fleet:
            assert one.refused.total() == 0
            assert one.leases.stats().waited_in_vain == 0
            await one.kill()

    run(story)


def test_nobody_within_its_quota_is_refused_because_the_store_is_slow() -> None:
    async def story(loop: VirtualLoop) -> None:
        fleet = fleet_of(loop, FarStore(loop.now_us, trip_us=80_000))
        offer(fleet, "small", (100, 100, 100))
        await pause_us(8 * EPOCH_US)
        for one in fleet:
            assert one.refused.total() == 0
            await one.kill()

    run(story)


def test_caller_below_quota_is_not_refused_while_store_pauses() -> None:
    """The store pauses for 150 ms of each 500 ms; the caller spends 2% of its quota."""

    async def story(loop: VirtualLoop) -> None:
        store = FarStore(loop.now_us)
        store.paused_us = 150_000
        settings = LeasedBudgetSettings(quota_ru=10_000, live=3)
        fleet = [Dispatcher(loop, store, settings, skew_us=skew) for skew in SKEWS]
        for place, one in enumerate(fleet):
            one.start()
            one.offer("critical", 67, seed=place)
        await pause_us(20 * EPOCH_US)
        assert sum(one.leases.stats().lent for one in fleet) > 0
        for one in fleet:
            assert one.refused.total() == 0
            assert not one.leases.stats().alone
            await one.kill()

    run(story)


def test_fleet_keeps_quota_while_store_pauses() -> None:
    """A caller sends more than its quota: an advance is part of the quota, not an addition."""

    async def story(loop: VirtualLoop) -> list[int]:
        store = FarStore(loop.now_us)
        fleet = fleet_of(loop, store)
        offer(fleet, "big", (1_800, 900, 900))
        await pause_us(5 * EPOCH_US)
        store.paused_us = 150_000
        await pause_us(10 * EPOCH_US)
        for one in fleet:
            await one.kill()
        return [admitted(fleet, "big", epoch) for epoch in range(15)]

    had = run(story)[6:]
    assert sum(had) <= 1.1 * 1_000 * len(had)
    assert max(had) <= 1_500
    assert min(had) >= 700


def test_all_callers_of_a_turn_are_asked_for_together() -> None:
    async def story(loop: VirtualLoop) -> None:
        store = FarStore(loop.now_us)
        (one, *_) = fleet = fleet_of(loop, store)
        asks = [one.ask(f"caller {n}", RU) for n in range(200)]
        await pause_us(10)
        assert all(verdict.allowed for verdict in await asyncio.gather(*asks))
        assert one.leases.stats().rounds <= 2  # and another for the blocks that come next
        assert one.leases.stats().asked == 200 * one.leases.stats().rounds
        for each in fleet:
            await each.kill()

    run(story)


def test_the_last_share_is_kept_for_ten_minutes_without_the_store() -> None:
    async def story(loop: VirtualLoop) -> list[int]:
        store = FarStore(loop.now_us)
        fleet = fleet_of(loop, store)
        for place, rate in enumerate((900, 300, 300)):
            fleet[place].offer("big", rate, seed=place, mru=20 * RU)
        await pause_us(20 * EPOCH_US)
        store.down = True
        await pause_us(600 * EPOCH_US)
        assert all(one.leases.stats().alone for one in fleet)
        store.down = False
        await pause_us(20 * EPOCH_US)
        assert not any(one.leases.stats().alone for one in fleet)
        for one in fleet:
            await one.kill()
        return [admitted(fleet, "big", epoch) for epoch in range(640)]

    had = run(story)
    assert all(800 <= ru <= 1_100 for ru in had[2:20])
    assert all(750 <= ru <= 1_150 for ru in had[21:620])
    assert all(700 <= ru <= 1_150 for ru in had[620:])
    assert sum(had[21:620]) / 599 == pytest.approx(1_000, rel=0.1)
    assert sum(had[625:]) / 15 == pytest.approx(1_000, rel=0.05)


def test_silent_store_delays_request_by_bounded_wait_then_lends() -> None:
    async def story(loop: VirtualLoop) -> None:
        store = FarStore(loop.now_us, trip_us=10_000_000)
        (one, *_) = fleet = fleet_of(loop, store)
        await pause_us(10)
        begun_us = loop.now_us()
        verdict = await one.ask("big", RU)
        assert verdict.allowed  # by its share
        assert loop.now_us() - begun_us <= 2 * QuotaLeasesSettings().wait_us
        assert (one.leases.stats().waited_in_vain, one.leases.stats().lent) == (1, 1)
        await pause_us(QuotaLeasesSettings().ask_timeout_us)
        assert (await one.ask("big", RU)).allowed
        for each in fleet:
            await each.kill()

    run(story)


def test_without_a_keeper_nobody_waits() -> None:
    clock = HandClock()
    leases = QuotaLeases(
        LeasedBudget(LeasedBudgetSettings()), clock, store=MemoryStore(clock.now_us)
    )
    assert leases.before("a", clock.now_us()) is None
    leases.budget.charge("a", RU, clock.now_us())
    assert leases.more("a") is None


def test_who_waits_too_many_is_not_waited_for() -> None:
    async def story(loop: VirtualLoop) -> None:
        one = Dispatcher(
            loop,
            FarStore(loop.now_us),
            LeasedBudgetSettings(),
            keeper=QuotaLeasesSettings(waiters_max=1),
        )
        one.start()
        await pause_us(1)
        assert one.leases.before("a", loop.now_us()) is not None
        assert one.leases.before("a", loop.now_us()) is None
        await one.kill()
        assert one.leases.stats().waiting == 0

    run(story)


def test_a_cancelled_waiter_harms_nobody() -> None:
    async def story(loop: VirtualLoop) -> None:
        one = Dispatcher(loop, FarStore(loop.now_us), LeasedBudgetSettings())
        one.start()
        await pause_us(1)
        first, second = (loop.create_task(one.ask("a", RU)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).allowed
        await one.kill()

    run(story)


def test_a_single_dispatcher_needs_no_store() -> None:
    clock = HandClock()
    budget = LeasedBudget(LeasedBudgetSettings(quota_ru=10))
    leases = QuotaLeases(budget, clock)
    assert leases.before("a", clock.now_us()) is None
    now_us = clock.now_us()
    assert sum(budget.charge("a", RU, now_us).allowed for _ in range(20)) == 10
    now_us += EPOCH_US
    assert sum(budget.charge("a", RU, now_us).allowed for _ in range(20)) == 10


def test_live_dispatchers_are_those_that_membership_names() -> None:
    async def story() -> None:
        clock = HandClock()
        budget = LeasedBudget(LeasedBudgetSettings(quota_ru=900, form="live"))
        leases = QuotaLeases(budget, clock, members=StaticMembers(3))
        await leases.turn()
        now_us = clock.now_us()
        assert sum(budget.charge("a", RU, now_us).allowed for _ in range(999)) == 300

    asyncio.run(story())


@pytest.mark.parametrize(
    ("some", "field"),
    [
        ({"wait_us": -1}, "quota_leases.wait_us"),
        ({"ask_timeout_us": 0}, "quota_leases.ask_timeout_us"),
        ({"probe_us": 0}, "quota_leases.probe_us"),
        ({"callers_in_ask_max": 0}, "quota_leases.callers_in_ask_max"),
        ({"waiters_max": 0}, "quota_leases.waiters_max"),
    ],
)
def test_wrong_settings_are_refused_by_name(some: dict[str, int], field: str) -> None:
    with pytest.raises(BadValue) as caught:
        QuotaLeasesSettings(**some)
    assert caught.value.field == field
