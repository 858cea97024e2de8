from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluicegate.contracts.checks import CheckRequest, Descriptor, MeshRequest
from sluicegate.rules.resources.priorities import Priorities, PriorityNames
from sluicegate.shadow.capture.key import read_key
from sluicegate.shadow.capture.reader import read_capture
from sluicegate.shadow.capture.recorder import (
    HEADER_BYTES_MAX,
    QUERY_CHARS_MAX,
    Capture,
    CaptureStats,
)
from sluicegate.shadow.redaction import Vocabulary
from sluicegate.testing import START_US, HandClock
from tests.shadow.capture.world import settings, unpacked

ASK = CheckRequest("ann", "/a", headers={"x-client-type": "tv", "cookie": "c-is-for-cookie"})


def made(folder: Path, **options: object) -> Capture:
    return Capture(settings(folder, **options), clock=HandClock())


@contextmanager
def disk_held(folder: Path) -> Iterator[None]:
    """Keep the thread from writing."""
    folder.mkdir(mode=0o700)
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def check_sums(stats: CaptureStats) -> None:
    assert stats.kept == stats.written + stats.waiting + stats.lost_full + stats.lost_disk


def test_what_is_noted_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "capture"
    capture = made(folder)
    for n in range(1_000):
        capture.note_check(ASK, START_US + n, n % 10 == 0)
    mesh = MeshRequest("shop", [Descriptor([("tenant", "acme")])], 3)
    capture.note_mesh(mesh, START_US + 2_000, refused=True)
    stats = capture.close()
    assert (stats.noted, stats.kept, stats.written, stats.waiting) == (1_001, 1_001, 1_001, 0)
    assert (stats.segments, stats.failure) == (1, "")
    assert stats.as_state()["bytes"] == stats.bytes > 0
    check_sums(stats)
    words = Vocabulary(["ann", "a", "tv", "acme"], key=read_key(f"{folder}.key"))
    captured = read_capture(folder, vocabulary=words).traffic
    assert list(captured.at_us) == [*[START_US + n for n in range(1_000)], START_US + 2_000]
    assert list(captured.outcomes).count(1) == 101
    first, last = captured.queries
    assert isinstance(first, CheckRequest)
    assert (first.user_id, first.resource_path) == ("ann", "/a")
    assert first.headers == {"x-client-type": "tv"}
    assert isinstance(last, MeshRequest)
    assert (last.domain, last.cost) == ("shop", 3)
    assert captured.entities == ["ann", "shop/tenant=acme"]
    assert b"c-is-for-cookie" not in unpacked(folder)


