"""The log in files: what is acknowledged is read back, in order, by anybody, after anything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event as Flag
from threading import Thread

import pytest

from sluicegate.contracts.errors import BadValue, DataLoss, Unavailable
from sluicegate.contracts.event_log import Event, EventLog
from sluicegate.stores.event_logs import open_log
from sluicegate.stores.files import segments as segments_module
from sluicegate.stores.files.entries import HEADER_BYTES, Header, pack_entry, parse_header
from sluicegate.stores.files.log import FileLog
from sluicegate.stores.files.segments import name_of
from sluicegate.stores.files.settings import FileLogSettings, parse_url

ROOT = Path(__file__).resolve().parents[3]
DAY_US = 86_400_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "log"


def read_all(url: str, offset: int = 0) -> list[Event]:
    events: list[Event] = []
    with closing(open_log(url).reader(offset)) as reader:
        while not reader.at_end:
            events += reader.read(100, 0)
    return events


def write(url: str, *bodies: str, at_us: int = 1) -> list[int]:
    log = open_log(url)
    promises = [log.append("news", body.encode(), at_us) for body in bodies]
    offsets = [promise.result(60) for promise in promises]
    log.close(1_000_000)
    return offsets


def bodies(url: str, offset: int = 0) -> list[str]:
    return [event.body.decode() for event in read_all(url, offset)]


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


# What is written is read.


def test_what_is_appended_is_read_back_with_all_its_fields(folder: Path) -> None:
    assert write(f"files:{folder}", "a", "b", at_us=7) == [0, 1]
    assert read_all(f"files:{folder}") == [
        Event(0, 7, "news", b"a"),
        Event(1, 7, "news", b"b"),
    ]


def test_a_log_goes_on_where_it_ended_and_is_read_from_anywhere(folder: Path) -> None:
    write(f"files:{folder}", "a", "b")
    assert write(f"files:{folder}", "c") == [2]

    assert bodies(f"files:{folder}") == ["a", "b", "c"]
    assert bodies(f"files:{folder}", 2) == ["c"]
    assert bodies(f"files:{folder}", 3) == []
    assert len(segments(folder)) == 1


def test_a_log_that_nobody_wrote_is_empty_and_is_not_made_by_reading(folder: Path) -> None:
    assert bodies(f"files:{folder}") == []
    assert not folder.exists()


def test_segments_end_at_their_size_and_are_read_as_one_log(folder: Path) -> None:
    url = f"files:{folder}?segment_bytes_max=1024"
    texts = [f"{n} " + "x" * 200 for n in range(40)]
    for text in texts:
        write(url, text)

    assert len(segments(folder)) > 5
    assert max(path.stat().st_size for path in segments(folder)) < 1_024 + 300
    assert bodies(url) == texts
    assert bodies(url, 17) == texts[17:]


def test_the_files_are_for_their_owner_alone_unless_told_otherwise(folder: Path) -> None:
    write(f"files:{folder}/a", "x")
    write(f"files:{folder}/b?file_mode=0640&folder_mode=0750", "x")

    assert {oct(path.stat().st_mode & 0o777) for path in (folder / "a").iterdir()} == {"0o600"}
    assert oct((folder / "a").stat().st_mode & 0o777) == "0o700"
    assert oct(segments(folder / "b")[0].stat().st_mode & 0o777) == "0o640"
    assert oct((folder / "b").stat().st_mode & 0o777) == "0o750"


# Commits.


def test_events_that_come_together_share_a_commit(folder: Path) -> None:
    log = FileLog(FileLogSettings(folder=str(folder), linger_us=50_000))
    promises = [log.append("news", b"x", 1) for _ in range(500)]

    assert [promise.result(60) for promise in promises] == list(range(500))
    assert 1 <= log.commits <= 3
    log.close()


def test_a_promise_is_kept_only_after_the_sync(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, go = Flag(), Flag()
    real = os.fdatasync

    def slow(handle: int) -> None:
        synced.set()
        go.wait(60)
        real(handle)

    monkeypatch.setattr(os, "fdatasync", slow)
    log = FileLog(FileLogSettings(folder=str(folder)))
    promise = log.append("news", b"x", 1)
    assert synced.wait(60)
    assert not promise.done()
    go.set()
    assert promise.result(60) == 0
    log.close(1_000_000)


def test_without_sync_an_event_is_acknowledged_by_the_system(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = FileLog(FileLogSettings(folder=str(folder), sync="system"))
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    log.append("news", b"x", 1).result(60)
    assert synced == []
    log.close(1_000_000)


def test_a_full_queue_breaks_promises_at_once_and_blocks_nobody(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, busy = Flag(), Flag()

    def stuck(handle: int) -> None:
        busy.set()
        go.wait(60)

    monkeypatch.setattr(os, "fdatasync", stuck)
    log = FileLog(FileLogSettings(folder=str(folder), pending_max=3, pending_bytes_max=100))
    under_way = log.append("news", b"x", 1)
    assert busy.wait(60)
    waiting = [log.append("news", b"x", 1) for _ in range(3)]
    too_many = log.append("news", b"x", 1)
    assert "pending_max" in str(too_many.exception(0))
    assert log.pending == 3
    go.set()
    assert [promise.result(60) for promise in [under_way, *waiting]] == [0, 1, 2, 3]
    assert "pending_bytes_max" in str(log.append("news", b"x" * 101, 1).exception(0))
    # What is written waits no more.
    assert [log.append("news", b"x" * 60, 1).result(60) for _ in range(3)] == [4, 5, 6]
    log.close(1_000_000)


def test_a_disk_that_fails_breaks_promises_and_no_offset_is_given_twice(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = FileLog(FileLogSettings(folder=str(folder)))
    assert log.append("news", b"a", 1).result(60) == 0

    def full(handle: int, data: bytes) -> None:
        os.write(handle, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(segments_module, "write_all", full)
        error = log.append("news", b"lost", 1).exception(10)
    assert isinstance(error, Unavailable)
    assert "No space left" in str(error)

    assert log.append("news", b"b", 1).result(60) == 2
    log.close(1_000_000)
    with closing(log.reader()) as reader:
        assert [event.body for event in reader.read(9, 0)] == [b"a", b"b"]
        assert reader.damage == []


def test_a_folder_has_one_writer_and_the_next_may_write_when_it_has_ended(folder: Path) -> None:
    first, second = open_log(f"files:{folder}"), FileLog(FileLogSettings(folder=str(folder)))
    first.append("news", b"a", 1).result(60)

    with pytest.raises(Unavailable, match=f"process {os.getpid()} writes it already"):
        second.begin()
    assert isinstance(second.append("news", b"b", 1).exception(10), Unavailable)
    first.close(1_000_000)
    assert second.append("news", b"b", 1).result(60) == 1
    second.close(1_000_000)


def test_a_closed_log_takes_nothing_and_a_child_of_a_fork_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = FileLog(FileLogSettings(folder=str(folder)))
    monkeypatch.setattr(log, "_pid", os.getpid() + 1)
    assert "fork" in str(log.append("news", b"a", 1).exception(0))
    log.close()
    assert "closed" in str(log.append("news", b"a", 1).exception(0))


# What goes.


def test_the_oldest_segments_go_when_all_are_too_large(folder: Path) -> None:
    url = f"files:{folder}?segment_bytes_max=1024&retain_bytes=4096"
    for n in range(60):
        write(url, f"{n} " + "x" * 300)

    assert sum(path.stat().st_size for path in segments(folder)) < 4_096 + 1_024 + 400
    left = bodies(url)
    assert 5 < len(left) < 20
    assert left[-1].startswith("59 ")


def test_the_oldest_segments_go_when_they_are_too_old(folder: Path) -> None:
    url = f"files:{folder}?segment_bytes_max=1024&retain_s=86400"
    for day in range(10):
        for n in range(6):  # one by one: what is written together may share a segment
            write(url, f"{day}/{n} " + "x" * 400, at_us=day * DAY_US)

    days = {int(text.partition("/")[0]) for text in bodies(url)}
    assert 9 in days
    assert min(days) >= 7


def test_a_follower_whose_segments_went_is_told_so(folder: Path) -> None:
    url = f"files:{folder}?segment_bytes_max=1024&retain_bytes=2048"
    write(url, "first")
    with closing(open_log(url).reader()) as reader:
        assert [event.body for event in reader.read(9, 0)] == [b"first"]
        for n in range(30):
            write(url, f"{n} " + "x" * 400)
        events = [*reader.read(100, 0)]
        while not reader.at_end:
            events += reader.read(100, 0)
        assert events[-1].body.startswith(b"29 ")
        assert "gone" in str(reader.damage[0])


# What is torn, and what is damaged.


def test_a_torn_tail_is_cut_when_the_log_is_opened_again(folder: Path) -> None:
    write(f"files:{folder}", "a", "b")
    (segment,) = segments(folder)
    whole = segment.read_bytes()
    for cut in range(1, 12):
        segment.write_bytes(whole + whole[HEADER_BYTES : HEADER_BYTES + cut])
        assert bodies(f"files:{folder}") == ["a", "b"]
        assert write(f"files:{folder}", "c") == [2]
        with closing(open_log(f"files:{folder}").reader()) as reader:
            assert [event.body for event in reader.read(9, 0)] == [b"a", b"b", b"c"]
            assert not reader.damage


def test_an_entry_that_is_being_written_is_waited_for_and_is_no_damage(folder: Path) -> None:
    write(f"files:{folder}", "a")
    (segment,) = segments(folder)
    head = parse_header(segment.read_bytes())
    assert isinstance(head, Header)
    whole = pack_entry(head.salt, 1, 5, b"news", b"b" * 50)
    with closing(open_log(f"files:{folder}").reader()) as reader:
        assert [event.body for event in reader.read(9, 0)] == [b"a"]
        for part in (whole[:3], whole[3:10], whole[10:60]):
            with segment.open("ab") as file:
                file.write(part)
            assert reader.read(9, 0) == []
            assert reader.at_end
        with segment.open("ab") as file:
            file.write(whole[60:])
        assert reader.read(9, 0) == [Event(1, 5, "news", b"b" * 50)]
        assert not reader.damage


def test_nothing_of_a_torn_tail_is_left_behind_what_is_written_next(folder: Path) -> None:
    write(f"files:{folder}", "a")
    (segment,) = segments(folder)
    one = segment.stat().st_size - HEADER_BYTES
    with segment.open("ab") as file:
        file.write(segment.read_bytes()[HEADER_BYTES : HEADER_BYTES + 4] + b"\0\0\7\0" + bytes(500))

    write(f"files:{folder}", "b")
    assert segment.stat().st_size == HEADER_BYTES + 2 * one


@pytest.mark.parametrize("size", [0, HEADER_BYTES - 1])
def test_emptied_segment_is_no_new_log(size: int, folder: Path) -> None:
    write(f"files:{folder}", "a")
    path = folder / name_of(0)
    path.write_bytes(path.read_bytes()[:size])
    log = open_log(f"files:{folder}")
    with pytest.raises(DataLoss, match=r"emptied or cut off; restore it .* or delete it"):
        log.append("k", b"b", 1).result(60)
    log.close()
    assert path.stat().st_size == size


def test_segment_whose_making_was_cut_off_is_made_again(folder: Path) -> None:
    folder.mkdir()
    (folder / name_of(0)).with_suffix(".new").write_bytes(b"headg")

    assert bodies(f"files:{folder}") == []
    assert write(f"files:{folder}", "a") == [0]
    assert bodies(f"files:{folder}") == ["a"]
    assert segments(folder) == [folder / name_of(0)]


def damaged(folder: Path, at: int) -> Path:
    url = f"files:{folder}?segment_bytes_max=1024"
    for n in range(12):
        write(url, f"{n} " + "x" * 200)
    segment = segments(folder)[1]
    data = bytearray(segment.read_bytes())
    data[at] ^= 0xFF
    segment.write_bytes(data)
    return segment


@pytest.mark.parametrize("at", [HEADER_BYTES + 300, HEADER_BYTES + 240 + 5, HEADER_BYTES + 240])
def test_damage_in_the_middle_is_reported_with_its_place_and_reading_goes_on(
    folder: Path, at: int
) -> None:
    segment = damaged(folder, at)
    with closing(open_log(f"files:{folder}").reader()) as reader:
        events: list[Event] = []
        while not reader.at_end:
            events += reader.read(100, 0)

        (damage,) = reader.damage
        lost = set(range(12)) - {event.offset for event in events}
        assert damage.where == str(segment)
        assert lost == {damage.offset}
        assert HEADER_BYTES < damage.at <= at


def test_damage_ends_the_reading_where_that_is_set(folder: Path) -> None:
    damaged(folder, HEADER_BYTES + 300)

    with closing(open_log(f"files:{folder}?damage=stop").reader()) as reader:
        for _ in range(2):
            with pytest.raises(Unavailable, match="damage=skip reads on"):
                reader.read(100, 0)


def test_a_segment_whose_header_is_damaged_is_passed_over_and_never_written_on(
    folder: Path,
) -> None:
    write(f"files:{folder}", "a", "b")
    (segment,) = segments(folder)
    data = bytearray(segment.read_bytes())
    data[3] ^= 1
    segment.write_bytes(data)

    (offset,) = write(f"files:{folder}", "c")
    assert offset > 1
    assert segment.read_bytes() == data
    assert bodies(f"files:{folder}") == ["c"]


def test_damage_before_good_entries_is_not_taken_for_a_torn_tail(folder: Path) -> None:
    write(f"files:{folder}", "a", "b", "c")
    (segment,) = segments(folder)
    data = bytearray(segment.read_bytes())
    data[HEADER_BYTES + 5] ^= 1
    segment.write_bytes(data)

    assert write(f"files:{folder}", "d") == [3]
    assert bodies(f"files:{folder}") == ["b", "c", "d"]


# Several at once.


def test_readers_follow_a_writer_from_segment_to_segment(folder: Path) -> None:
    url = f"files:{folder}?segment_bytes_max=2048&sync=system&poll_ms=1"
    count, batches = 1_500, list[list[Event]]()

    def follow() -> None:
        events: list[Event] = []
        with closing(open_log(url).reader()) as reader:
            while len(events) < count:
                found = reader.read(100, 5_000_000)
                if not found:
                    break
                events += found
            assert not reader.damage
        batches.append(events)

    readers = [Thread(target=follow) for _ in range(3)]
    for reader in readers:
        reader.start()
    log = open_log(url)
    expected = [f"{n} ".encode() + b"y" * (n * 31 % 700) for n in range(count)]
    promises = []
    for at, body in enumerate(expected):
        promises.append(log.append("news", body, at))
        if at % 7 == 0:
            promises[-1].result(60)
    for reader in readers:
        reader.join(60)
    log.close(1_000_000)

    assert len(batches) == 3
    for events in batches:
        assert [event.body for event in events] == expected
        assert [event.offset for event in events] == list(range(count))


def test_a_reader_waits_for_what_comes_and_is_woken_when_closed(folder: Path) -> None:
    log: EventLog = open_log(f"files:{folder}?poll_ms=5")
    reader = log.reader()
    assert reader.read(9, 10_000) == []
    waits = Thread(target=lambda: log.append("news", b"late", 1).result(60))
    waits.start()
    assert [event.body for event in reader.read(9, 10_000_000)] == [b"late"]
    waits.join()
    reader.close()
    with pytest.raises(Unavailable, match="closed"):
        reader.read(1, 0)
    log.close(1_000_000)


def killed_writer(url: str, name: str, lines: int) -> Iterator[tuple[int, str]]:
    """What a child acknowledged before it was killed in the middle of its work."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.stores.files.writer", url, name],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )
    assert child.stdout is not None
    for number, line in enumerate(child.stdout):
        if number == lines:
            child.send_signal(signal.SIGKILL)
        if line.endswith("\n"):
            offset, _, text = line.strip().partition(" ")
            yield int(offset), text
    child.wait(60)
    child.stdout.close()


