"""`sluicegate kv scrub`: the exit code and the list of damaged rows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sluicegate.cli import main
from sluicegate.stores.engines.findings import LISTED_MAX
from sluicegate.stores.open_engine import open_engine

ROWS = 3_000
PAGE_BYTES = 4_096


def fill(url: str) -> None:
    async def story() -> None:
        engine = open_engine(url)
        rows = [(b"p%d" % (at % 9), b"%05d" % at, b"value %05d" % at) for at in range(ROWS)]
        await engine.load("listings", rows)
        await engine.close()

    asyncio.run(story())


def change(path: Path, old: bytes, new: bytes, count: int = -1) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, count))


@pytest.mark.parametrize("scheme", ["lmdb", "rocksdb"])
def test_scrub_of_whole_store_exits_0(
    scheme: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"{scheme}:{tmp_path}/kv"
    fill(url)
    assert main(["kv", "scrub", "--engine", url]) == 0
    assert capsys.readouterr().out == (
        f"{ROWS:,} rows: {ROWS:,} verified, 0 without a checksum, 0 damaged, 0 missing\n"
    )


def test_scrub_lists_damaged_rows_and_exits_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(f"lmdb:{tmp_path}/kv")
    change(tmp_path / "kv" / "data.mdb", b"value 00042", b"value 00043")
    assert main(["kv", "scrub", "--engine", f"lmdb:{tmp_path}/kv"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "damaged: space listings partition b'p6' sort b'00042': its checksum does not fit"
    )
    assert lines[1].endswith("2,999 verified, 0 without a checksum, 1 damaged, 0 missing")
    assert "restore a backup" in lines[2]


def test_scrub_lists_damaged_rows_within_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(f"lmdb:{tmp_path}/kv")
    change(tmp_path / "kv" / "data.mdb", b"value 0", b"Value 0")
    assert main(["kv", "scrub", "--engine", f"lmdb:{tmp_path}/kv"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("damaged:") for line in lines) == LISTED_MAX
    assert "0 verified, 0 without a checksum, 3,000 damaged" in lines[-2]


def test_scrub_lists_damaged_page_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One damaged page was listed for each place at which the walk tried to pass it."""

    async def story() -> None:
        engine = open_engine(f"lmdb:{tmp_path}/kv")
        await engine.load(
            "listings", [(b"p%05d" % at, b"", b"value %05d" % at) for at in range(ROWS)]
        )
        await engine.close()

    asyncio.run(story())
    file = tmp_path / "kv" / "data.mdb"
    data = bytearray(file.read_bytes())
    page = data.rindex(b"value 01500") // PAGE_BYTES * PAGE_BYTES
    data[page : page + 16] = b"\xff" * 16
    file.write_bytes(data)
    assert main(["kv", "scrub", "--engine", f"lmdb:{tmp_path}/kv"]) == 1
    damage, counts, _ = capsys.readouterr().out.splitlines()
    assert damage.startswith("damaged: space listings partition b'p01")
    assert " 1 damaged, " in counts


def test_scrub_of_damaged_rocksdb_file_exits_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(f"rocksdb:{tmp_path}/kv")
    asyncio.run(open_engine(f"rocksdb:{tmp_path}/kv").close())  # its log becomes a sorted file
    files = list((tmp_path / "kv").glob("*.sst"))
    assert files
    for file in files:
        data = bytearray(file.read_bytes())
        data[len(data) // 3] ^= 0xFF
        file.write_bytes(data)
    assert main(["kv", "scrub", "--engine", f"rocksdb:{tmp_path}/kv"]) == 1
    assert "orruption" in capsys.readouterr().out


def test_scrub_of_emptied_store_exits_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(f"lmdb:{tmp_path}/kv")
    (tmp_path / "kv" / "data.mdb").write_bytes(b"")
    assert main(["kv", "scrub", "--engine", f"lmdb:{tmp_path}/kv"]) == 1
    assert "data.mdb is empty" in capsys.readouterr().out


@pytest.mark.parametrize("url", ["memory:", "redis://h", "lmdb:{}/none"])
def test_scrub_of_no_embedded_store_exits_2(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kv", "scrub", "--engine", url.format(tmp_path)]) == 2
    assert "--engine" in capsys.readouterr().err
