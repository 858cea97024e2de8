from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.rules import file_watch
from sluicegate.rules.file_watch import TICK_US_MAX, FileWatch
from sluicegate.system import now_us

# Polled by hand, a watch needs no thread and no time.


def watch_of(path: Path, report: Callable[[], None], every_s: float = 1.0) -> FileWatch:
    return FileWatch(lambda: [str(path)], report, every_s=every_s)


def watched(path: Path) -> tuple[FileWatch, list[str]]:
    contents: list[str] = []

    def tell() -> None:
        contents.append(path.read_text() if path.exists() else "gone")

    return watch_of(path, tell), contents


def write_in_place(path: Path, text: str) -> None:
    path.write_text(text)
    # As if some time had passed since the last write, however coarse the file system's clock.
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1_000_000))


def replace(path: Path, text: str) -> None:
    new = path.with_name("new")
    new.write_text(text)
    new.rename(path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text("one")
    return path


def test_a_file_that_stays_as_it_is_is_not_told(file: Path) -> None:
    watch, contents = watched(file)
    assert not any(watch.poll() for _ in range(3))
    file.read_text()
    assert not watch.poll()
    assert contents == []


class Tick:
    """A file system whose clock stands still, and how often a file on it was read."""

    def __init__(self, patch: pytest.MonkeyPatch, at_us: int) -> None:
        self.at_us = at_us
        self.reads = 0
        self._stat, self._digest_of = os.stat, file_watch._digest_of
        patch.setattr(os, "stat", self.stat)
        patch.setattr(file_watch, "_digest_of", self.digest_of)

    def stat(self, path: str, **settings: Any) -> os.stat_result:
        at_ns = self.at_us * 1_000
        times = {"st_mtime_ns": at_ns, "st_ctime_ns": at_ns}
        return os.stat_result(tuple(self._stat(path, **settings)), times)

    def digest_of(self, path: str, status: os.stat_result) -> bytes:
        self.reads += 1
        return self._digest_of(path, status)


def test_a_rewrite_of_equal_size_within_a_tick_is_told(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Tick(monkeypatch, now_us())
    watch, contents = watched(file)
    file.write_text("two")
    assert [watch.poll() for _ in range(3)] == [False, True, False]
    assert contents == ["two"]


def test_a_file_that_was_written_long_ago_is_read_once(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tick = Tick(monkeypatch, now_us() - 2 * TICK_US_MAX)
    watch, contents = watched(file)
    assert not any(watch.poll() for _ in range(3))
    assert tick.reads == 1
    tick.at_us += 1  # and one that was written again, once more
    file.write_text("two")
    assert [watch.poll() for _ in range(3)] == [False, True, False]
    assert tick.reads == 2
    assert contents == ["two"]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    watch, _ = watched(tmp_path / "pipe")
    assert not watch.poll()


def test_a_rename_over_it_is_told_at_once(file: Path) -> None:
    watch, contents = watched(file)
    replace(file, "two")
    assert watch.poll()
    assert not watch.poll()
    assert contents == ["two"]


def test_a_write_in_place_is_told_when_it_has_come_to_rest(file: Path) -> None:
    watch, contents = watched(file)
    write_in_place(file, "")  # truncated
    assert not watch.poll()
    write_in_place(file, "tw")  # half written
    assert not watch.poll()
    write_in_place(file, "two")
    assert not watch.poll()
    assert watch.poll()
    assert not watch.poll()
    assert contents == ["two"]


def test_a_write_that_keeps_size_and_time_is_told(file: Path) -> None:
    watch, contents = watched(file)
    before = file.stat()
    threading.Event().wait(0.02)  # the change of the inode has a clock of its own
    file.write_text("two")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_mtime_ns, file.stat().st_size) == (before.st_mtime_ns, before.st_size)
    assert [watch.poll(), watch.poll()] == [False, True]
    assert contents == ["two"]


def test_a_write_that_is_taken_back_is_told_all_the_same(file: Path) -> None:
    watch, contents = watched(file)
    write_in_place(file, "two")
    assert not watch.poll()
    write_in_place(file, "one")
    assert [watch.poll(), watch.poll()] == [False, True]
    assert contents == ["one"]


def test_deletion_and_return_are_told(file: Path) -> None:
    watch, contents = watched(file)
    file.unlink()
    assert [watch.poll(), watch.poll()] == [True, False]
    file.write_text("back")
    assert [watch.poll(), watch.poll()] == [True, False]
    assert contents == ["gone", "back"]


def test_a_file_that_is_not_there_yet_is_awaited(tmp_path: Path) -> None:
    watch, contents = watched(tmp_path / "later.yaml")
    assert not watch.poll()
    (tmp_path / "later.yaml").write_text("here")
    assert watch.poll()
    assert contents == ["here"]


def test_a_link_turned_elsewhere_is_told(tmp_path: Path) -> None:
    # rules.yaml -> ..data/rules.yaml, ..data -> ..v1; a new version turns ..data by a rename.
    for version in ("one", "two"):
        (tmp_path / f"..{version}").mkdir()
        (tmp_path / f"..{version}" / "rules.yaml").write_text(version)
    (tmp_path / "..data").symlink_to("..one")
    (tmp_path / "rules.yaml").symlink_to("..data/rules.yaml")
    watch, contents = watched(tmp_path / "rules.yaml")
    (tmp_path / "..data_tmp").symlink_to("..two")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert [watch.poll(), watch.poll()] == [True, False]
    assert contents == ["two"]


def test_what_fails_when_told_is_logged_and_told_of_the_next_change(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    contents: list[str] = []

    def tell() -> None:
        contents.append(file.read_text())
        raise RuntimeError("not today")

    watch = watch_of(file, tell)
    with caplog.at_level(logging.ERROR, "sluicegate.rules"):
        for text in ("two", "three"):
            replace(file, text)
            assert watch.poll()
    assert contents == ["two", "three"]
    assert "not today" in caplog.text


def test_a_thread_of_its_own_looks_until_it_is_closed(file: Path) -> None:
    change = threading.Event()
    before = threading.active_count()
    with watch_of(file, change.set, every_s=0.01) as watch:
        assert watch.start() is watch  # once is enough
        assert threading.active_count() == before + 1
        replace(file, "two")
        assert change.wait(60)
    assert threading.active_count() == before
    change.clear()
    replace(file, "three")
    assert not change.wait(0.05)
    watch.close()
    assert watch.start() is watch  # what is closed stays closed
    assert threading.active_count() == before


def test_it_may_be_closed_by_what_it_tells(file: Path) -> None:
    done = threading.Event()

    def close() -> None:
        watch.close()
        done.set()

    watch = watch_of(file, close, every_s=0.01).start()
    replace(file, "two")
    assert done.wait(60)


@pytest.mark.parametrize("every_s", [0, 0.001, -1, 1e9, float("nan")])
def test_the_time_between_looks_is_bounded(file: Path, every_s: float) -> None:
    with pytest.raises(BadValue, match="every_s"):
        watch_of(file, lambda: None, every_s=every_s)


IN_A_CHILD = """
import os, sys, threading
from pathlib import Path
from sluicegate.rules import file_watch
from sluicegate.rules.file_watch import TICK_US_MAX, FileWatch
from sluicegate.system import now_us

file = Path(sys.argv[1])
told = threading.Event()
watch = FileWatch(lambda: [file], told.set, every_s=0.01, survives_fork=True).start()
child = os.fork()
if child == 0:
    new = file.with_name("new")
    new.write_text("two")
    new.rename(file)
    os._exit(0 if told.wait(60) else 1)
ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
sys.exit(ended if told.wait(60) else 2)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_after_a_fork_parent_and_child_both_watch(file: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IN_A_CHILD, str(file)],
        check=False,
        timeout=60,
        capture_output=True,
    )
    assert (ran.returncode, ran.stderr.decode()) == (0, "")