def test_nothing_acknowledged_is_lost_and_nothing_invented_when_writers_are_killed(
    folder: Path,
) -> None:
    url = f"files:{folder}?segment_bytes_max=30000"
    acknowledged: dict[int, str] = {}
    for round_ in range(6):
        acknowledged.update(killed_writer(url, f"child-{round_}", 50 + round_ * 173))

    events = {event.offset: event for event in read_all(url)}
    read = {offset: " ".join(one.body.decode().split()[:2]) for offset, one in events.items()}

    assert len(acknowledged) > 1_000
    assert {offset: read.get(offset) for offset in acknowledged} == acknowledged
    assert len(set(read.values())) == len(read)
    for event in events.values():
        assert len(event.body.split()[-1]) in {event.at_us * 37 % 900, len(str(event.at_us))}


# Settings.


def test_a_url_says_every_setting() -> None:
    settings = parse_url(
        "files:/var/x?sync=system&linger_ms=2.5&pending_max=5&pending_bytes_max=6&damage=stop"
        "&segment_bytes_max=2000&retain_bytes=3000&retain_s=60&file_mode=0640&folder_mode=750"
        "&poll_ms=20"
    )

    assert settings == FileLogSettings(
        folder="/var/x",
        sync="system",
        linger_us=2_500,
        pending_max=5,
        pending_bytes_max=6,
        segment_bytes_max=2_000,
        retain_bytes=3_000,
        retain_us=60_000_000,
        file_mode=0o640,
        folder_mode=0o750,
        damage="stop",
        poll_us=20_000,
    )
    assert parse_url("files:///var/a%20b").folder == "/var/a b"
    assert parse_url("files:dlq").folder == "dlq"


@pytest.mark.parametrize(
    "url",
    [
        "files:",
        "files:x?sync=never",
        "files:x?damage=hide",
        "files:x?colour=red",
        "files:x?poll_ms=soon",
        "files:x?pending_max=0",
        "files:x?sync",
        "file:x",
        "mongodb://x",
    ],
)
def test_a_url_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(BadValue):
        open_log(url)
