"""Bytes of LMDB's file that changed on disk: a read is right, an error, or ends the process."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import shutil
import signal
from pathlib import Path

import pytest

from sluicegate.contracts.errors import SluicegateError
from tests.prove.seeds import seeds
from tests.stores.engines.lmdb.test_damage import META_BYTES, ROWS, open_at, outcomes

WRONG = 3  # an exit code that nothing else gives
# LMDB checks no offset within a page: a changed offset may lead behind the end of the file.
FATAL = (-signal.SIGBUS, -signal.SIGSEGV, -signal.SIGABRT)


async def fill(folder: Path) -> None:
    engine = open_at(folder)
    await engine.load("t", [(*place, value) for place, value in ROWS.items()])
    await engine.close()


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored") / "kv"
    asyncio.run(fill(folder))
    return folder


def read_all(folder: Path) -> None:
    try:
        engine = open_at(folder)
    except SluicegateError:
        return
    if "wrong" in set(outcomes(engine)):
        raise SystemExit(WRONG)


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(300, 15))
def test_changed_bytes_give_no_wrong_value(seed: int, stored: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kv"
    shutil.copytree(stored, folder)
    dice = random.Random(seed)
    data = bytearray((folder / "data.mdb").read_bytes())
    for _ in range(1 + seed % 50):
        data[dice.randrange(META_BYTES, len(data))] = dice.randrange(256)
    (folder / "data.mdb").write_bytes(data)
    reader = multiprocessing.get_context("spawn").Process(target=read_all, args=(folder,))
    reader.start()
    reader.join()
    assert reader.exitcode in (0, *FATAL)
