"""The scripts against the kernels: on every server, at every kind of rate, the same decisions."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.contracts.store import Charge, SharedKey
from sluicegate.kernels.sliding_window import log_settle, log_step
from sluicegate.stores.redis.counters import (
    SPAN_US_MAX,
    UNITS_MAX,
    PacedCounter,
    cells_state,
    counter_for,
    span_text,
    ttl_ms,
)
from sluicegate.stores.redis.store import RedisStore
from sluicegate.testing import START_US
from tests.stores.redis.live import run
from tests.stores.redis.storing import MINUTE, SECOND, Pair, at, stored

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

every_algorithm = pytest.mark.parametrize("algorithm", list(Algorithm))

# Whole and broken intervals, coarse and fine, and what only just can be counted.
RATES = [
    (300_000, SECOND),
    (7, MINUTE),
    (5_000_000, SECOND),
    (100, SECOND),
    (1, SECOND),
    (999_999_937, 24 * 60 * MINUTE),
    (UNITS_MAX, SPAN_US_MAX),
]
KEYS = 32
TURNS = 35  # so that a run of all, on three servers, is over 100,000 decisions


def key_of(limit: Limit, entity: str, prefix: str = "rate_limit") -> str:
    return counter_for(prefix, "login", limit).key(entity).decode()


def test_a_key_has_the_entity_in_braces_and_ends_in_its_window() -> None:
    assert key_of(Limit(5, period_us=MINUTE), "ann") == "rate_limit:{ann}:login:60s"
    assert key_of(Limit(5, period_us=250_000), "ann", prefix="api") == "api:{ann}:login:250ms"
    assert key_of(Limit(5, period_us=7), "ann") == "rate_limit:{ann}:login:7us"
    fixed = Limit(5, period_us=MINUTE, algorithm=Algorithm.FIXED_WINDOW)
    assert key_of(fixed, "ann") == "rate_limit:{ann}:login:60s"


def test_no_two_entities_share_a_key_and_none_is_without_a_tag() -> None:
    limit = Limit(5, period_us=MINUTE)
    entities = ["", "%", "%25", "}", "%7D", "{", "{}", "a}b", "a%7Db", "a{b", ":", "a:b", "ü", "\n"]
    keys = [key_of(limit, entity) for entity in entities]
    assert len({*keys}) == len(entities)
    for key in keys:
        tag = key[key.index("{") + 1 : key.index("}")]
        assert tag
        assert key == f"rate_limit:{{{tag}}}:login:60s"


def test_an_entity_that_is_too_long_for_a_key_is_its_digest() -> None:
    counter = counter_for("rate_limit", "login", Limit(5, period_us=MINUTE), 100)
    assert len(counter.key("a" * 77)) == 100
    long = [counter.key(text) for text in ("a" * 78, "a" * 79, "a" * 77 + "b", "}" * 100)]
    assert len({*long}) == len(long)
    assert {len(key) for key in long} == {57}
    # Who calls himself by another's digest is somebody else.
    assert counter.key(long[0].decode().partition("{")[2].partition("}")[0]) != long[0]


def test_an_entity_that_no_key_can_hold_is_named_before_anything_is_sent() -> None:
    counter = counter_for("rate_limit", "login" * 9, Limit(5, period_us=MINUTE), 60)
    with pytest.raises(BadValue, match="key_bytes_max"):
        counter.key("ann")


@pytest.mark.parametrize(
    "algorithm", [one for one in Algorithm if one is not Algorithm.SLIDING_LOG]
)
def test_what_doubles_cannot_count_is_refused_when_a_limit_is_made(algorithm: Algorithm) -> None:
    for limit in (
        Limit(1, period_us=SPAN_US_MAX + 1, algorithm=algorithm),
        Limit(UNITS_MAX + 1, period_us=SECOND, algorithm=algorithm),
    ):
        with pytest.raises(BadValue, match="Redis counts"):
            counter_for("p", "login", limit)
    counter_for("p", "login", Limit(UNITS_MAX, period_us=SPAN_US_MAX, algorithm=algorithm))


def test_a_burst_that_takes_too_long_to_come_back_is_refused_too() -> None:
    counter_for("p", "login", Limit(1, period_us=SPAN_US_MAX // 2, burst=2))
    with pytest.raises(BadValue, match="burst"):
        counter_for("p", "login", Limit(1, period_us=SPAN_US_MAX // 2, burst=3))


def test_a_log_holds_a_thousand_at_most() -> None:
    counter_for("p", "login", Limit(1_000, period_us=SECOND, algorithm=Algorithm.SLIDING_LOG))
    with pytest.raises(BadValue, match="1000 entries"):
        counter_for("p", "login", Limit(1_001, period_us=SECOND, algorithm=Algorithm.SLIDING_LOG))


def test_a_charge_is_split_so_that_no_tick_is_lost_and_bounded_so_that_no_sum_is_too_large() -> (
    None
):
    third = PacedCounter("p", "r", Limit(300_000, period_us=SECOND), 100)  # one every 3 1/3 us
    assert [third.charge(cost) for cost in (0, 1, 2, 3, -1)] == [
        (0, 0),
        (3, 1),
        (6, 2),
        (10, 0),
        (-4, 2),
    ]
    assert third.charge(10**30) == (2 * SECOND, 1)  # one tick over twice the tolerance
    assert third.charge(-(10**30)) == (-UNITS_MAX, 0)


def test_small_words() -> None:
    assert [span_text(one) for one in (1, 1_000, SECOND, MINUTE)] == ["1us", "1ms", "1s", "60s"]
    assert [ttl_ms(one) for one in (1, 500, 501, SECOND)] == [1, 1, 2, 2_000]
    assert cells_state(b"") == ()
    assert cells_state(b"1700x3:0,1,22,3") == (1700, 0, 1, 22, 3)


async def history(pair: Pair, limit: Limit, rng: random.Random) -> int:
    """Random asks of many keys at random instants; how many decisions were compared."""
    rule_id = f"{limit.algorithm.value} {limit.count} {limit.cells}"
    count, period_us = limit.count, limit.period_us
    near = [0, 1, period_us // count, period_us // 7, period_us, 3 * period_us]
    gaps_us = [min(gap_us, 10**13) for gap_us in near]  # not beyond the year 2112
    costs = [0, 1, 1, 1, 2, count // 3, count, count + 1, 2**60]
    taken_us = pair.clock.now_us()
    compared = 0
    for _ in range(TURNS):
        pair.advance(us=rng.choice(gaps_us) // rng.choice([1, 3, 10]))
        charges = [
            Charge(rule_id, limit, f"k{n}", rng.choice([*costs, rng.randrange(3 * count)]))
            for n in range(KEYS)
        ]
        how = {"keep": rng.random() < 0.9, "count_refused": rng.random() < 0.2}
        await asyncio.gather(*(pair.take(charge, **how) for charge in charges))
        compared += KEYS
        if rng.random() < 0.4:
            corrections = [-1, 1, -count, count, rng.randrange(-count, count + 1)]
            settled = [charge._replace(cost=rng.choice(corrections)) for charge in charges[:8]]
            await pair.settle(*settled, taken_us=rng.choice([None, taken_us, pair.clock.now_us()]))
        if rng.random() < 0.2:
            ladder = sorted({rng.randrange(2 * count + 1) for _ in range(4)}, reverse=True)
            await pair.take_some(charges[3], *ladder)
        if rng.random() < 0.1:
            await pair.reset(charges[4])
        if rng.random() < 0.3:
            taken_us = pair.clock.now_us()
    return compared


@every_algorithm
def test_histories_are_decided_as_the_kernels_decide_them(
    redis_server: RedisServer, algorithm: Algorithm
) -> None:
    async def story() -> None:
        compared = 0
        async with stored(redis_server.url, batch_max=20) as store:
            pair = Pair(store)
            for seed, (rate, period_us) in enumerate(RATES):
                rng = random.Random(seed)
                options: dict[str, Any] = {}
                if algorithm is Algorithm.SLIDING_WINDOW:
                    options = {"cells": rng.choice([1, 2, 10, 60])}
                count = min(rate, 1_000) if algorithm is Algorithm.SLIDING_LOG else rate
                limit = Limit(count, period_us=period_us, algorithm=algorithm, **options)
                compared += await history(pair, limit, rng)
        assert compared == len(RATES) * TURNS * KEYS

    run(story())


@every_algorithm
def test_a_clock_that_goes_back_admits_no_more_and_the_kernel_agrees(
    redis_server: RedisServer, algorithm: Algorithm
) -> None:
    # Whether script and kernel agree is looked at with every answer.
    async def story() -> None:
        async with stored(redis_server.url) as store:
            rng = random.Random(1)
            for count, period_us in ((7, MINUTE), (300, SECOND), (1, SECOND)):
                limit = Limit(count, period_us=period_us, algorithm=algorithm)
                now_us, admitted = START_US, 0
                at(store, now_us)
                for _ in range(60):
                    at(store, now_us - rng.randrange(period_us))
                    charges = [Charge(f"r{count}", limit, f"k{n}", 1) for n in range(8)]
                    rulings = await asyncio.gather(*(store.take([one]) for one in charges))
                    admitted += sum(ruling.allowed for ruling in rulings)
                # A fixed window that is entered again is counted on; so two windows at most.
                assert admitted <= 8 * (2 if algorithm is Algorithm.FIXED_WINDOW else 1) * min(
                    count * 2, 60
                )

    run(story())


def test_a_log_is_its_kernels_whatever_the_clock_does(redis_server: RedisServer) -> None:
    async def story() -> None:
        limit = Limit(9, period_us=1_000, algorithm=Algorithm.SLIDING_LOG)
        async with stored(redis_server.url) as store:
            for seed in range(12):
                rng, now_us, taken_us = random.Random(seed), START_US, START_US
                charge = Charge("log", limit, f"k{seed}", 1)
                log: tuple[int, ...] = ()
                for _ in range(40):
                    now_us += rng.choice([0, 1, 100, 300, 999, 1_000, -200])
                    at(store, now_us)
                    if rng.random() < 0.3:
                        correction = rng.randrange(-9, 5)
                        taken = rng.choice([now_us, taken_us])
                        await store.settle([charge._replace(cost=correction)], taken)
                        log = log_settle(log, now_us, correction, taken, 1_000, 9)
                        continue
                    cost = rng.choice([0, 1, 1, 2, 3, 9, 10])
                    (decision,) = (await store.take([charge._replace(cost=cost)])).decisions
                    log, allowed, remaining, retry_us, reset_us = log_step(
                        log, now_us, cost, 1_000, 9
                    )
                    assert (decision.allowed, decision.remaining) == (allowed, remaining)
                    assert (decision.retry_after_us, decision.reset_after_us) == (
                        retry_us,
                        reset_us,
                    )
                    taken_us = now_us if allowed else taken_us

    run(story())


FOREIGN: list[tuple[Any, ...]] = [
    ("SET", "word"),
    ("SET", ""),
    ("SET", "-5"),
    ("SET", "1e300"),
    ("SET", "nan"),
    ("SET", "inf"),
    ("SET", "1.5"),
    ("SET", "5+1/0"),
    ("SET", "5+3/3"),
    ("SET", "7x1:1"),
    ("SET", "7x10:1,2,3"),
    ("SET", "5:5:5"),
    ("SET", f"{START_US // MINUTE}:"),
    ("SET", f"{START_US // MINUTE}:1.5"),
    ("RPUSH", "word"),
    ("RPUSH", "1:2"),
    ("HSET", "field", "word"),
    ("SADD", "word"),
]


@every_algorithm
def test_a_foreign_value_under_a_key_counts_for_nothing_and_is_written_over(
    redis_server: RedisServer, algorithm: Algorithm
) -> None:
    async def story(store: RedisStore) -> None:
        limit = Limit(3, period_us=MINUTE, algorithm=algorithm)
        two = Limit(4, period_us=MINUTE, algorithm=algorithm)
        window = "60s"
        for number, (verb, *value) in enumerate(FOREIGN):
            for ask in ("alone", "together", "some", "settle"):
                who = f"{ask}{number}"
                redis_server.ask(verb, f"rate_limit:{{{who}}}:login:{window}", *value)
                charge = Charge("login", limit, who, 1)
                at(store, START_US)
                if ask == "some":
                    assert (await store.take_some(charge, [4, 3])).units == 3
                    assert not (await store.take([charge])).allowed
                    continue
                if ask == "settle":
                    await store.settle([charge._replace(cost=-3)])
                    await store.settle([charge._replace(cost=3)])
                    assert not (await store.take([charge])).allowed
                    continue
                other = [] if ask == "alone" else [Charge("other", two, who, 1)]
                answers = [(await store.take([charge, *other])).allowed for _ in range(4)]
                assert answers == [True, True, True, False], (ask, verb, value)

    async def open_and_tell() -> None:
        async with stored(redis_server.url) as store:
            await story(store)

    run(open_and_tell())


@pytest.mark.parametrize(
    "algorithm", [Algorithm.FIXED_WINDOW, Algorithm.SLIDING_WINDOW, Algorithm.SLIDING_LOG]
)
def test_a_limit_that_was_lowered_admits_nothing_until_there_is_room(
    redis_server: RedisServer, algorithm: Algorithm
) -> None:
    async def story() -> None:
        async with stored(redis_server.url) as store:
            at(store, START_US)
            charge = Charge("login", Limit(100, period_us=MINUTE, algorithm=algorithm), "ann", 80)
            assert (await store.take([charge])).allowed
            lower = charge._replace(limit=Limit(10, period_us=MINUTE, algorithm=algorithm), cost=1)
            await store.settle([lower._replace(cost=-30)])
            (decision,) = (await store.take([lower])).decisions
            assert not decision.allowed
            assert decision.remaining == 0
            await store.settle([lower._replace(cost=-41)])
            assert (await store.take([lower])).allowed

    run(story())


def test_a_part_of_another_rate_is_rounded_up_and_an_impossible_one_is_nothing(
    redis_server: RedisServer,
) -> None:
    async def story() -> None:
        async with stored(redis_server.url) as store:
            for count in (7, 60):  # with ticks, and without
                all_of_it = Charge("login", Limit(count, period_us=MINUTE), "ann", count)
                for text, now_us, allowed in (
                    (f"{START_US}+2/3", START_US, False),
                    (f"{START_US}+2/3", START_US + 1, True),
                    (f"{START_US + 9}+3/3", START_US, True),
                    (f"{START_US + 9}+7/7", START_US, True),
                    (f"{START_US + 9}", START_US, False),
                ):
                    for others in ([], [Charge("other", Limit(9, period_us=MINUTE), "ann", 0)]):
                        redis_server.ask("SET", "rate_limit:{ann}:login:60s", text)
                        at(store, now_us)
                        ruling = await store.take([all_of_it, *others])
                        assert ruling.allowed is allowed, (count, text, others)

    run(story())


def test_no_more_is_given_back_than_has_not_flowed_back_by_itself(
    redis_server: RedisServer,
) -> None:
    async def story() -> None:
        async with stored(redis_server.url) as store:
            pair = Pair(store)
            for count in (7, 60):
                five = Charge(f"r{count}", Limit(count, period_us=MINUTE, burst=5), "ann", 5)
                taken_us = pair.clock.now_us()
                assert await pair.take(five)
                pair.advance(s=3)
                await pair.settle(five._replace(cost=-5), taken_us=taken_us)
                assert await pair.take(five)  # whole again, and not a tick beyond
                await pair.settle(five._replace(cost=-5), taken_us=taken_us)
                assert not await pair.take(five._replace(cost=5))
                pair.advance(s=100)
                assert await pair.take(five)
                await pair.settle(five._replace(cost=-5), taken_us=taken_us)
                assert not await pair.take(five._replace(cost=1))

    run(story())


def test_rules_that_share_a_limit_have_keys_of_their_own() -> None:
    counter = counter_for("rate_limit", "~5 per 60000000us gcra", Limit(5, period_us=MINUTE))
    assert counter.key(SharedKey("ann", "login")) == b"rate_limit:{ann}:login:60s"
    assert counter.key(SharedKey("a\x1fb", "login")) == b"rate_limit:{a\x1fb}:login:60s"
    assert (
        counter_for("rate_limit", "login", Limit(5, period_us=MINUTE))
        .key("a\x1fb")
        .endswith(b"login:60s")
    )
