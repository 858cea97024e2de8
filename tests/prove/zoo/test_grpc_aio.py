"""Shapes of services on real grpc.aio: what the interceptor costs none of, and what it saves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import grpc
import grpc.aio
import pytest

from sluicegate.lab.zoo.service import settings_of
from sluicegate.lab.zoo.shape import DEADLINE, SECOND_US, ShapeTraffic, ZooRequest, ZooShape
from sluicegate.resilience.server.grpc import AsyncProtectInterceptor
from sluicegate.resilience.server.protection import Protection
from sluicegate.resilience.settings import Resilience
from tests.prove.zoo.asgi_service import Slots
from tests.prove.zoo.http import CALLER, END, PARTS, WORK_US, claims_of
from tests.prove.zoo.load import (
    HELD_PATIENCE_S,
    SEEDS,
    STREAM_SLOTS,
    Candidate,
    Load,
    Results,
    assert_holds_no_slot,
    assert_loses_nothing,
    assert_serves_what_matters,
    load_of,
    prove,
    side_by_side,
    with_patience,
)

pytestmark = pytest.mark.prove

SERVICE: Final = "zoo.Shape"
ORDINARY: Final = {"io 500 ms": 1, "io 500 ms, deadline": 1, "stream": 2, "long poll": 3}
OVERLOADED: Final = {"service: 2x, least patience": 0.35, "engine: 2x, patience of 5 x": 0.5}


def handlers(shape: ZooShape, slots: Slots) -> grpc.GenericRpcHandler:
    """Return the service: one method for the shape's only kind of work."""
    stream_s = shape.traffic[0].stream_us / SECOND_US

    def work_us(context: Any) -> int:
        return int(dict(context.invocation_metadata())[WORK_US])

    async def one(message: bytes, context: Any) -> bytes:
        await slots.work(work_us(context))
        return END

    async def many(message: bytes, context: Any) -> AsyncIterator[bytes]:
        await slots.work(work_us(context))
        for _ in range(PARTS):
            yield b"x"
            await asyncio.sleep(stream_s / PARTS)
        yield END

    method = (
        grpc.unary_stream_rpc_method_handler(many)
        if stream_s
        else grpc.unary_unary_rpc_method_handler(one)
    )
    return grpc.method_handlers_generic_handler(SERVICE, {"Work": method})


@asynccontextmanager
async def served(shape: ZooShape, protection: Protection | None) -> AsyncIterator[Candidate]:
    """Serve a shape on this loop for a block; what sends its requests."""
    interceptors = []
    if protection is not None:

        def caller(context: Any) -> str:
            return str(dict(context.invocation_metadata())[CALLER])

        interceptors.append(AsyncProtectInterceptor(protection=protection, caller=caller))
    server = grpc.aio.server(interceptors=interceptors)
    slots = Slots(shape.slots)
    server.add_generic_rpc_handlers((handlers(shape, slots),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        path = f"/{SERVICE}/Work"
        unary, stream = channel.unary_unary(path), channel.unary_stream(path)

        async def call(ask: ZooRequest, kind: ShapeTraffic) -> bool:
            told = kind.tells == DEADLINE and kind.patience_us
            said: dict[str, Any] = {
                "metadata": tuple(claims_of(ask, kind, deadline=False).items()),
                "timeout": kind.patience_us / SECOND_US if told else None,
            }
            try:
                if not kind.stream_us:
                    return bool(await unary(b"", **said) == END)
                return [part async for part in stream(b"", **said)][-1] == END
            except grpc.aio.AioRpcError as error:
                raise ConnectionError(error.code().name) from None

        try:
            yield call, slots.get_ended
        finally:
            await server.stop(None)


async def play(load: Load, settings: Mapping[str, Resilience | None]) -> Results:
    """Play with a server for each of the settings, None for a bare one; no slot stays taken."""
    async with AsyncExitStack() as servers:
        candidates, protections = {}, []
        for name, one in settings.items():
            protection = None if one is None else Protection(one)
            candidates[name] = await servers.enter_async_context(served(load.shape, protection))
            protections += [] if protection is None else [protection]
        found = await side_by_side(load, candidates)
    assert [one.gate.inflight for one in protections] == [0] * len(protections)
    return found


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_calls_protected_by_defaults_lose_nothing(name: str, seed: int) -> None:
    load = load_of(f"service: {name}", ORDINARY[name], seed)
    settings = {"bare": None, "ours": settings_of(load.shape, known=False)}
    prove(lambda: play(load, settings), assert_loses_nothing)


@pytest.mark.parametrize("seed", SEEDS)
def test_server_stream_after_its_first_message_holds_no_slot(seed: int) -> None:
    load = with_patience(load_of("service: stream", ORDINARY["stream"], seed), HELD_PATIENCE_S)
    ours = Resilience(slots=STREAM_SLOTS)
    settings = {"ours": ours, "held": replace(ours, hold_streams=True)}
    prove(lambda: play(load, settings), assert_holds_no_slot)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", OVERLOADED)
def test_overloaded_server_with_slots_known_serves_what_matters(name: str, seed: int) -> None:
    load = load_of(name, OVERLOADED[name], seed)
    settings = {"plain": None, "ours": settings_of(load.shape, known=True)}
    prove(lambda: play(load, settings), assert_serves_what_matters)
