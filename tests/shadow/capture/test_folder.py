from __future__ import annotations

import errno
import os
import resource
from hashlib import shake_128
from pathlib import Path

import pytest

from sluicegate.contracts.checks import CheckRequest, Descriptor, MeshRequest
from sluicegate.contracts.errors import BadValue
from sluicegate.shadow.capture import log as capture_log
from sluicegate.shadow.capture.folder import FULL, is_being_written, prune, segments
from sluicegate.shadow.capture.log import CaptureLog, Noted
from sluicegate.shadow.capture.reader import read_capture
from sluicegate.shadow.capture.settings import CaptureSettings
from sluicegate.shadow.query_keys import check_key, mesh_key
from sluicegate.testing import START_US, HandClock
from tests.shadow.capture.world import KEY, segment_files, settings

MB = 1 << 20
HOUR_US = 3_600_000_000


def rows(count: int, *, first: int = 0, users: int = 5) -> list[Noted]:
    return [
        (START_US + n, 0, check_key(CheckRequest(f"user-{n % users}", "/a"), ()))
        for n in range(first, first + count)
    ]


def long_rows(count: int, *, first: int = 0) -> list[Noted]:
    """Rows that hardly pack: some 1,000 bytes each."""
    made: list[Noted] = []
    for n in range(first, first + count):
        value = shake_128(str(n).encode()).hexdigest(1_000)
        made.append((START_US + n, 0, mesh_key(MeshRequest("d", [Descriptor([("blob", value)])]))))
    return made


def test_a_segment_ends_when_it_is_old(tmp_path: Path) -> None:
    clock = HandClock()
    log = CaptureLog(settings(tmp_path, segment_us_max=HOUR_US), KEY, clock=clock)
    log.write(rows(5))
    clock.advance(us=HOUR_US - 1)
    log.write(rows(5, first=5))
    assert len(segment_files(tmp_path)) == 1
    clock.advance(us=1)
    log.tend()
    log.write(rows(5, first=10))
    assert len(segment_files(tmp_path)) == 2
    log.close()
    assert len(read_capture(tmp_path, key=KEY).traffic) == 15


