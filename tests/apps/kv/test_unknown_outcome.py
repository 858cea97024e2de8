"""A write that the engine may have made has its own code in RESP, HTTP and gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, cast, final

import grpc
import grpc.aio
import httpx
import pytest
import redis.asyncio
import redis.exceptions

from sluicegate.apps.kv.app import KvApp
from sluicegate.apps.kv.settings import KvSettings
from sluicegate.contracts.engine import Change, Engine, Place, Update
from sluicegate.contracts.errors import OutcomeUnknown, Unavailable
from sluicegate.doors.grpc.protocol import GrpcDoor
from sluicegate.doors.grpc.settings import GrpcSettings
from sluicegate.doors.http.kv.handler import KvHttp
from sluicegate.doors.http.protocol import HttpDoor
from sluicegate.doors.http.settings import HttpSettings
from sluicegate.doors.listener import Language, Listener, ProtocolFactory
from sluicegate.protos import key_values_pb2 as pb
from sluicegate.protos.key_values_pb2_grpc import KeyValuesStub
from sluicegate.service.settings import settings_from
from tests.doors.listening import run
from tests.doors.memory_service import Keeper, MemoryService

CALL_S_MAX = 60.0
PLENTY = ("--engine", "memory:", "--quota-ru", str(1 << 30), "--hot", "off")


@final
class LostAnswers:
    """An engine that makes a change, then loses the answer; or that fails before it begins."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.lost = False
        self.down = False
        self.hangs = False
        self.full_space = ""
        self.updates = 0
        self.updates_max = 1_000

    def read(self, space: str, places: Sequence[Place]) -> Any:
        if self.down:
            raise Unavailable("the engine", "the connection was refused")
        return self._engine.read(space, places)

    async def write(self, changes: Sequence[Change]) -> None:
        if self.full_space and changes[0].space == self.full_space:
            raise Unavailable("the engine", "its disk is full")
        await self._engine.write(changes)
        await self._lose()

    async def update(self, update: Update) -> bool:
        if self.updates >= self.updates_max:
            raise Unavailable("the engine", "the connection was refused")
        self.updates += 1
        changed = await self._engine.update(update)
        await self._lose()
        return changed

    async def _lose(self) -> None:
        if self.hangs:
            await asyncio.get_running_loop().create_future()
        if self.lost:
            raise OutcomeUnknown("the engine", "no answer in 50 ms")

    def shard_of(self, space: str, partition: bytes) -> str:
        return self._engine.shard_of(space, partition)


class Served(NamedTuple):
    """A dispatcher over that engine, and a client of each protocol."""

    engine: LostAnswers
    resp: redis.asyncio.Redis
    http: httpx.AsyncClient
    grpc: Any


