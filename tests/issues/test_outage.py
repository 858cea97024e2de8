"""Outage: a store that is down or hangs must cost its users a bounded moment, and no errors.

slowapi answers 500 when its store is down, also where it is told to swallow errors. limits and
throttled-py have no time-out of their own: a store that hung for four seconds held each decision
for four seconds. With slowapi a store that pauses for a second stops the event loop for a second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI

from sluicegate import Limiter
from sluicegate.doors.asgi import LimitMiddleware
from sluicegate.doors.fastapi import by_address, install, limit
from sluicegate.rules.web.guard import RulesGuard

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

ASKS = 100
TIMEOUT_S = 0.5  # long beside what a busy machine adds to a hundred decisions
TIMEOUTS = f"?timeout_ms={TIMEOUT_S * 1e3:.0f}&connect_timeout_ms={TIMEOUT_S * 1e3:.0f}"
# The few who find out wait for the store, and the others do not: each on its own would take ASKS.
WAITS_S_MAX = ASKS / 5 * TIMEOUT_S
TURNS_MIN = 300
PATIENT = "?timeout_ms=20000&connect_timeout_ms=20000"


def by_middleware(limiter: Limiter) -> FastAPI:
    app = FastAPI()
    router = APIRouter()
    router.get("/")(hello)
    app.include_router(router)
    # Two rules, two entities: what is decided without the store is decided together as well.
    rules = {
        "each": {"limit": "2/day", "key": "address"},
        "all": {"limit": "100/day; 100/hour", "key": "everyone"},
    }
    app.add_middleware(LimitMiddleware, guard=RulesGuard({"rules": rules}, limiter))
    return app


def by_dependency(limiter: Limiter) -> FastAPI:
    app = FastAPI()
    here = Depends(limit(limiter, "2/day", key=by_address()))
    app.get("/", dependencies=[here])(hello)
    install(app)
    return app


async def hello() -> str:
    return "hello"


each_way = pytest.mark.parametrize("made", [by_middleware, by_dependency])


@asynccontextmanager
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    # As a server would: what the application raises is a 500.
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://t") as http_client:
        yield http_client


def after_the_end_of(
    server: RedisServer, made: Callable[[Limiter], FastAPI], failure: str
) -> list[httpx.Response]:
    """What an application answers that was served by Redis until it was killed."""

    async def story() -> list[httpx.Response]:
        url = server.url + PATIENT
        async with (
            Limiter(store_url=url, failure=failure) as limiter,
            client(made(limiter)) as http_client,
        ):
            before = await http_client.get("/")
            assert before.status_code == 200
            assert "x-ratelimit-error" not in before.headers
            server.kill()
            return [await http_client.get("/") for _ in range(4)]

    return asyncio.run(story())


@each_way
def test_fail_open_admits_and_says_so(
    redis_server: RedisServer, made: Callable[[Limiter], FastAPI]
) -> None:
    # slowapi, swallow_errors: 500. https://github.com/laurentS/slowapi/issues/253
    answers = after_the_end_of(redis_server, made, "open")
    assert [answer.status_code for answer in answers] == [200] * 4
    for answer in answers:
        assert answer.headers["x-ratelimit-error"]
        assert "ratelimit" not in answer.headers  # nobody has counted
        assert "retry-after" not in answer.headers


@each_way
def test_fail_closed_is_a_problem_that_names_its_reason_and_no_crash(
    redis_server: RedisServer, made: Callable[[Limiter], FastAPI]
) -> None:
    # slowapi's handler assumes a `.detail`: https://github.com/laurentS/slowapi/issues/114
    answers = after_the_end_of(redis_server, made, "closed")
    assert [answer.status_code for answer in answers] == [503] * 4
    for answer in answers:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["x-ratelimit-error"]
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["status"] == 503
        assert answer.json()["reason"] == "store_unavailable"


@each_way
def test_fail_local_goes_on_counting_here(
    redis_server: RedisServer, made: Callable[[Limiter], FastAPI]
) -> None:
    answers = after_the_end_of(redis_server, made, "local")
    assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
    assert all(answer.headers["x-ratelimit-error"] for answer in answers)
    assert int(answers[-1].headers["retry-after"]) > 1


def test_a_store_that_returns_is_asked_again(redis_server: RedisServer) -> None:
    async def story() -> None:
        async with Limiter(
            "100/day", store_url=redis_server.patient_url, failure="closed"
        ) as limiter:
            redis_server.kill()
            assert not await limiter.atake("ann")
            redis_server.restart()
            async with asyncio.timeout(60):
                while not await limiter.atake("ann"):
                    await asyncio.sleep(0.02)
            assert not (await limiter.apeek("ann")).degraded

    asyncio.run(story())


def timed(ask: Callable[[], Any]) -> tuple[float, bool]:
    """How long a decision took, and whether it was made without the store."""
    began_s = time.monotonic()
    decision = ask()
    return time.monotonic() - began_s, decision.degraded


def test_a_thread_is_answered_in_bounded_time_while_the_store_is_down(
    redis_server: RedisServer,
) -> None:
    redis_server.kill()
    with Limiter("100/day", store_url=redis_server.url + TIMEOUTS) as limiter:
        took = [timed(lambda: limiter.take("ann")) for _ in range(ASKS)]
    assert all(degraded for _, degraded in took)
    assert sum(seconds for seconds, _ in took) < WAITS_S_MAX


@pytest.mark.parametrize("connected", [True, False])
def test_a_thread_is_answered_in_bounded_time_while_the_store_hangs(
    redis_server: RedisServer, connected: bool
) -> None:
    # limits and throttled-py: as long as the store hangs.
    with Limiter("100/day", store_url=redis_server.url + TIMEOUTS) as limiter:
        if connected:
            while limiter.take("ann").degraded:
                time.sleep(0.02)
        redis_server.pause()
        took = [timed(lambda: limiter.take("ann")) for _ in range(ASKS)]
        redis_server.resume()
    assert all(degraded for _, degraded in took)
    assert sum(seconds for seconds, _ in took) < WAITS_S_MAX


@pytest.mark.parametrize("connected", [True, False])
def test_a_hundred_tasks_are_answered_in_bounded_time_while_the_store_hangs(
    redis_server: RedisServer, connected: bool
) -> None:
    async def story() -> float:
        async with Limiter("1000/day", store_url=redis_server.url + TIMEOUTS) as limiter:
            if connected:
                while (await limiter.atake("ann")).degraded:
                    await asyncio.sleep(0.02)
            redis_server.pause()
            began_s = time.monotonic()
            decisions = await asyncio.gather(*(limiter.atake("ann") for _ in range(ASKS)))
            took_s = time.monotonic() - began_s
            redis_server.resume()
            assert all(decision.degraded for decision in decisions)
            return took_s

    assert asyncio.run(story()) < WAITS_S_MAX


async def turns_during(work: Callable[[], Any]) -> int:
    """How many times the loop turned while `work` ran; in what stops it, it turns not once."""
    turns = 0
    working = asyncio.ensure_future(work())
    while not working.done():
        turns += 1
        await asyncio.sleep(0)
    await working
    return turns


@pytest.mark.parametrize("door", ["atake", "decorator", "middleware", "dependency"])
def test_the_event_loop_goes_on_while_the_store_pauses(
    redis_server: RedisServer, door: str
) -> None:
    # slowapi: 1,005 ms of a second's pause. https://github.com/laurentS/slowapi/issues/55
    async def story() -> int:
        # Asked for on the loop's own thread, each of these would stall it for this long.
        url = f"{redis_server.url}?timeout_ms=300&connect_timeout_ms=20000"
        async with Limiter("1000/day", store_url=url) as limiter:

            @limiter.limit(key="ann")
            async def job() -> None: ...

            async def atake() -> None:
                await limiter.atake("ann")

            app = by_middleware(limiter) if door == "middleware" else by_dependency(limiter)
            async with client(app) as http_client:

                async def get() -> None:
                    assert (await http_client.get("/")).status_code == 200

                one = {"atake": atake, "decorator": job}.get(door, get)

                async def many() -> None:
                    await asyncio.gather(*(one() for _ in range(5)))

                while (await limiter.atake("other")).degraded:
                    await asyncio.sleep(0.02)
                with suppress(AssertionError):
                    await get()  # what is made at the first request is made
                redis_server.pause()
                began_s = time.monotonic()
                turns = await turns_during(many)
                waited_s = time.monotonic() - began_s
                redis_server.resume()
                assert waited_s > 0.25, "nobody has waited for the store"
                return turns

    # A loop that waits in a call turns some ten times for what goes before and comes after it.
    assert asyncio.run(story()) > TURNS_MIN
