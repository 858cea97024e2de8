"""The usage file: a damaged file is moved aside, and never stops the service."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

import pytest

from sluicegate.apps.pubsub.usage_file import UsageFile
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.usage import PeriodCount
from sluicegate.policies.quota.usage import SavedUsage

MONTH = 24_000
USAGE = [
    SavedUsage(f"account{number}", PeriodCount(1, 2, 3, 4), PeriodCount(MONTH, 6, 7, 8))
    for number in range(200)
]


def fill(folder: Path) -> Path:
    file = UsageFile(str(folder))
    file.begin(MONTH)
    file.save({0: 17}, USAGE)
    file.close()
    return folder / "usage.sqlite"


def begin(folder: Path) -> tuple[dict[int, int], int]:
    file = UsageFile(str(folder))
    counted, saved = file.begin(MONTH)
    file.save({0: 18}, USAGE[:1])
    file.close()
    return dict(counted), len(saved)


@pytest.mark.parametrize("kind", ["empty", "no database", "cut off", "overwritten"])
def test_damaged_usage_file_is_moved_aside(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = fill(tmp_path)
    assert begin(tmp_path) == ({0: 17}, len(USAGE))
    data = path.read_bytes()
    damaged = {
        "empty": b"",
        "no database": b"x" * 10_000,
        "cut off": data[: len(data) // 2],
        "overwritten": data[:4_096] + b"\xff" * 5_000 + data[9_096:],
    }[kind]
    path.write_bytes(damaged)
    caplog.set_level(logging.ERROR)
    assert begin(tmp_path) == ({}, 0)
    assert begin(tmp_path) == ({0: 18}, 1)
    (aside,) = tmp_path.glob("usage.sqlite.damaged-*")
    assert aside.read_bytes() == damaged
    (line,) = caplog.messages
    assert aside.name in line


def test_locked_usage_file_is_not_moved_aside(tmp_path: Path) -> None:
    path = fill(tmp_path)
    other = sqlite3.connect(path)
    other.execute("pragma locking_mode = exclusive")
    other.execute("begin exclusive")
    with pytest.raises(BadValue, match="locked"):
        UsageFile(str(tmp_path)).begin(MONTH)
    other.close()
    assert not list(tmp_path.glob("*damaged*"))


def test_usage_file_of_other_version_is_refused(tmp_path: Path) -> None:
    path = fill(tmp_path)
    other = sqlite3.connect(path)
    other.execute("pragma user_version = 9")
    other.close()
    with pytest.raises(BadValue, match="version"):
        UsageFile(str(tmp_path)).begin(MONTH)
