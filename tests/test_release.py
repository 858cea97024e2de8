"""The release check finds what must not be released; `make release-check` takes the real files."""

from __future__ import annotations

import io
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from sluicegate import __version__
from tests.release import NEEDED, faults_of, is_for, main, try_install


def dist(folder: Path, *, version: str = __version__, more: str = "", without: str = "") -> Path:
    """A wheel and an archive by hand."""
    name = f"sluicegate-{version}"
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as wheel:
        for file in ("sluicegate/__init__.py", f"{name}.dist-info/METADATA", more):
            if file:
                wheel.writestr(file, "")
    with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as archive:
        for file in NEEDED:
            if file != without:
                archive.addfile(tarfile.TarInfo(f"{name}/{file}"), io.BytesIO())
    return folder


def test_files_as_they_should_be_have_no_fault(tmp_path: Path) -> None:
    assert list(faults_of(dist(tmp_path))) == []


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"version": "9.9.9"}, "is not of version"),
        ({"more": "tests/test_x.py"}, "has tests, which is not ours to install"),
        ({"without": "LICENSE"}, "has no LICENSE"),
    ],
)
def test_a_fault_is_named(tmp_path: Path, changes: dict[str, str], fault: str) -> None:
    assert any(fault in one for one in faults_of(dist(tmp_path, **changes)))


def test_nothing_to_release_is_a_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(tmp_path, [sys.executable]) == 1
    assert "0 wheels and 0 archives; make wheel makes both" in capsys.readouterr().err


def test_a_python_that_does_not_start_is_a_fault(tmp_path: Path) -> None:
    assert "false" in try_install(dist(tmp_path) / "none.whl", "false")


def test_a_wheel_is_for_its_own_python() -> None:
    own = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    assert is_for(Path(f"sluicegate-1-{own}-{own}-linux_x86_64.whl"), sys.executable)
    assert not is_for(Path("sluicegate-1-cp39-cp39-linux_x86_64.whl"), sys.executable)
    assert is_for(Path("sluicegate-1.tar.gz"), sys.executable)
