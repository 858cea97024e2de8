"""Blobs in files: whole or not there after any death, and nothing outside of the folder."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.blob_store import BlobStore
from sluicegate.contracts.errors import BadValue, Conflict, Unavailable
from sluicegate.stores.blob_stores import open_blobs
from sluicegate.stores.blobs import files as files_module
from sluicegate.stores.blobs import files_folders
from sluicegate.stores.blobs.files_folders import LOCK, TEMPORARY
from sluicegate.stores.blobs.files_url import parse_url
from sluicegate.stores.blobs.names import check_bytes, split_name, tag_of
from tests.stores.blobs.conformance import MANY, BlobStoreConformance, value
from tests.stores.blobs.crashes import KINDS, NAME, NEW, OLD
from tests.stores.blobs.races import ROOT, race

HOUR_S = 3_600


class TestFiles(BlobStoreConformance):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"files:{tmp_path}/blobs"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def blobs(folder: Path) -> BlobStore:
    return open_blobs(f"files:{folder}")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the store's, with a secret in it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    return outside


def temporary(folder: Path) -> list[Path]:
    return list(folder.rglob(TEMPORARY + "*"))


def grow_old(path: Path, age_s: int) -> None:
    now = path.lstat().st_mtime
    os.utime(path, (now - age_s, now - age_s), follow_symlinks=False)


# Death.


@pytest.fixture(scope="module")
def fallen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, object]]]:
    """What the processes that were killed left behind, by what they were doing."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.stores.blobs.crashes", str(tmp_path_factory.mktemp("fall"))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    return {kind: [each for each in reports if each["kind"] == kind] for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_killed_before_any_step_it_leaves_the_old_blob_or_the_new_one(
    fallen: dict[str, list[dict[str, object]]], kind: str
) -> None:
    old = OLD if KINDS[kind][0] else None
    new = None if kind == "a delete" else NEW
    whole, *killed = fallen[kind]
    assert len(killed) >= len(whole["calls"])  # type: ignore[arg-type]
    after = []
    for each in killed:
        folder = Path(str(each["folder"]))
        blobs = open_blobs(f"files:{folder}")
        describe = value(blobs, NAME)
        assert describe in (old, new), each
        assert list(blobs.names()) == ([] if describe is None else [NAME]), each
        after.append(describe == new)
        # And who comes next is not held up, by a lock or by what is left over.
        for left in temporary(folder):
            grow_old(left, 2 * HOUR_S)
        blobs.put(NAME, b"next", if_tag=tag_of(describe)) if describe else blobs.put(
            NAME, b"next", if_absent=True
        )
        assert value(blobs, NAME) == b"next", each
        assert temporary(folder) == [], each
    assert after == sorted(after), "once it is there it stays there"
    assert not after[0]
    assert after[-1]


def test_bytes_are_on_the_disk_before_their_name_and_the_name_before_the_answer(
    fallen: dict[str, list[dict[str, object]]],
) -> None:
    for kind, reports in fallen.items():
        calls = [str(call) for call in reports[0]["calls"]]  # type: ignore[attr-defined]
        named = next(
            at for at, call in enumerate(calls) if call in {"link", "rename"} or kind == "a delete"
        )
        if kind == "a delete":
            assert calls[calls.index("unlink") + 1] == "fsync"
            continue
        written = calls.index("write")
        assert "fsync" in calls[written:named], kind
        assert "fsync" in calls[named:], kind
        # Each folder is on the disk before anything is written in it.
        folders = [at for at, call in enumerate(calls) if call == "mkdir"]
        for made, next_made in zip(folders, [*folders[1:], written], strict=True):
            assert "fsync" in calls[made:next_made], kind


def test_who_is_told_of_a_conflict_finds_the_other_on_the_disk(
    blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag = blobs.put("a", b"one")
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with pytest.raises(Conflict):
        blobs.put("a", b"two", if_absent=True)
    assert len(synced) == 1
    with pytest.raises(Conflict):
        blobs.put("a", b"two", if_tag=tag[::-1])
    assert len(synced) == 3  # of its own bytes too, for it compares last


def test_what_a_killed_writer_left_is_swept_when_it_is_old_and_nothing_else_is(
    folder: Path, blobs: BlobStore
) -> None:
    blobs.put("a/b", b"x")
    old, young = folder / "a" / f"{TEMPORARY}old", folder / "a" / f"{TEMPORARY}young"
    foreign, link = folder / "a" / ".foreign", folder / "a" / f"{TEMPORARY}link"
    for path in (old, young, foreign):
        path.write_bytes(b"half")
    link.symlink_to(foreign)
    for path in (old, foreign, link, folder / "a" / "b"):
        grow_old(path, HOUR_S + 60)
    grow_old(young, HOUR_S - 60)
    open_blobs(f"files:{folder}").put("a/c", b"x")
    assert {path.name for path in (folder / "a").iterdir()} == {
        "b",
        "c",
        young.name,
        foreign.name,
        link.name,
    }


def test_a_store_that_is_open_for_long_sweeps_now_and_then(
    folder: Path, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "PUTS_BETWEEN_SWEEPS", 5)
    blobs.put("a", b"x")
    old = folder / f"{TEMPORARY}old"
    old.write_bytes(b"half")
    grow_old(old, 2 * HOUR_S)
    for _ in range(3):
        blobs.put("a", b"x")
    assert old.exists()
    blobs.put("a", b"x")
    assert not old.exists()


# One winner, among processes too.


def test_processes_that_race_lose_nothing(folder: Path) -> None:
    race(f"files:{folder}", 40)


def test_a_writer_that_is_stuck_holds_others_up_for_a_time_only(
    folder: Path, blobs: BlobStore
) -> None:
    tag = blobs.put("a", b"one")
    with (folder / LOCK).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        hasty = open_blobs(f"files:{folder}?lock_ms=20")
        for ask in (
            lambda: hasty.put("a", b"two"),
            lambda: hasty.put("a", b"two", if_tag=tag),
            lambda: hasty.delete("a"),
        ):
            with pytest.raises(Unavailable, match="held its lock for 20 ms"):
                ask()
        assert hasty.put("b", b"two", if_absent=True)  # the kernel decides, with no lock
        assert value(hasty, "a") == b"one"
    assert temporary(folder) == []
    assert hasty.put("a", b"two", if_tag=tag)


def test_a_lock_that_comes_free_is_taken_by_who_waits(folder: Path, blobs: BlobStore) -> None:
    blobs.put("a", b"one")
    lock = os.open(folder / LOCK, os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(blobs.put, "a", b"two")
        with pytest.raises(TimeoutError):
            writing.result(0.02)
        os.close(lock)
        writing.result(60)
    assert value(blobs, "a") == b"two"


def test_a_folder_that_is_removed_under_a_writer_is_made_again(
    folder: Path, blobs: BlobStore
) -> None:
    blobs.put("a/b", b"one")
    (folder / "a" / "b").unlink()
    (folder / "a").rmdir()
    blobs.put("a/b", b"two")
    assert value(blobs, "a/b") == b"two"


def test_a_part_that_is_swept_from_under_a_slow_writer_is_written_again(
    folder: Path, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept = 0

    def swept_once(*_: object) -> None:
        nonlocal swept
        if not swept:
            for path in temporary(folder):
                path.unlink()
                swept += 1

    monkeypatch.setattr(files_module, "sweep", swept_once)
    blobs.put("a", b"one")
    assert swept == 1
    assert value(blobs, "a") == b"one"


def test_a_folder_that_is_removed_again_and_again_ends_in_an_error(
    folder: Path, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swept_always(*_: object) -> None:
        for path in temporary(folder):
            path.unlink()

    monkeypatch.setattr(files_module, "sweep", swept_always)
    with pytest.raises(Unavailable, match="removed 5 times"):
        blobs.put("a", b"one")


def test_an_empty_folder_gives_way_to_a_blob(folder: Path, blobs: BlobStore) -> None:
    blobs.put("a/b/c", b"one")
    blobs.delete("a/b/c")
    with pytest.raises(BadValue, match="folder of other names"):
        blobs.put("a", b"two")  # b is in it, though empty
    blobs.put("a/b", b"two")
    assert list(blobs.names()) == ["a/b"]


# Nothing outside.


def test_a_link_is_neither_read_nor_listed_nor_written_through(
    folder: Path, blobs: BlobStore, outside: Path
) -> None:
    blobs.put("a/b", b"x")
    (folder / "link").symlink_to(outside)
    (folder / "secret").symlink_to(outside / "secret")
    (folder / "nowhere").symlink_to(outside / "nothing")
    (folder / "a" / "up").symlink_to("../..")
    assert list(blobs.names()) == ["a/b"]
    for name in ("link/secret", "secret", "nowhere", "a/up/outside/secret", "link"):
        with pytest.raises(Unavailable, match="symbolic link"):
            blobs.get(name, bytes_max=MANY)
    for name in ("link/new", "link/secret", "a/up/outside/new"):
        for ask in (
            lambda name=name: blobs.put(name, b"x"),
            lambda name=name: blobs.put(name, b"x", if_absent=True),
            lambda name=name: blobs.put(name, b"x", if_tag=tag_of(b"secret")),
            lambda name=name: blobs.delete(name),
            lambda name=name: blobs.names(name.rpartition("/")[0] + "/"),
        ):
            with pytest.raises(Unavailable, match="symbolic link"):
                ask()
    with pytest.raises(Unavailable, match="symbolic link"):
        blobs.put("secret", b"x", if_tag=tag_of(b"secret"))
    with pytest.raises(Conflict):
        blobs.put("nowhere", b"x", if_absent=True)
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"secret": b"secret"}


def test_a_put_takes_the_place_of_a_link_and_a_delete_removes_it_alone(
    folder: Path, blobs: BlobStore, outside: Path
) -> None:
    folder.mkdir()
    for name in ("a", "b"):
        (folder / name).symlink_to(outside / "secret")
    blobs.put("a", b"x")
    blobs.delete("b")
    assert not (folder / "a").is_symlink()
    assert (outside / "secret").read_bytes() == b"secret"
    assert list(blobs.names()) == ["a"]


def test_a_lock_that_is_a_link_is_not_followed(
    folder: Path, blobs: BlobStore, outside: Path
) -> None:
    folder.mkdir()
    (folder / LOCK).symlink_to(outside / "new")
    with pytest.raises(Unavailable):
        blobs.put("a", b"x")
    assert not (outside / "new").exists()


def test_a_pipe_in_the_folder_holds_nobody_up(folder: Path, blobs: BlobStore) -> None:
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    with pytest.raises(Unavailable, match="no ordinary file"):
        blobs.get("pipe", bytes_max=MANY)
    assert list(blobs.names()) == []


def test_the_folder_itself_may_be_a_link(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "link").symlink_to(outside)
    blobs = open_blobs(f"files:{tmp_path}/link")
    blobs.put("a", b"x")
    assert (outside / "a").read_bytes() == b"x"


def test_what_is_not_ours_in_the_folder_is_not_listed(folder: Path, blobs: BlobStore) -> None:
    blobs.put("a", b"x")
    for name in ("notes~", ".hidden", "two words", "ä"):
        (folder / name).write_bytes(b"x")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_bytes(b"x")
    assert list(blobs.names()) == ["a"]


@given(st.text(st.sampled_from("ab./\\\0~"), max_size=8))
def test_no_name_leads_out(name: str) -> None:
    try:
        (good,) = {name for _ in split_name(name)}
    except BadValue:
        return
    assert os.path.normpath(f"/root/{good}") == f"/root/{good}"


# Who may read.


def modes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder.parent)): f"{stat.S_IMODE(path.stat().st_mode):o}"
        for path in [folder, *folder.rglob("*")]
    }


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize(
    ("setting", "file", "inner"),
    [("", "600", "700"), ("?mode=640", "640", "750"), ("?mode=644", "644", "755")],
)
def test_files_and_folders_are_made_for_whom_the_url_says(
    tmp_path: Path, setting: str, file: str, inner: str
) -> None:
    blobs = open_blobs(f"files:{tmp_path}/new/blobs{setting}")
    blobs.put("a/b", b"x")
    blobs.put("a/b", b"y")
    blobs.put("a/c", b"x", if_absent=True)
    assert modes(tmp_path / "new") == {
        "new": inner,
        "new/blobs": inner,
        "new/blobs/a": inner,
        "new/blobs/a/b": file,
        "new/blobs/a/c": file,
        f"new/blobs/{LOCK}": "600",
    }


def test_reading_writes_nothing(folder: Path, blobs: BlobStore) -> None:
    assert blobs.get("a", bytes_max=MANY) is None
    assert list(blobs.names()) == []
    blobs.delete("a")
    assert not folder.exists()


def test_a_relative_folder_stays_where_it_was_when_the_process_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blobs = open_blobs("files:blobs")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    blobs.put("a", b"x")
    assert (tmp_path / "blobs" / "a").read_bytes() == b"x"


# What the disk says.


@pytest.mark.parametrize("call", ["write", "fsync", "link", "rename"])
def test_a_disk_that_fails_is_told_and_leaves_the_old(
    folder: Path, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    blobs.put("a", b"old")

    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, call, full)
        name, if_absent = ("b", True) if call == "link" else ("a", False)
        with pytest.raises(Unavailable, match=f"the blob store in {folder}.*No space left"):
            blobs.put(name, b"new", if_absent=if_absent)
    assert temporary(folder) == []
    assert list(blobs.names()) == ["a"]
    assert value(blobs, "a") == b"old"


def test_a_disk_that_takes_a_few_bytes_at_a_time_gets_them_all(
    blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[[int, memoryview], int] = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, data[:7]))
    blobs.put("a", bytes(range(100)))
    assert value(blobs, "a") == bytes(range(100))