def test_a_segment_ends_before_it_is_too_large(tmp_path: Path) -> None:
    log = CaptureLog(
        settings(tmp_path, segment_bytes_max=MB, plain_names=("blob",)), KEY, clock=HandClock()
    )
    for turn in range(30):
        log.write(long_rows(100, first=turn * 100))
    log.close()
    files = segment_files(tmp_path)
    assert len(files) > 2
    assert all(MB // 2 < path.stat().st_size <= MB for path in files[:-1])
    read = read_capture(tmp_path, key=KEY)
    assert len(read.traffic) == len(read.traffic.queries) == 3_000
    assert log.stats().bytes == sum(path.stat().st_size for path in files)


def test_all_segments_together_stay_below_their_bound_and_the_oldest_go(tmp_path: Path) -> None:
    clock = HandClock()
    capture_settings = settings(
        tmp_path, segment_bytes_max=MB, retain_bytes=3 * MB, plain_names=("blob",)
    )
    log = CaptureLog(capture_settings, KEY, clock=clock)
    most = 0
    for turn in range(60):
        clock.advance(us=1_000)
        log.write(long_rows(100, first=turn * 100))
        most = max(most, sum(path.stat().st_size for path in segment_files(tmp_path)))
    log.close()
    assert 2 * MB < most <= 3 * MB
    captured = read_capture(tmp_path, key=KEY).traffic
    assert captured.at_us[-1] == START_US + 5_999
    assert captured.at_us[0] > START_US + 1_000


def test_what_is_too_old_goes(tmp_path: Path) -> None:
    clock = HandClock()
    capture_settings = settings(tmp_path, segment_us_max=HOUR_US, retain_us=10 * HOUR_US)
    for _ in range(3):
        log = CaptureLog(capture_settings, KEY, clock=clock)
        log.write(rows(5))
        log.close()
        clock.advance(us=HOUR_US)
    clock.advance(us=8 * HOUR_US)
    assert prune(capture_settings, clock.now_us()) == 0
    clock.advance(us=1)
    assert prune(capture_settings, clock.now_us()) == 1
    assert len(segment_files(tmp_path)) == 2


def test_what_is_too_old_goes_though_nothing_comes_any_more(tmp_path: Path) -> None:
    clock = HandClock()
    capture_settings = settings(tmp_path, segment_us_max=HOUR_US, retain_us=10 * HOUR_US)
    log = CaptureLog(capture_settings, KEY, clock=clock)
    log.write(rows(5))
    clock.advance(us=HOUR_US)
    log.tend()
    assert len(segment_files(tmp_path)) == 1
    clock.advance(us=10 * HOUR_US + 1)
    log.tend()
    assert segment_files(tmp_path) == []
    idle = CaptureLog(settings(tmp_path / "none"), KEY, clock=clock)
    idle.tend()
    idle.close()
    assert not (tmp_path / "none").exists()


def test_nobody_takes_away_what_another_is_writing(tmp_path: Path) -> None:
    clock = HandClock()
    capture_settings = settings(tmp_path, segment_bytes_max=MB, retain_bytes=2 * MB)
    first, second, third = (CaptureLog(capture_settings, KEY, clock=clock) for _ in range(3))
    first.write(rows(5))
    second.write(rows(5))
    clock.advance(us=capture_settings.retain_us + 2 * capture_settings.segment_us_max)
    third.write(rows(5))
    assert third.stats().failure == FULL
    assert all(is_being_written(one.path) for one in segments(str(tmp_path)))
    first.close()
    clock.advance(us=capture_settings.retry_us)
    third.write(rows(5))
    assert len(segment_files(tmp_path)) == 2  # that of the first was old, and free to go
    for log in (second, third):
        log.close()
    assert third.stats()[:2] == (5, 5)
    assert read_capture(tmp_path, key=KEY).traffic.lost == 5


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "capture-notes.sgc"
    other.write_text("mine")
    clock = HandClock()
    capture_settings = settings(tmp_path, segment_bytes_max=MB, retain_bytes=MB)
    for _ in range(3):
        log = CaptureLog(capture_settings, KEY, clock=clock)
        log.write(rows(5))
        log.close()
        clock.advance(us=100 * capture_settings.retain_us)
    prune(capture_settings, clock.now_us())
    assert other.read_text() == "mine"
    assert segments(str(tmp_path)) == []


def test_a_disk_that_is_full_is_survived_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HandClock()
    capture_settings = settings(tmp_path)
    log = CaptureLog(capture_settings, KEY, clock=clock)
    log.write(rows(5))

    tries: list[int] = []

    def full(handle: int, data: bytes) -> None:
        tries.append(handle)
        os.write(handle, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(capture_log, "write_all", full)
        log.write(rows(7, first=5))
        clock.advance(us=capture_settings.retry_us - 1)
        log.write(rows(8, first=12))  # not tried again so soon
    assert len(tries) == 1
    assert (log.stats().written, log.stats().lost) == (5, 15)
    assert log.stats().failure == "No space left on device"
    clock.advance(us=1)
    log.write(rows(5, first=20))
    assert (log.stats().written, log.stats().failure) == (10, "")
    log.close()
    read = read_capture(tmp_path, key=KEY)
    assert (len(read.traffic), read.traffic.lost) == (10, 15)
    assert read.segments == 2
    (damage,) = read.damage  # the first could not be ended
    assert "was not ended" in damage


def test_a_real_limit_of_the_system_is_survived(tmp_path: Path) -> None:
    clock = HandClock()
    capture_settings = settings(tmp_path)
    log = CaptureLog(capture_settings, KEY, clock=clock)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        for turn in range(20):
            log.write(rows(1_000, first=turn * 1_000, users=1 << 40))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert log.stats().failure == "File too large"
    clock.advance(us=capture_settings.retry_us)
    log.write(rows(10))
    log.close()
    written, lost = log.stats()[:2]
    read = read_capture(tmp_path, key=KEY)
    assert written + lost == 20_010
    assert (len(read.traffic), read.traffic.lost) == (written, lost)


def test_a_folder_that_cannot_be_made_is_told_and_tried_again(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    clock = HandClock()
    capture_settings = settings(blocked / "capture")
    log = CaptureLog(capture_settings, KEY, clock=clock)
    log.write(rows(5))
    assert log.stats().failure == "Not a directory"
    blocked.unlink()
    clock.advance(us=capture_settings.retry_us)
    log.tend()  # what is missing is told, though nothing else is to be written
    log.close()
    assert read_capture(blocked / "capture", key=KEY).traffic.lost == 5


def test_gaps_that_no_block_can_hold_are_kept(tmp_path: Path) -> None:
    log = CaptureLog(settings(tmp_path), KEY, clock=HandClock())
    instants = [0, 5, 1 << 40, (1 << 40) + 1, 1 << 60]
    log.write(
        [(at_us, 0, check_key(CheckRequest("ann", "/a"), ())) for at_us in reversed(instants)]
    )
    log.close()
    assert list(read_capture(tmp_path, key=KEY).traffic.at_us) == instants


@pytest.mark.parametrize(
    ("field", "value"),
    [("share", -1), ("share", 10_001), ("buffer_max", 0), ("segment_bytes_max", 10),
     ("retain_bytes", MB), ("folder", ""), ("linger_us", 0)],
)  # fmt: skip
def test_a_wrong_setting_is_told_by_its_name(tmp_path: Path, field: str, value: object) -> None:
    with pytest.raises(BadValue, match=f"capture.{field}"):
        CaptureSettings(**{"folder": str(tmp_path), field: value})  # type: ignore[arg-type]