def test_headers_of_rules_are_kept_except_secrets(tmp_path: Path) -> None:
    folder = tmp_path / "capture"
    capture = made(folder)
    capture.follow_rules([Priorities(PriorityNames(header="x-kind"), None, "cookie")])
    capture.note_check(
        CheckRequest("ann", "/a", headers={**ASK.headers, "x-kind": "buy", "x-other": "7"}),
        START_US,
        refused=False,
    )
    capture.close()
    words = Vocabulary(["buy", "tv"], key=read_key(f"{folder}.key"))
    (query,) = read_capture(folder, vocabulary=words).traffic.queries
    assert isinstance(query, CheckRequest)
    assert query.headers == {"x-client-type": "tv", "x-kind": "buy"}


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("x" * HEADER_BYTES_MAX, True),
        ("x" * (HEADER_BYTES_MAX + 1), False),
        ("\u20ac" * (HEADER_BYTES_MAX // 3), True),
        ("\u20ac" * (HEADER_BYTES_MAX // 3 + 1), False),
    ],
)
def test_header_value_beyond_its_bytes_is_left_out(value: str, kept: bool, tmp_path: Path) -> None:
    folder = tmp_path / "capture"
    capture = made(folder)
    query = CheckRequest("ann", "/a", headers={"x-client-type": value})
    capture.note_check(query, START_US, refused=False)
    capture.close()
    (read,) = read_capture(folder, key=read_key(f"{folder}.key")).traffic.queries
    assert isinstance(read, CheckRequest)
    assert len(read.headers) == kept


def test_of_an_entity_there_is_everything_or_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "capture"
    capture = made(folder, share=3_000)
    users = [f"user-{n}" for n in range(300)]
    for n in range(3):
        for user in users:
            capture.note_check(CheckRequest(user, f"/{n}"), START_US, refused=False)
    stats = capture.close()
    captured = read_capture(folder, key=read_key(f"{folder}.key")).traffic
    assert stats.noted == 900
    assert captured.share == 3_000
    assert 50 < len(set(captured.entities)) < 130
    assert len(captured) == 3 * len(set(captured.entities)) == stats.written


def test_of_what_a_mesh_singles_out_there_is_everything_or_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "capture"
    capture = made(folder, share=3_000, mesh_keys=("tenant",))
    for n in range(3):
        for tenant in range(300):
            pairs = [("path", f"/{n}"), ("tenant", f"tenant-{tenant}")]
            capture.note_mesh(MeshRequest("d", [Descriptor(pairs)]), START_US, refused=False)
    stats = capture.close()
    captured = read_capture(folder, key=read_key(f"{folder}.key")).traffic
    assert 50 < len(set(captured.entities)) < 130
    assert len(captured) == 3 * len(set(captured.entities)) == stats.written < stats.noted


def test_two_captures_with_one_key_draw_the_same_entities(tmp_path: Path) -> None:
    drawn: list[set[str]] = []
    for name in ("a", "b"):
        capture = made(tmp_path / name, share=5_000, key_file=str(tmp_path / "key"))
        for n in range(100):
            capture.note_check(CheckRequest(f"user-{n}", "/"), START_US, refused=False)
        capture.close()
        words = read_capture(tmp_path / name, key=read_key(str(tmp_path / "key")))
        drawn.append(set(words.traffic.entities))
    assert drawn[0] == drawn[1]
    assert 30 < len(drawn[0]) < 70


def test_a_full_buffer_loses_and_the_file_tells(tmp_path: Path) -> None:
    folder = tmp_path / "capture"
    with disk_held(folder):
        capture = made(folder, buffer_max=3)
        for n in range(10):
            capture.note_check(ASK, START_US + n, refused=False)
        stats = capture.stats()
        assert (stats.kept, stats.waiting, stats.lost_full) == (10, 3, 7)
        check_sums(stats)
    stats = capture.close()
    assert (stats.written, stats.waiting, stats.lost_full) == (3, 0, 7)
    read = read_capture(folder, key=read_key(f"{folder}.key"))
    assert (len(read.traffic), read.traffic.lost, read.damage) == (3, 7, ())


def test_text_in_the_buffer_is_bounded_too(tmp_path: Path) -> None:
    folder = tmp_path / "capture"
    with disk_held(folder):
        capture = made(folder, buffer_bytes_max=5_000)
        for n in range(10):
            capture.note_check(CheckRequest("u" * 1_000, "/" * 1_000), START_US + n, refused=False)
        assert (capture.stats().waiting, capture.stats().lost_full) == (2, 8)
    capture.close()


def test_an_ask_of_unreasonable_length_is_lost(tmp_path: Path) -> None:
    capture = made(tmp_path / "capture")
    pairs = [("key", "v" * QUERY_CHARS_MAX)]
    capture.note_mesh(MeshRequest("d", [Descriptor(pairs)]), START_US, refused=False)
    assert capture.close().lost_full == 1


def test_asks_that_are_all_secret_are_withheld(tmp_path: Path) -> None:
    folder = tmp_path / "capture"
    capture = made(folder)
    secret, plain = Descriptor([("api_key", "s"), ("a", "b")]), Descriptor([("tenant", "t")])
    capture.note_mesh(MeshRequest("d", [secret]), START_US, refused=False)
    capture.note_mesh(MeshRequest("d", [secret, plain]), START_US, refused=False)
    stats = capture.close()
    assert (stats.noted, stats.kept, stats.withheld, stats.written) == (2, 1, 2, 1)
    read = read_capture(folder, key=read_key(f"{folder}.key"))
    assert (read.withheld, read.traffic.lost, len(read.traffic)) == (2, 0, 1)


def test_what_comes_after_the_end_is_lost_and_harms_nobody(tmp_path: Path) -> None:
    capture = made(tmp_path / "capture")
    capture.note_check(ASK, START_US, refused=False)
    capture.close()
    capture.note_check(ASK, START_US, refused=False)
    stats = capture.close()
    assert (stats.written, stats.lost_full) == (1, 1)
    check_sums(stats)


def test_a_request_that_cannot_be_written_is_lost_alone(tmp_path: Path) -> None:
    capture = made(tmp_path / "capture")
    capture.note_check(ASK, START_US, refused=False)
    capture.note_check(CheckRequest("ann", "/", cost=-1), START_US, refused=False)
    capture.note_check(ASK, 1 << 80, refused=False)
    capture.note_check(ASK, START_US + 1, refused=False)
    stats = capture.close()
    assert (stats.written, stats.lost_disk, stats.failure) == (2, 2, "")
    check_sums(stats)


def test_nothing_is_kept_with_a_share_of_nothing(tmp_path: Path) -> None:
    capture = made(tmp_path / "capture", share=0)
    capture.note_check(ASK, START_US, refused=False)
    stats = capture.close()
    assert (stats.noted, stats.kept, stats.segments) == (1, 0, 0)


def test_threads_may_note_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "capture"
    capture = made(folder)

    def note() -> None:
        for n in range(500):
            capture.note_check(ASK, START_US + n, refused=False)

    threads = [threading.Thread(target=note) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = capture.close()
    assert (stats.kept, stats.written) == (2_000, 2_000)
    captured = read_capture(folder, key=read_key(f"{folder}.key")).traffic
    assert list(captured.at_us) == [START_US + n // 4 for n in range(2_000)]


WORKER = """
import sys
from sluicegate.contracts.checks import CheckRequest
from sluicegate.shadow.capture.recorder import Capture
from sluicegate.shadow.capture.settings import CaptureSettings
from sluicegate.system import SystemClock, now_us

settings = CaptureSettings(folder=sys.argv[1], share=10_000, linger_us=1_000)
capture = Capture(settings, clock=SystemClock())
for n in range(500):
    capture.note_check(CheckRequest(f"user-{n % 9}", "/a"), now_us(), False)
while capture.stats().written < 500:
    pass
print("written", flush=True)
if sys.argv[2] == "stay":
    sys.stdin.read()
capture.close()
"""


def worker(folder: Path, word: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(folder), word],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_several_processes_write_into_one_folder_and_a_kill_loses_nothing_written(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "capture"
    workers = [worker(folder, "stay"), worker(folder, "go"), worker(folder, "go")]
    for one in workers:
        assert one.stdout is not None
        assert one.stdout.readline() == "written\n"
    workers[0].send_signal(signal.SIGKILL)
    for one in workers:
        one.communicate()
    read = read_capture(folder, key=read_key(f"{folder}.key"))
    assert (len(read.traffic), read.segments, read.traffic.lost) == (1_500, 3, 0)
    (damage,) = read.damage
    assert f"-{workers[0].pid}-" in damage
    assert "was not ended" in damage


@pytest.mark.parametrize("mask", [0o000, 0o077, 0o777])
def test_only_the_owner_may_read_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    folder = tmp_path / "capture"
    before = os.umask(mask)
    try:
        capture = made(folder)
        capture.note_check(ASK, START_US, refused=False)
        capture.close()
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert len(modes) == 2
    assert set(modes.values()) == {0o600}
    assert (tmp_path / "capture.key").stat().st_mode & 0o777 == 0o600
