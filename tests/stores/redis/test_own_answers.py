"""Chaos between each client and its server: whatever breaks, no answer reaches another caller."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from sluicegate.contracts.errors import Unavailable
from sluicegate.stores.redis.connection import (
    GuardWords,
    RedisConnection,
    _connect,
    _greet,
    guard_command,
    open_connection,
)
from sluicegate.stores.redis.settings import Endpoint, RedisSettings
from sluicegate.wire.resp import command
from tests.chaos.proxy import FaultyProxy
from tests.chaos.run import chaos, check, place_of
from tests.stores.redis.live import LOOPS, PATIENCE_S, PATIENT_US, run

if TYPE_CHECKING:
    from tests.engines.redis import RedisCluster, RedisServer

ANSWERS = 2_000
CALLS = 10  # in one write
# Each crowd on the loop of the services; `tests/prove` has the rest.
CROWDS = [("client", "asyncio"), *((row, "uvloop") for row in ("client", "store", "threads", "kv"))]


@pytest.mark.parametrize(("row", "loop"), CROWDS)
def test_fault_brings_no_answer_to_another_caller(
    redis_server: RedisServer, row: str, loop: str
) -> None:
    with place_of(row, redis_server) as (url, proxy, engine):
        check(chaos(row, url, proxy, engine, loop=loop, seed=1, answers=ANSWERS), ANSWERS)


def test_fault_in_cluster_brings_no_answer_to_another_caller(redis_cluster: RedisCluster) -> None:
    with place_of("cluster", redis_cluster) as (url, proxy, engine):
        check(chaos("cluster", url, proxy, engine, loop="uvloop", seed=1, answers=ANSWERS), ANSWERS)


def test_fault_at_service_brings_no_answer_to_another_caller() -> None:
    with place_of("service", None) as (url, proxy, engine):
        check(chaos("service", url, proxy, engine, loop="uvloop", seed=1, answers=ANSWERS), ANSWERS)


# The control: what must be seen, and is where guards are missing.


async def unguarded(endpoint: Endpoint, settings: RedisSettings) -> RedisConnection:
    """A connection that believes whatever comes."""
    connection = RedisConnection(endpoint, settings, asyncio.get_running_loop())
    await _connect(connection, endpoint, settings)
    await _greet(connection, settings)
    return connection


async def foreign_answers(connection: RedisConnection, proxy: FaultyProxy, edit: str) -> int:
    """Break the order once, then write often; how many answers were another call's."""
    words = [[f"{10 * write + n:04}".encode() for n in range(CALLS)] for write in range(100)]
    size = sum(len(command("ECHO", word)) for word in words[0])
    proxy.tell(f"lose {size + guard_bytes(connection)}" if edit == "lose" else edit)
    calls = []
    for write in words:
        calls += [connection.ask("ECHO", word) for word in write]
        connection.push()
        await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE_S):
        # One write that was lost is never answered.
        while connection.is_open and connection.inflight > CALLS:
            await asyncio.sleep(0.005)
    connection.end("the test is over")
    answers = await asyncio.gather(*calls, return_exceptions=True)
    pairs = zip(answers, (word for write in words for word in write), strict=True)
    return sum(answer != word for answer, word in pairs if not isinstance(answer, Unavailable))


def guard_bytes(connection: RedisConnection) -> int:
    """The size of a guard, or 0 without guards."""
    return len(guard_command(GuardWords().next())) if connection.is_guarded else 0


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("edit", ["drop", "twice", "lose"])
def test_broken_order_is_seen_without_guards_and_stopped_by_them(
    redis_server: RedisServer, edit: str, loop: str
) -> None:
    async def story(is_guarded: bool) -> tuple[int, str]:
        settings = RedisSettings(timeout_us=PATIENT_US, silence_us_max=60_000_000)
        with FaultyProxy(redis_server.port) as proxy:
            endpoint = Endpoint("127.0.0.1", proxy.ports[0])
            make = open_connection if is_guarded else unguarded
            connection = await make(endpoint, settings)
            foreign = await foreign_answers(connection, proxy, edit)
            after = await asyncio.gather(connection.ask("PING"), return_exceptions=True)
            return foreign, str(after[0])

    foreign, _ = run(story(is_guarded=False), loop)
    assert foreign > 0
    foreign, why = run(story(is_guarded=True), loop)
    assert foreign == 0
    assert "an answer is missing, or one too many" in why
