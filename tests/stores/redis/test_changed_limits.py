"""A paced limit that changes while it is in use: the same units count on, at the new pace.

The oracle is the memory store, in which a limit that has changed starts afresh: it is charged with
the units that the old limit still counts, and from then on both must decide alike.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import pytest

from sluicegate.contracts.rule import BURSTING, Algorithm, Limit
from sluicegate.contracts.store import Charge
from tests.stores.redis.live import run
from tests.stores.redis.storing import MINUTE, SECOND, Pair, at, stored

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

every_paced = pytest.mark.parametrize("algorithm", [one for one in Algorithm if one in BURSTING])
NAME: Final = "login"
# A look at another limit of the same entity makes the store use the script that mixes kinds.
OTHER: Final = Charge("other", Limit(9, period_us=MINUTE), "ann", 0)


def of(limit: Limit, cost: int = 1) -> Charge:
    return Charge(NAME, limit, "ann", cost)


async def change(pair: Pair, after: Limit, owed: int) -> None:
    """Have memory begin the new limit with so many units charged."""
    await pair.memory.settle([of(after, owed)])


def tell(server: RedisServer, story: Callable[[Pair], Awaitable[None]]) -> None:
    async def play() -> None:
        async with stored(server.url) as store:
            await story(Pair(store))

    run(play())


@every_paced
@pytest.mark.parametrize("others", [(), (OTHER,)], ids=["alone", "mixed"])
@pytest.mark.parametrize(
    ("before", "taken", "after", "left"),
    [
        (10, 10, 100, 90),  # raised
        (10, 4, 100, 96),
        (7, 3, 60, 57),  # with ticks, to none
        (60, 3, 7, 4),  # and the other way
        (7, 7, 300_007, 300_000),
        (100, 4, 10, 6),  # lowered
        (100, 10, 10, 0),
        (300_007, 7, 7, 0),
    ],
)
def test_the_units_taken_count_on_at_the_new_pace(
    redis_server: RedisServer,
    algorithm: Algorithm,
    before: int,
    taken: int,
    after: int,
    left: int,
    others: tuple[Charge, ...],
) -> None:
    old, new = (Limit(count, period_us=MINUTE, algorithm=algorithm) for count in (before, after))

    async def story(pair: Pair) -> None:
        assert await pair.take(of(old, taken), *others)
        await change(pair, new, min(taken, after))
        ruling = await pair.redis.take([of(new, 0), *others], keep=False)
        assert ruling.decisions[0].remaining == left
        assert not await pair.take(of(new, left + 1), *others)
        # Never more at once than the new limit, and all that it has left.
        assert await pair.take(of(new, left), *others)
        assert not await pair.take(of(new), *others)
        # Nobody waits longer than until the next unit.
        pair.advance(us=-(-MINUTE // after))
        assert await pair.take(of(new), *others)

    tell(redis_server, story)


@every_paced
@pytest.mark.parametrize("others", [(), (OTHER,)], ids=["alone", "mixed"])
@pytest.mark.parametrize(("before", "after"), [(100, 10), (100, 1), (300_007, 7), (60, 59)])
def test_a_limit_that_was_lowered_locks_nobody_out_for_longer_than_a_period(
    redis_server: RedisServer,
    algorithm: Algorithm,
    before: int,
    after: int,
    others: tuple[Charge, ...],
) -> None:
    old, new = (Limit(count, period_us=MINUTE, algorithm=algorithm) for count in (before, after))

    async def story(pair: Pair) -> None:
        began_us = pair.clock.now_us()
        await pair.redis.take([of(old, before)])
        for _ in range(3):  # being refused makes it no longer
            (decision, *_) = (await pair.redis.take([of(new), *others])).decisions
            left_us = began_us + MINUTE - pair.clock.now_us()
            if decision.allowed:
                return
            assert 0 < decision.retry_after_us <= left_us + MINUTE // after - MINUTE // before + 2
            pair.advance(us=left_us // 3)
        pair.advance(us=began_us + MINUTE - pair.clock.now_us())
        assert (await pair.redis.take([of(new), *others])).allowed

    tell(redis_server, story)


def test_two_limits_of_one_rule_at_once_as_in_a_canary_give_no_more_than_the_larger(
    redis_server: RedisServer,
) -> None:
    async def story(pair: Pair) -> None:
        large, small = (Limit(count, period_us=MINUTE) for count in (100, 7))
        admitted = 0
        for turn in range(300):
            limit = small if turn % 3 else large
            admitted += (await pair.redis.take([of(limit)])).allowed
        assert admitted == large.count

    tell(redis_server, story)


def test_who_was_refused_gains_the_new_pace_at_once(redis_server: RedisServer) -> None:
    def limit(count: int) -> Limit:
        return Limit(count, period_us=MINUTE, burst=10)

    async def story(pair: Pair) -> None:
        assert await pair.take(of(limit(10), 10))
        await change(pair, limit(100), 10)
        assert not await pair.take(of(limit(100)))
        pair.advance(us=MINUTE // 100)
        assert await pair.take(of(limit(100)))

    tell(redis_server, story)


@every_paced
def test_a_burst_that_changes(redis_server: RedisServer, algorithm: Algorithm) -> None:
    def limit(burst: int, count: int = 10) -> Limit:
        return Limit(count, period_us=MINUTE, burst=burst, algorithm=algorithm)

    async def story(pair: Pair) -> None:
        # Raised: what was taken is taken, and the rest of the new burst is there.
        assert await pair.take(of(limit(10), 10))
        await change(pair, limit(100), 10)
        assert await pair.take(of(limit(100), 90))
        assert not await pair.take(of(limit(100)))
        # Count and burst at once.
        await change(pair, limit(140, 20), 100)
        assert await pair.take(of(limit(140, 20), 40))
        assert not await pair.take(of(limit(140, 20)))
        pair.advance(us=MINUTE // 20)
        assert await pair.take(of(limit(140, 20)))

    tell(redis_server, story)


def test_a_debt_beyond_the_burst_stays_while_the_limit_does(redis_server: RedisServer) -> None:
    async def story(pair: Pair) -> None:
        for count in (6, 7):
            limit = Limit(count, period_us=MINUTE)
            await pair.reset(of(limit))
            await pair.take(of(limit, count))
            await pair.settle(of(limit, count))
            for _ in range(3 * count):
                await pair.take(of(limit))
                await pair.take(of(limit), OTHER)
                await pair.settle(of(limit, random.Random(count).randrange(-1, 2)))
                pair.advance(us=MINUTE // 9)

    tell(redis_server, story)


@pytest.mark.parametrize("count", [6, 7])
def test_a_state_of_an_earlier_version_is_taken_as_it_is(
    redis_server: RedisServer, count: int
) -> None:
    async def story(pair: Pair) -> None:
        limit = Limit(count, period_us=MINUTE)
        await pair.take(of(limit, 3))
        whole_again_us = pair.clock.now_us() + 3 * MINUTE // count
        part = 3 * MINUTE % count
        text = f"{whole_again_us}+{part}/{count}" if part else f"{whole_again_us}"
        redis_server.ask("SET", "rate_limit:{ann}:login:60s", text)
        assert await pair.take(of(limit, count - 3))
        assert not await pair.take(of(limit))
        assert not await pair.take(of(limit), OTHER)

    tell(redis_server, story)


@pytest.mark.parametrize("count", [6, 7, 70])
def test_an_earlier_version_reads_what_is_written_within_a_microsecond(
    redis_server: RedisServer, count: int
) -> None:
    """Its reader: digits, perhaps a + and a proper fraction, which it rounds up if it must."""

    async def story(pair: Pair) -> None:
        await pair.take(of(Limit(count, period_us=MINUTE), 3))
        text = redis_server.ask("GET", "rate_limit:{ann}:login:60s")
        us, _, fraction = text.partition("+")
        part, _, whole = fraction.partition("/")
        assert int(us) == pair.clock.now_us() + 3 * MINUTE // count
        assert int(part) == 3 * MINUTE % count
        assert 0 <= int(part) < int(whole) == count

    tell(redis_server, story)


@every_paced
def test_no_history_of_changes_gives_more_than_the_largest_limit(
    redis_server: RedisServer, algorithm: Algorithm
) -> None:
    async def story(pair: Pair) -> None:
        store, now_us = pair.redis, pair.clock.now_us()
        for seed in range(30):
            rng = random.Random(seed)
            counts = [rng.choice([1, 3, 7, 60, 99, 1_000]) for _ in range(4)]
            key = f"k{seed}"
            limit = Limit(counts[0], period_us=SECOND, algorithm=algorithm)
            admitted = 0
            for _ in range(60):
                # At one instant: all that is ever admitted is one burst of the largest limit.
                cost = rng.choice([1, 1, 2, 5, limit.count])
                at(store, now_us)
                if (await store.take([Charge(NAME, limit, key, cost)])).allowed:
                    admitted += cost
                if rng.random() < 0.2:
                    limit = Limit(rng.choice(counts), period_us=SECOND, algorithm=algorithm)
            assert admitted <= max(counts)

    tell(redis_server, story)
