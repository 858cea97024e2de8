"""Temporary folder: it goes with its owner, however that ends, and never before."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sluicegate.service.temporary_folder import YOUNG_S, temporary_folder

OWNER = """
import sys, tempfile
from sluicegate.service.temporary_folder import temporary_folder
with temporary_folder("kind") as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def age(folder: Path) -> None:
    """Have it be older than what is left alone."""
    before = folder.stat().st_mtime - 2 * YOUNG_S
    os.utime(folder, (before, before))


def make_another() -> None:
    with temporary_folder("kind"):
        pass


def test_it_goes_with_the_block_also_if_that_fails(place: Path) -> None:
    with temporary_folder("kind") as folder:
        (folder / "file").write_text("x")
        assert folder.name.startswith("sluicegate-kind-")
        assert folder.stat().st_mode & 0o777 == 0o700
    with pytest.raises(ValueError), temporary_folder("kind"):  # noqa: PT011
        raise ValueError
    assert list(place.iterdir()) == []


def test_that_of_an_owner_who_was_killed_goes_with_the_next_and_of_one_who_lives_does_not() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        age(folder)
        make_another()
        assert folder.is_dir()
        owner.kill()
        owner.wait()
    make_another()
    assert not folder.exists()


def abandoned(place: Path, name: str) -> Path:
    folder = place / name
    folder.mkdir()
    (folder / ".lock").touch()
    return folder


def test_what_is_young_of_another_kind_or_no_folder_of_ours_is_left_alone(place: Path) -> None:
    young = abandoned(place, "sluicegate-kind-young")
    other = abandoned(place, "sluicegate-other-x")
    age(other)
    bare = place / "sluicegate-kind-bare"  # has no lock: whose it is nobody knows
    bare.mkdir()
    age(bare)
    target = abandoned(place, "precious")
    age(target)
    (place / "sluicegate-kind-link").symlink_to(target)
    gone = abandoned(place, "sluicegate-kind-gone")
    age(gone)
    make_another()
    assert not gone.exists()
    assert all(one.is_dir() for one in (young, other, bare, target))
