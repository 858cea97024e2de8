"""A mesh whose counts are elsewhere: the same answers, and what happens when none come."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings

from sluicegate import Limiter
from sluicegate.contracts.checks import MeshRequest, MeshResponse
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.reasons import STORE_UNAVAILABLE
from sluicegate.contracts.store import Charge, PartialTake, Ruling
from sluicegate.limits.glass.break_glass import ALL, Glass, GlassView, Opening
from sluicegate.rules.mesh.rule import Semantics
from sluicegate.rules.mesh.service import Mesh
from sluicegate.rules.mesh.settings import MeshSettings
from sluicegate.stores.memory.store import MemoryStore
from sluicegate.testing import HandClock
from tests.rules.mesh.reference import SECONDS, Reference
from tests.rules.mesh.test_reference import STEPS, as_reference, compiled, state_of, trees
from tests.rules.mesh.world import ENVOY, SLUICEGATE, Noted, OpenGate, World, by, lefts, overs

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

USER = by(("user", "bob"))


class Silent:
    """A store that never answers."""

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        raise Unavailable("the store", "silence")

    async def take_some(self, charge: Charge, ladder: Sequence[int]) -> PartialTake:
        raise Unavailable("the store", "silence")

    async def settle(self, charges: Sequence[Charge], taken_us: int | None = None) -> None:
        raise Unavailable("the store", "silence")

    async def reset(self, charges: Sequence[Charge]) -> None:
        raise Unavailable("the store", "silence")

    async def close(self) -> None:
        pass


async def sequence(
    mesh: Mesh, reference: Reference, steps: Any, clock: HandClock, *, resets: bool
) -> None:
    for advance_s, descriptors, hits in steps:
        clock.advance(s=advance_s, us=1)
        now_us = clock.now_us()
        answer = mesh.should_rate_limit(state_of(descriptors, hits), now_us)
        if not isinstance(answer, MeshResponse):
            answer = await answer
        over, statuses = reference.ask(descriptors, hits, now_us // 1_000_000)
        if not resets:
            statuses = [status._replace(reset_s=-1) for status in statuses]
        assert as_reference(answer, resets=resets) == (over, statuses)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(trees(tuple(SECONDS)), STEPS)
def test_answers_that_come_later_are_those_of_the_reference(
    tree: list[dict[str, Any]], steps: Any
) -> None:
    clock = HandClock()
    limiter = Limiter(clock=clock, open_store=lambda: MemoryStore(clock.now_us))
    mesh = Mesh(
        limiter,
        OpenGate(),
        Noted(),
        settings=MeshSettings(semantics=ENVOY),
        book=compiled(tree, limiter),
    )
    asyncio.run(sequence(mesh, Reference("d.e", tree), steps, clock, resets=True))


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(tree=trees(("year",)), steps=STEPS)
def test_answers_of_redis_are_those_of_the_reference(
    redis_any: RedisServer, tree: list[dict[str, Any]], steps: Any
) -> None:
    steps = [
        (0, [descriptor._replace(override=None) for descriptor in descriptors], hits)
        for _, descriptors, hits in steps
    ]

    async def story() -> None:
        async with Limiter(
            store_url=redis_any.patient_url, prefix=f"mesh-{uuid4().hex}"
        ) as limiter:
            mesh = Mesh(
                limiter,
                OpenGate(),
                Noted(),
                settings=MeshSettings(semantics=ENVOY),
                book=compiled(tree, limiter),
            )
            reference = Reference("d.e", tree)
            await sequence(mesh, reference, steps, HandClock(), resets=False)

    asyncio.run(story())


def test_keys_in_redis_read_well(redis_any: RedisServer) -> None:
    async def story() -> list[bytes]:
        prefix = f"mesh-{uuid4().hex}"
        async with Limiter(store_url=redis_any.patient_url, prefix=prefix) as limiter:
            shop = World(far_rules(), MeshSettings(semantics=ENVOY), limiter)
            answer = shop.mesh.should_rate_limit(MeshRequest("shop", [USER]), 0)
            assert not isinstance(answer, MeshResponse)
            await answer
        from redis import Redis

        with Redis.from_url(redis_any.url) as client:
            return [key.removeprefix(f"{prefix}:".encode()) for key in client.keys(f"{prefix}*")]

    assert asyncio.run(story()) == [b"{bob}:shop/user:60s"]


def far_rules(terms: str = "") -> str:
    return (
        "domain: shop\ndescriptors:\n  - key: user\n"
        f"    rate_limit: {{unit: minute, requests_per_unit: 2{terms}}}\n"
        "  - key: path\n    rate_limit: {unit: minute, requests_per_unit: 9}\n"
    )


def asks(world: World, *requests: Sequence[Any]) -> list[MeshResponse]:
    """The answers to several requests, one after the other."""

    async def story() -> list[MeshResponse]:
        answers = []
        for descriptors in requests:
            answer = world.mesh.should_rate_limit(
                MeshRequest("shop", descriptors), world.clock.now_us()
            )
            answers.append(answer if isinstance(answer, MeshResponse) else await answer)
        return answers

    return asyncio.run(story())


def silent(semantics: Semantics, failure: str) -> World:
    return World(
        far_rules(f", failure: {failure}"),
        MeshSettings(semantics=semantics),
        Limiter(open_store=Silent, clock=HandClock()),
    )


MARK = {"sluicegate": {"without_store": True, "reason": "store_unavailable"}}


@pytest.mark.parametrize("semantics", [ENVOY, SLUICEGATE])
def test_a_silent_store_lets_in_and_says_so_upstream(semantics: Semantics) -> None:
    shop = silent(semantics, "open")
    for answer in asks(shop, [USER], [USER, by(("path", "x"))], [USER], [USER]):
        assert not answer.over
        assert answer.request_headers == [("x-ratelimit-error", "store_unavailable")]
        assert answer.response_headers == []
        assert answer.metadata == MARK
        assert all(status.limit is None for status in answer.statuses), "nobody counted"
    assert all(decision.degraded and decision.allowed for *_, decision in shop.ledger.entries)
    assert sum(one.within_limit for one in shop.mesh.stats()) == 5


@pytest.mark.parametrize("semantics", [ENVOY, SLUICEGATE])
def test_a_rule_that_is_closed_refuses_then_and_says_why(semantics: Semantics) -> None:
    shop = silent(semantics, "closed")
    for answer in asks(shop, [USER], [USER, by(("path", "x"))]):
        assert answer.over
        assert overs(answer)[0]
        assert answer.response_headers == [("x-sluicegate-reason", "store_unavailable")]
        assert answer.request_headers == [("x-ratelimit-error", "store_unavailable")]
        assert answer.metadata == MARK
    decision = shop.ledger.entries[0][-1]
    assert not decision.allowed
    assert decision.degraded
    assert decision.reason is STORE_UNAVAILABLE


@pytest.mark.parametrize("semantics", [ENVOY, SLUICEGATE])
def test_a_rule_that_is_local_counts_here_then(semantics: Semantics) -> None:
    answers = asks(silent(semantics, "local"), [USER], [USER], [USER], [USER])
    assert [answer.over for answer in answers] == [False, False, True, True]
    assert [lefts(answer)[0] for answer in answers] == [1, 0, 0, 0]
    assert all(answer.metadata == MARK for answer in answers)


def test_a_refusal_that_is_remembered_is_told_of_the_right_descriptor() -> None:
    """A limiter remembers it by the name of the shape, and both users have the same one."""
    clock = HandClock()
    shop = World(
        far_rules(),
        limiter=Limiter(clock=clock, open_store=lambda: MemoryStore(clock.now_us)),
    )
    al, eve = by(("user", "al")), by(("user", "eve"))
    answers = asks(shop, [eve], [eve], [eve], [al, eve], [eve, al], [al])
    assert [answer.over for answer in answers] == [False, False, True, True, True, False]
    assert overs(answers[3]) == [False, True]
    assert overs(answers[4]) == [True, False]
    assert lefts(answers[5]) == [1]


@pytest.mark.parametrize("semantics", [ENVOY, SLUICEGATE])
def test_a_broken_glass_lets_in_and_counts_nothing(semantics: Semantics) -> None:
    clock, glass = HandClock(), Glass()
    shop = World(far_rules(), MeshSettings(semantics=semantics), Limiter(glass=glass, clock=clock))
    until_us = clock.now_us() + 60_000_000
    opening = Opening("1", ALL, ALL, until_us, clock.now_us(), "ann", "the rule is wrong")
    glass.show(GlassView(clock.now_us(), [opening]), clock.now_us())
    for answer in asks(shop, *[[USER, by(("path", "x"))]] * 3, [USER]):
        assert not answer.over
        assert lefts(answer)[0] == 2
    assert all(decision.overridden for *_, decision in shop.ledger.entries)
