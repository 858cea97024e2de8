"""A limiter whose counts a service keeps: whatever works on Redis works on `sluicegate://`."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sluicegate import Claim, Limiter, Refused, Rule
from sluicegate.doors.asgi import LimitMiddleware
from tests.doors.guards import ByAddress
from tests.stores.service.door import Service


def test_threads_and_tasks_share_one_count(service: Service) -> None:
    with Limiter("20/hour", store_url=service.url) as limiter:
        with ThreadPoolExecutor(4) as threads:
            decisions = list(threads.map(lambda _: limiter.take("ann"), range(12)))
        assert all(decisions)

        async def story() -> list[bool]:
            async with Limiter("20/hour", store_url=service.url) as other:
                return [bool(await other.atake("ann")) for _ in range(10)]

        assert asyncio.run(story()) == [True] * 8 + [False] * 2
        # What was refused is refused here from now on.
        assert not limiter.take("ann")
        commands = service.door.commands
        assert not limiter.take("ann")
        assert service.door.commands == commands


def test_two_limiters_are_one_limit_and_claims_are_all_or_none(service: Service) -> None:
    rules = {"user": "3/hour", "site": "4/hour"}
    with (
        Limiter(rules=rules, store_url=service.url) as one,
        Limiter(rules=rules, store_url=service.url) as other,
    ):
        claims = Claim("ann", "user"), Claim("x", "site")
        assert [bool(limiter.take_all(*claims)) for limiter in (one, other, one, other)] == [
            True,
            True,
            True,
            False,
        ]
        assert one.take("x", rule="site")
        assert not other.take("x", rule="site")


def test_a_limiters_own_leases_spare_the_service(service: Service) -> None:
    with Limiter(Rule("1000/hour", lease=100), store_url=service.url) as limiter:
        for _ in range(500):
            assert limiter.take("ann")
        assert service.door.commands < 20
        limiter.close()


def test_decorators_reservations_refunds_and_resets(service: Service) -> None:
    with Limiter("3/hour", store_url=service.url) as limiter:

        @limiter.limit(key="everyone")
        def work() -> int:
            return 1

        assert [work(), work(), work()] == [1, 1, 1]
        with pytest.raises(Refused):
            work()
        limiter.reset("everyone")
        assert work() == 1
        reservation = limiter.reserve("bob", 3)
        assert reservation.decision
        reservation.settle(1)
        assert limiter.take("bob", 2)
        limiter.refund("bob", 1)
        assert limiter.take("bob", 1)


def test_who_would_rather_wait_is_admitted_when_there_is_room(service: Service) -> None:
    with Limiter("20/s burst 1", store_url=service.url) as limiter:
        assert all(limiter.wait("ann", timeout_s=5) for _ in range(4))


@pytest.mark.parametrize(
    ("failure", "allowed"), [("open", True), ("closed", False), ("local", True)]
)
def test_without_the_service_the_rule_says_what_happens(
    service: Service, failure: str, allowed: bool
) -> None:
    with Limiter("5/hour", store_url=service.url, failure=failure) as limiter:
        assert limiter.take("ann")
        service.shut()
        decision = limiter.take("ann")
        assert (decision.allowed, decision.degraded) == (allowed, True)


def test_a_gateway_fails_open_and_tells_its_upstream_and_its_client(service: Service) -> None:
    headers: list[dict[bytes, bytes]] = []
    sent: list[Any] = []

    async def upstream(scope: Any, receive: Any, send: Any) -> None:
        headers.append(dict(scope["headers"]))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def send(message: Any) -> None:
        sent.append(message)

    async def story() -> None:
        limiter = Limiter(rules={"pages": "5/hour"}, store_url=service.url)
        gateway = LimitMiddleware(upstream, ByAddress(limiter=limiter), mark_upstream=True)
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/",
            "headers": [(b"x-ratelimit-error", b"made_up")],
            "client": ("1.2.3.4", 5),
        }
        await gateway(dict(scope), None, send)
        service.shut()
        await asyncio.sleep(0.05)
        await gateway(dict(scope), None, send)
        await limiter.aclose()

    asyncio.run(story())
    assert b"x-ratelimit-error" not in headers[0]
    assert headers[1][b"x-ratelimit-error"] == b"store_unavailable"
    starts = [dict(message["headers"]) for message in sent if "headers" in message]
    assert b"x-ratelimit-error" not in starts[0]
    assert starts[1][b"x-ratelimit-error"] == b"store_unavailable"
