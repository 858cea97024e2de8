"""Three processes that serve, upload and collect on the same stores, each of them killed."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.apps.images.service_parts import parts_of
from tests.engines.child import Child, until
from tests.prove.seeds import first
from tests.stores.blobs.s3_server import SECRETS, S3Server

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

PROCESSES = 3
LIVES = 4
ENOUGH = 40


@pytest.fixture(scope="module")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SECRETS.items():
            patch.setenv(name, value)
        server = S3Server(tmp_path_factory.mktemp("moto"))
        yield server
        server.stop()


class Fleet:
    """The processes and their logs."""

    def __init__(self, folder: Path, seed: int, *stores: str) -> None:
        self._folder, self._seed, self._stores = folder, seed, stores
        self._started = 0
        self.logs: list[Path] = []
        self.children = [self._start() for _ in range(PROCESSES)]

    def _start(self) -> Child:
        log = self._folder / f"child-{self._started}.log"
        seed = str(self._seed * 100 + self._started)
        command = [sys.executable, "-m", "tests.apps.images.crashes", str(self._folder), seed]
        self._started += 1
        log.touch()  # a process that is killed at once has no log of its own
        self.logs.append(log)
        return Child("images", [*command, *self._stores], log)

    def replace(self, at: int) -> None:
        self.children[at].kill()
        self.children[at] = self._start()

    def said(self, kind: str) -> list[str]:
        lines = [line.split() for log in self.logs for line in log.read_text().splitlines()]
        return [words[1] for words in lines if len(words) == 2 and words[0] == kind]

    def has_done(self, uploads: int, collected: int) -> bool:
        return len(self.said("upload")) >= uploads and len(self.said("collected")) >= collected

    def stop(self) -> None:
        for child in self.children:
            child.kill()


def survive(folder: Path, seed: int, engine: str = "", blobs: str = "") -> None:
    """Kill one process after another while all collect; then verify all that is stored."""
    chance = random.Random(seed)
    fleet = Fleet(folder, seed, *((engine, blobs) if engine else ()))
    try:
        for life in range(1, LIVES + 1):
            until(
                lambda: fleet.has_done(ENOUGH * life, 3 * life),  # noqa: B023
                "uploads and collections",
                children=fleet.children,
            )
            fleet.replace(chance.randrange(PROCESSES))
    finally:
        fleet.stop()
    assert sum(map(int, fleet.said("collected"))) > 0

    async def verify() -> None:
        async with parts_of(folder, engine=engine or f"lmdb:{folder}/kv", blobs=blobs) as parts:
            assert (await parts.collector().check()).errors == []
            for digest in set(fleet.said("upload")):
                assert await parts.contents.original(digest), "an acknowledged upload is lost"

    asyncio.run(asyncio.wait_for(verify(), 120))


@pytest.mark.parametrize("seed", first(1, range(1, 11)))
def test_collectors_on_lmdb_and_files_lose_no_live_blob(tmp_path: Path, seed: int) -> None:
    survive(tmp_path, seed)


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(1, 6))
def test_collectors_on_redis_and_s3_lose_no_live_blob(
    tmp_path: Path, seed: int, redis_server: RedisServer, s3_server: S3Server
) -> None:
    survive(tmp_path, seed, redis_server.url, s3_server.url())