@pytest.fixture(autouse=True)
def punctual(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide a late event loop: on a busy machine some requests are shed for that."""
    monkeypatch.setattr(KvApp, "_loop_lag", lambda *_: None)


@asynccontextmanager
async def served(calls: GrpcSettings | None = None) -> AsyncIterator[Served]:
    app = KvApp(settings_from(KvSettings, *PLENTY))
    access = Keeper()
    try:
        await app.start()
        engine = LostAnswers(app.engine)
        app.tables._engine = engine  # type: ignore[assignment]
        http = KvHttp(app.dispatcher, MemoryService(), access, app.clock)
        resp = app.resp(access)
        web_door = HttpDoor(http.handle, app.clock, HttpSettings())
        grpc_door = GrpcDoor(app.grpc().methods, access, app.clock, calls or GrpcSettings())
        doors: dict[Language, ProtocolFactory] = {
            Language.RESP: lambda peer: resp.protocol("", peer.names),
            Language.HTTP1: web_door,
            Language.HTTP2: lambda _: cast("asyncio.Protocol", grpc_door()),
        }
        async with Listener(["127.0.0.1:0"], doors) as listening:
            port = listening.addresses[0].port
            client = redis.asyncio.Redis(port=port, socket_timeout=CALL_S_MAX)
            async with (
                client,
                httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=CALL_S_MAX) as web,
                grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
            ):
                await client.set("t:n", b"1")
                yield Served(engine, client, web, KeyValuesStub(channel))
    finally:
        await app.end()


async def resp_error(command: Any) -> str:
    with pytest.raises(redis.exceptions.ResponseError) as found:
        await command
    return str(found.value)


async def grpc_error(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as found:
        await call
    return found.value


def test_resp_write_with_lost_answer_is_unknown() -> None:
    async def story() -> None:
        async with served() as all_:
            all_.engine.lost = True
            assert (await resp_error(all_.resp.set("t:a", b"v"))).startswith("UNKNOWN ")
            assert (await resp_error(all_.resp.incr("t:n"))).startswith("UNKNOWN ")
            assert all_.engine.updates == 1  # nothing here repeats an increment
            all_.engine.lost = False
            assert await all_.resp.get("t:a") == b"v"
            assert await all_.resp.get("t:n") == b"2"

    run(story)


def test_http_write_with_lost_answer_is_unknown() -> None:
    async def story() -> None:
        async with served() as all_:
            all_.engine.lost = True
            reply = await all_.http.put("/v1/tables/t/rows/a", content=b"v")
            problem = reply.json()
            assert reply.status_code == problem["status"] == 500
            assert problem["reason"] == "outcome_unknown"
            assert problem["retry"] == "if_idempotent"
            assert "retry-after" not in reply.headers

    run(story)


def test_grpc_write_with_lost_answer_is_unknown() -> None:
    async def story() -> None:
        async with served() as all_:
            all_.engine.lost = True
            write = pb.WriteRequest(table="t", writes=[pb.Write(partition=b"a", value=b"v")])
            error = await grpc_error(all_.grpc.Write(write, timeout=CALL_S_MAX))
            assert error.code() is grpc.StatusCode.UNKNOWN
            metadata = dict(error.trailing_metadata() or ())
            assert metadata["sluicegate-reason"] == "outcome_unknown"
            assert metadata["grpc-retry-pushback-ms"] == "-1"

    run(story)


def test_grpc_write_beyond_its_time_is_unknown() -> None:
    async def story() -> None:
        async with served(GrpcSettings(call_us_max=50_000)) as all_:
            all_.engine.hangs = True
            write = pb.WriteRequest(table="t", writes=[pb.Write(partition=b"a", value=b"v")])
            error = await grpc_error(all_.grpc.Write(write))
            assert error.code() is grpc.StatusCode.UNKNOWN
            assert await all_.resp.get("t:a") == b"v"

    run(story)


def test_remove_of_part_of_keys_is_unknown() -> None:
    async def story() -> None:
        async with served() as all_:
            await all_.resp.mset({b"t:a": b"1", b"t:b": b"2"})
            all_.engine.updates = 0
            all_.engine.updates_max = 1
            error = await resp_error(all_.resp.delete("t:a", "t:b"))
            assert error.startswith("UNKNOWN ")
            assert [await all_.resp.get(key) for key in ("t:a", "t:b")] == [None, b"2"]

    run(story)


def test_mset_of_part_of_tables_is_unknown() -> None:
    async def story() -> None:
        async with served() as all_:
            all_.engine.full_space = "t/u"
            assert (await resp_error(all_.resp.mset({"u:a": b"1"}))).startswith("BUSY ")
            error = await resp_error(all_.resp.mset({"t:a": b"1", "u:a": b"1"}))
            assert error.startswith("UNKNOWN ")
            assert await all_.resp.get("t:a") == b"1"
            all_.engine.updates, all_.engine.updates_max = 0, 1
            error = await resp_error(all_.resp.delete("t:a", "v:b", "t:n"))
            assert error.startswith("UNKNOWN ")

    run(story)


def test_read_and_refused_write_keep_their_codes() -> None:
    async def story() -> None:
        async with served() as all_:
            all_.engine.down = True
            assert (await resp_error(all_.resp.get("t:n"))).startswith("BUSY ")
            assert (await resp_error(all_.resp.incr("t:n"))).startswith("BUSY ")
            reply = await all_.http.get("/v1/tables/t/rows/n")
            assert reply.status_code == 503
            assert reply.headers["retry-after"] == "1"
            call = all_.grpc.Get(pb.GetRequest(table="t", partition=b"n"), timeout=CALL_S_MAX)
            assert (await grpc_error(call)).code() is grpc.StatusCode.UNAVAILABLE
            assert all_.engine.updates == 0

    run(story)
