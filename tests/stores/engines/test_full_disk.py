"""A full disk: the cause is said, what was acknowledged is kept, and closing is no failure; once
there is room, writes go on.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import subprocess
import time
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
            assert "a file may not grow further: raise that bound, and it goes on" in said
            assert str(tmp_path) not in said
            assert await count(engine, rows) == rows > 10
            await engine.close()
        return rows

    rows = asyncio.run(story())
    assert "the engine rocksdb is unusable" in caplog.messages[0]

    async def again() -> None:
        engine = open_engine(url)
        assert await count(engine, rows) == rows
        await engine.write([Change(SPACE, b"after", b"", b"v")])
        await engine.close()

    asyncio.run(again())


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        done = _mount("-t", "tmpfs", "-o", "size=8m", "tmpfs", folder)
    except FileNotFoundError:
        pytest.skip("needs mount")
    if done.returncode:
        pytest.skip(f"needs a mount of its own; run it as root: {done.stderr.strip()}")
    yield folder
    # Also while an engine that a failed test has left open is in it.
    subprocess.run(["umount", "-l", str(folder)], check=True)


def _mount(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["mount", *map(str, words)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("lmdb:{}/kv", "make room on it, or drop what is not needed"),
        (
            "rocksdb:{}/kv?buffer_bytes=4000000",
            "make room on it, 4,000,000 bytes (buffer_bytes) or more, and it goes on",
        ),
    ],
)
def test_an_engine_goes_on_by_itself_once_a_full_disk_has_room(
    url: str, remedy: str, disk: Path
) -> None:
    async def story() -> None:
        engine = open_engine(url.format(disk))
        rows, said = await fill(engine)
        assert f"the disk is full: {remedy}" in said
        assert _mount("-o", "remount,size=32m", disk).returncode == 0
        until_s = time.monotonic() + 60  # RocksDB looks every five seconds
        while time.monotonic() < until_s:
            try:
                await engine.write([Change(SPACE, b"p", b"%06d" % rows, VALUE)])
            except Unavailable:
                await asyncio.sleep(0.1)
            else:
                break
        await engine.close()
        engine = open_engine(url.format(disk))
        assert await count(engine, rows + 1) == rows + 1
        await engine.close()

    asyncio.run(story())
