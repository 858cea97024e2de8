"""A full disk: the cause is said, what was acknowledged is kept, and closing is no failure."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluicegate.contracts.engine import Change, Engine
from sluicegate.contracts.errors import Unavailable
from sluicegate.stores.open_engine import open_engine
from sluicegate.testing.engines import resolve

SPACE = "full"
FILE_BYTES_MAX = 512 * 1024
VALUE = bytes(4_096)


@contextmanager
def small_files() -> Iterator[None]:
    """No file of this process may grow further, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def fill(engine: Engine) -> tuple[int, str]:
    """Write rows until one is refused: how many were acknowledged, and what was said."""
    for number in range(FILE_BYTES_MAX):
        try:
            await engine.write([Change(SPACE, b"p", b"%06d" % number, VALUE)])
        except Unavailable as error:
            return number, str(error)
    raise AssertionError("the disk is never full")


async def count(engine: Engine, rows: int) -> int:
    values = await resolve(engine.read(SPACE, [(b"p", b"%06d" % row) for row in range(rows)]))
    return sum(value == VALUE for value in values)


def test_rocksdb_says_that_the_disk_is_full_and_keeps_what_it_acknowledged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    url = f"rocksdb:{tmp_path}/kv"

    async def story() -> int:
        engine = open_engine(url)
        with small_files():
            rows, said = await fill(engine)
            assert "the disk is full: make room on it, and start again" in said
            assert str(tmp_path) not in said
            assert await count(engine, rows) == rows > 10
            await engine.close()
        return rows

    rows = asyncio.run(story())
    (line,) = caplog.messages
    assert "closing: the engine rocksdb" in line

    async def again() -> None:
        engine = open_engine(url)
        assert await count(engine, rows) == rows
        await engine.write([Change(SPACE, b"after", b"", b"v")])
        await engine.close()

    asyncio.run(again())
