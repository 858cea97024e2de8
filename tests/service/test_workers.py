from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sluicegate.service.workers import run_workers

# A process of its own, for it forks.
SEVERAL = """
import os, sys
from pathlib import Path
from sluicegate.service.workers import run_workers

parent, notes = os.getpid(), Path(sys.argv[1])

def serve(folder, worker, ready):
    mode = os.stat(folder).st_mode & 0o777
    note = notes / f"{worker}.part"
    note.write_text(f"{folder} {mode:o} {os.getpid() != parent}")
    note.rename(notes / str(worker))  # whole or not at all, for the other one's end ends this one
    ready("all are ready")
    return 1  # one that ends before all are ready ends them all

sys.exit(run_workers("thing", 2, serve))
"""


def test_one_worker_is_this_process_and_finds_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    def serve(folder: str, worker: int, ready: Callable[[str], None]) -> int:
        ready("it is ready")
        assert (folder, worker) == ("", 0)
        return 7

    assert run_workers("thing", 1, serve) == 7
    assert capsys.readouterr().out == "it is ready\n"


def test_several_have_a_private_folder_that_goes_with_them(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", SEVERAL, str(notes)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 1, ended.stderr
    whole = [note.read_text().split() for note in notes.iterdir() if note.suffix != ".part"]
    assert whole, ended.stderr
    for folder, mode, forked in whole:
        assert Path(folder).parent == tmp_path
        assert Path(folder).name.startswith("sluicegate-thing-")
        assert (mode, forked) == ("700", "True")
        assert not Path(folder).exists()
