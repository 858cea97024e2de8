"""Asking: refusals that stand, the failure policy, and what is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sluicegate import Algorithm, BadValue, Criticality, Limit, Unavailable
from sluicegate.client import Client
from sluicegate.client.answer import parse_answer
from sluicegate.client.refusals import PairRefusals
from sluicegate.stores.memory.refusal_cache import HOLD_US_MAX
from tests.client.world import World, run, window


def test_an_answer_says_what_the_service_said() -> None:
    reply = [0, 3, 1_500, 60_000, 10, b"rule 7", b"rate_limited", b"DEGRADED_MODE", 0]
    answer = parse_answer(reply)
    assert not answer
    assert (answer.allowed, answer.remaining, answer.limit) == (False, 3, 10)
    assert (answer.retry_after_us, answer.retry_after_s) == (1_500_000, 1.5)
    assert (answer.reset_after_us, answer.rule_id) == (60_000_000, "rule 7")
    assert answer.reason is not None
    assert answer.reason.name == "rate_limited"
    assert (answer.status, answer.degraded, answer.source) == ("DEGRADED_MODE", False, "service")
    assert "rule 7" in repr(answer)


def test_never_stays_never_and_what_the_service_could_not_count_is_marked() -> None:
    answer = parse_answer([0, 0, -1, 0, 10, b"r", b"cost_above_limit", b"", 1])
    assert answer.retry_after_us < 0
    assert answer.degraded


def test_a_reason_that_is_not_known_here_is_a_refusal_all_the_same() -> None:
    answer = parse_answer([0, 0, 5, 5, 10, b"r", b"moon_full", b"", 0])
    assert answer.reason is not None
    assert answer.reason.name == "rate_limited"


@pytest.mark.parametrize(
    "reply",
    [
        None,
        b"OK",
        [],
        [1] * 8,
        [1] * 9,
        [0, 0, 0, 0, 0, b"", None, b"", 0],
        [1] * 5 + [b"\xff"] * 4,
    ],
)
def test_what_is_no_answer_is_no_decision(reply: Any) -> None:
    with pytest.raises(Unavailable, match="not understood"):
        parse_answer(reply)


# Refusals.


def test_a_refused_pair_is_refused_here_until_its_time() -> None:
    async def story() -> None:
        world = World(window(2, s=5))
        world.clock.advance(us=-world.clock.now_us() % 5_000_000)
        assert await world.client.check("ann", "/play", 2)
        refused = await world.client.check("ann", "/play")
        assert (refused.source, refused.retry_after_us) == ("service", 5_000_000)
        world.clock.advance(s=4)
        again = await world.client.check("ann", "/play")
        assert (again.source, again.retry_after_us, again.rule_id) == (
            "denial",
            1_000_000,
            "per-user",
        )
        assert again.reason is refused.reason
        assert len(world.calls) == 2
        world.clock.advance(s=1)
        assert (await world.client.check("ann", "/play")).source == "service"
        assert world.client.stats().denied == 1

    run(story)


def test_another_pair_a_smaller_weight_and_another_priority_are_asked_for() -> None:
    async def story() -> None:
        world = World(window(3))
        assert await world.client.check("ann", "/play")
        assert not await world.client.check("ann", "/play", 3)
        assert await world.client.check("ann", "/play", 2)
        assert not await world.client.check("ann", "/play", 3)
        asked_before = len(world.calls)
        for other in (
            {"resource": "/stop"},
            {"resource": "/play", "priority": "bulk"},
            {"resource": "/play", "headers": {"X-Request-Name": "a"}},
        ):
            await world.client.check("ann", cost=3, **other)
        assert len(world.calls) == asked_before + 3

    run(story)


def test_a_refusal_is_believed_for_so_long_and_no_longer() -> None:
    async def story() -> None:
        world = World(window(1, s=3_600))
        await world.client.check("ann", "/play")
        await world.client.check("ann", "/play")
        world.clock.advance(us=HOLD_US_MAX - 1)
        assert (await world.client.check("ann", "/play")).source == "denial"
        world.clock.advance(us=1)
        assert (await world.client.check("ann", "/play")).source == "service"

    run(story)


def test_what_never_fits_is_told_by_the_service_each_time() -> None:
    async def story() -> None:
        world = World(window(1))
        for _ in range(2):
            assert (await world.client.check("ann", "/play", 2)).retry_after_us < 0
        assert len(world.calls) == 2

    run(story)


def test_refusals_kept_are_bounded_and_the_oldest_goes_first() -> None:
    async def story() -> None:
        world = World(window(1), denials_max=2)
        for user in ("ann", "bob", "cid"):
            await world.client.check(user, "/play")
            assert not await world.client.check(user, "/play")
        sources = [(await world.client.check(u, "/play")).source for u in ("cid", "bob", "ann")]
        assert sources == ["denial", "denial", "service"]
        assert world.client.stats().pairs_denied == 2

    run(story)


def test_a_client_without_denials_asks_each_time() -> None:
    async def story() -> None:
        world = World(window(1), denials_max=0)
        for _ in range(3):
            await world.client.check("ann", "/play")
        assert len(world.calls) == 3

    run(story)


def test_a_clock_that_went_back_asks_again() -> None:
    async def story() -> None:
        world = World(window(1))
        await world.client.check("ann", "/play")
        await world.client.check("ann", "/play")
        world.clock.go_back(s=1)
        assert (await world.client.check("ann", "/play")).source == "service"

    run(story)


def test_work_that_was_shed_is_asked_for_again() -> None:
    refusals = PairRefusals()
    shed = parse_answer([0, 0, 1_000, 0, -1, b"shed", b"shed", b"DEGRADED_MODE", 0])
    refusals.remember(("ann", "/play"), 1, shed, 0)
    assert refusals.find(("ann", "/play"), 1, 1) is None
    spent = parse_answer([0, 0, 1_000, 0, 5, b"r", b"rate_limited", b"DEGRADED_MODE", 0])
    refusals.remember(("ann", "/play"), 1, spent, 0)
    assert refusals.find(("ann", "/play"), 1, 1) is not None


# What is said.


def test_a_command_says_weight_priority_and_headers() -> None:
    async def story() -> None:
        world = World(window(100))
        headers = {"X-Request-Name": "home", "A": "1"}
        await world.client.check("ann", "/play", 3, priority=Criticality.BULK, headers=headers)
        assert world.link.commands == [
            [
                *("SG.CHECK", "ann", "/play", "WEIGHT", "3", "PRIORITY", "BULK"),
                *("HEADER", "a", "1", "HEADER", "x-request-name", "home"),
            ]
        ]
        # Neither order nor case makes another pair.
        await world.client.check("ann", "/play", 100, priority="bulk", headers=headers)
        again = {"a": "1", "x-request-name": "home"}
        answer = await world.client.check("ann", "/play", 100, priority="BULK", headers=again)
        assert answer.source == "denial"

    run(story)


def test_a_look_counts_nothing_and_asks_each_time() -> None:
    async def story() -> None:
        world = World(window(5))
        for _ in range(2):
            assert (await world.client.peek("ann", "/play", 2)).remaining == 3
        assert world.link.named("SG.PEEK")[0] == ["SG.PEEK", "ann", "/play", "WEIGHT", "2"]

    run(story)


@pytest.mark.parametrize(
    ("ask", "field"),
    [
        ({"cost": -1}, "cost"),
        ({"cost": 1.5}, "cost"),
        ({"cost": 1 << 32}, "cost"),
        ({"priority": "urgent"}, "priority"),
        ({"headers": {str(n): "" for n in range(65)}}, "headers"),
        ({"timeout_ms": 0}, "timeout_ms"),
        ({"timeout_ms": float("nan")}, "timeout_ms"),
    ],
)
def test_what_cannot_be_asked_is_told_at_once(ask: dict[str, Any], field: str) -> None:
    async def story() -> None:
        world = World(window(5))
        with pytest.raises(BadValue) as error:
            await world.client.check(**{"user": "ann", "resource": "/play", **ask})
        assert error.value.field == field
        assert not world.calls

    run(story)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"failure": "ajar"}, "failure"),
        ({"failure": "local"}, "local_limit"),
        ({"local_limit": Limit(1, period_us=1)}, "local_limit"),
        ({"lease": "10%"}, "lease"),
        ({"lease": 0}, "lease"),
        ({"lease": 11, "lease_max": 10}, "lease"),
        ({"lease_max": 0}, "lease_max"),
        ({"leases_max": 0}, "leases_max"),
        ({"hot_asks": 0}, "hot_asks"),
        ({"denials_max": -1}, "denials_max"),
        ({"timeout_ms": -1}, "timeout_ms"),
        ({"url": "redis://here"}, "sluicegate.url"),
        ({"url": "sluicegate://a,b"}, "sluicegate.endpoints"),
    ],
)
def test_settings_that_cannot_be_used_are_told_at_once(
    settings: dict[str, Any], field: str
) -> None:
    with pytest.raises(BadValue) as error:
        Client(**settings)
    assert error.value.field == field


# Without the service.


def test_an_open_client_admits_and_says_that_nobody_counted() -> None:
    async def story() -> None:
        world = World(window(1))
        world.link.down = True
        for _ in range(3):
            answer = await world.client.check("ann", "/play")
            assert answer
            assert (answer.degraded, answer.source, answer.limit) == (True, "failure", -1)
        stats = world.client.stats()
        assert (stats.checks, stats.asked, stats.degraded) == (3, 0, 3)
        assert stats.failure == "it is gone"

    run(story)


def test_a_closed_client_refuses_and_believes_that_refusal_no_longer_than_it_lasts() -> None:
    async def story() -> None:
        world = World(window(1), failure="closed")
        world.link.down = True
        answer = await world.client.check("ann", "/play")
        assert not answer
        assert answer.reason is not None
        assert (answer.reason.name, answer.degraded) == ("store_unavailable", True)
        world.link.down = False
        assert await world.client.check("ann", "/play")

    run(story)


def test_a_local_client_counts_each_pair_by_its_own_limit() -> None:
    async def story() -> None:
        limit = Limit(2, period_us=60_000_000, algorithm=Algorithm.FIXED_WINDOW)
        world = World(window(100), failure="local", local_limit=limit)
        world.link.down = True
        answers = [await world.client.check("ann", "/play") for _ in range(3)]
        assert [bool(answer) for answer in answers] == [True, True, False]
        assert all(answer.degraded and answer.limit == 2 for answer in answers)
        assert await world.client.check("bob", "/play")
        world.link.down = False
        assert (await world.client.check("ann", "/play")).source == "service"

    run(story)


def test_what_was_leased_is_still_good_when_the_service_is_gone() -> None:
    async def story() -> None:
        world = World(window(100), lease=5, failure="closed")
        await world.client.check("ann", "/play")
        world.link.down = True
        assert [bool(await world.client.check("ann", "/play")) for _ in range(5)] == [
            True,
            True,
            True,
            True,
            False,
        ]

    run(story)


def test_an_answer_that_is_late_is_the_policys() -> None:
    async def story() -> None:
        world = World(window(1))
        world.link.gate = asyncio.Event()
        answer = await world.client.check("ann", "/play", timeout_ms=5)
        assert (answer.source, answer.allowed) == ("failure", True)
        assert world.client.stats().failure == "no answer in 5 ms"

    run(story)


def test_a_refusal_of_the_services_own_policy_is_not_believed() -> None:
    async def story() -> None:
        world = World(window(1), lease=None)
        world.checks.degraded = True
        for _ in range(2):
            answer = await world.client.check("ann", "/play")
            assert (answer.source, answer.degraded) == ("service", True)
        assert len(world.calls) == 2

    run(story)


# The client itself.


def test_a_closed_client_is_unavailable_and_closing_twice_is_once() -> None:
    async def story() -> None:
        async with World(window(1)).client as client:
            assert await client.check("ann", "/play")
        await client.close()
        assert (await client.check("bob", "/play")).degraded
        with pytest.raises(Unavailable, match="the client is closed"):
            await client.peek("bob", "/play")

    run(story)


def test_a_client_belongs_to_one_loop() -> None:
    world = World(window(10))
    run(lambda: world.client.check("ann", "/play"))
    with pytest.raises(RuntimeError, match="make one for each"):
        run(lambda: world.client.check("ann", "/play"))


def test_what_was_counted_adds_up() -> None:
    async def story() -> None:
        world = World(window(30), lease=10)
        for _ in range(40):
            await world.client.check("ann", "/play")
        stats = world.client.stats()
        assert stats.checks == 40
        assert stats.checks == stats.asked + stats.leased + stats.denied + stats.degraded
        assert stats.leased == 30
        assert stats.denied == 9
        assert stats.units_leased == 30
        await world.client.close()

    run(story)
