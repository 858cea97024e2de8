"""Names of keys in a Redis, which people read and other programs may: entity, rule, window."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import redis

from sluicegate import Limiter
from sluicegate.apps.limiter.namespaced_store import NamespacedStore
from sluicegate.contracts.checks import CheckRequest, MaybeAwaitable, MeshRequest
from sluicegate.contracts.store import Store
from sluicegate.limits.rule import RuleLike
from sluicegate.rules.mesh.rule_set import MeshRuleSet
from sluicegate.rules.mesh.service import Mesh
from sluicegate.rules.resources.service import Checker
from sluicegate.rules.shared_limits import SharedLimits
from sluicegate.stores.redis.store import RedisStore
from sluicegate.testing import SeededChance
from tests.rules.mesh.world import SLUICEGATE, Noted, OpenGate, by, domain_of
from tests.rules.resources import stories

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

T = TypeVar("T")

SHOP = """
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 3}
"""
RULES = (
    stories.rule("login", "/login", 5),
    stories.rule("each", "/each", 5, per="user+resource"),
    stories.rule("all", "/all", 5, per="resource"),
)
NAMES = {
    b"rate_limit:{ann}:login:60s",
    b"rate_limit:{a\x1fb}:login:60s",
    b"rate_limit:{ann//each}:each:60s",
    b"rate_limit:{/all}:all:60s",
    b"rate_limit:{bob}:shop/user:60s",
}


def test_rules_that_share_a_limit_have_keys_with_their_own_names(redis_server: RedisServer) -> None:
    assert _names(redis_server, Limiter(store_url=redis_server.patient_url)) == NAMES


def test_limiters_elsewhere_count_beside_our_rules_also_where_rules_share_a_limit(
    redis_server: RedisServer,
) -> None:
    owned: list[Store] = []

    def open_store() -> Store:
        owned.append(RedisStore(redis_server.patient_url, SeededChance(7)))
        return NamespacedStore(owned[0])

    names = _names(redis_server, Limiter(open_store=open_store), owned)
    assert names == {name.replace(b"}:", b"}:@") for name in NAMES}


def _names(server: RedisServer, limiter: Limiter, owned: Sequence[Store] = ()) -> set[bytes]:
    client = redis.Redis.from_url(server.url)
    client.flushall()

    async def story() -> None:
        async with limiter:
            await _ask(limiter)
        for store in owned:
            await store.close()

    asyncio.run(story())
    found = {name for name in client.keys("rate_limit:*") if isinstance(name, bytes)}
    client.close()
    return found


async def _ask(limiter: Limiter) -> None:
    book, shared = stories.book_of(stories.native(*RULES))
    mesh_shared = SharedLimits()
    domain = domain_of(SHOP, SLUICEGATE, mesh_shared)
    rules: Mapping[str, RuleLike] = {**shared.rules, **mesh_shared.rules}
    limiter.replace_rules(rules)
    checker = Checker(limiter, OpenGate(), Noted(), book=book, chance=SeededChance(7))
    for user, path in (("ann", "/login"), ("a\x1fb", "/login"), ("ann", "/each"), ("ann", "/all")):
        await _answer(checker.check(CheckRequest(user, path), 0))
    mesh = Mesh(limiter, OpenGate(), Noted(), book=MeshRuleSet([domain]))
    await _answer(mesh.should_rate_limit(MeshRequest("shop", [by(("user", "bob"))]), 0))


async def _answer(response: MaybeAwaitable[T]) -> T:
    return await response if inspect.isawaitable(response) else response
