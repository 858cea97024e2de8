"""A service that does what a shape says, under real grpc.aio. Nothing here is a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
import grpc.aio

from sluicegate.lab.zoo.shape import DEADLINE, SECOND_US, ShapeTraffic, ZooRequest, ZooShape
from sluicegate.resilience.server.grpc import AsyncProtectInterceptor
from sluicegate.resilience.server.protection import Protection
from sluicegate.resilience.settings import Resilience
from tests.prove.zoo.asgi_service import Slots
from tests.prove.zoo.http import CALLER, END, PARTS, WORK_US, claims_of
from tests.prove.zoo.load import Candidate

SERVICE: Final = "zoo.Shape"
FREE_S_MAX: Final = 20.0  # until the server has heard of the last caller that hung up


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

    method: Any = (
        grpc.unary_stream_rpc_method_handler(many)
        if stream_s
        else grpc.unary_unary_rpc_method_handler(one)
    )
    return grpc.method_handlers_generic_handler(SERVICE, {"Work": method})


@asynccontextmanager
async def on_grpc(shape: ZooShape, settings: Resilience | None) -> AsyncIterator[Candidate]:
    """Serve a shape on this loop for a block, without settings bare; no slot stays taken."""

    def caller(context: Any) -> str:
        return str(dict(context.invocation_metadata())[CALLER])

    protection = None if settings is None else Protection(settings)
    server = grpc.aio.server(
        interceptors=[]
        if protection is None
        else [AsyncProtectInterceptor(protection=protection, caller=caller)]
    )
    slots = Slots(shape.slots)
    server.add_generic_rpc_handlers((handlers(shape, slots),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        path = f"/{SERVICE}/Work"
        unary: Any = channel.unary_unary(path)
        stream: Any = channel.unary_stream(path)

        async def call(ask: ZooRequest, kind: ShapeTraffic) -> bool:
            told = kind.tells == DEADLINE and kind.patience_us
            said: dict[str, Any] = {
                "metadata": tuple(claims_of(ask, kind, deadline=False).items()),
                "timeout": kind.patience_us / SECOND_US if told else None,
            }
            try:
                if not kind.stream_us:
                    return bool(await unary(b"", **said) == END)
                return [part async for part in stream(b"", **said)][-1:] == [END]
            except grpc.aio.AioRpcError as error:
                raise ConnectionError(error.code().name) from None

        try:
            yield Candidate(call, slots.get_ended)
            async with asyncio.timeout(FREE_S_MAX):  # else a slot stays taken
                while protection is not None and protection.gate.inflight:
                    await asyncio.sleep(0.01)
        finally:
            await server.stop(None)
