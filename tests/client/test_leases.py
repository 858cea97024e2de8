"""Leases: whatever the network and the clocks do, no unit is spent that was not lent and live."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.client import Client
from sluicegate.client.blocks import HOT_ASKS, IDLE_US
from sluicegate.contracts.rule import Limit
from sluicegate.testing import HandClock
from tests.client.world import HandLink, Skewed, World, run, window
from tests.stores.service.checks import Checks

PERIOD_US = 200_000


@settings(max_examples=80, deadline=None)
@given(
    count=st.integers(1, 60),
    lease=st.sampled_from(["auto", 1, 5, 40, None]),
    wrong_us=st.lists(st.integers(-5_000_000, 5_000_000), min_size=1, max_size=3),
    delays=st.tuples(st.sampled_from([0, 1, 30_000]), st.sampled_from([0, 1, 30_000])),
    story=st.lists(
        st.tuples(
            st.sampled_from(["check"] * 12 + ["idle", "gone", "close", "kill"]),
            st.integers(0, 2),  # which client
            st.integers(1, 4),  # weight
            st.sampled_from([0, 0, 0, 0, 1, 900, 20_000, 70_000]),  # then so much time passes
        ),
        min_size=20,
        max_size=120,
    ),
)
def test_clients_never_admit_more_than_the_limit(
    count: int,
    lease: str | int | None,
    wrong_us: list[int],
    delays: tuple[int, int],
    story: list[tuple[str, int, int, int]],
) -> None:
    clock = HandClock()
    checks = Checks(clock.now_us, window(count, s=PERIOD_US / 1e6))
    spent_in: dict[int, int] = {}

    def start(number: int) -> tuple[Client, HandLink]:
        link = HandLink(checks, clock, there_us=delays[0], back_us=delays[1])
        own = Skewed(clock, wrong_us[number])
        return Client(link=link, clock=own, lease=lease, failure="closed"), link

    async def main() -> None:
        clients = [start(number) for number in range(len(wrong_us))]
        for what, number, cost, passes_us in story:
            which = number % len(clients)
            client, link = clients[which]
            if what == "check":
                answer = await client.check("ann", "/play", cost)
                if answer:
                    # What was spent here counts now; what the service counted, when it was there.
                    here = answer.source == "lease"
                    at_us = clock.now_us() if here else link.checked_us
                    place = at_us // PERIOD_US
                    spent_in[place] = spent_in.get(place, 0) + cost
            elif what == "idle":
                clock.advance(us=IDLE_US)
                client._sweep()
                await returned(client)
            elif what == "gone":
                link.down = not link.down
            elif what == "close":
                link.down = False
                await client.close()
                clients[which] = start(which)
            else:
                await returned(client)  # what is on its way is not killed
                clients[which] = start(which)
            clock.advance(us=passes_us)
        for client, link in clients:
            link.down = False
            await client.close()

    run(main)
    for place, spent in spent_in.items():
        assert spent <= count, (place, spent)


async def returned(client: Client) -> None:
    """Until what goes back has gone."""
    while client._returning:
        await asyncio.sleep(0)


# The stories, one by one.


def test_only_a_pair_that_asks_often_is_leased() -> None:
    async def story() -> None:
        world = World(window(1_000))
        for _ in range(HOT_ASKS - 1):
            assert (await world.client.check("ann", "/play")).source == "service"
        assert "SG.LEASE" not in world.calls
        assert (await world.client.check("ann", "/play")).source == "lease"
        assert world.link.named("SG.LEASE") == [["SG.LEASE", "ann", "/play", str(HOT_ASKS)]]
        assert (await world.client.check("bob", "/play")).source == "service"
        before = len(world.calls)
        for _ in range(HOT_ASKS - 1):
            assert (await world.client.check("ann", "/play")).source == "lease"
        assert len(world.calls) == before
        await world.client.close()

    run(story)


def test_asks_spread_over_a_long_time_are_not_hot() -> None:
    async def story() -> None:
        world = World(window(1_000))
        for _ in range(3 * HOT_ASKS):
            await world.client.check("ann", "/play")
            world.clock.advance(ms=100)
        assert "SG.LEASE" not in world.calls

    run(story)


def test_a_lease_is_spent_within_its_time_counted_from_before_it_was_asked_for() -> None:
    async def story() -> None:
        # The window begins now: a lease is valid for all of it, less what the answer took.
        world = World(window(1_000, s=1), lease=10, there_us=100_000, back_us=200_000)
        world.clock.advance(us=-world.clock.now_us() % 1_000_000)
        assert (await world.client.check("ann", "/play")).source == "lease"
        lent = world.checks.leases["lease-1"]
        assert lent.ends_us - lent.at_us == 900_000
        # 300 ms have gone; 599 ms later it is still good, and a moment later it is not.
        world.clock.advance(us=599_999)
        assert (await world.client.check("ann", "/play")).source == "lease"
        assert len(world.calls) == 1
        world.clock.advance(us=1)
        await world.client.check("ann", "/play")
        assert len(world.calls) == 2
        assert world.client.stats().units_lapsed == 8
        await world.client.close()

    run(story)


def test_a_clock_that_goes_back_ends_a_lease() -> None:
    async def story() -> None:
        world = World(window(1_000), lease=10)
        await world.client.check("ann", "/play")
        world.clock.go_back(s=1)
        await world.client.check("ann", "/play")
        assert len(world.calls) == 2
        await world.client.close()

    run(story)


def test_an_idle_lease_goes_back_to_the_worker_that_gave_it() -> None:
    async def story() -> None:
        world = World(window(1_000), lease=10)
        await world.client.check("ann", "/play")
        world.clock.advance(us=IDLE_US - 1)
        world.client._sweep()
        await asyncio.sleep(0)
        assert world.calls == ["SG.LEASE"]
        world.clock.advance(us=1)
        world.client._sweep()
        await returned(world.client)
        assert world.link.commands[-1] == ["SG.GIVEBACK", "lease-1", "9"]
        assert world.link.vias[-1] == "worker 1"
        stats = world.client.stats()
        assert (stats.units_leased, stats.units_returned, stats.pairs_leased) == (10, 9, 0)
        await world.client.close()
        assert len(world.calls) == 2

    run(story)


def test_closing_gives_back_all_that_is_left() -> None:
    async def story() -> None:
        world = World(window(1_000), lease=10)
        await world.client.check("ann", "/play", 4)
        await world.client.check("bob", "/play")
        await world.client.close()
        back = world.link.named("SG.GIVEBACK")
        assert sorted(words[2] for words in back) == ["6", "9"]
        assert world.link.closed
        left = world.checks.table
        assert left.peek("ann", 0, world.clock.now_us()).remaining == 996

    run(story)


def test_a_heavy_ask_is_filled_for_and_the_rest_of_the_block_before_goes_back() -> None:
    async def story() -> None:
        world = World(window(1_000), lease=10)
        await world.client.check("ann", "/play")
        answer = await world.client.check("ann", "/play", 25)
        assert answer.source == "lease"
        await returned(world.client)
        assert [words[1:] for words in world.link.commands[1:]] == [
            ["ann", "/play", "25"],
            ["lease-1", "9"],
        ]

    run(story)


def test_one_asks_for_a_lease_and_the_others_wait_for_it() -> None:
    async def story() -> None:
        world = World(window(1_000), lease=10)
        world.link.gate = asyncio.Event()
        asks = [asyncio.create_task(world.client.check("ann", "/play")) for _ in range(8)]
        await asyncio.sleep(0)
        assert world.calls == ["SG.LEASE"]
        world.link.gate.set()
        assert {(await ask).source for ask in asks} == {"lease"}
        assert world.calls == ["SG.LEASE"]
        await world.client.close()

    run(story)


def test_who_gives_up_while_filling_leaves_nobody_waiting() -> None:
    async def story() -> None:
        world = World(window(1_000), lease=10)
        world.link.gate = asyncio.Event()
        first = asyncio.create_task(world.client.check("ann", "/play"))
        second = asyncio.create_task(world.client.check("ann", "/play"))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        world.link.gate.set()
        assert await asyncio.wait_for(second, 60)
        await world.client.close()

    run(story)


def test_a_pair_that_gets_no_lease_is_checked_and_not_asked_about_for_a_second() -> None:
    async def story() -> None:
        world = World(window(1_000), lease=10)
        world.checks.leasable = False
        for _ in range(5):
            assert (await world.client.check("ann", "/play")).source == "service"
        assert world.calls == ["SG.LEASE"] + ["SG.CHECK"] * 5
        world.clock.advance(s=1)
        await world.client.check("ann", "/play")
        assert world.calls[-2:] == ["SG.LEASE", "SG.CHECK"]
        world.clock.advance(s=2)
        world.client._sweep()
        assert world.client.stats().pairs_leased == 0

    run(story)


def test_blocks_grow_with_the_pace_and_shrink_by_half_and_have_a_bound() -> None:
    async def story() -> list[int]:
        world = World(window(10_000_000), lease_max=500)
        for _ in range(3_000):
            await world.client.check("ann", "/play")
            world.clock.advance(us=50)
        return [int(words[3]) for words in world.link.named("SG.LEASE")]

    sizes = run(story)
    assert sizes[0] == HOT_ASKS
    assert sizes[-1] == 500
    assert all(size <= 4 * before for before, size in pairwise(sizes))


def test_an_automatic_block_is_at_most_a_tenth_of_the_limit() -> None:
    async def story() -> list[list[str]]:
        world = World(window(60))
        for _ in range(30):
            await world.client.check("ann", "/play")
        return world.link.named("SG.LEASE")

    leases = run(story)
    assert leases
    assert all(words[3] == "6" for words in leases)


def test_a_limit_too_small_to_be_shared_out_is_not_leased() -> None:
    async def story() -> None:
        world = World(window(19))
        for _ in range(19):
            assert (await world.client.check("ann", "/play")).source == "service"
        assert world.calls == ["SG.CHECK"] * 19

    run(story)


def test_a_pair_that_cools_down_is_asked_for_each_time_again() -> None:
    async def story() -> None:
        world = World(window(100_000, s=3_600))
        for _ in range(HOT_ASKS):
            await world.client.check("ann", "/play")
        for _ in range(100):
            await world.client.check("ann", "/play")
            world.clock.advance(ms=400)
        answers = [await world.client.check("ann", "/play") for _ in range(3)]
        assert {answer.source for answer in answers} == {"service"}

    run(story)


def test_blocks_of_a_short_life_are_what_is_spent_in_half_of_it() -> None:
    async def story() -> int:
        world = World(window(10_000_000, s=0.04))
        for _ in range(2_000):
            await world.client.check("ann", "/play")
            world.clock.advance(us=100)
        return int(world.link.named("SG.LEASE")[-1][3])

    # 10 in a millisecond, and a window of 40 ms: 200 at most.
    assert run(story) <= 200


def test_a_bound_on_leased_pairs_leaves_the_others_to_the_service() -> None:
    async def story() -> None:
        world = World(window(1_000), lease=10, leases_max=2)
        sources = [(await world.client.check(f"user {n}", "/play")).source for n in range(4)]
        assert sources == ["lease", "lease", "service", "service"]
        await world.client.close()

    run(story)


def test_a_reset_forgets_what_was_leased_and_refused() -> None:
    async def story() -> None:
        world = World(window(10), lease=10)
        assert await world.client.check("ann", "/play")
        assert await world.client.reset("ann", "/play") == 1
        assert world.client.stats().pairs_leased == 0
        assert await world.client.check("ann", "/play", 10)
        refused = await world.client.check("ann", "/play")
        assert not refused
        await world.client.reset("ann", "/play")
        assert await world.client.check("ann", "/play")
        await world.client.close()

    run(story)


def test_a_lease_that_nobody_keeps_is_spent_and_not_given_back() -> None:
    async def story() -> None:
        world = World(window(100), lease=10)
        world.checks.returns_leases = False
        assert (await world.client.check("ann", "/play")).source == "lease"
        await world.client.close()
        assert world.calls == ["SG.LEASE"]

    run(story)


def test_a_limit_of_one_is_still_a_limit() -> None:
    async def story() -> None:
        world = World(Limit(1, period_us=60_000_000), lease=None)
        assert [bool(await world.client.check("ann", "/play")) for _ in range(3)] == [
            True,
            False,
            False,
        ]
        assert world.calls == ["SG.CHECK"] * 2

    run(story)
