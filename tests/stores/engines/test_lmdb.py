from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import lmdb
import pytest

from headgate.contracts.engine import Change
from headgate.contracts.errors import BadValue, Unavailable
from headgate.stores.engines.lmdb import LmdbEngine
from headgate.stores.engines.lmdb_url import parse_url
from headgate.stores.open_engine import open_engine
from tests.stores.engines.writer import SPACE

MIB = 1 << 20
OTHER = """
import asyncio, sys
from headgate.contracts.engine import Change
from headgate.stores.open_engine import open_engine

async def main():
    engine = open_engine(sys.argv[1])
    for number in range(30):
        await engine.write([Change("t", b"other", b"%d" % number, b"x" * 100_000)])
    await engine.drop("doomed")
    for _ in range(20):
        made = False
        while not made:
            (now,) = engine.read("t", [(b"n", b"")])
            made = await engine.swap(Change("t", b"n", b"", b"%d" % (int(now or 0) + 1)), now)
    await engine.close()

asyncio.run(main())
"""


def tell(url: str, story: Callable[[LmdbEngine], Awaitable[None]]) -> None:
    async def told() -> None:
        engine = LmdbEngine(parse_url(url))
        try:
            await story(engine)
        finally:
            await engine.close()

    asyncio.run(told())


def test_a_full_map_grows_and_one_that_may_not_is_unavailable_for_writes_alone(
    tmp_path: Path,
) -> None:
    async def story(engine: LmdbEngine) -> None:
        number = 0

        async def fill() -> None:
            nonlocal number
            while number < 100:
                await engine.write([Change("t", b"p", b"%03d" % number, b"x" * 100_000)])
                number += 1

        with pytest.raises(Unavailable, match="map_bytes_max"):
            await fill()
        assert number > 20, "it grew from one mebibyte"
        assert engine.read("t", [(b"p", b"000")]) == [b"x" * 100_000]
        assert engine.read("t", [(b"p", b"%03d" % number)]) == [None]

    tell(f"lmdb:{tmp_path}/kv?map_bytes={MIB}&map_bytes_max={4 * MIB}", story)


def test_calls_at_once_are_committed_together(tmp_path: Path) -> None:
    async def story(engine: LmdbEngine) -> None:
        await asyncio.gather(
            *(engine.write([Change("t", b"p%d" % n, b"", b"v")]) for n in range(500))
        )
        assert engine.committer.calls == 500
        assert engine.committer.groups < 50

    tell(f"lmdb:{tmp_path}/kv", story)


def test_more_than_may_wait_is_refused_at_once(tmp_path: Path) -> None:
    async def story(engine: LmdbEngine) -> None:
        heard = await asyncio.gather(
            *(engine.write([Change("t", b"p%d" % n, b"", b"v")]) for n in range(500)),
            return_exceptions=True,
        )
        refused = [one for one in heard if one is not None]
        assert refused
        assert all("waiting_calls" in str(one) for one in refused)
        assert len(await engine.walk("t", None, 1_000)) == 500 - len(refused)

    tell(f"lmdb:{tmp_path}/kv?waiting_calls=10", story)


def test_two_processes_write_and_see_the_growth_swaps_and_drops_of_each_other(
    tmp_path: Path,
) -> None:
    url = f"lmdb:{tmp_path}/kv?map_bytes={MIB}"

    async def story(engine: LmdbEngine) -> None:
        await engine.write([Change("doomed", b"p", b"", b"v"), Change("t", b"p", b"", b"v")])
        assert engine.read("doomed", [(b"p", b"")]) == [b"v"]
        other = await asyncio.create_subprocess_exec(sys.executable, "-c", OTHER, url)
        for _ in range(20):
            while True:
                (now,) = engine.read("t", [(b"n", b"")])
                change = Change("t", b"n", b"", b"%d" % (int(now or 0) + 1))
                if await engine.swap(change, now):
                    break
        assert await other.wait() == 0
        assert engine.read("t", [(b"n", b"")]) == [b"40"]
        assert engine.read("t", [(b"other", b"29")]) == [b"x" * 100_000]
        assert engine.read("doomed", [(b"p", b"")]) == [None]

    tell(url, story)