def test_a_file_where_the_folder_should_be_is_an_error_for_all(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        blobs = open_blobs(f"files:{folder}")
        with pytest.raises(Unavailable, match="Not a directory"):
            blobs.get("a", bytes_max=MANY)
        with pytest.raises(Unavailable, match="Not a directory"):
            blobs.put("a", b"x")
        with pytest.raises(Unavailable, match="Not a directory"):
            blobs.names()


def test_a_file_that_grows_while_it_is_read_is_read_no_further_than_asked(
    folder: Path, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs.put("a", b"12345")

    def grow(name: str, size: int, bytes_max: int) -> None:
        check_bytes(name, size, bytes_max)
        (folder / "a").write_bytes(b"1234567890")

    monkeypatch.setattr(files_module, "check_bytes", grow)
    blob = blobs.get("a", bytes_max=6)
    assert blob is not None
    assert len(blob.data) <= 6


# Settings.


def test_a_url_says_everything_there_is_to_set() -> None:
    settings = parse_url("files:///var/x%20y?mode=640&bytes_max=7&lock_ms=1500&sweep_s=90")
    assert settings.folder == "/var/x y"
    assert (settings.mode, settings.folder_mode, settings.bytes_max) == (0o640, 0o750, 7)
    assert (settings.lock_us, settings.sweep_us) == (1_500_000, 90_000_000)
    assert parse_url("files:var/x").folder == "var/x"


@pytest.mark.parametrize(
    "url",
    [
        "files:",
        "files:?mode=600",
        "files:/x?mode",
        "files:/x?mode=666",
        "files:/x?mode=400",
        "files:/x?mode=rw",
        "files:/x?bytes_max=0",
        "files:/x?lock_ms=0",
        "files:/x?sweep_s=1",
        "files:/x?colour=red",
        "files:/x%00y",
        "folder:/x",
        "",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_with_a_remedy(url: str) -> None:
    with pytest.raises(BadValue) as refused:
        open_blobs(url)
    assert refused.value.remedy


def test_a_blob_larger_than_the_store_takes_is_refused(folder: Path) -> None:
    blobs = open_blobs(f"files:{folder}?bytes_max=4")
    blobs.put("a", b"1234")
    with pytest.raises(BadValue, match="5 bytes"):
        blobs.put("a", b"12345")
    assert value(blobs, "a") == b"1234"


def test_the_gap_between_two_tries_for_the_lock_is_bounded() -> None:
    assert 0 < files_folders._GAP_US_MIN <= files_folders._GAP_US_MAX < 100_000
