"""An engine is not started on another's folder, where it would show nothing of what is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import pytest

from sluicegate.contracts.engine import Change
from sluicegate.contracts.errors import BadValue
from sluicegate.stores.engines.folders import check_owner
from sluicegate.stores.open_engine import open_engine

BOTH = [("lmdb", "rocksdb"), ("rocksdb", "lmdb")]
CALLED = {"lmdb": "LMDB", "rocksdb": "RocksDB"}


def stored_values(url: str) -> list[bytes | None]:
    async def story() -> list[bytes | None]:
        engine = open_engine(url)
        answer = engine.read("t", [(b"p", b"")])
        rows = list(await answer if isinstance(answer, Awaitable) else answer)
        await engine.close()
        return rows

    return asyncio.run(story())


def fill(url: str) -> None:
    async def story() -> None:
        engine = open_engine(url)
        await engine.write([Change("t", b"p", b"", b"v")])
        await engine.close()

    asyncio.run(story())


def files(folder: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in folder.iterdir()}


@pytest.mark.parametrize(("own", "other"), BOTH)
@pytest.mark.parametrize("before", ["", "faulty+"])
def test_a_folder_of_the_other_engine_is_refused_and_left_as_it_was(
    tmp_path: Path, own: str, other: str, before: str
) -> None:
    folder = tmp_path / "kv"
    fill(f"{own}:{folder}")
    was = files(folder)
    with pytest.raises(BadValue) as error:
        open_engine(f"{before}{other}:{folder}")
    assert (error.value.field, error.value.value) == (f"{other}.folder", str(folder))
    assert f"it holds files of {CALLED[own]} (" in error.value.remedy
    assert f"start with {own}:{folder}," in error.value.remedy
    assert files(folder) == was
    assert stored_values(f"{own}:{folder}") == [b"v"]  # its own goes on


@pytest.mark.parametrize(("own", "other"), BOTH)
def test_a_folder_with_files_of_both_is_for_a_person_to_sort(
    tmp_path: Path, own: str, other: str
) -> None:
    folder, elsewhere = tmp_path / "kv", tmp_path / "other"
    fill(f"{own}:{folder}")
    fill(f"{other}:{elsewhere}")
    for file in elsewhere.iterdir():
        file.rename(folder / file.name)
    for one in (own, other):
        with pytest.raises(BadValue, match="move those of one engine into a folder"):
            open_engine(f"{one}:{folder}")


@pytest.mark.parametrize(
    ("scheme", "name", "mark"),
    [
        ("rocksdb", "data.mdb", True),
        ("rocksdb", "lock.mdb", False),
        ("rocksdb", "data_mdb", False),
        ("lmdb", "CURRENT", True),
        ("lmdb", "MANIFEST-000005", True),
        ("lmdb", "000009.sst", True),
        ("lmdb", "CURRENTLY.txt", False),
        ("lmdb", "MANIFEST-of-ours", False),
        ("lmdb", ".sst", False),
        ("lmdb", "LOCK", False),
        ("lmdb", "lost+found", False),
    ],
)
def test_an_engine_is_known_by_the_files_that_it_always_has(
    tmp_path: Path, scheme: str, name: str, mark: bool
) -> None:
    (tmp_path / name).touch()
    if mark:
        with pytest.raises(BadValue, match=name):
            check_owner(scheme, str(tmp_path))
    else:
        check_owner(scheme, str(tmp_path))


def test_what_is_no_folder_is_for_the_engine_to_tell(tmp_path: Path) -> None:
    check_owner("lmdb", str(tmp_path / "not there"))
    (tmp_path / "file").touch()
    check_owner("lmdb", str(tmp_path / "file"))
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    with pytest.raises(BadValue, match="give a folder"):
        open_engine(f"lmdb:{tmp_path}/file")
