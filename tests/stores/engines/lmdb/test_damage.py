"""Damage: bytes of the file that changed on disk are found when read; no value is wrong."""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest

from sluicegate.contracts.engine import Change, KeyRange
from sluicegate.contracts.errors import DataLoss
from sluicegate.stores.engines.lmdb.engine import LmdbEngine
from sluicegate.stores.engines.lmdb.url import parse_url

ROWS = {
    (b"p%d" % (number % 20), b"%05d" % number): b"value %d " % number * (1 + number % 40)
    for number in range(2_000)
}
WRONG_BYTES = 50
META_BYTES = 8_192


def open_at(folder: Path) -> LmdbEngine:
    return LmdbEngine(parse_url(f"lmdb:{folder}"))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed environment with the rows in two spaces."""
    folder = tmp_path_factory.mktemp("stored") / "kv"

    async def fill() -> None:
        engine = open_at(folder)
        await engine.load("t", [(*place, value) for place, value in ROWS.items()])
        await engine.load("other", [(*place, b"other") for place in ROWS])
        await engine.close()

    asyncio.run(fill())
    return folder


@pytest.fixture
def copy(stored: Path, tmp_path: Path) -> Path:
    shutil.copytree(stored, tmp_path / "kv")
    return tmp_path / "kv"


def damage(folder: Path, seed: int) -> None:
    dice = random.Random(seed)
    data = bytearray((folder / "data.mdb").read_bytes())
    for _ in range(WRONG_BYTES):
        data[dice.randrange(META_BYTES, len(data))] = dice.randrange(256)
    (folder / "data.mdb").write_bytes(data)


def outcomes(engine: LmdbEngine) -> Iterator[str]:
    """Yield the outcome of each read and scan of all rows."""
    for place, value in ROWS.items():
        try:
            yield "right" if engine.read("t", [place]) == [value] else "wrong"
        except DataLoss:
            yield "damaged"
    for partition in {place[0] for place in ROWS}:
        rows = sorted((sort, value) for (other, sort), value in ROWS.items() if other == partition)
        for reverse in (False, True):
            span = KeyRange(reverse=reverse, rows_max=len(rows), bytes_max=1 << 30)
            try:
                page = list(engine.scan("t", partition, span).rows)
                yield "right" if page == (rows[::-1] if reverse else rows) else "wrong"
            except DataLoss:
                yield "damaged"


@pytest.mark.parametrize("seed", [1, 14])  # 14 leads a search into another page
def test_wrong_bytes_on_disk_give_errors_and_no_wrong_value(
    seed: int, copy: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damage(copy, seed)
    caplog.set_level(logging.ERROR)
    engine = open_at(copy)
    found = Counter(outcomes(engine))
    assert found["damaged"] > 10
    assert found["right"] > 1_000
    assert not found["wrong"]
    assert engine.health().damaged == found["damaged"]
    lines = [line for line in caplog.messages if "is damaged" in line]
    assert 1 <= len(lines) < 5, "bounded, however many rows"
    asyncio.run(engine.close())


def test_damaged_number_of_space_reads_no_other_space(copy: Path) -> None:
    with lmdb.open(str(copy), max_dbs=3) as env:
        names = env.open_db(b"names")
        with env.begin(names, write=True) as txn:
            stored = txn.get(b"t")
            assert stored is not None
            txn.put(b"t", stored[:-1] + b"\x02")  # the number of the other
    engine = open_at(copy)
    with pytest.raises(DataLoss, match="checksum"):
        engine.read("t", [next(iter(ROWS))])
    asyncio.run(engine.close())


def test_update_of_damaged_row_changes_nothing(copy: Path) -> None:
    place, value = next(iter(ROWS.items()))
    with lmdb.open(str(copy), max_dbs=3) as env:
        rows = env.open_db(b"rows")
        with env.begin(rows, write=True) as txn:
            key = b"\0\0\0\x01" + bytes((len(place[0]),)) + b"".join(place)
            stored = txn.get(key)
            assert stored is not None
            txn.put(key, stored[:-1] + b"?")

    async def story() -> None:
        engine = open_at(copy)
        with pytest.raises(DataLoss):
            await engine.swap(Change("t", *place, b"new"), value)
        await engine.write([Change("t", *place, b"whole")])
        assert engine.read("t", [place]) == [b"whole"]
        await engine.close()

    asyncio.run(story())


def test_rows_of_format_1_are_read_and_new_ones_verified(tmp_path: Path) -> None:
    folder = tmp_path / "kv"
    with lmdb.open(str(folder), max_dbs=3) as env:
        rows, names, state = (env.open_db(name) for name in (b"rows", b"names", b"state"))
        with env.begin(write=True) as txn:
            txn.put(b"format", b"1", db=state)
            txn.put(b"next", b"2", db=state)
            txn.put(b"t", b"\0\0\0\x01", db=names)
            txn.put(b"\0\0\0\x01\x01pa", b"old", db=rows)

    async def story() -> None:
        for _ in range(2):
            engine = open_at(folder)
            assert engine.read("t", [(b"p", b"a"), (b"p", b"b")])[0] == b"old"
            await engine.write([Change("t", b"p", b"c", b"new"), Change("u", b"p", b"", b"v")])
            assert engine.scan("t", b"p", KeyRange()).rows == [(b"a", b"old"), (b"c", b"new")]
            assert engine.read("u", [(b"p", b"")]) == [b"v"]
            await engine.close()

    asyncio.run(story())
    data = (folder / "data.mdb").read_bytes()
    assert data.count(b"new") >= 1
    (folder / "data.mdb").write_bytes(data.replace(b"new", b"not"))
    engine = open_at(folder)
    assert engine.read("t", [(b"p", b"a")]) == [b"old"]
    with pytest.raises(DataLoss):
        engine.read("t", [(b"p", b"c")])
    asyncio.run(engine.close())


@pytest.mark.parametrize("lost", ["emptied", "removed"])
def test_emptied_data_file_is_no_new_store(lost: str, copy: Path) -> None:
    if lost == "emptied":
        (copy / "data.mdb").write_bytes(b"")
    else:
        (copy / "data.mdb").unlink()
    with pytest.raises(DataLoss, match=r"data\.mdb .* restore a backup .* delete sluicegate-store"):
        open_at(copy)
    (copy / "sluicegate-store").unlink()
    engine = open_at(copy)
    assert engine.read("t", [next(iter(ROWS))]) == [None]
    asyncio.run(engine.close())


def test_store_that_lost_its_format_is_refused(copy: Path) -> None:
    with lmdb.open(str(copy), max_dbs=3) as env:
        state = env.open_db(b"state")
        with env.begin(state, write=True) as txn:
            txn.delete(b"format")
    with pytest.raises(DataLoss, match="format"):
        open_at(copy)


def test_cut_off_data_file_gives_errors_and_no_signal(copy: Path) -> None:
    size = (copy / "data.mdb").stat().st_size
    with open(copy / "data.mdb", "r+b") as file:
        file.truncate(size // 2)
    engine = open_at(copy)
    found = Counter(outcomes(engine))
    assert found["damaged"] > 10
    assert not found["wrong"]
    asyncio.run(engine.close())
