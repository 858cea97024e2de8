"""Keys: names that look like keys, and one bucket that all clients share without anybody's saying.

In pyrate-limiter a name is a label: bob pays for alice. fastapi-limiter as its README shows it has
one bucket for all clients. Its default takes the first address that a client claims to have.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI

from sluicegate import Limiter
from sluicegate.doors.asgi import LimitMiddleware
from sluicegate.doors.django import ratelimit
from sluicegate.doors.fastapi import by_address, limit
from sluicegate.rules.problems import BadRules
from sluicegate.rules.web.guard import RulesGuard
from sluicegate.testing import HandClock


def got(app: Any, *clients: str, forwarded: str = "") -> list[int]:
    """The status that each of these clients gets, in turn."""

    async def one(address: str) -> int:
        transport = httpx.ASGITransport(app, client=(address, 4711))
        headers = {"x-forwarded-for": forwarded} if forwarded else {}
        async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
            return (await client.get("/", headers=headers)).status_code

    async def all_of_them() -> list[int]:
        return [await one(address) for address in clients]

    return asyncio.run(all_of_them())


def hello(*dependencies: Any) -> FastAPI:
    app = FastAPI()

    @app.get("/", dependencies=[Depends(one) for one in dependencies])
    async def root() -> str:
        return "hello"

    return app


def test_bob_does_not_pay_for_alice() -> None:
    # pyrate-limiter: https://github.com/vutran1710/PyrateLimiter/issues/238
    limiter = Limiter(rules={"search": "2/minute"}, clock=HandClock())
    answers = [limiter.take(who, rule="search").allowed for who in ("alice", "alice", "bob")]
    assert answers == [True, True, True]


def test_two_clients_have_a_limit_each() -> None:
    # fastapi-limiter 0.2: [200, 200, 429]
    app = hello(limit(Limiter("2/minute", clock=HandClock()), key=by_address()))
    assert got(app, "192.0.2.1", "192.0.2.1", "192.0.2.2") == [200, 200, 200]
    assert got(app, "192.0.2.1", "192.0.2.2", "192.0.2.2") == [429, 200, 429]


def test_a_limit_without_a_key_is_an_error_wherever_it_is_put() -> None:
    limiter: Any = Limiter("2/minute")
    with pytest.raises(TypeError, match="key"):
        limiter.take()
    with pytest.raises(TypeError, match="key"):
        limiter.limit("2/minute")
    with pytest.raises(TypeError, match="key"):
        limit(limiter, "2/minute")  # type: ignore[call-arg]


def test_a_decorator_that_may_leave_its_key_out_counts_each_address() -> None:
    assert inspect.signature(ratelimit).parameters["key"].default == "ip"


def test_a_rule_without_a_key_is_an_error_and_everyone_must_be_said() -> None:
    with pytest.raises(BadRules, match="key"):
        RulesGuard({"rules": {"all": {"limit": "2/minute"}}}, Limiter())
    rules = {"rules": {"all": {"limit": "2/minute", "key": "everyone"}}}
    app = LimitMiddleware(hello(), RulesGuard(rules, Limiter(clock=HandClock())))
    assert got(app, "192.0.2.1", "192.0.2.2", "192.0.2.3") == [200, 200, 429]


def test_a_client_cannot_choose_its_address() -> None:
    # Trusting the first X-Forwarded-For: https://github.com/Observal/Observal/pull/980
    rules = {"rules": {"each": {"limit": "1/minute", "key": "address"}}}
    alone = LimitMiddleware(hello(), RulesGuard(rules, Limiter(clock=HandClock())))
    assert got(alone, "192.0.2.1", forwarded="203.0.113.1") == [200]
    assert got(alone, "192.0.2.1", forwarded="203.0.113.2") == [429]


def test_clients_behind_a_proxy_of_ours_do_not_share_its_address() -> None:
    # Everyone in the proxy's bucket: https://github.com/janavipandole/Cara/pull/6007
    rules = {"rules": {"each": {"limit": "1/minute", "key": "address"}}}
    guard = RulesGuard(rules, Limiter(clock=HandClock()))
    behind = LimitMiddleware(hello(), guard, trust_proxies=1)
    assert got(behind, "10.0.0.1", forwarded="203.0.113.1") == [200]
    assert got(behind, "10.0.0.1", forwarded="203.0.113.2") == [200]
    # What stands before the proxy's own word is the client's claim.
    assert got(behind, "10.0.0.1", forwarded="198.51.100.9, 203.0.113.2") == [429]
