"""What callers use is kept by the minute, added up over nodes, and forgotten in time."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.telemetry.usage_files import (
    DAY_MINUTES,
    LINE_BYTES_MAX,
    UsageMinute,
    UsageWriter,
    read_usage,
)

AT = 20_000 * DAY_MINUTES


def test_minutes_of_several_nodes_are_added_up(tmp_path: Path) -> None:
    one = UsageWriter(str(tmp_path), "node/1", days=35)
    two = UsageWriter(str(tmp_path), "node 2", days=35)
    one.write(AT, {"shop": UsageMinute(100, 10), "app": UsageMinute(5, 0)})
    two.write(AT, {"shop": UsageMinute(50, 0)})
    two.write(AT + 1, {"shop": UsageMinute(7, 0)})
    usage = read_usage([str(tmp_path)], AT, AT + 2)
    assert usage == {
        "shop": {AT: UsageMinute(150, 10), AT + 1: UsageMinute(7, 0)},
        "app": {AT: UsageMinute(5, 0)},
    }
    assert read_usage([str(tmp_path)], AT + 1, AT + 2) == {"shop": {AT + 1: UsageMinute(7, 0)}}


def test_what_a_crash_has_cut_and_what_is_newer_is_passed_over(tmp_path: Path) -> None:
    UsageWriter(str(tmp_path), "a", days=35).write(AT, {"shop": UsageMinute(1, 0)})
    (file,) = tmp_path.iterdir()
    with open(file, "a") as end:
        end.write('{"v": 2, "minute": 1, "callers": {"shop": [1, 2]}}\n')
        end.write('{"v": 1, "minute": 1, "callers": {"shop": ["1", 2]}}\n')
        end.write(f'{{"v": 1, "minute": {AT}, "callers": {{"shop"')
    assert read_usage([str(tmp_path)], AT, AT + 1) == {"shop": {AT: UsageMinute(1, 0)}}


def test_days_beyond_what_is_kept_are_deleted_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    writer = UsageWriter(str(tmp_path), "a", days=2)
    for day in range(5):
        writer.write(AT + day * DAY_MINUTES, {"shop": UsageMinute(1, 0)})
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "notes.txt",
        "usage-a-20002.jsonl",
        "usage-a-20003.jsonl",
        "usage-a-20004.jsonl",
    ]


def test_a_line_holds_those_who_asked_for_most(tmp_path: Path) -> None:
    writer = UsageWriter(str(tmp_path), "a", days=2, callers_max=2)
    writer.write(AT, {f"c{at}": UsageMinute(at, 0) for at in range(1, 5)})
    assert set(read_usage([str(tmp_path)], AT, AT + 1)) == {"c3", "c4"}


def test_a_folder_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="usage"):
        read_usage([str(tmp_path / "nothing")], 0, 1)


def test_a_minute_of_10_000_callers_of_long_names_is_read_back_whole(tmp_path: Path) -> None:
    callers = {f"tenant-{at:05}.{'ä' * 40}": UsageMinute(100 + at, at) for at in range(10_000)}
    UsageWriter(str(tmp_path), "a", days=35).write(AT, callers)
    (file,) = tmp_path.iterdir()
    assert max(map(len, file.read_bytes().splitlines(keepends=True))) <= LINE_BYTES_MAX
    usage = read_usage([str(tmp_path)], AT, AT + 1)
    assert usage == {name: {AT: one} for name, one in callers.items()}


def test_a_minute_has_so_many_bytes_for_those_who_asked_for_most(tmp_path: Path) -> None:
    writer = UsageWriter(str(tmp_path), "a", days=35, minute_bytes_max=2_000)
    writer.write(AT, {f"c{at:04}": UsageMinute(at, 0) for at in range(1_000)})
    (file,) = tmp_path.iterdir()
    assert 1_900 < file.stat().st_size <= 2_000
    names = set(read_usage([str(tmp_path)], AT, AT + 1))
    assert names == {f"c{at:04}" for at in range(1_000 - len(names), 1_000)}


def test_a_name_that_no_line_can_hold_costs_nobody_else_their_entry(tmp_path: Path) -> None:
    writer = UsageWriter(str(tmp_path), "a", days=35)
    writer.write(AT, {"x" * LINE_BYTES_MAX: UsageMinute(9, 0), "shop": UsageMinute(1, 0)})
    assert read_usage([str(tmp_path)], AT, AT + 1) == {"shop": {AT: UsageMinute(1, 0)}}
