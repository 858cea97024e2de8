"""A connection of gRPC or HTTP rests when all who speak on it are far over their quota.

Over real sockets. The pace makes up for a refusal a second, so no machine is slow enough to do so
while a story goes on; whoever rests is known to do so for as long as four seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple, TypeAlias

import grpc
import httpx
import pytest

from sluicegate.contracts.access import EVERY_GRANT, EVERY_TABLE_GRANT, Identity
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.key_values import CallContext, Row
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT, OVERLOADED, QUOTA_SPENT, Reason
from sluicegate.doors.connection_pace import CALLERS_MAX, ConnectionPace
from sluicegate.doors.grpc.key_values import KeyValuesServicer
from sluicegate.doors.grpc.methods import Methods
from sluicegate.doors.grpc.protocol import GrpcDoor
from sluicegate.doors.http.kv.handler import KvHttp
from sluicegate.doors.http.protocol import HttpDoor
from sluicegate.doors.listener import Language, Listener
from sluicegate.policies.quota.refusal_pace import RefusalPace, RefusalPaceSettings
from sluicegate.protos import key_values_pb2 as pb
from sluicegate.system import SystemClock
from sluicegate.testing import HandClock
from tests.doors.listening import WAIT_S, run
from tests.doors.memory_service import MemoryService, refused
from tests.doors.resp.service import Tokens

BURST = 50
DELAY_MS = 4_000
SETTINGS = RefusalPaceSettings(burst=BURST, refusals_per_s=1, delay_us_max=DELAY_MS * 1_000)
TOKENS = Tokens(
    {
        name: Identity(name, EVERY_GRANT, {"*": EVERY_TABLE_GRANT})
        for name in ("hammer", "busy", "good")
    },
    everybody=False,
)


class Quotas(MemoryService):
    """Nothing is left for one caller; of another every second request is too much."""

    def __init__(self, reason: Reason = QUOTA_SPENT, *, at_once: bool = True) -> None:
        super().__init__()
        self.reads: dict[str, int] = {}
        self._error = refused(reason, 1_000)
        self._at_once = at_once

    def get(
        self, table: str, partition: bytes, sort: bytes, call: CallContext
    ) -> MaybeAwaitable[Row | None]:
        name = call.identity.name
        count = self.reads[name] = self.reads.get(name, 0) + 1
        if name == "hammer" or (name == "busy" and count % 2):
            if not self._at_once:
                return self._refuse_later()
            raise self._error
        return Row(sort, b"v")

    async def _refuse_later(self) -> Row | None:
        await asyncio.sleep(0)
        raise self._error


class Answer(NamedTuple):
    """Whether a read was served, and how much later its connection is read from now on."""

    served: bool
    slowed_ms: int


# Makes a read by whoever has that token, on one connection.
Ask: TypeAlias = "Callable[[str], Any]"


@asynccontextmanager
async def http_connection(port: int) -> AsyncIterator[Ask]:
    limits = httpx.Limits(max_connections=1)
    url = f"http://127.0.0.1:{port}/v1/tables/t/rows/k"
    async with httpx.AsyncClient(limits=limits, timeout=WAIT_S) as client:

        async def ask(token: str) -> Answer:
            got = await client.get(url, headers={"authorization": f"Bearer {token}"})
            slowed_ms = int(got.headers.get("x-sluicegate-slowed-ms", 0))
            return Answer(got.status_code == 200, slowed_ms)

        yield ask


@asynccontextmanager
async def grpc_connection(port: int) -> AsyncIterator[Ask]:
    alone = (("grpc.use_local_subchannel_pool", 1),)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=alone) as channel:
        call: Any = channel.unary_unary("/sluicegate.v1.KeyValues/Get")
        message = pb.GetRequest(table="t", partition=b"k").SerializeToString()

        async def ask(token: str) -> Answer:
            try:
                metadata = (("authorization", f"Bearer {token}"),)
                await call(message, metadata=metadata, timeout=WAIT_S)
            except grpc.aio.AioRpcError as error:
                trailers = dict(error.trailing_metadata() or ())
                return Answer(False, int(trailers.get("sluicegate-slowed-ms", 0)))
            return Answer(True, 0)

        yield ask


def http_door(quotas: Quotas, pace: RefusalPace | None) -> Any:
    handler = KvHttp(quotas, quotas, TOKENS, quotas.clock)
    return {Language.HTTP1: HttpDoor(handler.handle, SystemClock(), pace=pace)}


def grpc_door(quotas: Quotas, pace: RefusalPace | None) -> Any:
    servicer = KeyValuesServicer(quotas, quotas.clock)
    methods = Methods({}, {}, with_metadata=servicer.with_metadata, grants=servicer.grants)
    door = GrpcDoor(methods, TOKENS, SystemClock(), pace=pace)
    return {Language.HTTP2: lambda _peer: door()}


class Door(NamedTuple):
    """A language: its door, and a connection to it."""

    make: Callable[[Quotas, RefusalPace | None], Any]
    connect: Callable[[int], AbstractAsyncContextManager[Ask]]


each_door = pytest.mark.parametrize(
    "door",
    [Door(http_door, http_connection), Door(grpc_door, grpc_connection)],
    ids=["HTTP", "gRPC"],
)


@asynccontextmanager
async def listening(
    door: Door, quotas: Quotas, pace: RefusalPace | None
) -> AsyncIterator[Callable[[], AbstractAsyncContextManager[Ask]]]:
    async with Listener(["127.0.0.1:0"], door.make(quotas, pace)) as listener:
        yield lambda: door.connect(listener.addresses[0].port)


async def ask_until_slowed(ask: Ask, token: str, pace: RefusalPace, times_max: int) -> int:
    """Ask until the connection rests; return what the last answer said of it."""
    answer = Answer(True, 0)
    for _ in range(times_max):
        if pace.slowed:
            break
        answer = await ask(token)
        assert not answer.served
    assert pace.slowed == 1
    return answer.slowed_ms


@each_door
@pytest.mark.parametrize(
    ("reason", "at_once"),
    [(QUOTA_SPENT, True), (QUOTA_SPENT, False), (COST_ABOVE_LIMIT, True)],
)
def test_the_connections_of_a_caller_far_over_its_quota_rest_and_it_is_told(
    door: Door, reason: Reason, at_once: bool
) -> None:
    async def story() -> None:
        quotas, pace = Quotas(reason, at_once=at_once), RefusalPace(SETTINGS)
        async with (
            listening(door, quotas, pace) as connect,
            connect() as hammer,
            connect() as second,
            connect() as others,
        ):
            first_ms = await ask_until_slowed(hammer, "hammer", pace, BURST + 2)
            first_s = asyncio.get_running_loop().time()
            told_ms = (await second("hammer")).slowed_ms
            second_s = asyncio.get_running_loop().time()
            assert 0 < first_ms <= DELAY_MS
            assert 0 < told_ms <= DELAY_MS
            assert pace.slowed == 2
            until_s = min(first_s + first_ms / 1_000, second_s + told_ms / 1_000)
            reads = quotas.reads["hammer"]
            asked = [asyncio.ensure_future(ask("hammer")) for ask in (hammer, second)]
            # Others are served as ever, also one who asks for twice its quota.
            answers = [await others("busy") for _ in range(4 * BURST)]
            assert sum(answer.served for answer in answers) == 2 * BURST
            assert not any(answer.slowed_ms for answer in answers)
            assert all([(await others("good")).served for _ in range(10)])
            if asyncio.get_running_loop().time() < until_s:  # else they may have been read again
                assert quotas.reads["hammer"] == reads
                assert pace.slowed == 2
            for one in asked:
                one.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    run(story)


@each_door
def test_a_rest_ends_by_itself(door: Door) -> None:
    async def story() -> None:
        quotas = Quotas()
        pace = RefusalPace(RefusalPaceSettings(burst=1, refusals_per_s=100, delay_us_max=10_000))
        async with listening(door, quotas, pace) as connect, connect() as hammer:
            for _ in range(10):
                assert not (await hammer("hammer")).served
        assert quotas.reads["hammer"] == 10
        assert pace.slowed > 1
        assert pace.slowed_us <= 10 * 10_000

    run(story)


@each_door
def test_a_connection_of_several_callers_does_not_rest_for_one_of_them(door: Door) -> None:
    async def story() -> None:
        quotas, pace = Quotas(), RefusalPace(SETTINGS)
        async with listening(door, quotas, pace) as connect, connect() as proxy:
            assert (await proxy("good")).served
            for _ in range(2 * BURST):
                assert await proxy("hammer") == (False, 0)
            assert (await proxy("good")).served
            assert pace.slowed == 0
            async with connect() as alone:  # its own connections are slowed as ever
                assert (await alone("hammer")).slowed_ms > 0
            assert pace.slowed == 1

    run(story)


def test_calls_of_an_innocent_among_those_of_a_hammer_on_one_channel_are_all_served() -> None:
    async def story() -> None:
        quotas, pace = Quotas(at_once=False), RefusalPace(SETTINGS)
        door = Door(grpc_door, grpc_connection)
        async with listening(door, quotas, pace) as connect, connect() as proxy:
            assert (await proxy("good")).served
            for _ in range(4):
                hammer = [proxy("hammer") for _ in range(BURST)]
                good = [proxy("good") for _ in range(10)]
                answers = await asyncio.gather(*hammer, *good)
                assert not any(answer.slowed_ms for answer in answers)
                assert all(answer.served for answer in answers[BURST:])
            assert pace.slowed == 0

    run(story)


@each_door
def test_refusals_for_the_sake_of_the_service_slow_nobody(door: Door) -> None:
    async def story() -> None:
        quotas, pace = Quotas(OVERLOADED), RefusalPace(SETTINGS)
        async with listening(door, quotas, pace) as connect, connect() as hammer:
            for _ in range(2 * BURST):
                assert await hammer("hammer") == (False, 0)
        assert pace.slowed == 0

    run(story)


@each_door
def test_a_connection_of_strangers_alone_rests_and_no_other_of_theirs(door: Door) -> None:
    async def story() -> None:
        quotas, pace = Quotas(), RefusalPace(SETTINGS)
        async with (
            listening(door, quotas, pace) as connect,
            connect() as stranger,
            connect() as proxy,
        ):
            await ask_until_slowed(stranger, "nobody", pace, BURST + 2)
            assert (await proxy("good")).served
            for _ in range(2 * BURST):
                assert not (await proxy("nobody")).served
            assert (await proxy("good")).served
            assert pace.slowed == 1
            assert "nobody" not in quotas.reads

    run(story)


@each_door
def test_without_a_pace_nobody_rests(door: Door) -> None:
    async def story() -> None:
        quotas = Quotas()
        async with listening(door, quotas, None) as connect, connect() as hammer:
            for _ in range(2 * BURST):
                assert await hammer("hammer") == (False, 0)

    run(story)


def far_over(pace: RefusalPace, clock: HandClock, *callers: str) -> None:
    for caller in callers:
        pace.record(caller, 0, 2 * BURST, clock.now_us())


def test_a_connection_rests_for_the_least_of_its_callers_delays() -> None:
    clock, pace = HandClock(1_000_000), RefusalPace(SETTINGS)
    connection = ConnectionPace(pace, clock)
    far_over(pace, clock, "first")
    clock.advance(us=1_000_000)
    far_over(pace, clock, "second")
    connection.identify("first")
    connection.identify("second")
    assert connection.rest_us() == 0, "nobody was refused here"
    assert connection.record_refused("second") == pace.delay_us("first", clock.now_us()) > 0
    assert connection.rest_us() == pace.delay_us("first", clock.now_us())
    assert connection.rest_us() == 0, "once for each refusal"
    connection.identify("third")
    assert connection.record_refused("second") == 0


def test_a_connection_of_more_callers_than_are_known_never_rests() -> None:
    clock, pace = HandClock(1_000_000), RefusalPace(SETTINGS)
    connection = ConnectionPace(pace, clock)
    names = [f"caller-{number}" for number in range(CALLERS_MAX + 1)]
    far_over(pace, clock, *names)
    for name in names[:-1]:
        connection.identify(name)
    assert connection.record_refused(names[0]) > 0
    connection.identify(names[-1])
    assert connection.record_refused(names[0]) == 0
    assert connection.rest_us() == 0
