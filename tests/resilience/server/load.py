"""Load on a service in another process: requests at a steady rate, whatever becomes of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, final

import grpc
import grpc.aio

from sluicegate.resilience.overload_mark import FIELD, parse_overload_mark
from sluicegate.resilience.server.grpc import HEALTH
from tests.resilience.server.slots_service import METHOD

PATIENCE_S: Final = 0.5
LATE_S_MAX: Final = 0.05

Ask = Callable[[str, float], Awaitable[tuple[int, bytes]]]  # path, patience: status, body


@final
@dataclass
class Answers:
    """What became of the requests of one path."""

    sent: int = 0
    in_time: list[float] = field(default_factory=list)  # how long each took
    refused: list[float] = field(default_factory=list)
    failed: int = 0  # too late, or broken off
    late: list[float] = field(default_factory=list)  # how much later than it was due each left

    @property
    def on_time(self) -> bool:
        """Whether this side kept its times; else the machine was too busy for a judgement."""
        return sorted(self.late)[int(0.95 * (len(self.late) - 1))] <= LATE_S_MAX

    def quantile(self, part: float) -> float:
        """Of the times of those that were answered in time."""
        times = sorted(self.in_time)
        return times[int(part * (len(times) - 1))] if times else float("nan")


@final
class HttpCaller:
    """Asks over connections that it keeps; one that is given up is closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, path: str, patience_s: float) -> tuple[int, bytes]:
        """Return the status and the body, or raise `TimeoutError` or `OSError`."""
        async with asyncio.timeout(patience_s):
            if self._idle:
                reader, writer = self._idle.pop()
            else:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            kept = False
            try:
                writer.write(
                    b"GET %s HTTP/1.1\r\nhost: slots\r\nx-sluicegate-deadline-ms: %d\r\n\r\n"
                    % (path.encode(), int(patience_s * 1_000))
                )
                head = await reader.readuntil(b"\r\n\r\n")
                status = int(head.split(b" ", 2)[1])
                fields = head.lower()
                if b"content-length: " in fields:
                    length = int(fields.split(b"content-length: ")[1].split(b"\r\n")[0])
                    body = await reader.readexactly(length)
                    kept = fields.startswith(b"http/1.1")
                else:
                    body = await reader.read()
            finally:
                if not kept:
                    writer.close()
            if kept:
                self._idle.append((reader, writer))
            return status, body

    async def close(self) -> None:
        """Close what is kept."""
        for _, writer in self._idle:
            writer.close()


@final
class GrpcCaller:
    """Asks over one channel; /healthz is the service's health, anything else its method."""

    def __init__(self, port: int) -> None:
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")

    async def ask(self, path: str, patience_s: float) -> tuple[int, bytes]:
        """Return the status as HTTP has it, and the body."""
        method = HEALTH[0] if path == "/healthz" else METHOD
        call: Any = self._channel.unary_unary(method)
        try:
            return 200, await call(b"", timeout=patience_s)
        except grpc.aio.AioRpcError as error:
            trailers = error.trailing_metadata() or ()
            if parse_overload_mark([str(value) for name, value in trailers if name == FIELD]):
                return 503, b""
            raise ConnectionError(error.code().name) from None

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()


def caller_of(door: str, port: int) -> HttpCaller | GrpcCaller:
    """Return one for this door."""
    return GrpcCaller(port) if door == "grpc" else HttpCaller(port)


async def send(
    ask: Ask,
    path: str,
    rate: float,
    span_s: float,
    answers: Answers,
    *,
    patience_s: float = PATIENCE_S,
) -> None:
    """Ask at this rate for so long; return once all are answered or given up."""
    tasks = set()
    began = time.monotonic()
    for number in range(int(rate * span_s)):
        wait_s = began + number / rate - time.monotonic()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        answers.late.append(time.monotonic() - began - number / rate)
        tasks.add(asyncio.create_task(_one(ask, path, answers, patience_s)))
    await asyncio.gather(*tasks)


async def _one(ask: Ask, path: str, answers: Answers, patience_s: float) -> None:
    answers.sent += 1
    began = time.monotonic()
    try:
        status, _ = await ask(path, patience_s)
    except (OSError, EOFError):
        answers.failed += 1
        return
    took_s = time.monotonic() - began
    (answers.in_time if status == 200 else answers.refused).append(took_s)


async def until_ready(ask: Ask) -> None:
    """Wait until it answers."""
    for _ in range(200):
        try:
            await ask("/healthz", 5.0)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            return
    raise AssertionError("the service does not answer")