def test_a_backup_beside_writes_is_of_one_instant(tmp_path: Path) -> None:
    async def story(engine: LmdbEngine) -> None:
        rows = [b"%02d" % number for number in range(20)]
        ended = False

        async def write() -> None:
            number = 0
            while not ended:
                number += 1
                await engine.write([Change("t", b"p", row, b"%d" % number) for row in rows])

        writing = asyncio.create_task(write())
        copied = await engine.backup(f"{tmp_path}/copy")
        ended = True
        await writing
        assert copied == (tmp_path / "copy" / "data.mdb").stat().st_size
        copy = open_engine(f"lmdb:{tmp_path}/copy")
        values = copy.read("t", [(b"p", row) for row in rows])
        assert len(set(values)) == 1  # type: ignore[arg-type]
        await copy.close()
        with pytest.raises(Unavailable, match="empty folder"):
            await engine.backup(f"{tmp_path}/copy")

    tell(f"lmdb:{tmp_path}/kv", story)


def test_a_drop_that_a_kill_interrupted_is_finished_when_it_is_opened_again(
    tmp_path: Path,
) -> None:
    url = f"lmdb:{tmp_path}/kv"
    program = (
        "import asyncio, os\n"
        "from headgate.stores.open_engine import open_engine\n"
        "async def main():\n"
        f"    engine = open_engine({url!r})\n"
        f"    await engine.load({SPACE!r}, [(b'p', b'%06d' % n, b'v') for n in range(50_000)])\n"
        f"    await engine.drop({SPACE!r})\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    child = subprocess.run([sys.executable, "-c", program], check=False)
    assert child.returncode == -9
    assert entries(tmp_path / "kv") > 1_000

    async def story(engine: LmdbEngine) -> None:
        assert engine.read(SPACE, [(b"p", b"000001")]) == [None]
        while engine.deleting:
            await engine.write([Change("t", b"p", b"", b"v")])

    tell(url, story)
    assert entries(tmp_path / "kv") == 1


def entries(folder: Path) -> int:
    with lmdb.open(str(folder), max_dbs=3) as env:
        rows = env.open_db(b"rows")
        with env.begin() as txn:
            return txn.stat(rows)["entries"]


@pytest.mark.parametrize("scheme", ["lmdb", "rocksdb"])
def test_a_newer_format_is_refused_with_both_versions(scheme: str, tmp_path: Path) -> None:
    url = f"{scheme}:{tmp_path}/kv"
    asyncio.run(open_engine(url).close())
    if scheme == "lmdb":
        with lmdb.open(f"{tmp_path}/kv", max_dbs=3) as env:
            state = env.open_db(b"state")
            with env.begin(state, write=True) as txn:
                txn.put(b"format", b"2")
    else:
        import rocksdict

        db = rocksdict.Rdict(f"{tmp_path}/kv", rocksdict.Options(raw_mode=True))
        db.put(b"\0\0\0\0format", b"2")
        db.close()
    with pytest.raises(Unavailable, match=r"format is 2 .* format 1"):
        open_engine(url)


def test_a_checkpoint_of_rocksdb_can_be_started_on(tmp_path: Path) -> None:
    async def story() -> None:
        engine = open_engine(f"rocksdb:{tmp_path}/kv")
        await engine.write([Change("t", b"p", b"", b"v")])
        (tmp_path / "copy").mkdir()
        assert await engine.backup(f"{tmp_path}/copy") > 0  # type: ignore[attr-defined]
        copy = open_engine(f"rocksdb:{tmp_path}/copy")
        assert copy.read("t", [(b"p", b"")]) == [b"v"]
        await copy.close()
        with pytest.raises(BadValue, match="empty folder"):
            await engine.backup(f"{tmp_path}/copy")  # type: ignore[attr-defined]
        await engine.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("mongo:x", "lmdb"),
        ("lmdb:", "folder"),
        ("lmdb:/x?mapbytes=1", "map_bytes"),
        ("lmdb:/x?map_bytes=1", "map_bytes"),
        ("lmdb:/x?sync=maybe", "on or off"),
        ("lmdb:/x?group_calls=0", "calls_max"),
        ("rocksdb:/x?map_bytes=1", "buffer_bytes"),
        ("memory:name", "alone"),
        ("faulty+memory:?slot=1", "slots"),
        ("faulty+memory:?error_share=2", "error_share"),
        ("faulty+memory:?slots_by=row", "all or shard"),
    ],
)
def test_a_wrong_url_is_told_with_what_there_is(url: str, told: str) -> None:
    with pytest.raises(BadValue, match=told):
        open_engine(url)
