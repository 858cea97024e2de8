"""The real driver opens two pairs of sockets for each session; closing it closes them."""

from __future__ import annotations

import asyncio
import gc
import os
import socket

import pytest

from sluicegate.contracts.errors import Unavailable
from sluicegate.stores.engines.cassandra.engine import open_cassandra


def sockets_open() -> int:
    """The sockets of this process."""
    names = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
    return sum(os.path.islink(name) and os.readlink(name).startswith("socket:") for name in names)


async def fail(port: int, attempts: int) -> None:
    url = f"cassandra://127.0.0.1:{port}/kv?connect_timeout_ms=2000&backoff_ms=1"
    for _ in range(attempts):
        engine = open_cassandra(url)
        with pytest.raises(Unavailable):
            await engine.read("t", [(b"p", b"")])
        await engine.close()


async def give_up(port: int) -> None:
    engine = open_cassandra(f"cassandra://127.0.0.1:{port}/kv?connect_timeout_ms=1000")
    reading = asyncio.ensure_future(engine.read("t", [(b"p", b"")]))
    await asyncio.sleep(0.1)
    await engine.close()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


@pytest.fixture
def before() -> int:
    gc.collect()
    return sockets_open()


def test_session_that_never_opened_leaves_no_socket(before: int) -> None:
    gc.disable()  # which would close what was forgotten
    try:
        asyncio.run(fail(1, attempts=5))
        assert sockets_open() == before
    finally:
        gc.enable()


def test_session_given_up_while_it_connects_leaves_no_socket(before: int) -> None:
    gc.disable()
    try:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            asyncio.run(give_up(silent.getsockname()[1]))
        assert sockets_open() == before
    finally:
        gc.enable()
