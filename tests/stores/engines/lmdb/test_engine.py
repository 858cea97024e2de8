from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import lmdb
import pytest

from sluicegate.contracts.engine import Change
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.stores.engines.lmdb.engine import LmdbEngine
from sluicegate.stores.engines.lmdb.url import parse_url
from sluicegate.stores.open_engine import open_engine
from tests.stores.engines.writer import SPACE

MIB = 1 << 20
OTHER = """
import asyncio, sys
from sluicegate.contracts.engine import Change
from sluicegate.stores.open_engine import open_engine

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

# Limits its address space, so that no map of twice the size has room.
CRAMPED = """
import asyncio, resource, sys
import lmdb
from sluicegate.contracts.engine import Change
from sluicegate.contracts.errors import Unavailable
from sluicegate.stores.open_engine import open_engine

SIZE = 64 << 20
opens = lmdb.open

def refuse(*args, **more):
    raise lmdb.MemoryError("no room at all")

async def fill(engine):
    for number in range(70):
        change = Change("t", b"%d" % number, b"", b"x" * (1 << 20))
        await asyncio.wait_for(engine.write([change]), 60)

async def refused(engine, words):
    try:
        await fill(engine)
    except Unavailable as error:
        assert words in str(error), error
    else:
        raise AssertionError("it was made")

async def main():
    engine = open_engine(f"{sys.argv[1]}?map_bytes={SIZE}&sync=off")
    await engine.write([Change("t", b"a", b"", b"v")])
    pages = int(open("/proc/self/statm").read().split()[0])
    least = pages * 4096 + SIZE - (1 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (least, resource.RLIM_INFINITY))
    await refused(engine, "no room for a map")
    assert engine.read("t", [(b"a", b"")]) == [b"v"]
    await engine.write([Change("t", b"a", b"", b"w")])
    lmdb.open = refuse
    await refused(engine, "opened again")
    for _ in range(2):
        try:
            engine.read("t", [(b"a", b"")])
        except Unavailable:
            continue
        raise AssertionError("it was read")
    lmdb.open = opens
    assert engine.read("t", [(b"a", b"")]) == [b"w"]
    lmdb.open = refuse
    await refused(engine, "opened again")
    lmdb.open = opens
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await fill(engine)
    await engine.close()

asyncio.run(main())
"""


def tell(url: str, story: Callable[[LmdbEngine], Awaitable[None]]) -> None:
    async def main() -> None:
        engine = LmdbEngine(parse_url(url))
        try:
            await story(engine)
        finally:
            await engine.close()

    asyncio.run(main())


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


def test_a_growth_without_room_is_unavailable_and_the_engine_goes_on(tmp_path: Path) -> None:
    program = [sys.executable, "-c", CRAMPED, f"lmdb:{tmp_path}/kv"]
    ended = subprocess.run(
        program,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "MALLOC_ARENA_MAX": "1"},  # others reserve address space by the way
    )
    assert ended.returncode == 0, ended.stderr


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
        results = await asyncio.gather(
            *(engine.write([Change("t", b"p%d" % n, b"", b"v")]) for n in range(500)),
            return_exceptions=True,
        )
        refused = [one for one in results if one is not None]
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


def test_a_backup_takes_no_module_from_the_folder_that_the_process_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lmdb.py").write_text("raise SystemExit('taken from here')")
    monkeypatch.chdir(tmp_path)

    async def story(engine: LmdbEngine) -> None:
        assert await engine.backup(f"{tmp_path}/copy") > 0

    tell(f"lmdb:{tmp_path}/kv", story)


@pytest.mark.parametrize("scheme", ["lmdb", "rocksdb"])
def test_a_backup_is_for_nobody_else_from_the_first_moment(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []
    rename = os.rename

    def renamed(source: str, target: str) -> None:
        modes.extend(stat.S_IMODE(os.stat(one).st_mode) for one in (source, Path(source).parent))
        rename(source, target)

    monkeypatch.setattr(os, "rename", renamed)
    (tmp_path / "copy").mkdir(mode=0o755)
    (tmp_path / "copy").chmod(0o755)

    async def story() -> None:
        engine = open_engine(f"{scheme}:{tmp_path}/kv")
        await engine.write([Change("t", b"p", b"", b"v")])
        await engine.backup(f"{tmp_path}/copy")  # type: ignore[attr-defined]
        await engine.close()

    asyncio.run(story())
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o700
    assert modes == ([0o700, 0o700] if scheme == "rocksdb" else [])
    assert sorted(one.name for one in tmp_path.iterdir()) == ["copy", "kv"], "nothing is left over"


@pytest.mark.parametrize("scheme", ["lmdb", "rocksdb"])
@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("copy", "absolute"),
        ("", "absolute"),
        ("{tmp}/a\0b", "zero byte"),
        ("{tmp}/\ud800", "encoded"),
        ("{tmp}/kv", "outside"),
        ("{tmp}/kv/copy", "outside"),
        ("{tmp}/elsewhere/../kv/copy", "outside"),
        ("{tmp}/link/copy", "outside"),
        ("/", "empty"),
    ],
)
def test_a_backup_goes_where_it_can_only_be_meant_to_go(
    scheme: str, folder: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "kv")

    async def story() -> None:
        engine = open_engine(f"{scheme}:{tmp_path}/kv")
        with pytest.raises(BadValue, match=message):
            await engine.backup(folder.replace("{tmp}", str(tmp_path)))  # type: ignore[attr-defined]
        await engine.close()

    asyncio.run(story())


def test_a_drop_that_a_kill_interrupted_is_finished_when_it_is_opened_again(
    tmp_path: Path,
) -> None:
    url = f"lmdb:{tmp_path}/kv"
    program = (
        "import asyncio, os\n"
        "from sluicegate.stores.open_engine import open_engine\n"
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
                txn.put(b"format", b"3")
    else:
        import rocksdict

        db = rocksdict.Rdict(f"{tmp_path}/kv", rocksdict.Options(raw_mode=True))
        db.put(b"\0\0\0\0format", b"2")
        db.close()
    newer = r"format is 3 .* format 2" if scheme == "lmdb" else r"format is 2 .* format 1"
    with pytest.raises(Unavailable, match=newer):
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
    ("url", "message"),
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
def test_a_wrong_url_is_told_with_what_there_is(url: str, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        open_engine(url)
